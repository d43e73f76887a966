// The products of a persistent kernel where values are not mailed: a block's rows of A and of A^T, which gather from a vector, of all blocks or in the
// block's own shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "solver/cuda/persistent_block.cuh"

namespace lsmr::cuda {

// What products gather from where values cross. get() returns whether the value is there.
template <class T>
struct CrossingVector {
    const Packet<T>* packets;
    std::uint64_t tag;
    __device__ bool get(std::int32_t i, T& value) const { return cuda::get(packets + i, tag, value); }
};

// dots[row] = sum of values x[column] over the row, for all rows of the block. By the product threads, `thread` of them 0 .. kProductThreads - 1.
template <bool kResident, class T, class Column, class Vector>
__device__ inline void row_products(const T* values, const Column* columns, const std::int32_t* offsets, int rows, int team, const Vector& x,
                                    T* dots, int thread) {
    constexpr int kBatch = 4;  // reads under way
    const int level = 31 - __clz(team);
    const int lane = thread & (team - 1);
    const int teams = kProductThreads >> level;
    // The next batch: of this row, its first entry, and how many are left for the thread.
    int row = thread >> level;
    int next = 0;
    int left = 0;
    int row_steps = 0;
    const auto enter_row = [&] {
        left = row_steps = 0;
        if (row >= rows) return;
        const int begin = offsets[row];
        const int entries = offsets[row + 1] - begin;
        next = begin + lane;
        left = (entries - lane + team - 1) >> level;
        row_steps = (((entries + team - 1) >> level) + kBatch - 1) / kBatch;
    };
    struct Batch {
        Column column[kBatch];
        T value[kBatch];
        int size;
    };
    const auto fetch = [&](Batch& batch) {
        batch.size = left;
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int entry = next + (i << level);
            if constexpr (kResident) {
                batch.column[i] = i < left ? columns[entry] : Column(0);
                batch.value[i] = i < left ? values[entry] : T(0);
            } else {
                batch.column[i] = i < left ? __ldg(columns + entry) : Column(0);
                batch.value[i] = i < left ? __ldg(values + entry) : T(0);
            }
        }
    };
    Batch batch;
    enter_row();
    fetch(batch);
    for (int first = 0; first < rows; first += teams) {
        const int this_row = row;
        // As many for all lanes of the warp.
        const int steps = max(1, static_cast<int>(__reduce_max_sync(0xffffffffu, static_cast<unsigned>(row_steps))));
        T sum = 0;
        for (int step = 0; step < steps; ++step) {
            T gathered[kBatch];
            bool come[kBatch];
            // What does not exist is not read, nor multiplied but by its own 0.
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                gathered[i] = 0;
                come[i] = i < batch.size ? x.get(batch.column[i], gathered[i]) : true;
            }
            next += kBatch << level;
            left -= kBatch;
            if (step == steps - 1) {
                row += teams;
                enter_row();
            }
            // What comes from L2 comes while the gathers do.
            Batch following;
            if constexpr (!kResident) fetch(following);
            bool missing;
            do {
                missing = false;
#pragma unroll
                for (int i = 0; i < kBatch; ++i) {
                    if (!come[i]) come[i] = x.get(batch.column[i], gathered[i]);
                    missing = missing || !come[i];
                }
            } while (missing);
#pragma unroll
            for (int i = 0; i < kBatch; ++i) sum += batch.value[i] * gathered[i];
            if constexpr (kResident) fetch(batch);
            else batch = following;
        }
        for (int d = team / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (this_row < rows && lane == 0) dots[this_row] = sum;
    }
}

// A block's part of one orientation, as it is used.
template <class T>
struct Slice {
    const PersistentSide<T>& side;
    unsigned char* shared;
    int first_row;
    int rows;
    std::int32_t first_entry;

    __device__ Slice(const PersistentSide<T>& of, unsigned char* shared_)
        : side(of),
          shared(shared_),
          first_row(of.block_rows[blockIdx.x]),
          rows(of.block_rows[blockIdx.x + 1] - first_row),
          first_entry(of.offsets[first_row]) {}
    // Where the block's row i lies in a vector.
    __device__ int index(int i) const { return first_row + i; }
    __device__ std::int32_t* offsets() const { return reinterpret_cast<std::int32_t*>(shared + side.offsets_at); }
    template <class Column>
    __device__ void load_entries(int thread) const {
        const std::int32_t entries = side.offsets[first_row + rows] - first_entry;
        T* values = reinterpret_cast<T*>(shared + side.values_at);
        auto* columns = reinterpret_cast<Column*>(shared + side.columns_at);
        const T* from_values = side.values + first_entry;
        const Column* from_columns = static_cast<const Column*>(side.columns) + first_entry;
#pragma unroll 4
        for (int i = thread; i < entries; i += kPersistentThreads) {
            values[i] = __ldg(from_values + i);
            columns[i] = __ldg(from_columns + i);
        }
    }
    // By all threads of the block.
    __device__ void load(int thread) const {
        for (int i = thread; i <= rows; i += kPersistentThreads) offsets()[i] = side.offsets[first_row + i] - first_entry;
        if (!side.resident) return;
        if (side.narrow) load_entries<std::uint16_t>(thread);
        else load_entries<std::int32_t>(thread);
    }
    // The value of the vector of this side's rows in the block's row i, to all blocks; and where this block reads those of all.
    __device__ void send(int i, T value, std::uint64_t tag) const {
        for (int copy = 0; copy < side.copies; ++copy) put(side.packets + copy * side.rows + first_row + i, value, tag);
    }
    __device__ const Packet<T>* received() const { return side.packets + static_cast<int>(blockIdx.x) % side.copies * side.rows; }
    template <class Column, class Vector>
    __device__ void multiply_as(const Vector& x, T* dots, int thread) const {
        if (side.resident) {
            row_products<true>(reinterpret_cast<const T*>(shared + side.values_at), reinterpret_cast<const Column*>(shared + side.columns_at),
                               offsets(), rows, side.team, x, dots, thread);
        } else {
            row_products<false>(side.values + first_entry, static_cast<const Column*>(side.columns) + first_entry, offsets(), rows, side.team, x,
                                dots, thread);
        }
    }
    // By the product threads.
    template <class Vector>
    __device__ void multiply(const Vector& x, T* dots, int thread) const {
        if (side.narrow) multiply_as<std::uint16_t>(x, dots, thread);
        else multiply_as<std::int32_t>(x, dots, thread);
    }
};

// dots[row] = sum of values x[column] over the row, for all rows of the block: x and entries lie in its shared memory, so that nothing is worth being
// fetched early; short code is, for the kernel's whole iteration must fit into a multiprocessor's caches of instructions. By the product threads.
template <class T>
__device__ inline void own_products(const Slice<T>& slice, const T* x, T* dots, int thread) {
    constexpr int kBatch = 4;
    const int team = slice.side.team;
    const int lane = thread & (team - 1);
    const int level = 31 - __clz(team);
    const std::int32_t* const offsets = slice.offsets();
    const T* const values = reinterpret_cast<const T*>(slice.shared + slice.side.values_at);
    const auto* const columns = reinterpret_cast<const std::uint16_t*>(slice.shared + slice.side.columns_at);
#pragma unroll 1
    for (int first = 0; first < slice.rows; first += kProductThreads >> level) {
        const int row = first + (thread >> level);
        T sum = 0;
        if (row < slice.rows) {
            const int end = offsets[row + 1];
#pragma unroll 1
            for (int entry = offsets[row] + lane; entry < end; entry += kBatch << level) {
                T parts[kBatch];
                // What does not exist is not read.
#pragma unroll
                for (int i = 0; i < kBatch; ++i) {
                    const int at = entry + (i << level);
                    parts[i] = at < end ? values[at] * x[columns[at]] : T(0);
                }
                sum += (parts[0] + parts[1]) + (parts[2] + parts[3]);
            }
        }
        __syncwarp();
#pragma unroll 1
        for (int d = team / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (row < slice.rows && lane == 0) dots[row] = sum;
    }
}

// A block's part of A where it is not mailed: entries of its rows, and of its columns.
template <class T>
struct SlicePart {
    Slice<T> forward;
    Slice<T> adjoint;
    __device__ SlicePart(const PersistentProblem<T>& problem, unsigned char* shared) : forward(problem.forward, shared), adjoint(problem.adjoint, shared) {}
    __device__ void load(int thread) const {
        forward.load(thread);
        adjoint.load(thread);
    }
};

}  // namespace lsmr::cuda
