// SPDX-License-Identifier: Apache-2.0
// Turns lists sample -> rows into lists row -> samples, so that each row is visited once and by one task (design:
// row-major passes). Rows are features of the input layer or classes of the output layer.
#pragma once

#include "core/arena.hpp"
#include "core/csr.hpp"
#include "core/memory.hpp"

#include <cstdint>
#include <vector>

namespace dslide {

class Inverse {
public:
    /// Rows must lie in [0, n_rows) and positions below 2^31. A two-pass radix sort: entries are dealt to ranges of
    /// rows, then each range is sorted by counting. The result depends on the lists alone.
    void build(Arena &arena, const SampleLists &lists, std::int64_t n_rows);

    std::int64_t touched() const { return touched_; }
    /// The i-th touched row, ascending.
    std::int32_t row(std::int64_t i) const { return rows_[i]; }
    std::int64_t begin(std::int64_t i) const { return starts_[i]; }
    std::int64_t count(std::int64_t i) const { return starts_[i + 1] - starts_[i]; }
    std::int64_t entries() const { return touched_ ? starts_[touched_] : 0; }
    /// Entry e's sample, ascending within a row, and its place in SampleLists::row.
    const std::int32_t *samples() const { return samples_.data(); }
    const std::int32_t *positions() const { return positions_.data(); }

    /// Cuts the touched rows into at most `parts` consecutive parts of about equal work: part p is [cut[p], cut[p +
    /// 1]).
    std::vector<std::int64_t> cut(std::int64_t parts) const;

    std::size_t bytes() const {
        return entries_.bytes() + rows_.bytes() + counts_.bytes() + starts_.bytes() + samples_.bytes() +
               positions_.bytes();
    }

private:
    struct Entry {
        std::int32_t row, sample, position;
    };
    Array<Entry> entries_;
    Array<std::int32_t> rows_, samples_, positions_;
    Array<std::int32_t> counts_; ///< entries of each row, then the next one's place; zero between calls
    Array<std::int64_t> starts_;
    std::int64_t touched_ = 0;
};

} // namespace dslide
