// SPDX-License-Identifier: Apache-2.0
// Files are little-endian; big-endian hosts reverse the bytes of each value on the way.
#pragma once

#include <bit>
#include <cstddef>
#include <utility>

namespace dslide {

constexpr bool host_is_little_endian = std::endian::native == std::endian::little;
static_assert(host_is_little_endian || std::endian::native == std::endian::big, "mixed-endian hosts are not supported");

/// Reverses the bytes of each of `count` values in place.
inline void reverse_bytes(void *values, std::size_t count, std::size_t value_size) {
    char *value = static_cast<char *>(values);
    for (std::size_t i = 0; i < count; ++i, value += value_size)
        for (std::size_t a = 0, b = value_size - 1; a < b; ++a, --b) std::swap(value[a], value[b]);
}

} // namespace dslide
