// SPDX-License-Identifier: Apache-2.0
// Rows drawn by label frequency and shared by a whole batch. Early in training, when retrieval is no better than
// chance, they teach most; as a dense block they are nearly free.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dslide {

class SharedRows {
public:
    /// Rows are drawn with probability proportional to count^power; without any count, uniformly.
    void set_counts(std::span<const std::int64_t> counts, double power);

    /// Draws `draws` times with replacement; the distinct rows, ascending. `log_inclusion`: log of the probability that
    /// a row is among them.
    /// row_of: the row of a class, or -1, which is left out; null: row = class.
    void draw(std::int64_t draws, std::uint64_t seed, std::int64_t step, std::vector<std::int32_t> &rows,
              std::vector<float> &log_inclusion, const std::int32_t *row_of = nullptr) const;

private:
    std::vector<double> cumulative_;
};

} // namespace dslide
