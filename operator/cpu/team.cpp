#include "operator/cpu/team.hpp"

#include <algorithm>
#include <utility>

namespace lsmr::cpu {
namespace {

// Pauses of a busy wait, at most: 10 to 50 microseconds, longer than what lies between two loops of an iteration. Where waiting so is in vain, because
// there are more threads than processors to run them, the next wait is shorter, down to the least.
constexpr int kMostPauses = 1000;
constexpr int kLeastPauses = 8;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Whether done() came true while waiting busily.
template <class F>
bool wait_busily(int& pauses, const F& done) {
    for (int i = 0; i < pauses; ++i) {
        if (done()) {
            pauses = std::min(2 * pauses, kMostPauses);
            return true;
        }
        pause();
    }
    pauses = std::max(pauses / 2, kLeastPauses);
    return done();
}

}  // namespace

thread_local Team* Team::current_ = nullptr;

Team::Team(int threads)
    : threads_(threads), pauses_(kMostPauses), places_(new Place[static_cast<std::size_t>(threads)]), done_(new Done[static_cast<std::size_t>(threads)]) {}

void Team::share_out(const Job& job) {
    job_ = job;
    const std::uint32_t number = number_.load(std::memory_order_relaxed) + 1;
    number_.store(number, std::memory_order_seq_cst);
    number_.notify_all();
    current_ = nullptr;  // a loop inside a loop is the thread's own
    take_part(0, number);
    const auto all_done = [&] {
        bool all = true;
        for (int t = 1; t < threads_; ++t) all &= done_[static_cast<std::size_t>(t)].number.load(std::memory_order_acquire) == number;
        return all;
    };
    if (!wait_busily(pauses_, all_done)) {
        for (int t = 1; t < threads_; ++t) done_[static_cast<std::size_t>(t)].number.wait(number - 1, std::memory_order_acquire);
    }
    current_ = this;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Team::take_part(int thread, std::uint32_t number) {
    try {
        work(thread, number);
    } catch (...) {
        const std::lock_guard<std::mutex> lock(failing_);
        if (!failure_) failure_ = std::current_exception();
    }
}

void Team::work(int thread, std::uint32_t number) {
    // Of a thread, at most: so few are done sooner than it takes to look at what the others have left.
    constexpr std::int64_t kFewChunks = 16;
    const auto first_of = [&](std::int64_t t) { return job_.count * t / threads_; };
    if (job_.count <= kFewChunks * threads_) {
        for (std::int64_t c = first_of(thread); c < first_of(thread + 1); ++c) job_.call(job_.f, c);
        return;
    }
    for (int i = 0; i < threads_; ++i) {
        const int t = thread + i < threads_ ? thread + i : thread + i - threads_;
        const auto end = static_cast<std::uint64_t>(first_of(t + 1));
        std::atomic<std::uint64_t>& next = places_[static_cast<std::size_t>(t)].next;
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
    std::atomic<std::uint32_t>& done = done_[static_cast<std::size_t>(thread)].number;
    int pauses = kMostPauses;
    for (std::uint32_t number = 1;; ++number) {
        if (!wait_busily(pauses, [&] { return number_.load(std::memory_order_acquire) == number; })) number_.wait(number - 1, std::memory_order_acquire);
        if (job_.call == nullptr) return;
        take_part(thread, number);
        // In one order with the look for who waits, which notify_one() begins with: on x86 a plain store may come after that.
        done.store(number, std::memory_order_seq_cst);
        done.notify_one();
    }
}

void Team::dismiss() {
    job_ = {};
    number_.fetch_add(1, std::memory_order_seq_cst);
    number_.notify_all();
}

}  // namespace lsmr::cpu
