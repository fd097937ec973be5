// SPDX-License-Identifier: Apache-2.0
// The output layer over an active set. Private rows are visited row by row, each by one task: scores in one pass,
// gradient and update fused in another. Shared rows are gathered into a dense block and go through GEMM.
#pragma once

#include "layers/gradient_parts.hpp"
#include "layers/inverse.hpp"
#include "layers/loss_parts.hpp"
#include "loss/loss.hpp"
#include "loss/targets.hpp"
#include "lsh/active_set.hpp"
#include "optim/optimizer.hpp"
#include "simd/matrix.hpp"

namespace dslide {

class SampledOutput {
public:
    /// Scores of all private and shared rows; then, of each sample's hard candidates, only the best stay in, so many
    /// that it has `rows_a_sample` with its labels.
    void score(Arena &arena, const ActiveSet &active, const Matrix &h, const Parameters &weight, const Parameters &bias,
               std::int64_t rows_a_sample);
    /// Each sample's loss over its rows; scores become what the gradient needs. labels: the batch's CSR, for the
    /// targets' places.
    void loss(Arena &arena, std::int32_t loss, const ActiveSet &active, const CsrRows &labels, const Targets &targets,
              LossParts &parts);
    /// Gradients, from each sample's loss over the rows of all ranks.
    void gradients(Arena &arena, std::int32_t loss, const ActiveSet &active, const CsrRows &labels,
                   const Targets &targets, const LossParts &whole);
    /// Claims the large part of the memory that update() needs, so that it runs out before a weight has changed.
    void reserve(Arena &arena, const ActiveSet &active, const Matrix &h, Matrix &dh);
    /// dh (overwritten) and the update of every row that took part. Returns how many rows were updated.
    std::int64_t update(Arena &arena, const ActiveSet &active, const Matrix &h, const Parameters &weight,
                        const Parameters &bias, const Optimizer &optimizer, bool every_row, Matrix &dh);
    std::size_t bytes() const;

private:
    void score_private(Arena &arena, const Matrix &h, const Parameters &weight, const Parameters &bias);
    void score_shared(Arena &arena, const ActiveSet &active, const Matrix &h, const Parameters &weight,
                      const Parameters &bias);
    float &score_of(const ActiveSet &active, std::int64_t sample, std::int64_t label);
    void keep_best(Arena &arena, const ActiveSet &active, std::int64_t rows_a_sample);
    void update_shared(Arena &arena, const ActiveSet &active, const Matrix &h, const Parameters &weight,
                       const Parameters &bias, const Optimizer &optimizer, Matrix &dh);
    std::int64_t update_private(Arena &arena, const Matrix &h, const Parameters &weight, const Parameters &bias,
                                const Optimizer &optimizer);
    void update_untouched(Arena &arena, const ActiveSet &active, const Parameters &weight, const Parameters &bias,
                          const Optimizer &optimizer);

    Inverse inverse_;
    Array<std::uint16_t> h_bf16_;                 ///< activations, where the rows have a bfloat16 copy
    Array<PartialLoss> own_piece_, shared_piece_; ///< of each sample
    Array<float> z_;                              ///< a score, later a gradient, for each place in ActiveSet::row
    Matrix shared_weight_;                        ///< gathered rows
    Array<float> shared_offset_;                  ///< their bias minus log inclusion
    Matrix shared_z_;                             ///< samples x shared rows
    Matrix shared_gradient_;                      ///< shared rows x width
    std::vector<std::int64_t> cuts_;              ///< parts of the update
    GradientParts parts_;
};

} // namespace dslide
