// SPDX-License-Identifier: Apache-2.0
// Large zeroed arrays, aligned for SIMD and on huge pages where the kernel allows: random row reads are several times
// faster there (fewer TLB misses).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace dslide {

/// Zeroed bytes, 64-byte aligned; throws std::bad_alloc. A hint for huge pages goes with sizes of 2 MiB and more.
void *allocate_zeroed(std::size_t bytes);
void release(void *address, std::size_t bytes) noexcept;

/// a * b, or Error(DSLIDE_E_MEMORY) where it does not fit.
std::size_t checked_product(std::size_t a, std::size_t b);

template <class T>
class Array {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    Array() = default;
    explicit Array(std::size_t size)
        : data_(size ? static_cast<T *>(allocate_zeroed(checked_product(size, sizeof(T)))) : nullptr), size_(size) {}
    Array(Array &&other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    Array &operator=(Array &&other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;
    ~Array() {
        if (data_) release(data_, size_ * sizeof(T));
    }

    T *data() { return data_; }
    const T *data() const { return data_; }
    std::size_t size() const { return size_; }
    std::size_t bytes() const { return size_ * sizeof(T); }
    T &operator[](std::size_t i) { return data_[i]; }
    const T &operator[](std::size_t i) const { return data_[i]; }
    T *begin() { return data_; }
    T *end() { return data_ + size_; }

    /// At least `size` elements; what was inside is lost when it grows, and grown elements are zero.
    void ensure(std::size_t size) {
        if (size > size_) *this = Array(size + size / 4);
    }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace dslide
