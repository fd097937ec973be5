// SPDX-License-Identifier: Apache-2.0
#include "lsh/candidates.hpp"

#include "core/random.hpp"
#include "lsh/row_set.hpp"

#include <algorithm>

namespace dslide {

void RandomSource::find(Arena &arena, const Matrix &h, std::int64_t step, std::int64_t want, Candidates &out) {
    want = std::min(want, classes_);
    out.reshape(h.rows, want);
    arena.blocks(h.rows, 16, [&](std::int64_t begin, std::int64_t end) {
        RowSet taken;
        for (std::int64_t i = begin; i < end; ++i) {
            RandomStream random(seed_, Purpose::random_rows, static_cast<std::uint64_t>(step),
                                static_cast<std::uint64_t>(i));
            std::int32_t *row = out.row.data() + i * want;
            if (2 * want >
                classes_) { // most of all rows: an even thinning ends sooner than drawing the last missing ones
                std::int64_t n = 0;
                for (std::int64_t r = 0; r < classes_ && n < want; ++r)
                    if (random.below(static_cast<std::uint64_t>(classes_ - r)) < static_cast<std::uint64_t>(want - n))
                        row[n++] = static_cast<std::int32_t>(r);
            } else {
                taken.reset(want);
                for (std::int64_t n = 0; n < want;) {
                    row[n] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(classes_)));
                    n += taken.insert(row[n]);
                }
            }
            std::int32_t *last = row + want;
            if (row_of_) {
                std::transform(row, last, row, [&](std::int32_t c) { return row_of_[c]; });
                last = std::remove(row, last, -1);
            }
            out.count[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(last - row);
        }
    });
}

} // namespace dslide
