// LSMR_HD marks a function that runs on the host and in kernels: the recurrences and the vector updates are written once.
#pragma once

#ifdef __CUDACC__
#define LSMR_HD __host__ __device__
#else
#define LSMR_HD
#endif
