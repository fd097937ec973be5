// SPDX-License-Identifier: Apache-2.0
#include "lsh/shared_rows.hpp"

#include "core/random.hpp"

#include <algorithm>
#include <cmath>

namespace dslide {

void SharedRows::set_counts(std::span<const std::int64_t> counts, double power) {
    cumulative_.resize(counts.size());
    double sum = 0;
    for (std::size_t r = 0; r < counts.size(); ++r) {
        if (counts[r] > 0)
            sum += power == 1 ? static_cast<double>(counts[r]) : std::pow(static_cast<double>(counts[r]), power);
        cumulative_[r] = sum;
    }
    if (sum > 0) return;
    for (std::size_t r = 0; r < counts.size(); ++r) cumulative_[r] = static_cast<double>(r + 1);
}

void SharedRows::draw(std::int64_t draws, std::uint64_t seed, std::int64_t step, std::vector<std::int32_t> &rows,
                      std::vector<float> &log_inclusion, const std::int32_t *row_of) const {
    RandomStream random(seed, Purpose::shared_rows, static_cast<std::uint64_t>(step));
    rows.clear();
    const double total = cumulative_.back();
    for (std::int64_t d = 0; d < draws; ++d) {
        const auto at = std::upper_bound(cumulative_.begin(), cumulative_.end(), random.uniform() * total);
        rows.push_back(static_cast<std::int32_t>(std::min(at, cumulative_.end() - 1) - cumulative_.begin()));
    }
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    if (row_of)
        rows.erase(std::remove_if(rows.begin(), rows.end(), [&](std::int32_t c) { return row_of[c] < 0; }), rows.end());
    log_inclusion.resize(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto r = static_cast<std::size_t>(rows[i]);
        const double p = (cumulative_[r] - (r ? cumulative_[r - 1] : 0)) / total;
        log_inclusion[i] = static_cast<float>(std::log(-std::expm1(static_cast<double>(draws) * std::log1p(-p))));
    }
    if (row_of) // ascending classes are ascending rows
        for (std::int32_t &row : rows) row = row_of[row];
}

} // namespace dslide
