// What a block of a persistent kernel does with itself and with the others: barriers, values beside their tags, sums over all blocks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "memory/cuda_check.hpp"
#include "operator/cuda/shared_memory.hpp"
#include "solver/cuda/persistent_kernel.hpp"

namespace lsmr::cuda {

constexpr int kWarps = kPersistentThreads / 32;
constexpr int kFirstProductWarp = 1;
constexpr int kRecurrenceWarp = kWarps - 1;
static_assert((kRecurrenceWarp - kFirstProductWarp) * 32 == kProductThreads);

// Named barriers. Who arrives goes on at once, who syncs waits for all.
__device__ inline void sync(int barrier, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }
__device__ inline void arrive(int barrier, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }

// Relaxed, for what is read beside its tag needs no order with anything else.
__device__ inline void put(TaggedSum* to, double sum, std::uint64_t tag) {
    asm volatile("{ .reg .b128 both; mov.b128 both, {%1, %2}; st.relaxed.gpu.global.b128 [%0], both; }" ::"l"(to),
                 "l"(__double_as_longlong(sum)), "l"(tag)
                 : "memory");
}
__device__ inline TaggedSum get(const TaggedSum* from) {
    long long sum;
    std::uint64_t tag;
    asm volatile("{ .reg .b128 both; ld.relaxed.gpu.global.b128 both, [%2]; mov.b128 {%0, %1}, both; }"
                 : "=l"(sum), "=l"(tag)
                 : "l"(from)
                 : "memory");
    return {__longlong_as_double(sum), tag};
}
__device__ inline void put(Packet<double>* to, double value, std::uint64_t tag) { put(reinterpret_cast<TaggedSum*>(to), value, tag); }
__device__ inline void put(Packet<float>* to, float value, std::uint64_t tag) {
    const std::uint64_t both = tag << 32 | __float_as_uint(value);
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(both) : "memory");
}
// Whether `value` is that of the tag.
__device__ inline bool get(const Packet<double>* from, std::uint64_t tag, double& value) {
    const TaggedSum both = get(reinterpret_cast<const TaggedSum*>(from));
    value = both.sum;
    return both.tag == tag;
}
__device__ inline bool get(const Packet<float>* from, std::uint64_t tag, float& value) {
    std::uint64_t both;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(both) : "l"(from) : "memory");
    value = __uint_as_float(static_cast<std::uint32_t>(both));
    return static_cast<std::uint32_t>(both >> 32) == static_cast<std::uint32_t>(tag);
}

// A T in the block's shared memory, without its constructor, which shared memory cannot have.
template <class T>
struct alignas(16) InShared {
    unsigned char bytes[sizeof(T)];
    __device__ T& get() { return *reinterpret_cast<T*>(bytes); }
};
// The same place, held in a register. Else it is made anew wherever it is used, from which block of a cluster this is, and a single thread waits
// for that.
template <class T>
__device__ inline T& held(T& in_shared) {
    auto address = static_cast<unsigned>(__cvta_generic_to_shared(&in_shared));
    asm volatile("" : "+r"(address));
    return *reinterpret_cast<T*>(__cvta_shared_to_generic(address));
}
// By all threads of the block.
template <class T>
__device__ inline void copy_words(T* to, const T* from) {
    using Word = std::uint64_t;
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(Word) == 0 && alignof(T) % alignof(Word) == 0);
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < sizeof(T) / sizeof(Word); i += kPersistentThreads) reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
}
// What a launch leaves, by all threads of the block; progress: for the host, null: not wanted.
template <class R>
__device__ inline void leave(const R& recurrence, R* to, Progress* progress) {
    if (blockIdx.x != 0) return;
    copy_words(to, &recurrence);
    if (progress != nullptr) copy_words(progress, &recurrence.progress);
}

// By a whole warp: the sum over its lanes, for all of them. Tensor cores make it, for shuffles wait behind the reads and writes of all other warps:
// ones (8 x 4) times the values, one a lane, as a matrix of 4 x 8 gives the sums of four, two a lane; these once more the sum of all.
__device__ inline double warp_sum(double value) {
    const auto columns_of = [](double b, double& first, double& second) {
        asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%4, %4};" : "=d"(first), "=d"(second) : "d"(1.0), "d"(b), "d"(0.0));
    };
    double first, second;
    columns_of(value, first, second);
    columns_of(first + second, first, second);
    return first;
}

// By every thread that wants it, which is sooner than by the threads of a warp together: these exchange values in five steps of 30 cycles.
template <int kSize>
__device__ inline double sum_of(const double (&parts)[kSize]) {
    static_assert(kSize % 2 == 0);
    constexpr int kPairs = kSize / 2;
    double sums[kPairs];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
        const double2 pair = reinterpret_cast<const double2*>(parts)[i];
        sums[i] = pair.x + pair.y;
    }
#pragma unroll
    for (int half = 8; half > 0; half /= 2) {
#pragma unroll
        for (int i = half; i < min(2 * half, kPairs); ++i) sums[i - half] += sums[i];
    }
    return sums[0];
}
// A sum over the product threads on its way to one warp: each warp of them adds its values.
struct alignas(16) PartialSums {
    double parts[kProductThreads / 32];

    // By all product threads, `thread` of them.
    __device__ void put(int thread, double value) {
        value = warp_sum(value);
        if (thread % 32 == 0) parts[thread / 32] = value;
    }
    // By every thread that wants it.
    __device__ double sum() const { return sum_of(parts); }
};

// The same of few values, in the block's shared memory, by one whole warp.
template <class T>
__device__ inline double squares_of(const T* values, int size) {
    constexpr int kBatch = 4;
    double sum = 0;
#pragma unroll 1
    for (int first = static_cast<int>(threadIdx.x) % 32; first < size; first += kBatch * 32) {
        double of[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) of[i] = first + 32 * i < size ? static_cast<double>(values[first + 32 * i]) : 0.0;
        sum += (of[0] * of[0] + of[1] * of[1]) + (of[2] * of[2] + of[3] * of[3]);
    }
    return warp_sum(sum);
}

// By one whole warp: makes the block's sum known.
__device__ inline void publish(TaggedSum* sums, double sum, std::uint64_t tag) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane < kReplicas) put(sums + lane * kMostPersistentBlocks + static_cast<int>(blockIdx.x), sum, tag);
}
__device__ inline void pause(int cycles) {
    const int begun = static_cast<int>(clock());
    while (static_cast<int>(clock()) - begun < cycles) {}
}
constexpr int kCrossingCycles = 4;        // for each block
constexpr int kCrossingCyclesBeside = 6;  // beside few letters, which take longer
// By one whole warp, between publish() and collect(). Reads that find the sums of others missing keep them from arriving: on an H200 an exchange of
// 132 sums takes 1,940 cycles without the pause, 1,220 with it; of 16, 1,070 and, with a pause as long, 1,180.
__device__ inline void let_sums_cross(int cycles = kCrossingCycles) { pause(cycles * static_cast<int>(gridDim.x)); }
// By one whole warp: the sum of all blocks, once all are there.
__device__ inline double collect(const TaggedSum* sums, std::uint64_t tag) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int blocks = static_cast<int>(gridDim.x);
    const TaggedSum* list = sums + (static_cast<int>(blockIdx.x) % kReplicas) * kMostPersistentBlocks;
    TaggedSum parts[kBlocksPerLane];
#pragma unroll
    for (int i = 0; i < kBlocksPerLane; ++i) {
        parts[i] = {0.0, tag};
        if (lane + 32 * i < blocks) parts[i] = get(list + lane + 32 * i);
    }
    bool missing;
    do {
        missing = false;
#pragma unroll
        for (int i = 0; i < kBlocksPerLane; ++i) {
            if (parts[i].tag == tag) continue;
            missing = true;
            parts[i] = get(list + lane + 32 * i);
        }
    } while (missing);
    __syncwarp();
    static_assert(kBlocksPerLane == 5);
    return warp_sum(((parts[0].sum + parts[1].sum) + (parts[2].sum + parts[3].sum)) + parts[4].sum);
}

// All blocks of the problem at once.
template <class T, class R>
void launch_together(const void* kernel, PersistentProblem<T> problem, PersistentVectors<T> vectors, R* r, Progress* progress, int iterations,
                     std::uint64_t tag, cudaStream_t stream) {
    void* arguments[] = {&problem, &vectors, &r, &progress, &iterations, &tag};
    LSMR_CHECK(cudaLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(problem.blocks)), dim3(kPersistentThreads), arguments, problem.shared_bytes, stream));
}

}  // namespace lsmr::cuda
