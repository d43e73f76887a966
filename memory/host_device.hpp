// LSMR_HD marks a function that runs on the host and in kernels: the recurrences and the vector updates are written once.
// LSMR_HD_SELDOM: one that a kernel calls seldom, and that is kept out of the code that it runs always.
#pragma once

#ifdef __CUDACC__
#define LSMR_HD __host__ __device__
#define LSMR_HD_SELDOM __host__ __device__ __noinline__
#else
#define LSMR_HD
#define LSMR_HD_SELDOM
#endif
