// Errors and host buffers.
#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>

#include "memory/cuda_context.hpp"
#include "memory/error.hpp"
#include "memory/host_buffer.hpp"

using namespace lsmr;

TEST_CASE("memory: errors say what a person needs") {
    const InputError at("a.mtx", 3, 5, "found x, expected y");
    CHECK(std::string(at.what()) == "a.mtx:3:5: found x, expected y");
    CHECK(at.line() == 3);
    CHECK(at.column() == 5);
    CHECK(at.kind() == InputError::Kind::malformed);
    const OutOfMemory memory(std::int64_t{3} << 30, 1 << 20, 512, "try less");
    CHECK(std::string(memory.what()) == "out of device memory: 3.00 GiB requested, 1.00 MiB in use by this solver, 512 B free; try less");
    CHECK(memory.kind() == DeviceError::Kind::fault);
    CHECK_THROWS_AS(LSMR_EXPECT(1 + 1 == 3), InternalError);
    CHECK_NOTHROW(LSMR_EXPECT(1 + 1 == 2));
}

TEST_CASE("memory: host buffers are aligned and owned") {
    for (std::int64_t size : {0, 1, 63, 64, 65, 100000}) {
        HostBuffer<double> buffer(size, 2.5);
        CHECK(buffer.size() == size);
        CHECK(buffer.bytes() == size * 8);
        CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % HostBuffer<double>::kAlignment == 0);
        CHECK(std::accumulate(buffer.begin(), buffer.end(), 0.0) == 2.5 * static_cast<double>(size));
        HostBuffer<double> moved(std::move(buffer));
        CHECK(moved.size() == size);
        const HostBuffer<double> copy = moved.clone();
        CHECK(std::equal(copy.begin(), copy.end(), moved.begin()));
        if (size > 0) CHECK(copy.data() != moved.data());
    }
    CHECK_THROWS_AS(HostBuffer<double>(-1), std::bad_alloc);
    CHECK_THROWS_AS(HostBuffer<double>(INT64_MAX), std::bad_alloc);
}

TEST_CASE("memory: the probe of a GPU answers in words and never throws") {
    const CudaProbe probe = probe_cuda(0);
    CHECK(probe.usable == probe.reason.empty());
    const CudaProbe out_of_range = probe_cuda(1000);
    CHECK_FALSE(out_of_range.usable);
    CHECK_FALSE(out_of_range.reason.empty());
}
