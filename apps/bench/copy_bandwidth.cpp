#include "copy_bandwidth.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "memory/host_buffer.hpp"
#include "stopwatch.hpp"

namespace lsmr {

double measure_host_copy_bandwidth() {
    constexpr std::int64_t kValues = std::int64_t{16} << 20;  // 128 MiB, beyond the caches of one socket
    constexpr int kCopies = 7;
    HostBuffer<double> from(kValues);
    HostBuffer<double> to(kValues);
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < kValues; ++i) from[i] = to[i] = 1;
    std::vector<double> seconds;
    for (int copy = 0; copy < kCopies; ++copy) {
        const Stopwatch watch;
        const double factor = 1 + copy;  // a product, so that the loop is not handed to memcpy and its other stores
#pragma omp parallel for schedule(static)
        for (std::int64_t i = 0; i < kValues; ++i) to[i] = factor * from[i];
        seconds.push_back(watch.seconds());
    }
    std::nth_element(seconds.begin(), seconds.begin() + kCopies / 2, seconds.end());
    return 2.0 * static_cast<double>(from.bytes()) / seconds[kCopies / 2];
}

}  // namespace lsmr
