// SPDX-License-Identifier: Apache-2.0
// What a rebuild of the tables must know of all rows, gathered in one pass over the rows at hand; statistics of several
// ranks are merged in their order.
#pragma once

#include "core/arena.hpp"
#include "core/memory.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dslide {

struct RowStatistics {
    struct Head {
        float logit;
        std::int32_t id; ///< of the class, over all ranks
    };
    double rows = 0;
    double square = 0;       ///< sum of |w|^2
    double logit = 0;        ///< sum of mean logits
    double logit_square = 0; ///< sum of their squares
    std::vector<float> sum;  ///< of the rows; padded width
    std::vector<Head> head;  ///< the rows with the highest mean logits, best first; equals by id

    /// Adds the statistics of other rows; of both heads the best `head_rows` stay.
    void merge(const RowStatistics &other, std::int64_t head_rows);

    /// As bytes for other ranks, of the same size for all that have this width and head_rows.
    static std::size_t packed_bytes(std::int64_t width, std::int64_t head_rows);
    void pack(std::byte *to, std::int64_t head_rows) const;
    void unpack(const std::byte *from, std::int64_t width);
};

/// mean_logit[r] becomes bias + mean . w. ids: of the rows; null: the row itself.
RowStatistics measure_rows(Arena &arena, const float *weights, std::int64_t stride, std::int64_t rows,
                           const float *bias, const std::vector<float> &mean, const std::int32_t *ids,
                           std::int64_t head_rows, Array<float> &mean_logit);

} // namespace dslide
