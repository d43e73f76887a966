// The exchange where the blocks of a persistent kernel are one cluster: each block has all of u-hat and of v-hat in its own shared memory, where the
// others write their values as they are made, and where its products gather. Sums are written there too. An mbarrier of each counts the bytes that
// have come.
//
// A place is written again only when all have read it, as between blocks that share L2: who writes the next u-hat has received all of v-hat, whose
// writers had made their products with the u-hat before; and so on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "operator/cuda/bulk_copy.cuh"
#include "solver/cuda/persistent_block.cuh"
#include "solver/cuda/persistent_slice.cuh"

namespace lsmr::cuda {

// Of all threads of all blocks. What was written before arriving is seen after waiting.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// No block ends while another may still write into its shared memory.
__device__ inline void leave_cluster() {
    cluster_arrive();
    cluster_wait();
}
// Where block `block` of the cluster has what lies here in this one's shared memory.
__device__ inline std::uint32_t in_block(std::uint32_t address, int block) {
    std::uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
    return there;
}
// A value into the shared memory of a block of the cluster, counted by a barrier there.
__device__ inline void store_into(std::uint32_t to, double value, std::uint32_t barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to), "l"(__double_as_longlong(value)), "r"(barrier)
                 : "memory");
}
__device__ inline void store_into(std::uint32_t to, float value, std::uint32_t barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(__float_as_uint(value)), "r"(barrier)
                 : "memory");
}
// As barrier_wait(), for what other blocks wrote. Passes count from 0.
__device__ inline void wait_for_cluster(std::uint64_t* barrier, int pass) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(static_cast<std::uint32_t>(pass & 1))
        : "memory");
}

// u-hat or v-hat of all blocks, in each of them.
template <class T>
struct ClusterVector {
    T* values;
    std::uint64_t* come;
    std::uint32_t bytes;
    int first_row;  // the block's own
    int rows;
    // So many warps take a value each for a thread, and so many such groups send them to other blocks each.
    int warps, groups;

    __device__ ClusterVector(T* values_, std::uint64_t* come_, int size, const Slice<T>& own)
        : values(values_),
          come(come_),
          bytes(static_cast<std::uint32_t>(size) * static_cast<std::uint32_t>(sizeof(T))),
          first_row(own.first_row),
          rows(own.rows) {
        constexpr int kWarpsOfAll = kProductThreads / 32;
        warps = min(max((rows + 31) / 32, 1), kWarpsOfAll);
        groups = kWarpsOfAll / warps;
    }
    // By one thread.
    __device__ void begin() const {
        barrier_init(come);
        barrier_expect(come, bytes);
    }
    // By the product threads: value(i) of the block's rows, with keep(i, value) once each, and to all blocks, this one included. A row's value is made
    // once for each group, so that nothing waits for it.
    template <class Value, class Keep>
    __device__ void send(int thread, bool to_all, const Value& value, const Keep& keep) const {
        const int group = thread / 32 / warps;
        if (group >= groups) return;
        const int blocks = to_all ? static_cast<int>(gridDim.x) : 0;
        const std::uint32_t barrier = shared_address(come);
#pragma unroll 1
        for (int i = thread - group * warps * 32; i < rows; i += warps * 32) {
            const T sent = value(i);
            if (group == 0) keep(i, sent);
            const std::uint32_t to = shared_address(values + first_row + i);
            // Each begins with another, so that no block is written to by all at once.
#pragma unroll 1
            for (int turn = group; turn < blocks; turn += groups) {
                const int sum = static_cast<int>(blockIdx.x) + turn;
                const int block = sum < blocks ? sum : sum - blocks;
                store_into(in_block(to, block), sent, in_block(barrier, block));
            }
        }
    }
    // By the product threads: the values of a pass; one of the threads prepares the next.
    __device__ void receive(int pass, int thread) const {
        wait_for_cluster(come, pass);
        if (thread == 0) barrier_expect(come, bytes);
    }
};

// A block's part of A, and of the exchange.
template <class T>
struct ClusterPart : SlicePart<T> {
    ClusterExchange& exchange;
    ClusterVector<T> u, v;

    __device__ ClusterPart(const PersistentProblem<T>& problem, unsigned char* shared)
        : SlicePart<T>(problem, shared),
          exchange(*reinterpret_cast<ClusterExchange*>(shared + problem.cluster.exchange_at)),
          u(reinterpret_cast<T*>(shared + problem.cluster.u_at), &exchange.u_come, problem.cluster.rows, this->forward),
          v(reinterpret_cast<T*>(shared + problem.cluster.v_at), &exchange.v_come, problem.cluster.cols, this->adjoint) {}
    // By all threads of the block, who wait for the cluster before they send.
    __device__ void load(int thread) const {
        if (thread == 0) {
            u.begin();
            v.begin();
#pragma unroll 1
            for (ClusterSum& sum : exchange.sums) {
                for (double& part : sum.parts) part = 0;
                barrier_init(&sum.come);
                barrier_expect(&sum.come, sum_bytes());
            }
        }
        __syncwarp();
        cluster_arrive();
        SlicePart<T>::load(thread);
    }
    // By one whole warp each: the block's part of a sum to all blocks, and the sum of all, once all parts are there. Passes count from 0.
    __device__ void publish(int which, double own) const {
        ClusterSum& sum = exchange.sums[which];
        const int lane = static_cast<int>(threadIdx.x) % 32;
        if (lane >= static_cast<int>(gridDim.x)) return;
        store_into(in_block(shared_address(sum.parts + blockIdx.x), lane), own, in_block(shared_address(&sum.come), lane));
    }
    __device__ double collect(int which, int pass) const {
        ClusterSum& sum = exchange.sums[which];
        wait_for_cluster(&sum.come, pass);
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_expect(&sum.come, sum_bytes());
        return sum_of(sum.parts);
    }

  private:
    static __device__ std::uint32_t sum_bytes() { return gridDim.x * static_cast<std::uint32_t>(sizeof(double)); }
};

// 16 blocks are more than every device must run.
inline void allow_cluster(const void* kernel) { LSMR_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)); }

// All blocks as one cluster.
struct ClusterLaunch {
    cudaLaunchAttribute attribute{};
    cudaLaunchConfig_t config{};
    ClusterLaunch(int blocks, std::size_t shared_bytes, cudaStream_t stream) {
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = static_cast<unsigned>(blocks);
        attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        config.gridDim = dim3(static_cast<unsigned>(blocks));
        config.blockDim = dim3(kPersistentThreads);
        config.dynamicSmemBytes = shared_bytes;
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = 1;
    }
    ClusterLaunch(const ClusterLaunch&) = delete;
    ClusterLaunch& operator=(const ClusterLaunch&) = delete;
};
inline int most_cluster_blocks(const void* kernel, int shared_bytes) {
    int clusters = 0;
    allow_shared(kernel, shared_bytes);
    allow_cluster(kernel);
    for (int blocks = kMostClusterBlocks; blocks > 1; blocks /= 2) {
        const ClusterLaunch launch(blocks, static_cast<std::size_t>(shared_bytes), nullptr);
        if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &launch.config) == cudaSuccess && clusters > 0) return blocks;
        cudaGetLastError();  // more blocks than it can run
    }
    return 0;
}
template <class T, class R>
void launch_cluster(const void* kernel, PersistentProblem<T> problem, PersistentVectors<T> vectors, R* r, Progress* progress, int iterations,
                    std::uint64_t tag, cudaStream_t stream) {
    void* arguments[] = {&problem, &vectors, &r, &progress, &iterations, &tag};
    const ClusterLaunch launch(problem.blocks, problem.shared_bytes, stream);
    LSMR_CHECK(cudaLaunchKernelExC(&launch.config, kernel, arguments));
}
// As the problem says.
template <class T, class R>
void launch(const void* kernel, const PersistentProblem<T>& problem, const PersistentVectors<T>& vectors, R* r, Progress* progress, int iterations,
            std::uint64_t tag, cudaStream_t stream) {
    const auto by = problem.crossing == Crossing::clustered ? launch_cluster<T, R> : launch_together<T, R>;
    by(kernel, problem, vectors, r, progress, iterations, tag, stream);
}

}  // namespace lsmr::cuda
