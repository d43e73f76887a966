#include "solver/checkpoint.hpp"

#include <fmt/format.h>

#include <cstring>

#include "memory/error.hpp"

namespace lsmr {
namespace {

constexpr std::string_view kMagic = "lsmr state 2\n";  // the number changes with the layout of what follows

class Writer {
  public:
    void number(std::uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
    void block(const void* p, std::size_t n) {
        number(n);
        bytes_.append(static_cast<const char*>(p), n);
    }
    void text(const std::string& s) { block(s.data(), s.size()); }
    std::string& bytes() { return bytes_; }

  private:
    std::string bytes_;
};

class Reader {
  public:
    Reader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}
    std::uint64_t number() {
        std::uint64_t value = 0;
        std::memcpy(&value, take(sizeof value).data(), sizeof value);
        return value;
    }
    std::string_view block() { return take(number()); }
    template <class T>
    std::vector<T> values() {
        const std::string_view b = block();
        std::vector<T> v(b.size() / sizeof(T));
        if (!v.empty()) std::memcpy(v.data(), b.data(), v.size() * sizeof(T));
        return v;
    }
    std::string text() { return std::string(block()); }

  private:
    std::string_view take(std::uint64_t n) {
        if (n > bytes_.size()) throw InputError(name_ + ": the saved state is cut short");
        const std::string_view part = bytes_.substr(0, n);
        bytes_.remove_prefix(n);
        return part;
    }
    std::string_view bytes_;
    const std::string& name_;
};

std::uint64_t checksum(std::string_view bytes) {
    Fingerprint f;
    f.add(bytes.data(), static_cast<std::int64_t>(bytes.size()));
    return f.value();
}

}  // namespace

void Fingerprint::add_bytes(const std::byte* p, std::size_t n) {
    const auto mix = [this](std::uint64_t word) {
        hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15U;  // odd, so that no bit is lost; the shift brings high bits down again
        hash_ ^= hash_ >> 29;
    };
    std::size_t at = 0;
    for (; at + 8 <= n; at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, p + at, 8);
        mix(word);
    }
    std::uint64_t rest = 0;
    if (at < n) std::memcpy(&rest, p + at, n - at);
    mix(rest);
    mix(n);
}

std::string checkpoint_bytes(const Checkpoint& c) {
    Writer w;
    w.bytes() = kMagic;
    w.number(c.identity.matrix);
    w.number(c.identity.rhs);
    w.number(c.identity.start);
    w.number(c.identity.settings.size());
    for (const auto& [name, value] : c.identity.settings) {
        w.text(name);
        w.text(value);
    }
    w.number(static_cast<std::uint64_t>(c.iteration));
    w.block(c.position.data(), c.position.size());
    w.block(c.state.data(), c.state.size());
    w.block(c.vectors.data(), c.vectors.size());
    w.block(c.best_x.data(), c.best_x.size() * sizeof(double));
    w.block(c.variances.data(), c.variances.size() * sizeof(double));
    w.number(checksum(w.bytes()));
    return std::move(w.bytes());
}

Checkpoint read_checkpoint(std::string_view bytes, const std::string& name) {
    if (!bytes.starts_with(kMagic)) {
        throw InputError(bytes.starts_with("lsmr state ") ? name + ": the saved state is of another version of this program"
                                                          : name + ": this is no saved state");
    }
    if (bytes.size() < kMagic.size() + 8) throw InputError(name + ": the saved state is cut short");
    const std::string_view content = bytes.substr(0, bytes.size() - 8);
    std::uint64_t sum = 0;
    std::memcpy(&sum, bytes.data() + content.size(), 8);
    if (sum != checksum(content)) throw InputError(name + ": the saved state is damaged: its checksum does not fit");
    Reader r(content.substr(kMagic.size()), name);
    Checkpoint c;
    c.identity.matrix = r.number();
    c.identity.rhs = r.number();
    c.identity.start = r.number();
    const std::uint64_t settings = r.number();
    for (std::uint64_t i = 0; i < settings; ++i) {
        std::string setting = r.text();
        c.identity.settings.emplace_back(std::move(setting), r.text());
    }
    c.iteration = static_cast<std::int64_t>(r.number());
    c.position = r.values<std::byte>();
    c.state = r.values<std::byte>();
    c.vectors = r.values<std::byte>();
    c.best_x = r.values<double>();
    c.variances = r.values<double>();
    return c;
}

void check_identity(const SolveIdentity& saved, const SolveIdentity& now) {
    const auto refuse = [](const std::string& what) { throw InputError("the saved state cannot be gone on with: " + what); };
    for (std::size_t i = 0; i < now.settings.size(); ++i) {
        const auto& [name, value] = now.settings[i];
        if (i >= saved.settings.size() || saved.settings[i].first != name) refuse("it is of another version of this program");
        if (saved.settings[i].second != value) refuse(fmt::format("{} was {}, now it is {}", name, saved.settings[i].second, value));
    }
    if (saved.matrix != now.matrix) refuse("it was saved for another A, other weights or another regularisation");
    if (saved.rhs != now.rhs) refuse("it was saved for another b");
    if (saved.start != now.start) refuse("it was saved for another x0 or another centre");
}

}  // namespace lsmr
