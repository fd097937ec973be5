// SPDX-License-Identifier: Apache-2.0
#include "layers/dense.hpp"

#include "layers/bias.hpp"
#include "layers/gemm.hpp"

#include <algorithm>

namespace dslide {
namespace {

constexpr std::int64_t samples_a_task = 64;
constexpr std::int64_t neurons_a_task = 64;

} // namespace

void dense_forward(Arena &arena, const Matrix &x, const Parameters &weight, const float *bias, Matrix &h) {
    h.reshape(x.rows, weight.rows);
    arena.blocks(x.rows, samples_a_task, [&](std::int64_t begin, std::int64_t end) {
        gemm(Transpose::no, Transpose::yes, end - begin, weight.rows, x.cols, x.row(begin), x.stride, weight.weights,
             weight.stride, h.row(begin), h.stride);
        for (std::int64_t i = begin; i < end; ++i) {
            std::fill(h.row(i) + h.cols, h.row(i) + h.stride, 0.0f);
            simd::kernels().bias_relu(h.row(i), bias, h.stride);
        }
    });
}

void dense_backward_input(Arena &arena, const Matrix &dz, const Parameters &weight, Matrix &dx) {
    dx.reshape(dz.rows, weight.cols);
    arena.blocks(dz.rows, samples_a_task, [&](std::int64_t begin, std::int64_t end) {
        gemm(Transpose::no, Transpose::no, end - begin, weight.stride, weight.rows, dz.row(begin), dz.stride,
             weight.weights, weight.stride, dx.row(begin), dx.stride);
    });
}

void dense_backward_update(Arena &arena, const Matrix &dz, const Matrix &x, const Parameters &weight,
                           const Parameters &bias, const Optimizer &optimizer) {
    arena.blocks(weight.rows, neurons_a_task, [&](std::int64_t begin, std::int64_t end) {
        Array<float> grad(static_cast<std::size_t>((end - begin) * weight.stride));
        gemm(Transpose::yes, Transpose::no, end - begin, weight.stride, dz.rows, dz.row(0) + begin, dz.stride, x.row(0),
             x.stride, grad.data(), weight.stride);
        for (std::int64_t r = begin; r < end; ++r)
            optimizer.update_row(weight, r, grad.data() + (r - begin) * weight.stride);
    });
    update_bias(dz, bias, optimizer);
}

} // namespace dslide
