#include "memory/host_buffer.hpp"

#include <sys/mman.h>

namespace lsmr {

void detail::advise_large_pages(void* pointer, std::size_t bytes) noexcept {
    constexpr std::uintptr_t kPage = 4096;
    constexpr std::size_t kLarge = std::size_t{4} << 20;  // two large pages: below, the first touch of one would waste memory
    if (bytes < kLarge) return;
    const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(pointer) + kPage - 1) / kPage * kPage;
    const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(pointer) + bytes) / kPage * kPage;
    // A hint: where it is refused, the memory is as good as before.
    static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
}

}  // namespace lsmr
