// SPDX-License-Identifier: Apache-2.0
// Losses over a sample's active rows, computed in pieces: the scores of a sample may lie in several arrays (private
// rows, shared rows, blocks of classes, other ranks), each turned into a partial result, and the partial results are
// merged.
//
// Softmax (cross-entropy): a piece's z becomes exp(z - max); its gradient is softmax(z) - t. BCE: z becomes sigmoid(z);
// the gradient is sigmoid(z) - t. A row with z = -inf takes no part and gets gradient 0.
//
// To add a loss: its enum value in trainer.h, its case in each function here and its targets in targets.cpp. The bound
// of `loss` is in train/plan.cpp.
#pragma once

#include <cstdint>

namespace dslide {

struct PartialLoss {
    float max;  ///< softmax: largest z; BCE: unused, 0
    double sum; ///< softmax: sum of exp(z - max); BCE: sum of log(1 + exp(z))
};

PartialLoss empty_partial(std::int32_t loss);

/// Turns scores into what the gradient needs, in place.
PartialLoss loss_piece(std::int32_t loss, float *z, std::int64_t count);

PartialLoss merge(std::int32_t loss, const PartialLoss &a, const PartialLoss &b);

/// What a piece is multiplied by to become the gradient before the targets are subtracted. weight: the sample's share
/// of the batch's mean.
float gradient_factor(std::int32_t loss, const PartialLoss &piece, const PartialLoss &total, float weight);

/// The sample's loss; target_sum = sum t, target_score = sum t z over its labels.
double loss_value(std::int32_t loss, const PartialLoss &total, double target_sum, double target_score);

} // namespace dslide
