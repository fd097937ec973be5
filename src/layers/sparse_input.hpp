// SPDX-License-Identifier: Apache-2.0
// The first layer: h = relu(x W + b) for sparse x. A row of W belongs to a feature.
#pragma once

#include "core/arena.hpp"
#include "core/csr.hpp"
#include "layers/inverse.hpp"
#include "optim/optimizer.hpp"
#include "simd/matrix.hpp"

namespace dslide {

void sparse_input_forward(Arena &arena, const CsrRows &x, const Parameters &weight, const float *bias, Matrix &h);

/// Gradient and update, fused by feature: each task owns a range of features.
class SparseInputBackward {
public:
    /// dz: gradient before the relu, a row a sample. Inverts x; separate from apply() so that memory is claimed before
    /// any weight changes.
    void prepare(Arena &arena, const CsrRows &x, std::int64_t n_features);
    /// Returns how many features were touched. `every_row`: untouched rows too get an update, with gradient 0.
    std::int64_t apply(Arena &arena, const CsrRows &x, const Matrix &dz, const Parameters &weight,
                       const Parameters &bias, const Optimizer &optimizer, bool every_row);
    std::size_t bytes() const { return inverse_.bytes(); }

private:
    Inverse inverse_;
};

} // namespace dslide
