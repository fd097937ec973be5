// SPDX-License-Identifier: Apache-2.0
// The update rules, applied to one row of weights at a time by whoever owns the row.
//
// To add a rule: its enum value in trainer.h; its kernel in src/simd (kernels.hpp, the plain twin, vector.cpp); here
// its planes in state_planes() and its case in update() and update_scalar(). The bound of `optimizer` is in
// train/plan.cpp.
#pragma once

#include "core/memory.hpp"
#include "simd/kernels.hpp"

#include <dslide/trainer.h>

#include <array>

namespace dslide {

/// How many values of state the rule keeps beside each weight: Adam 2, Adagrad 1, SGD 1 with momentum and 0 without.
int state_planes(const dslide_trainer_options &options);

/// Weights of a layer and their optimizer state: rows x stride floats each, the pad zero.
struct Parameters {
    float *weights = nullptr;
    std::array<float *, 2> state{};
    std::int64_t rows = 0, cols = 0, stride = 0;
    std::uint16_t *bf16 = nullptr; ///< a bfloat16 copy of the weights that updates keep in step; null: none

    float *row(std::int64_t r) const { return weights + r * stride; }
};

/// The rule with its coefficients for one step. Lazy: a row that is not passed to update_row() keeps its moments.
class Optimizer {
public:
    /// step: 1 for the first one; rate: see learning_rate().
    Optimizer(const dslide_trainer_options &options, std::int64_t step, double rate);

    /// Applies `grad` (stride values, may be clipped in place) to row r.
    void update_row(const Parameters &p, std::int64_t r, float *grad) const {
        update(p, r * p.stride, p.stride, grad, true);
        if (p.bf16) simd::kernels().to_bf16(p.row(r), p.bf16 + r * p.stride, p.stride);
    }
    /// Applies `grad` to all of a bias, a single row that is not decayed. A length that is no multiple of the SIMD
    /// width is padded by the caller.
    void update_bias(const Parameters &p, float *grad) const { update(p, 0, p.stride, grad, false); }
    /// Applies a gradient to one element of a bias.
    void update_scalar(const Parameters &p, std::int64_t i, float grad) const;

private:
    void update(const Parameters &p, std::int64_t offset, std::int64_t n, float *grad, bool is_weight) const;
    void clip(float *grad, std::int64_t n) const;

    int rule_;
    float clip_value_, clip_row_norm_;
    simd::AdamStep adam_{};
    simd::SgdStep sgd_{};
    simd::AdagradStep adagrad_{};
    bool has_momentum_;
};

} // namespace dslide
