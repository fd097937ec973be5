// SPDX-License-Identifier: Apache-2.0
// The order of an epoch: a function of seed, epoch and block alone.
#pragma once

#include "core/random.hpp"

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace dslide {

/// Number of the only block of a set that is shuffled whole.
constexpr std::int64_t whole_set = 0;

inline std::uint64_t shuffle_seed(std::uint64_t option) { return option ? option : default_seed; }

/// A random order of 0 .. n-1 (Fisher and Yates).
inline void shuffled_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch, std::int64_t block,
                           std::vector<std::int64_t> &order) {
    order.resize(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    RandomStream stream(seed, Purpose::shuffle, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(block));
    for (std::size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[stream.below(left)]);
}

} // namespace dslide
