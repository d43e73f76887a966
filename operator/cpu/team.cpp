#include "operator/cpu/team.hpp"

namespace lsmr::cpu {
namespace {

// Pauses of a busy wait, 10 to 50 microseconds: longer than what lies between two loops of an iteration, shorter than anybody else would notice.
constexpr int kPauses = 1000;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Until value is another one than old; returns it.
template <class V>
V wait_while(const std::atomic<V>& value, V old) {
    for (int i = 0; i < kPauses; ++i) {
        const V seen = value.load(std::memory_order_acquire);
        if (seen != old) return seen;
        pause();
    }
    for (;;) {
        value.wait(old, std::memory_order_acquire);
        const V seen = value.load(std::memory_order_acquire);
        if (seen != old) return seen;
    }
}

}  // namespace

thread_local Team* Team::current_ = nullptr;

void Team::share_out(const Job& job) {
    job_ = job;
    busy_.store(threads_ - 1, std::memory_order_relaxed);
    const std::uint32_t number = number_.load(std::memory_order_relaxed) + 1;
    number_.store(number, std::memory_order_seq_cst);
    number_.notify_all();
    current_ = nullptr;  // a loop inside a loop is the thread's own
    work(0, number);
    for (std::int32_t busy = busy_.load(std::memory_order_acquire); busy != 0;) busy = wait_while(busy_, busy);
    current_ = this;
}

void Team::work(int thread, std::uint32_t number) {
    const auto first_of = [&](std::int64_t t) { return job_.count * t / threads_; };
    for (int i = 0; i < threads_; ++i) {
        const int t = thread + i < threads_ ? thread + i : thread + i - threads_;
        const auto end = static_cast<std::uint64_t>(first_of(t + 1));
        std::atomic<std::uint64_t>& next = shares_[static_cast<std::size_t>(t)].next;
        std::uint64_t seen = next.load(std::memory_order_relaxed);
        for (;;) {
            const std::uint64_t chunk = static_cast<std::uint32_t>(seen >> 32) == number ? seen & 0xffffffffu : static_cast<std::uint64_t>(first_of(t));
            if (chunk >= end) break;
            if (!next.compare_exchange_weak(seen, (std::uint64_t{number} << 32) | (chunk + 1), std::memory_order_relaxed)) continue;
            job_.call(job_.f, static_cast<std::int64_t>(chunk));
            seen = next.load(std::memory_order_relaxed);
        }
    }
}

void Team::serve(int thread) {
    for (std::uint32_t number = 0;;) {
        number = wait_while(number_, number);
        if (job_.call == nullptr) return;
        work(thread, number);
        if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
    }
}

void Team::dismiss() {
    job_ = {};
    number_.fetch_add(1, std::memory_order_seq_cst);
    number_.notify_all();
}

}  // namespace lsmr::cpu
