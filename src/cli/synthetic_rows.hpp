// SPDX-License-Identifier: Apache-2.0
// Random rows of a given shape for the benchmark. Ids follow Zipf's law as words and products do: many rows share a
// few.
#pragma once

#include <dslide/dslide.h>

#include <cstdint>
#include <vector>

namespace dslide::cli {

struct SyntheticShape {
    std::uint64_t seed;
    std::int64_t rows;
    std::int64_t n_features, features_per_row; ///< features_per_row <= n_features
    std::int64_t n_labels, labels_per_row;     ///< labels_per_row <= n_labels
};

class SyntheticRows {
public:
    explicit SyntheticRows(const SyntheticShape &shape);

    /// The rows of a step; they depend on seed and step alone.
    void draw(std::int64_t step);
    dslide_csr_view features() const;
    dslide_csr_view labels() const;

private:
    struct Matrix {
        std::vector<std::int64_t> row_ptr;
        std::vector<std::int32_t> col;
        std::vector<float> val;
    };
    void draw_ids(std::uint64_t stream, std::int64_t n_ids, std::int64_t per_row, Matrix &matrix) const;

    SyntheticShape shape_;
    Matrix features_, labels_;
};

} // namespace dslide::cli
