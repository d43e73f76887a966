// Host arrays to the device through page-locked staging: conversion on all cores while the last piece travels.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "memory/device_buffer.hpp"

namespace lsmr::cuda {

class Uploader {
  public:
    explicit Uploader(const CudaContext& context) : stream_(context.stream()) {
        for (Piece& piece : pieces_) LSMR_CHECK(cudaEventCreateWithFlags(&piece.sent, cudaEventDisableTiming));
    }
    ~Uploader() {
        for (Piece& piece : pieces_) {
            if (piece.sent == nullptr) continue;
            LSMR_CHECK_NOTHROW(cudaEventSynchronize(piece.sent));
            LSMR_CHECK_NOTHROW(cudaEventDestroy(piece.sent));
        }
    }
    Uploader(const Uploader&) = delete;
    Uploader& operator=(const Uploader&) = delete;

    // dst[i] <- convert(src[i]) for i < n, dst in device memory. Returns when the last piece is on its way.
    template <class To, class From, class Convert>
    void operator()(To* dst, const From* src, std::int64_t n, const Convert& convert) {
        fill(dst, n, [&](std::int64_t i) { return convert(src[i]); });
    }
    // dst[i] <- value(i).
    template <class To, class Value>
    void fill(To* dst, std::int64_t n, const Value& value) {
        const std::int64_t step = kPieceBytes / static_cast<std::int64_t>(sizeof(To));
        for (std::int64_t begin = 0; begin < n; begin += step) {
            const std::int64_t count = std::min(step, n - begin);
            Piece& piece = pieces_[next_];
            next_ = 1 - next_;
            if (piece.bytes.size() == 0) piece.bytes = PinnedBuffer<std::byte>(std::min<std::int64_t>(kPieceBytes, std::max<std::int64_t>(n, 1024) * static_cast<std::int64_t>(sizeof(To))));
            if (piece.bytes.size() < count * static_cast<std::int64_t>(sizeof(To))) {
                LSMR_CHECK(cudaEventSynchronize(piece.sent));
                piece.bytes = PinnedBuffer<std::byte>(kPieceBytes);
            }
            LSMR_CHECK(cudaEventSynchronize(piece.sent));  // of an event never recorded: returns at once
            To* staged = reinterpret_cast<To*>(piece.bytes.data());
#pragma omp parallel for schedule(static)
            for (std::int64_t i = 0; i < count; ++i) staged[i] = value(begin + i);
            LSMR_CHECK(cudaMemcpyAsync(dst + begin, staged, static_cast<std::size_t>(count) * sizeof(To), cudaMemcpyHostToDevice, stream_));
            LSMR_CHECK(cudaEventRecord(piece.sent, stream_));
        }
    }

  private:
    static constexpr std::int64_t kPieceBytes = std::int64_t{16} << 20;
    struct Piece {
        PinnedBuffer<std::byte> bytes;
        cudaEvent_t sent = nullptr;
    };
    cudaStream_t stream_;
    Piece pieces_[2];
    int next_ = 0;
};

}  // namespace lsmr::cuda
