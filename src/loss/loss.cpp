// SPDX-License-Identifier: Apache-2.0
#include "loss/loss.hpp"

#include "simd/kernels.hpp"

#include <dslide/trainer.h>

#include <cmath>
#include <limits>

namespace dslide {
namespace {

constexpr float lowest = -std::numeric_limits<float>::infinity();

PartialLoss softmax_piece(float *z, std::int64_t count) {
    const simd::Kernels &k = simd::kernels();
    const float max = k.max(z, count);
    if (max ==
        lowest) { // nothing takes part: exp(-inf - -inf) would be NaN. A NaN among the scores still shows in the sum.
        const float sum = k.exp_sum(z, 0, count);
        return {lowest, sum};
    }
    return {max, k.exp_sum(z, max, count)};
}

// sigmoid and log(1 + exp(z)) without overflow on either side.
PartialLoss bce_piece(float *z, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        if (z[i] == lowest) {
            z[i] = 0;
            continue;
        }
        const float e = std::exp(-std::fabs(z[i]));
        sum += std::fmax(z[i], 0.0f) + std::log1p(e);
        z[i] = z[i] >= 0 ? 1 / (1 + e) : e / (1 + e);
    }
    return {0, sum};
}

} // namespace

PartialLoss empty_partial(std::int32_t loss) { return {loss == DSLIDE_SOFTMAX ? lowest : 0.0f, 0.0}; }

PartialLoss loss_piece(std::int32_t loss, float *z, std::int64_t count) {
    return loss == DSLIDE_SOFTMAX ? softmax_piece(z, count) : bce_piece(z, count);
}

PartialLoss merge(std::int32_t loss, const PartialLoss &a, const PartialLoss &b) {
    if (loss == DSLIDE_BCE) return {0, a.sum + b.sum};
    if (a.max == lowest) return {b.max, a.sum + b.sum};
    if (b.max == lowest) return {a.max, a.sum + b.sum};
    const float max = std::fmax(a.max, b.max);
    return {max,
            a.sum * std::exp(static_cast<double>(a.max) - max) + b.sum * std::exp(static_cast<double>(b.max) - max)};
}

float gradient_factor(std::int32_t loss, const PartialLoss &piece, const PartialLoss &total, float weight) {
    if (loss == DSLIDE_BCE) return weight;
    if (piece.max == lowest) return 0;
    return static_cast<float>(weight * std::exp(static_cast<double>(piece.max) - total.max) / total.sum);
}

double loss_value(std::int32_t loss, const PartialLoss &total, double target_sum, double target_score) {
    if (loss == DSLIDE_BCE) return total.sum - target_score;
    return (total.max + std::log(total.sum)) * target_sum - target_score;
}

} // namespace dslide
