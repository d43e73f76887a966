// Arrays between host and device through page-locked staging: conversion on several cores while the last piece travels.
#pragma once

#include <cuda_runtime_api.h>
#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/device_buffer.hpp"
#include "memory/staging.hpp"

namespace lsmr::cuda {

// As many fill the link to the device; more take longer to begin.
inline int staging_threads() { return std::min(omp_get_max_threads(), 8); }

class Uploader {
  public:
    explicit Uploader(const CudaContext& context) : stream_(context.stream()), staging_(context) {}

    // dst[i] <- convert(src[i]) for i < n, dst in device memory. Returns when the last piece is on its way.
    template <class To, class From, class Convert>
    void operator()(To* dst, const From* src, std::int64_t n, const Convert& convert) {
        fill(dst, n, [&](std::int64_t i) { return convert(src[i]); });
    }
    // dst[i] <- value(i).
    template <class To, class Value>
    void fill(To* dst, std::int64_t n, const Value& value) {
        pieces(dst, n, [&](std::int64_t begin, std::int64_t count, To* staged) {
#pragma omp parallel for schedule(static) num_threads(staging_threads())
            for (std::int64_t i = 0; i < count; ++i) staged[i] = value(begin + i);
        });
    }
    // The same where a thread takes `chunk` values one after another: write(begin, count, staged) makes staged[i] value begin + i.
    template <class To, class Write>
    void by_chunks(To* dst, std::int64_t n, std::int64_t chunk, const Write& write) {
        LSMR_EXPECT(Staging::kPieceBytes / static_cast<std::int64_t>(sizeof(To)) % chunk == 0);
        pieces(dst, n, [&](std::int64_t begin, std::int64_t count, To* staged) {
#pragma omp parallel for schedule(static) num_threads(staging_threads())
            for (std::int64_t at = 0; at < count; at += chunk) write(begin + at, std::min(chunk, count - at), staged + at);
        });
    }

  private:
    template <class To, class Write>
    void pieces(To* dst, std::int64_t n, const Write& write) {
        const std::int64_t step = Staging::kPieceBytes / static_cast<std::int64_t>(sizeof(To));
        for (std::int64_t begin = 0; begin < n; begin += step) {
            const std::int64_t count = std::min(step, n - begin);
            Staging::Piece& piece = staging_->next(count * static_cast<std::int64_t>(sizeof(To)));
            To* staged = reinterpret_cast<To*>(piece.bytes.data());
            write(begin, count, staged);
            LSMR_CHECK(cudaMemcpyAsync(dst + begin, staged, static_cast<std::size_t>(count) * sizeof(To), cudaMemcpyHostToDevice, stream_));
            LSMR_CHECK(cudaEventRecord(piece.travelled, stream_));
        }
    }

    cudaStream_t stream_;
    StagingLease staging_;
};

// A short list in device memory, without staging. Asynchronous: the list stays until the stream has passed the copy.
template <class E>
DeviceBuffer<E> sent(const std::vector<E>& list, const CudaContext& context) {
    DeviceBuffer<E> buffer(context, static_cast<std::int64_t>(list.size()));
    if (!list.empty()) LSMR_CHECK(cudaMemcpyAsync(buffer.data(), list.data(), list.size() * sizeof(E), cudaMemcpyHostToDevice, context.stream()));
    return buffer;
}

// take(i, src[i]) for i < n, src in device memory, after what is on the stream. Waits.
template <class From, class Take>
void download(const CudaContext& context, const From* src, std::int64_t n, const Take& take) {
    const StagingLease staging(context);
    const std::int64_t step = Staging::kPieceBytes / static_cast<std::int64_t>(sizeof(From));
    const auto send = [&](std::int64_t begin) -> Staging::Piece* {
        if (begin >= n) return nullptr;
        const std::int64_t bytes = std::min(step, n - begin) * static_cast<std::int64_t>(sizeof(From));
        Staging::Piece& piece = staging->next(bytes);
        LSMR_CHECK(cudaMemcpyAsync(piece.bytes.data(), src + begin, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, context.stream()));
        LSMR_CHECK(cudaEventRecord(piece.travelled, context.stream()));
        return &piece;
    };
    Staging::Piece* piece = send(0);
    for (std::int64_t begin = 0; begin < n; begin += step) {
        Staging::Piece* const next = send(begin + step);
        piece->wait();
        ++cuda_counters().synchronizations;
        const auto* staged = reinterpret_cast<const From*>(piece->bytes.data());
        const std::int64_t count = std::min(step, n - begin);
#pragma omp parallel for schedule(static) num_threads(staging_threads())
        for (std::int64_t i = 0; i < count; ++i) take(begin + i, staged[i]);
        piece = next;
    }
}

}  // namespace lsmr::cuda
