// SPDX-License-Identifier: Apache-2.0
// A dense fp32 matrix whose rows are padded to the SIMD width with zeros.
#pragma once

#include "core/memory.hpp"
#include "simd/kernels.hpp"

namespace dslide {

struct Matrix {
    Array<float> data;
    std::int64_t rows = 0, cols = 0, stride = 0;

    Matrix() = default;
    Matrix(std::int64_t n_rows, std::int64_t n_cols)
        : data(checked_product(static_cast<std::size_t>(n_rows), static_cast<std::size_t>(simd::padded(n_cols)))),
          rows(n_rows), cols(n_cols), stride(simd::padded(n_cols)) {}

    float *row(std::int64_t r) { return data.data() + r * stride; }
    const float *row(std::int64_t r) const { return data.data() + r * stride; }

    /// Makes room for n_rows rows of n_cols; what was inside is lost when it grows.
    void reshape(std::int64_t n_rows, std::int64_t n_cols) {
        cols = n_cols;
        rows = n_rows;
        stride = simd::padded(n_cols);
        data.ensure(checked_product(static_cast<std::size_t>(n_rows), static_cast<std::size_t>(stride)));
    }
};

} // namespace dslide
