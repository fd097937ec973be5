// SPDX-License-Identifier: Apache-2.0
// Rows in memory: chunks as they came from the parser, never moved, and the buffers a batch is put together in.
#pragma once

#include "core/csr.hpp"

#include <cstdint>
#include <deque>
#include <vector>

namespace dslide {

/// Some consecutive rows. Columns ascend and are unique within a row.
struct RowChunk {
    std::vector<std::int64_t> feature_ptr{0}; ///< rows + 1 offsets
    std::vector<std::int32_t> feature;
    std::vector<float> value; ///< empty: all 1
    std::vector<std::int64_t> label_ptr{0};
    std::vector<std::int32_t> label;
    std::vector<float> label_weight; ///< empty: all 1
    std::vector<float> row_weight;   ///< empty: all 1

    std::int64_t rows() const { return static_cast<std::int64_t>(feature_ptr.size()) - 1; }
    std::int64_t bytes() const;
};

/// Rows by number, those not dropped up to end().
class RowStore {
public:
    struct Row {
        const RowChunk *chunk;
        std::size_t index;
    };

    void append(RowChunk chunk);
    /// Frees the chunks whose rows are all below `row`.
    void drop_before(std::int64_t row);
    Row at(std::int64_t row) const;
    std::int64_t end() const { return end_; }
    std::int64_t bytes() const { return bytes_; }

private:
    struct Entry {
        std::int64_t first;
        RowChunk rows;
    };
    std::deque<Entry> chunks_;
    std::int64_t end_ = 0;
    std::int64_t bytes_ = 0;
};

/// Copies rows together; its buffers are used again for the next batch.
class BatchBuilder {
public:
    BatchBuilder() { clear(); }
    void clear();
    void append(RowStore::Row row, std::int64_t id);
    std::int64_t rows() const { return static_cast<std::int64_t>(ids_.size()); }
    std::int64_t bytes() const;
    /// Valid until the next call of any kind.
    Batch batch(std::int64_t n_features, std::int64_t n_labels) const;

private:
    // Values that stay away as long as all of them are 1.
    struct Matrix {
        std::vector<std::int64_t> ptr;
        std::vector<std::int32_t> col;
        std::vector<float> val;
        void clear();
        void append(const std::vector<std::int64_t> &from_ptr, const std::vector<std::int32_t> &from_col,
                    const std::vector<float> &from_val, std::size_t row);
        CsrRows rows(std::int64_t n_cols) const;
        std::int64_t bytes() const;
    };
    Matrix features_, labels_;
    std::vector<float> weights_;
    std::vector<std::int64_t> ids_;
};

} // namespace dslide
