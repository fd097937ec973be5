// SPDX-License-Identifier: Apache-2.0
// The bias of a hidden layer: its gradient is the sum of the rows of dz, in a fixed order.
#pragma once

#include "optim/optimizer.hpp"
#include "simd/matrix.hpp"

namespace dslide {

inline void update_bias(const Matrix &dz, const Parameters &bias, const Optimizer &optimizer) {
    Array<float> grad(static_cast<std::size_t>(dz.stride));
    for (std::int64_t i = 0; i < dz.rows; ++i) simd::kernels().axpy(1, dz.row(i), grad.data(), dz.stride);
    optimizer.update_bias(bias, grad.data());
}

} // namespace dslide
