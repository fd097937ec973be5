// SPDX-License-Identifier: Apache-2.0
// Asks for rows of a layer some rows before their use: they lie far apart in memory, where no hardware prefetcher
// foresees them. Inlined by force: to g++ a function that only prefetches has no effect, so it drops the call.
#pragma once

#include "optim/optimizer.hpp"

#include <cstdint>

namespace dslide {

constexpr std::int64_t rows_ahead_of_update = 3;

/// `bytes` from p, into the second-level cache. for_write: 1 or 0.
template <int for_write>
[[gnu::always_inline]] inline void prefetch(const void *p, std::int64_t bytes) {
    constexpr std::int64_t line = 64;
    for (std::int64_t i = 0; i < bytes; i += line) __builtin_prefetch(static_cast<const char *>(p) + i, for_write, 2);
}

/// A row's weights and moments.
[[gnu::always_inline]] inline void prefetch_for_update(const Parameters &p, std::int64_t row) {
    const std::int64_t bytes = p.stride * std::int64_t{sizeof(float)};
    prefetch<1>(p.row(row), bytes);
    for (const float *plane : p.state)
        if (plane) prefetch<1>(plane + row * p.stride, bytes);
}

/// The part of a row's weights that scoring reads.
[[gnu::always_inline]] inline void prefetch_for_score(const Parameters &p, std::int64_t row) {
    if (p.bf16)
        prefetch<0>(p.bf16 + row * p.stride, p.stride * std::int64_t{sizeof(std::uint16_t)});
    else
        prefetch<0>(p.row(row), p.stride * std::int64_t{sizeof(float)});
}

} // namespace dslide
