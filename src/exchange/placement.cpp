// SPDX-License-Identifier: Apache-2.0
#include "exchange/placement.hpp"

#include "core/random.hpp"
#include "simd/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dslide {
namespace {

/// The next of n things goes to the rank that is least ahead of its share; among equals to the one with the least load.
class Dealer {
public:
    explicit Dealer(std::span<const double> shares) : shares_(shares), dealt_(shares.size()), load_(shares.size()) {}
    std::size_t deal(double weight) {
        std::size_t best = 0;
        for (std::size_t r = 1; r < shares_.size(); ++r) {
            const double ahead = (dealt_[r] + 1) / shares_[r], least = (dealt_[best] + 1) / shares_[best];
            if (ahead < least || (ahead == least && load_[r] / shares_[r] < load_[best] / shares_[best])) best = r;
        }
        dealt_[best] += 1;
        load_[best] += weight;
        return best;
    }

private:
    std::span<const double> shares_;
    std::vector<double> dealt_, load_;
};

} // namespace

Slices cut_neurons(std::int64_t width, std::span<const double> shares) {
    const auto ranks = static_cast<std::int64_t>(shares.size());
    const std::int64_t grain = width % simd::row_lanes == 0 && width >= ranks * simd::row_lanes ? simd::row_lanes : 1;
    const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
    Slices slices;
    slices.begin.assign(1, 0);
    double before = 0;
    for (const double share : shares) {
        before += share;
        slices.begin.push_back(std::llround(static_cast<double>(width / grain) * before / total) * grain);
    }
    slices.begin.back() = width;
    return slices;
}

Placement::Placement(std::int64_t classes, std::span<const std::int64_t> counts, std::span<const double> shares,
                     int rank, std::uint64_t seed)
    : Placement(classes) {
    if (shares.size() == 1) return;
    const auto hash = [&](std::int32_t c) {
        return RandomStream(seed, Purpose::placement, static_cast<std::uint64_t>(c)).bits();
    };
    std::vector<std::pair<std::uint64_t, std::int32_t>> order(static_cast<std::size_t>(classes));
    for (std::int32_t c = 0; c < classes; ++c) order[static_cast<std::size_t>(c)] = {hash(c), c};
    std::sort(order.begin(), order.end());
    if (!counts.empty())
        std::stable_sort(order.begin(), order.end(), [&](const auto &a, const auto &b) {
            return counts[static_cast<std::size_t>(a.second)] > counts[static_cast<std::size_t>(b.second)];
        });
    Dealer dealer(shares);
    std::vector<std::int64_t> rows(shares.size());
    row_of_.assign(static_cast<std::size_t>(classes), -1);
    for (const auto &[key, c] : order) {
        const std::size_t owner =
            dealer.deal(counts.empty() ? 0 : static_cast<double>(counts[static_cast<std::size_t>(c)]));
        ++rows[owner];
        if (owner == static_cast<std::size_t>(rank)) row_of_[static_cast<std::size_t>(c)] = 0;
    }
    starts_.assign(1, 0);
    for (const std::int64_t n : rows) starts_.push_back(starts_.back() + n);
    class_of_.reserve(static_cast<std::size_t>(rows[static_cast<std::size_t>(rank)]));
    for (std::int32_t c = 0; c < classes; ++c) {
        std::int32_t &row = row_of_[static_cast<std::size_t>(c)];
        if (row < 0) continue;
        row = static_cast<std::int32_t>(class_of_.size());
        class_of_.push_back(c);
    }
}

} // namespace dslide
