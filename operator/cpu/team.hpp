// The threads that share the loops of the CPU's products and vector steps.
//
// Waking threads for a loop takes longer than a short loop does, above all where they sleep in between. So a solve keeps its threads in one parallel
// region: between two loops they watch a counter, for some microseconds busily, then asleep.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace lsmr::cpu {

class Team {
  public:
    // f() on the calling thread; until it returns, up to threads - 1 others help in its loops; threads = 0: each loop has threads of its own. Where there
    // is a team already, that one does.
    template <class F>
    static void run(int threads, const F& f);

    // So many threads of the caller's team, the caller among them, share its loops from now on; the others sleep. At most those of run(). No team: no change.
    static void use(int threads);

    // What the chunks of a loop are like.
    struct Grain {
        std::int64_t least = 1;  // that are worth a thread
        bool large = false;      // each worth a look whether others have some left
    };
    // f(chunk) for every chunk below count. A thread takes its own share from the front, the same in every loop, so that it finds in its
    // memory what it wrote first; where chunks are many or large it then helps the others. The first exception is thrown again when all are done.
    template <class F>
    static void loop(std::int64_t count, const F& f, Grain grain);
    template <class F>
    static void loop(std::int64_t count, const F& f) {
        loop(count, f, Grain{});
    }

  private:
    // Of a thread, a cache line each.
    struct alignas(64) Place {
        std::atomic<std::uint64_t> next{0};  // of its share of a loop: the loop's number above, the next chunk below, so that nobody has to begin it
    };
    struct alignas(64) Done {
        std::atomic<std::uint32_t> number{0};  // of the last job that it has done its part of
    };
    struct Job {
        void (*call)(const void* f, std::int64_t chunk);
        const void* f;
        std::int64_t count;
        bool large;
        int shares;   // of the first threads
        int threads;  // that report
    };
    static constexpr std::uint32_t kAway = ~std::uint32_t{0};  // done, by a thread that is not in use
    static constexpr int kEnded = 1 << 30;                      // in use, at the team's end

    explicit Team(int threads);
    void share_out(const Job& job);
    void resize(int threads);
    // Until done(number of t's last job) for all threads t from `first` on and below `end`.
    template <class F>
    void await(int first, int end, const F& done);
    void work(int thread, std::uint32_t number);
    void take_part(int thread, std::uint32_t number);
    void serve(int thread);
    void dismiss();

    template <class F>
    static void loop_by_itself(std::int64_t count, const F& f);

    int threads_;
    std::atomic<int> in_use_;  // threads; changes where there is no job, and down just before one
    int pauses_;  // of the next busy wait of the one that shares out
    std::unique_ptr<Place[]> places_;
    std::unique_ptr<Done[]> done_;
    // In one cache line: what the others wait for, and what they read then.
    alignas(64) Job job_{};                 // none: the team's end
    std::atomic<std::uint32_t> number_{0};  // of the job
    std::mutex failing_;
    std::exception_ptr failure_;  // the first of the job

    static constinit thread_local Team* current_;  // of the thread that shares out jobs, while it is in none
};

template <class F>
void Team::run(int threads, const F& f) {
    if (threads < 1 || current_ != nullptr || omp_in_parallel()) {
        f();
        return;
    }
    Team team(threads);
    std::exception_ptr failure;
    const auto lead = [&] {
        current_ = &team;
        try {
            f();
        } catch (...) {
            failure = std::current_exception();
        }
        current_ = nullptr;
    };
    if (threads == 1) {
        lead();
    } else {
#pragma omp parallel num_threads(threads)
        {
#pragma omp single
            team.in_use_ = team.threads_ = omp_get_num_threads();  // may be fewer
            if (omp_get_thread_num() == 0) {
                lead();
                team.dismiss();
            } else {
                team.serve(omp_get_thread_num());
            }
        }
    }
    if (failure) std::rethrow_exception(failure);
}

// In a parallel region of its own, of all threads: a region of fewer would have OpenMP end the others and make them again.
template <class F>
void Team::loop_by_itself(std::int64_t count, const F& f) {
    const auto threads = static_cast<std::int64_t>(omp_get_max_threads());
    std::vector<Place> shares(static_cast<std::size_t>(threads));
    const auto first_of = [&](std::int64_t t) { return count * t / threads; };
    for (std::int64_t t = 0; t < threads; ++t) shares[static_cast<std::size_t>(t)].next = static_cast<std::uint64_t>(first_of(t));
    std::mutex failing;
    std::exception_ptr failure;
#pragma omp parallel
    {
        try {
            for (std::int64_t i = 0; i < threads; ++i) {
                const std::int64_t t = (omp_get_thread_num() + i) % threads;
                const auto end = static_cast<std::uint64_t>(first_of(t + 1));
                std::atomic<std::uint64_t>& next = shares[static_cast<std::size_t>(t)].next;
                for (std::uint64_t c = next++; c < end; c = next++) f(static_cast<std::int64_t>(c));
            }
        } catch (...) {
            const std::lock_guard<std::mutex> lock(failing);
            if (!failure) failure = std::current_exception();
        }
    }
    if (failure) std::rethrow_exception(failure);
}

template <class F>
void Team::loop(std::int64_t count, const F& f, Grain grain) {
    if (count >= 2 && current_ == nullptr && omp_get_max_threads() > 1 && !omp_in_parallel()) return loop_by_itself(count, f);
    Team* team = count < 2 ? nullptr : current_;
    const int threads = team == nullptr ? 1 : team->in_use_.load(std::memory_order_relaxed);
    const int shares = static_cast<int>(std::clamp<std::int64_t>(count / grain.least, 1, threads));
    if (shares == 1) {
        for (std::int64_t c = 0; c < count; ++c) f(c);
        return;
    }
    team->share_out({[](const void* g, std::int64_t chunk) { (*static_cast<const F*>(g))(chunk); }, &f, count, grain.large, shares, threads});
}

}  // namespace lsmr::cpu
