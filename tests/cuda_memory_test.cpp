// The private pool, the buffers and the context on a GPU.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cuda_support.hpp"
#include "memory/cuda_capture.hpp"
#include "memory/cuda_check.hpp"
#include "memory/device_buffer.hpp"
#include "memory/staging.hpp"
#include "operator/cuda/uploader.hpp"

using namespace lsmr;
using namespace lsmr::test;

namespace {
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
}

TEST_SUITE_BEGIN("sanitizer");

TEST_CASE("cuda memory: buffers are aligned and counted and returned") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    MemoryPool& pool = context.pool();
    {
        DeviceBuffer<double> a(context, 1000);
        DeviceBuffer<float> b(context, 1);
        CHECK(reinterpret_cast<std::uintptr_t>(a.data()) % 256 == 0);
        CHECK(reinterpret_cast<std::uintptr_t>(b.data()) % 256 == 0);
        CHECK(pool.live_bytes() == 8192 + 256);
        const double* before = a.data();
        a.reserve(10);  // only grows
        CHECK(a.data() == before);
        DeviceBuffer<double> moved(std::move(a));
        CHECK(moved.data() == before);
        CHECK(pool.live_bytes() == 8192 + 256);
    }
    CHECK(pool.live_bytes() == 0);
    CHECK(pool.peak_bytes() == 8192 + 256);
    pool.reset_peak();
    CHECK(pool.peak_bytes() == 0);
    pool.trim();
    CHECK(pool.reserved_bytes() == 0);
}

TEST_CASE("cuda memory: nothing is asked for zero bytes") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    DeviceBuffer<double> none(context, 0);
    CHECK(none.data() == nullptr);
    CHECK(context.pool().live_bytes() == 0);
}

TEST_CASE("cuda memory: freed memory is kept and used again without the driver") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    { DeviceBuffer<std::byte> warm(context, 64 * kMiB); }
    context.synchronize();
    const std::int64_t reserved = context.pool().reserved_bytes();
    CHECK(reserved >= 64 * kMiB);
    for (int i = 0; i < 100; ++i) {
        DeviceBuffer<std::byte> again(context, (64 - i % 32) * kMiB);
        context.synchronize();
        REQUIRE(context.pool().reserved_bytes() == reserved);
    }
}

TEST_CASE("cuda memory: the host program's own pool and device are left alone") {
    LSMR_NEEDS_GPU();
    cudaMemPool_t before = nullptr;
    std::uint64_t threshold_before = 1, threshold_after = 2;
    LSMR_CHECK(cudaDeviceGetMemPool(&before, 0));
    LSMR_CHECK(cudaMemPoolGetAttribute(before, cudaMemPoolAttrReleaseThreshold, &threshold_before));
    {
        CudaContext context(0);
        DeviceBuffer<double> some(context, 1000);
        cudaMemPool_t during = nullptr;
        LSMR_CHECK(cudaDeviceGetMemPool(&during, 0));
        CHECK(during == before);
    }
    LSMR_CHECK(cudaMemPoolGetAttribute(before, cudaMemPoolAttrReleaseThreshold, &threshold_after));
    CHECK(threshold_before == threshold_after);
}

TEST_CASE("cuda memory: handles are made on demand and work in the pool") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    CHECK(context.pool().live_bytes() == 0);
    CHECK(context.cusparse() == context.cusparse());
    CHECK(context.cublas() == context.cublas());
    CHECK(context.pool().live_bytes() == 32 * kMiB);
    const std::vector<double> host{3, 4};
    DeviceBuffer<double> x(context, 2), norm(context, 1);
    LSMR_CHECK(cudaMemcpyAsync(x.data(), host.data(), 16, cudaMemcpyHostToDevice, context.stream()));
    LSMR_CHECK(cublasDnrm2(context.cublas(), 2, x.data(), 1, norm.data()));
    double result = 0;
    LSMR_CHECK(cudaMemcpyAsync(&result, norm.data(), 8, cudaMemcpyDeviceToHost, context.stream()));
    context.synchronize();
    CHECK(result == doctest::Approx(5));
}

TEST_CASE("cuda memory: a context keeps its staging, and who comes while it is lent gets another") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    const std::int64_t n = 5 * Staging::kPieceBytes / static_cast<std::int64_t>(sizeof(double)) / 2 + 3;
    std::vector<double> sent(static_cast<std::size_t>(n)), received(sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<double>(i);
    DeviceBuffer<double> wide(context, n);
    DeviceBuffer<float> narrow(context, n);
    const std::int64_t before = cuda_counters().page_locked;
    for (int round = 0; round < 3; ++round) {
        cuda::Uploader up(context);
        up(wide.data(), sent.data(), n, [round](double v) { return v + round; });
        cuda::download(context, wide.data(), n, [&](std::int64_t i, double v) { received[static_cast<std::size_t>(i)] = v - round; });
        CHECK(received == sent);
        // Both are at work here.
        CHECK(cuda_counters().page_locked - before == 4 + 2 * round);
    }
    // One at a time: nothing more.
    const std::int64_t kept = cuda_counters().page_locked;
    for (const std::int64_t count : {n, std::int64_t{1}, std::int64_t{0}, n - 1}) {
        std::fill(received.begin(), received.end(), -1.0);
        {
            cuda::Uploader up(context);
            up(narrow.data(), sent.data(), count, [](double v) { return static_cast<float>(v); });
        }
        cuda::download(context, narrow.data(), count, [&](std::int64_t i, float v) { received[static_cast<std::size_t>(i)] = static_cast<double>(v); });
        CHECK(std::equal(received.begin(), received.begin() + count, sent.begin()));
        CHECK(std::all_of(received.begin() + count, received.end(), [](double v) { return v == -1; }));
    }
    CHECK(cuda_counters().page_locked == kept);
}

TEST_CASE("cuda memory: what the next allocations take is kept") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    { DeviceBuffer<std::byte> temporary(context, 512 * kMiB); }
    context.pool().trim(256 * kMiB);
    const std::int64_t reserved = context.pool().reserved_bytes();
    CHECK(reserved >= 256 * kMiB);
    { DeviceBuffer<std::byte> next(context, 256 * kMiB); CHECK(context.pool().reserved_bytes() == reserved); }
    context.pool().trim();
    CHECK(context.pool().reserved_bytes() == 0);
}

TEST_CASE("cuda memory: a caller's stream is used and kept") {
    LSMR_NEEDS_GPU();
    cudaStream_t stream = nullptr;
    LSMR_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    {
        CudaContext context(0, 0, stream);
        CHECK(context.stream() == stream);
        DeviceBuffer<double> x(context, 100);
    }
    LSMR_CHECK(cudaStreamSynchronize(stream));  // still alive
    LSMR_CHECK(cudaStreamDestroy(stream));
}

TEST_CASE("cuda memory: several threads share a pool") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&context, t] {
            for (int i = 0; i < 50; ++i) DeviceBuffer<std::byte> buffer(context, (1 + (t * 7 + i) % 13) * 4096);
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(context.pool().live_bytes() == 0);
}

TEST_CASE("cuda memory: without pool support the same interface runs on cudaMalloc") {
    LSMR_NEEDS_GPU();
    setenv("LSMR_FORCE_NO_POOL", "1", 1);
    {
        CudaContext context(0);
        unsetenv("LSMR_FORCE_NO_POOL");
        CHECK(context.pool().backend() == MemoryPool::Backend::plain);
        { DeviceBuffer<double> a(context, 100000); }
        CHECK(context.pool().live_bytes() == 0);
        const std::int64_t reserved = context.pool().reserved_bytes();
        CHECK(reserved > 0);
        { DeviceBuffer<double> b(context, 90000); }  // from the block that was freed
        CHECK(context.pool().reserved_bytes() == reserved);
        context.pool().trim();
        CHECK(context.pool().reserved_bytes() == 0);
    }
    unsetenv("LSMR_FORCE_NO_POOL");
    CudaContext with_pool(0);
    CHECK(with_pool.pool().backend() == MemoryPool::Backend::cuda_pool);
}

TEST_SUITE_END();

// Out of the sanitizer's subset: refused allocations and calls count as errors for it, and it holds device memory of its own.

TEST_CASE("cuda memory: memory asked for in a capture is refused in words, and nothing of it stays") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    { DeviceBuffer<double> warm(context, 1000); }
    const auto asks = [&] { DeviceBuffer<double> some(context, 1000); };
    CHECK_THROWS_WITH_AS(CapturedGraph(context.stream(), asks),
                         "device memory was asked for by work that is being captured into a CUDA graph; run the same work once before", DeviceError);
    CHECK(context.pool().live_bytes() == 0);
    asks();
    context.synchronize();
}

TEST_CASE("cuda memory: memory is that of the context's GPU, whichever is current, and the current one stays") {
    LSMR_NEEDS_GPU();
    int devices = 0;
    LSMR_CHECK(cudaGetDeviceCount(&devices));
    const int other = devices - 1;  // where there is one GPU: the same
    for (const char* no_pool : {"0", "1"}) {
        CAPTURE(no_pool);
        setenv("LSMR_FORCE_NO_POOL", no_pool, 1);
        CudaContext context(other);
        unsetenv("LSMR_FORCE_NO_POOL");
        DeviceBuffer<double> some(context, 1000);
        cudaPointerAttributes attributes{};
        LSMR_CHECK(cudaPointerGetAttributes(&attributes, some.data()));
        CHECK(attributes.device == other);
        int current = -1;
        LSMR_CHECK(cudaGetDevice(&current));
        CHECK(current == 0);
        {
            const DeviceScope outer(other);
            const DeviceScope inner(0);
            LSMR_CHECK(cudaGetDevice(&current));
            CHECK(current == 0);
            const DeviceScope innermost(other);
            LSMR_CHECK(cudaGetDevice(&current));
            CHECK(current == other);
        }
        LSMR_CHECK(cudaGetDevice(&current));
        CHECK(current == 0);
    }
}

TEST_CASE("cuda memory: a capture that fails leaves no error for the next launch") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    const auto waits = [&] { LSMR_CHECK(cudaStreamSynchronize(context.stream())); };
    CHECK_THROWS_AS(CapturedGraph(context.stream(), waits), DeviceError);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    cudaGetLastError();
    context.synchronize();  // the stream is as before
}

TEST_CASE("cuda memory: memory goes back to the driver with the context" * doctest::test_suite("alone")) {
    LSMR_NEEDS_GPU();
    { CudaContext warm(0); }
    std::size_t free_before = 0, free_after = 0, total = 0;
    LSMR_CHECK(cudaMemGetInfo(&free_before, &total));
    {
        CudaContext context(0);
        DeviceBuffer<std::byte> some(context, 256 * kMiB);
        context.synchronize();
    }
    LSMR_CHECK(cudaDeviceSynchronize());
    LSMR_CHECK(cudaMemGetInfo(&free_after, &total));
    CHECK(static_cast<std::int64_t>(free_before) - static_cast<std::int64_t>(free_after) <= 2 * kMiB);
}

TEST_CASE("cuda memory: the limit is exact and the error has the numbers") {
    LSMR_NEEDS_GPU();
    CudaContext context(0, 256 * kMiB);
    std::vector<DeviceBuffer<std::byte>> blocks;
    for (int i = 0; i < 8; ++i) blocks.emplace_back(context, 32 * kMiB);
    CHECK(context.free_bytes() == 0);
    bool refused = false;
    try {
        DeviceBuffer<std::byte> ninth(context, 32 * kMiB);
    } catch (const OutOfMemory& error) {
        refused = true;
        CHECK(error.requested_bytes() == 32 * kMiB);
        CHECK(error.live_bytes() == 256 * kMiB);
        CHECK(error.free_bytes() == 0);
        CHECK(std::string(error.what()) ==
              "out of device memory: 32.00 MiB requested, 256.00 MiB in use by this solver, 0 B free; the limit is 256.00 MiB");
    }
    CHECK(refused);
    blocks.pop_back();
    CHECK_NOTHROW(DeviceBuffer<std::byte>(context, 32 * kMiB));
}

TEST_CASE("cuda memory: fragments and unseen frees are cured by one retry") {
    LSMR_NEEDS_GPU();
    // Sizes alternate within 1.2 times the largest: each needs what the one before left behind.
    CudaContext context(0, 120 * kMiB);
    for (int i = 0; i < 40; ++i) {
        const std::int64_t size = i % 2 == 0 ? 100 * kMiB : 33 * kMiB;
        CHECK_NOTHROW(DeviceBuffer<std::byte>(context, size));
        if (i % 2 == 1) {
            DeviceBuffer<std::byte> a(context, 33 * kMiB), b(context, 33 * kMiB), c(context, 33 * kMiB);
        }
    }
    CHECK(context.pool().live_bytes() == 0);
    CHECK(context.pool().reserved_bytes() <= 128 * kMiB);
}

TEST_CASE("cuda memory: a device that is not there is refused with the list") {
    LSMR_NEEDS_GPU();
    try {
        CudaContext context(77);
        CHECK(false);
    } catch (const DeviceError& error) {
        CHECK(error.kind() == DeviceError::Kind::unavailable);
        CHECK(std::string(error.what()).find("there is no GPU 77") != std::string::npos);
    }
}

TEST_CASE("cuda memory: a failed call is named with its code") {
    LSMR_NEEDS_GPU();
    try {
        LSMR_CHECK(cudaSetDevice(12345));
        CHECK(false);
    } catch (const DeviceError& error) {
        const std::string words = error.what();
        CHECK(words.find("cudaSetDevice(12345)") != std::string::npos);
        CHECK(words.find("cudaErrorInvalidDevice") != std::string::npos);
    }
    CHECK(cudaGetLastError() == cudaSuccess);  // not left for the next check
}

TEST_CASE("cuda memory: a context is refused in a forked child") {
    LSMR_NEEDS_GPU();
    CudaContext context(0);
    const pid_t child = fork();
    if (child == 0) {
        int code = 1;
        try {
            context.synchronize();
        } catch (const DeviceError& error) {
            code = std::string(error.what()).find("fork") != std::string::npos ? 0 : 2;
        }
        _exit(code);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}
