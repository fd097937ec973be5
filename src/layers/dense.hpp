// SPDX-License-Identifier: Apache-2.0
// A dense hidden layer: h = relu(x W^T + b). A row of W is a neuron.
#pragma once

#include "core/arena.hpp"
#include "optim/optimizer.hpp"
#include "simd/matrix.hpp"

namespace dslide {

void dense_forward(Arena &arena, const Matrix &x, const Parameters &weight, const float *bias, Matrix &h);

/// dx = dz W, from the weights before their update; not yet masked by x's relu.
void dense_backward_input(Arena &arena, const Matrix &dz, const Parameters &weight, Matrix &dx);

/// grad = dz^T x, then the update, neuron by neuron.
void dense_backward_update(Arena &arena, const Matrix &dz, const Matrix &x, const Parameters &weight,
                           const Parameters &bias, const Optimizer &optimizer);

} // namespace dslide
