// SPDX-License-Identifier: Apache-2.0
#include "train/exact_source.hpp"

#include "layers/top_k.hpp"

#include <algorithm>

namespace dslide {

void ExactSource::find(Arena &arena, const Matrix &h, std::int64_t, std::int64_t want, Candidates &out) {
    want = std::min(want, weight_.rows);
    out.reshape(h.rows, want);
    exact_top_k(arena, h, weight_, bias_, want, out.row.data(), nullptr);
    for (std::int64_t i = 0; i < h.rows; ++i) { // fewer where scores are NaN, which the loss will report
        const std::int32_t *first = out.row.data() + i * want;
        out.count[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(std::find(first, first + want, -1) - first);
    }
}

} // namespace dslide
