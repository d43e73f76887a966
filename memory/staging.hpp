// Page-locked memory that copies between host and device go through, in two pieces: one is filled or emptied while the other travels. For CUDA code
// only.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "memory/device_buffer.hpp"

namespace lsmr {

class Staging {
  public:
    static constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;

    Staging() {
        for (Piece& piece : pieces_) LSMR_CHECK(cudaEventCreateWithFlags(&piece.travelled, cudaEventDisableTiming));
    }
    ~Staging() {
        for (Piece& piece : pieces_) {
            if (piece.travelled == nullptr) continue;
            LSMR_CHECK_NOTHROW(cudaEventSynchronize(piece.travelled));
            LSMR_CHECK_NOTHROW(cudaEventDestroy(piece.travelled));
        }
    }
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    struct Piece {
        PinnedBuffer<std::byte> bytes;
        cudaEvent_t travelled = nullptr;
        void wait() const { LSMR_CHECK(cudaEventSynchronize(travelled)); }  // of an event never recorded: returns at once
    };
    // The pieces in turn, what they carried travelled, of at least so many bytes, which are at most kPieceBytes. Small ones for small arrays: getting
    // a page takes ten times as long as copying it.
    Piece& next(std::int64_t bytes) {
        Piece& piece = pieces_[std::exchange(next_, 1 - next_)];
        piece.wait();
        if (piece.bytes.size() < bytes) {
            std::int64_t size = std::max(kLeastBytes, pieces_[next_].bytes.size());
            while (size < bytes) size *= 2;
            piece.bytes = PinnedBuffer<std::byte>(size);
        }
        return piece;
    }

  private:
    static constexpr std::int64_t kLeastBytes = std::int64_t{1} << 16;
    Piece pieces_[2];
    int next_ = 0;
};

// The staging of a context, which keeps one: page-locked memory is slow to get. Who comes while it is lent gets another.
class StagingLease {
  public:
    explicit StagingLease(const CudaContext& context) : context_(context), staging_(context.lend_staging()) {}
    ~StagingLease() { context_.take_back(std::move(staging_)); }
    StagingLease(const StagingLease&) = delete;
    StagingLease& operator=(const StagingLease&) = delete;
    Staging* operator->() const { return staging_.get(); }

  private:
    const CudaContext& context_;
    std::unique_ptr<Staging> staging_;
};

}  // namespace lsmr
