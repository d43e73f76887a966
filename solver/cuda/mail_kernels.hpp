// From CSR to the arrays of a persistent kernel, on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "solver/cuda/persistent_kernel.hpp"

namespace lsmr::cuda {

// A, its transpose, and which rows and columns each block has, in device memory. The columns of the transpose ascend within its rows.
struct MailPattern {
    int blocks = 0;
    const std::int32_t* block_rows = nullptr;
    const std::int32_t* block_cols = nullptr;
    const std::int32_t* offsets = nullptr;
    const std::int32_t* columns = nullptr;
    const std::int32_t* transposed_offsets = nullptr;
    const std::int32_t* transposed_columns = nullptr;
};
// counts[r blocks + c] <- entries in rows of block r and columns of block c.
void launch_count_mail(const MailPattern& a, std::int32_t* counts, cudaStream_t stream);

// The members of the same names of MailSide, MailRuns and MailSlots (solver/cuda/mail.hpp), in device memory.
struct MailLines {
    const std::int32_t* at = nullptr;
    const std::int32_t* diagonals_at = nullptr;
    const MailDiagonal* diagonals = nullptr;
    std::uint16_t* products = nullptr;  // written
    std::uint16_t* lines = nullptr;     // written: rows, cols
};
struct MailPlaces {
    const std::int32_t* counts = nullptr;
    const std::int32_t* in_mailbox = nullptr;
    const std::int32_t* in_list = nullptr;
    MailLines rows;
    MailLines cols;
    std::uint32_t* sectors = nullptr;  // written
    std::int32_t sector = 1;           // slots of one
    std::uint16_t spare = 0;
};
// mailed[slot] <- values of A in their slots, entries of a run in the order of the rows; and what MailPlaces says.
template <class T>
void launch_fill_mail(const MailPattern& a, const T* values, const MailPlaces& to, T* mailed, cudaStream_t stream);

// to[k] <- from[k], below 2^16.
void launch_narrow_columns(std::int64_t n, const std::int32_t* from, std::uint16_t* to, cudaStream_t stream);

}  // namespace lsmr::cuda
