// SPDX-License-Identifier: Apache-2.0
#include "layers/sparse_input.hpp"

#include "layers/bias.hpp"
#include "layers/prefetch.hpp"

#include <algorithm>
#include <vector>

namespace dslide {
namespace {

constexpr std::int64_t samples_a_task = 16;
constexpr std::int64_t parts_of_update = 64;

} // namespace

void sparse_input_forward(Arena &arena, const CsrRows &x, const Parameters &weight, const float *bias, Matrix &h) {
    const simd::Kernels &k = simd::kernels();
    h.reshape(x.n_rows, weight.cols);
    arena.blocks(x.n_rows, samples_a_task, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            k.gather_sum(weight.weights, weight.stride, weight.stride, x.cols(i).data(), x.vals(i), x.nnz(i), h.row(i));
            k.bias_relu(h.row(i), bias, h.stride);
        }
    });
}

void SparseInputBackward::prepare(Arena &arena, const CsrRows &x, std::int64_t n_features) {
    inverse_.build(arena, {x.n_rows, x.row_ptr, x.row_ptr + 1, x.col}, n_features);
}

std::int64_t SparseInputBackward::apply(Arena &arena, const CsrRows &x, const Matrix &dz, const Parameters &weight,
                                        const Parameters &bias, const Optimizer &optimizer, bool every_row) {
    const simd::Kernels &k = simd::kernels();
    const std::vector<std::int64_t> cuts = inverse_.cut(parts_of_update);
    arena.each(static_cast<std::int64_t>(cuts.size()) - 1, [&](std::int64_t part) {
        Array<float> grad(static_cast<std::size_t>(weight.stride));
        std::vector<float> values;
        const auto zero_gradient = [&](std::int64_t from, std::int64_t to) {
            for (std::int64_t r = from; r < to; ++r) {
                std::fill(grad.begin(), grad.end(), 0.0f);
                optimizer.update_row(weight, r, grad.data());
            }
        };
        const std::int64_t first = cuts[static_cast<std::size_t>(part)],
                           last = cuts[static_cast<std::size_t>(part) + 1];
        std::int64_t next_row = first == 0 ? 0 : inverse_.row(first - 1) + 1;
        for (std::int64_t i = first; i < last; ++i) {
            if (i + rows_ahead_of_update < last) prefetch_for_update(weight, inverse_.row(i + rows_ahead_of_update));
            const std::int64_t begin = inverse_.begin(i), count = inverse_.count(i);
            const float *value = nullptr;
            if (x.val) {
                values.resize(static_cast<std::size_t>(count));
                for (std::int64_t e = 0; e < count; ++e)
                    values[static_cast<std::size_t>(e)] = x.val[inverse_.positions()[begin + e]];
                value = values.data();
            }
            if (every_row) zero_gradient(next_row, inverse_.row(i));
            next_row = inverse_.row(i) + 1;
            k.gather_sum(dz.row(0), dz.stride, dz.stride, inverse_.samples() + begin, value, count, grad.data());
            optimizer.update_row(weight, inverse_.row(i), grad.data());
        }
        if (every_row && last == inverse_.touched()) zero_gradient(next_row, weight.rows);
    });
    update_bias(dz, bias, optimizer);
    return inverse_.touched();
}

} // namespace dslide
