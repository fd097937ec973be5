// SPDX-License-Identifier: Apache-2.0
// Borrowed rows of a CSR matrix, as the core sees them: checked, 32-bit columns, ascending and unique within a row.
#pragma once

#include <cstdint>
#include <span>

namespace dslide {

struct CsrRows {
    std::int64_t n_rows = 0;
    std::int64_t n_cols = 0;
    const std::int64_t *row_ptr = nullptr; ///< n_rows + 1 offsets into col and val; the first may be > 0
    const std::int32_t *col = nullptr;
    const float *val = nullptr; ///< null: every stored value is 1

    std::int64_t nnz() const { return n_rows ? row_ptr[n_rows] - row_ptr[0] : 0; }
    std::int64_t nnz(std::int64_t row) const { return row_ptr[row + 1] - row_ptr[row]; }
    std::span<const std::int32_t> cols(std::int64_t row) const {
        return {col + row_ptr[row], static_cast<std::size_t>(nnz(row))};
    }
    const float *vals(std::int64_t row) const { return val ? val + row_ptr[row] : nullptr; }
};

/// Lists of rows, one a sample; sample i's list is row[begin[i] .. end[i]), with gaps between lists allowed.
struct SampleLists {
    std::int64_t n_samples = 0;
    const std::int64_t *begin = nullptr;
    const std::int64_t *end = nullptr;
    const std::int32_t *row = nullptr;
};

constexpr std::int64_t most_batch_rows = 1 << 20;

/// Samples that are trained, judged or predicted together.
struct Batch {
    CsrRows features;
    CsrRows labels;
    const float *weights = nullptr;        ///< one a row; null: all 1
    const std::int64_t *row_ids = nullptr; ///< place of each row in its source; may be null
    std::int64_t size() const { return features.n_rows; }
};

} // namespace dslide
