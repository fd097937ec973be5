// SPDX-License-Identifier: Apache-2.0
// The output layer over all classes, by GEMM in blocks of classes: the dense network, and the reference for the sampled
// one.
#pragma once

#include "core/csr.hpp"
#include "layers/gradient_parts.hpp"
#include "layers/loss_parts.hpp"
#include "loss/loss.hpp"
#include "loss/targets.hpp"
#include "optim/optimizer.hpp"
#include "simd/matrix.hpp"

#include <algorithm>
#include <vector>

namespace dslide {

class DenseOutput {
public:
    static constexpr std::int64_t score_bytes = std::int64_t{1} << 30;
    static constexpr std::int64_t block_rows = 512;

    /// most_score_bytes: of scores that are kept between the passes; more are worked out twice.
    explicit DenseOutput(std::int64_t most_score_bytes = score_bytes) : most_score_bytes_(most_score_bytes) {}

    /// Scores, each sample's loss over these rows, and all the memory that update() needs.
    void forward(Arena &arena, std::int32_t loss, const CsrRows &labels, const Targets &targets, const Matrix &h,
                 const Parameters &weight, const Parameters &bias, Matrix &dh, LossParts &parts);
    /// dh (overwritten) and the update of every row, from each sample's loss over the rows of all ranks.
    void update(Arena &arena, std::int32_t loss, const CsrRows &labels, const Targets &targets, const Matrix &h,
                const Parameters &weight, const Parameters &bias, const Optimizer &optimizer, const LossParts &whole,
                Matrix &dh);
    std::size_t bytes() const;

private:
    struct Range {
        std::int64_t begin, end;
    };
    Range block(std::int64_t b) const { return {b * block_rows, std::min(classes_, (b + 1) * block_rows)}; }
    float *piece_scores(std::int64_t b, Array<float> &scratch);
    void score_block(std::int32_t loss, std::int64_t b, const CsrRows &labels, const Targets &targets, const Matrix &h,
                     const Parameters &weight, const Parameters &bias, float *z, bool first_time);

    std::int64_t most_score_bytes_;
    std::int64_t classes_ = 0, samples_ = 0, blocks_ = 0, parts_count_ = 1;
    bool keeps_scores_ = true;
    Array<float> z_;                   ///< block after block, each samples x block_rows
    std::vector<PartialLoss> partial_; ///< block x sample
    std::vector<double> target_score_; ///< block x sample: sum of t z over the labels in the block
    GradientParts parts_;
};

} // namespace dslide
