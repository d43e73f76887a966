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

namespace lsmr::cpu {

class Team {
  public:
    // f() on the calling thread; until it returns, up to threads - 1 others help in its loops. Where there is a team already, that one does.
    template <class F>
    static void run(int threads, const F& f);

    // f(chunk) for every chunk below count. A thread takes its own share from the front, the same in every loop, so that it finds in its
    // memory what it wrote first; where there are many chunks it then helps the others. f does not throw.
    template <class F>
    static void loop(std::int64_t count, const F& f);

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
    };

    explicit Team(int threads);
    void share_out(const Job& job);
    void work(int thread, std::uint32_t number);
    void serve(int thread);
    void dismiss();

    const int threads_;
    int pauses_;  // of the next busy wait of the one that shares out
    std::unique_ptr<Place[]> places_;
    std::unique_ptr<Done[]> done_;
    // In one cache line: what the others wait for, and what they read then.
    alignas(64) Job job_{};                 // none: the team's end
    std::atomic<std::uint32_t> number_{0};  // of the job

    static thread_local Team* current_;  // of the thread that shares out jobs, while it is in none
};

template <class F>
void Team::run(int threads, const F& f) {
    if (threads < 2 || current_ != nullptr || omp_in_parallel()) {
        f();
        return;
    }
    std::unique_ptr<Team> team;
    std::exception_ptr failure;
#pragma omp parallel num_threads(threads)
    {
#pragma omp single
        team.reset(new Team(omp_get_num_threads()));
        if (omp_get_thread_num() == 0) {
            current_ = team.get();
            try {
                f();
            } catch (...) {
                failure = std::current_exception();
            }
            current_ = nullptr;
            team->dismiss();
        } else {
            team->serve(omp_get_thread_num());
        }
    }
    if (failure) std::rethrow_exception(failure);
}

template <class F>
void Team::loop(std::int64_t count, const F& f) {
    if (count >= 2 && current_ == nullptr && omp_get_max_threads() > 1 && !omp_in_parallel()) {
        run(static_cast<int>(std::min<std::int64_t>(omp_get_max_threads(), count)), [&] { loop(count, f); });
        return;
    }
    Team* team = count < 2 ? nullptr : current_;
    if (team == nullptr) {
        for (std::int64_t c = 0; c < count; ++c) f(c);
        return;
    }
    team->share_out({[](const void* g, std::int64_t chunk) { (*static_cast<const F*>(g))(chunk); }, &f, count});
}

}  // namespace lsmr::cpu
