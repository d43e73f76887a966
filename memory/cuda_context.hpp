// CudaContext: one device, one stream, the library handles and the private pool, in one owned object. No CUDA header is needed to
// include this one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct CUstream_st;
struct cublasContext;
struct cusparseContext;

namespace lsmr {

class MemoryPool;
class Staging;

// Whether a GPU can be used, in words. Never throws; creates no context on a device that will not be used.
struct CudaProbe {
    bool built_in = false;  // the library was compiled with CUDA
    bool usable = false;
    std::string reason;                 // why not: "no NVIDIA driver is installed", ...; empty when usable
    std::vector<std::string> devices;   // "NVIDIA H200, sm_90, 139.8 GiB": one an index
    std::string driver;                 // "13.0", empty without a driver
    std::string runtime;                // "13.0", empty in a CPU build
};
CudaProbe probe_cuda(int device = 0);

class CudaContext {
  public:
    // memory_limit_bytes: bound of the pool, 0 for none.
    // stream: the caller's, or null for one of our own. The caller keeps theirs alive.
    // Throws DeviceError (unavailable) with the probe's words.
    explicit CudaContext(int device = 0, std::int64_t memory_limit_bytes = 0, CUstream_st* stream = nullptr);
    ~CudaContext();
    CudaContext(const CudaContext&) = delete;
    CudaContext& operator=(const CudaContext&) = delete;

    int device() const;
    const std::string& device_name() const;
    int multiprocessors() const;
    CUstream_st* stream() const;
    MemoryPool& pool() const;
    // Made at the first call, bound to stream(); cuBLAS works in a buffer of our pool.
    cusparseContext* cusparse() const;
    bool has_cusparse() const;  // was made: loading the library takes a process some 45 ms
    cublasContext* cublas() const;

    // Page-locked memory for copies on stream(): of StagingLease (memory/staging.hpp). One is kept.
    std::unique_ptr<Staging> lend_staging() const;
    void take_back(std::unique_ptr<Staging> staging) const;

    // Waits for the stream; throws DeviceError when something before it failed.
    void synchronize() const;
    // Free device memory as this context can use it: what the driver says plus what our pool holds unused, within the limit.
    std::int64_t free_bytes() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// Makes `device` current for the calling thread and restores the caller's device at the end of the scope: the library sets no
// device for the caller.
class DeviceScope {
  public:
    explicit DeviceScope(int device);
    ~DeviceScope();
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

  private:
    int previous_;
};

}  // namespace lsmr
