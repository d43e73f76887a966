// The bandwidth of the host's memory, for shares of it.
#pragma once

namespace lsmr {

// Bytes a second of a copy by all of OpenMP's threads, read and written: the median of 7 copies of 128 MiB.
double measure_host_copy_bandwidth();

}  // namespace lsmr
