// SPDX-License-Identifier: Apache-2.0
#include "core/memory.hpp"

#include "core/error.hpp"

#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>

namespace dslide {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
constexpr std::size_t simd_alignment = 64;

std::size_t mapped_bytes(std::size_t bytes) {
    return (bytes + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
}

// A mapping aligned to 2 MiB: map one page too much, give back what sticks out on both sides.
void *map_aligned(std::size_t bytes) {
    const std::size_t total = bytes + huge_page_bytes;
    void *raw = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) throw std::bad_alloc();
    const auto begin = reinterpret_cast<std::uintptr_t>(raw);
    const std::uintptr_t aligned = (begin + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
    if (aligned > begin) munmap(raw, aligned - begin);
    if (const std::uintptr_t tail = begin + total - (aligned + bytes))
        munmap(reinterpret_cast<void *>(aligned + bytes), tail);
    void *address = reinterpret_cast<void *>(aligned);
    madvise(address, bytes, MADV_HUGEPAGE); // a hint: where it is refused, 4 KiB pages do
    return address;
}

} // namespace

void *allocate_zeroed(std::size_t bytes) {
    if (bytes > SIZE_MAX - 2 * huge_page_bytes) throw std::bad_alloc();
    if (bytes >= huge_page_bytes) return map_aligned(mapped_bytes(bytes));
    const std::size_t rounded = (bytes + simd_alignment - 1) / simd_alignment * simd_alignment;
    void *address = std::aligned_alloc(simd_alignment, rounded);
    if (!address) throw std::bad_alloc();
    std::memset(address, 0, rounded);
    return address;
}

void release(void *address, std::size_t bytes) noexcept {
    if (bytes >= huge_page_bytes)
        munmap(address, mapped_bytes(bytes));
    else
        std::free(address);
}

std::size_t checked_product(std::size_t a, std::size_t b) {
    std::size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        fail(DSLIDE_E_MEMORY, a, " elements of ", b, " bytes exceed the address space");
    return product;
}

} // namespace dslide
