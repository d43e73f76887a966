#include "operator/cuda/device_csr.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "operator/cuda/transpose.hpp"

namespace lsmr::cuda {
namespace {

std::int64_t longest_row(std::int64_t rows, const std::int64_t* offsets) {
    std::int64_t longest = 0;
    for (std::int64_t i = 0; i < rows; ++i) longest = std::max(longest, offsets[i + 1] - offsets[i]);
    return longest;
}

}  // namespace

template <class T>
DeviceCsr<T> upload(const CsrMatrix& a, int exponent, const CudaContext& context, EntrySizer* sizer) {
    DeviceCsr<T> device(context, a.rows(), a.cols(), a.nnz());
    Uploader up(context);
    const auto values = [&](const auto& convert) {
        up.by_chunks(device.values->data(), a.nnz(), EntrySizer::kChunk, [&](std::int64_t begin, std::int64_t count, T* staged) {
            const double* const from = a.values() + begin;
            for (std::int64_t k = 0; k < count; ++k) staged[k] = convert(from[k]);
            if (sizer != nullptr) sizer->add(begin / EntrySizer::kChunk);
        });
    };
    // The widest first: the staging then has its size.
    if (exponent == 0) {
        values([](double v) { return static_cast<T>(v); });
    } else {
        const double half = std::ldexp(1.0, exponent / 2);
        const double rest = std::ldexp(1.0, exponent - exponent / 2);
        values([=](double v) { return static_cast<T>(v * half * rest); });
    }
    up(device.columns->data(), a.columns(), a.nnz(), [](std::int32_t c) { return c; });
    device.with_offsets([&](auto* offsets) {
        using Offset = std::remove_pointer_t<decltype(offsets)>;
        up(offsets, a.offsets(), a.rows() + 1, [](std::int64_t o) { return static_cast<Offset>(o); });
    });
    return device;
}

// (Not cusparseCsr2cscEx2: loading it takes a process 30 to 50 ms.)
template <class T>
DeviceCsr<T> transposed(const DeviceCsr<T>& a, const CudaContext& context) {
    DeviceCsr<T> t(context, a.cols, a.rows, a.nnz);
    constexpr std::int64_t kChunk = std::int64_t{1} << 27;
    const auto launch = [&](const std::int64_t* host_offsets, std::int64_t chunk) {
        TransposeScratch scratch(context, host_offsets != nullptr ? a.cols : 0, chunk);
        a.with_offsets([&](const auto* offsets) {
            t.with_offsets([&](auto* out_offsets) {
                // Both are of one width: they have as many entries. (decltype of a captured pointer would be another type here: GCC 12.)
                if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*offsets)>, std::remove_cvref_t<decltype(*out_offsets)>>) {
                    const auto run = [&](const auto& transpose, auto entries) {
                        transpose(a.rows, a.cols, entries, offsets, a.columns->data(), a.values->data(), out_offsets, t.columns->data(),
                                  t.values->data(), scratch, context.stream());
                    };
                    if (host_offsets == nullptr) run(launch_whole_transpose<T, std::remove_cvref_t<decltype(*offsets)>>, a.nnz);
                    else run(launch_transpose<T, std::remove_cvref_t<decltype(*offsets)>>, host_offsets);
                }
            });
        });
    };
    if (a.nnz <= kChunk) {
        launch(nullptr, a.nnz);
        return t;
    }
    const DownloadedOffsets<T> offsets(a, context);
    std::vector<std::int64_t> widened;
    const std::int64_t* host = offsets.view().wide;
    if (host == nullptr) {
        widened.assign(offsets.view().narrow, offsets.view().narrow + a.rows + 1);
        host = widened.data();
    }
    launch(host, std::max(kChunk, longest_row(a.rows, host)));
    context.synchronize();
    return t;
}

#define LSMR_INSTANTIATE(T)                                                                    \
    template DeviceCsr<T> upload<T>(const CsrMatrix&, int, const CudaContext&, EntrySizer*);   \
    template DeviceCsr<T> transposed(const DeviceCsr<T>&, const CudaContext&);
LSMR_INSTANTIATE(double)
LSMR_INSTANTIATE(float)
#undef LSMR_INSTANTIATE

}  // namespace lsmr::cuda
