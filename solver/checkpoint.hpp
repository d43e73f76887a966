// Checkpoint: a solve in the middle, to be gone on with later by the same problem and options, to the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lsmr {

// What a solve must share with the one that was interrupted: fingerprints of the numbers, and named settings.
struct SolveIdentity {
    std::uint64_t matrix = 0;  // A, weights and regularising rows
    std::uint64_t rhs = 0;
    std::uint64_t start = 0;   // x0 and the centre
    std::vector<std::pair<std::string, std::string>> settings;  // name, value: all that decide bits; limits are not among them
};

struct Checkpoint {
    SolveIdentity identity;
    std::int64_t iteration = 0;
    std::vector<std::byte> position;  // of the solve around the recurrence
    std::vector<std::byte> state;     // the recurrence
    std::vector<std::byte> vectors;   // those of the method, one after another
    std::vector<double> best_x;       // of a run before a restart; empty: none
    std::vector<double> variances;    // estimated by runs before a restart; empty: none
};

// The file: a magic line, the members with their lengths, a checksum. Little-endian, as all machines that run this are.
std::string checkpoint_bytes(const Checkpoint& checkpoint);
// name: for messages. Throws InputError where the bytes are not a state, are cut short, or were damaged.
Checkpoint read_checkpoint(std::string_view bytes, const std::string& name);

// Throws InputError, naming what changed, unless `saved` is of the same problem and settings.
void check_identity(const SolveIdentity& saved, const SolveIdentity& now);

// A running hash of numbers, eight bytes at a time: any changed bit changes it.
class Fingerprint {
  public:
    template <class T>
    void add(const T* p, std::int64_t n) {
        add_bytes(reinterpret_cast<const std::byte*>(p), static_cast<std::size_t>(n) * sizeof(T));
    }
    std::uint64_t value() const { return hash_; }

  private:
    void add_bytes(const std::byte* p, std::size_t n);
    std::uint64_t hash_ = 0xcbf29ce484222325U;
};

}  // namespace lsmr
