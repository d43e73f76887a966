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

constinit thread_local Team* Team::current_ = nullptr;

Team::Team(int threads)
    : threads_(threads),
      in_use_(threads),
      pauses_(kMostPauses),
      places_(new Place[static_cast<std::size_t>(threads)]),
      done_(new Done[static_cast<std::size_t>(threads)]) {}

template <class F>
void Team::await(int first, int end, const F& done) {
    const auto value = [&](int t) -> std::atomic<std::uint32_t>& { return done_[static_cast<std::size_t>(t)].number; };
    const auto all_done = [&] {
        bool all = true;
        for (int t = first; t < end; ++t) all &= done(value(t).load(std::memory_order_acquire));
        return all;
    };
    if (wait_busily(pauses_, all_done)) return;
    for (int t = first; t < end; ++t) {
        for (std::uint32_t seen = value(t).load(std::memory_order_acquire); !done(seen); seen = value(t).load(std::memory_order_acquire)) {
            value(t).wait(seen, std::memory_order_acquire);
        }
    }
}

void Team::share_out(const Job& job) {
    job_ = job;
    const std::uint32_t number = number_.load(std::memory_order_relaxed) + 1;
    number_.store(number, std::memory_order_seq_cst);
    number_.notify_all();
    current_ = nullptr;  // a loop inside a loop is the thread's own
    take_part(0, number);
    await(1, job.threads, [&](std::uint32_t done) { return done == number || done == kAway; });
    current_ = this;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Team::use(int threads) {
    if (current_ != nullptr) current_->resize(std::clamp(threads, 1, current_->threads_));
}

void Team::resize(int threads) {
    const int before = in_use_.load(std::memory_order_relaxed);
    if (threads == before) return;
    in_use_.store(threads, std::memory_order_seq_cst);
    if (threads < before) {
        share_out({[](const void*, std::int64_t) {}, nullptr, 0, false, before, before});  // after which the others go
        return;
    }
    in_use_.notify_all();
    const std::uint32_t number = number_.load(std::memory_order_relaxed);
    await(before, threads, [&](std::uint32_t done) { return done == number; });
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
    const int shares = job_.shares;
    if (thread >= shares) return;
    const auto first_of = [&](std::int64_t t) { return job_.count * t / shares; };
    if (!job_.large && job_.count <= kFewChunks * shares) {
        for (std::int64_t c = first_of(thread); c < first_of(thread + 1); ++c) job_.call(job_.f, c);
        return;
    }
    for (int i = 0; i < shares; ++i) {
        const int t = thread + i < shares ? thread + i : thread + i - shares;
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
        const bool goes = in_use_.load(std::memory_order_acquire) <= thread;
        // In one order with the look for who waits, which notify_one() begins with: on x86 a plain store may come after that.
        const auto report = [&](std::uint32_t what) {
            done.store(what, std::memory_order_seq_cst);
            done.notify_one();
        };
        report(goes ? kAway : number);
        if (!goes) continue;
        int in_use = in_use_.load(std::memory_order_acquire);
        for (; in_use <= thread; in_use = in_use_.load(std::memory_order_acquire)) in_use_.wait(in_use, std::memory_order_acquire);
        if (in_use == kEnded) return;
        number = number_.load(std::memory_order_acquire);  // there is no job until this thread has said that it is back
        report(number);
    }
}

void Team::dismiss() {
    job_ = {};
    number_.fetch_add(1, std::memory_order_seq_cst);
    number_.notify_all();
    in_use_.store(kEnded, std::memory_order_seq_cst);
    in_use_.notify_all();
}

}  // namespace lsmr::cpu
