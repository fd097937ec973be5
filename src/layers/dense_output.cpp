// SPDX-License-Identifier: Apache-2.0
#include "layers/dense_output.hpp"

#include "layers/gemm.hpp"

#include <algorithm>
#include <cstring>

namespace dslide {
namespace {

// Labels of sample i within [begin, end): visit(index of the label in the batch, class).
template <class Visit>
void labels_within(const CsrRows &labels, std::int64_t i, std::int64_t begin, std::int64_t end, Visit &&visit) {
    const auto cols = labels.cols(i);
    for (auto at = std::lower_bound(cols.begin(), cols.end(), begin); at != cols.end() && *at < end; ++at)
        visit(static_cast<std::size_t>(labels.row_ptr[i] - labels.row_ptr[0] + (at - cols.begin())), *at);
}

} // namespace

void DenseOutput::score_block(std::int32_t loss, std::int64_t b, const CsrRows &labels, const Targets &targets,
                              const Matrix &h, const Parameters &weight, const Parameters &bias, float *z,
                              bool first_time) {
    const std::int64_t begin = block(b).begin, end = block(b).end; // clang 14 captures no structured bindings
    gemm(Transpose::no, Transpose::yes, samples_, end - begin, h.stride, h.row(0), h.stride, weight.row(begin),
         weight.stride, z, block_rows);
    for (std::int64_t i = 0; i < samples_; ++i) {
        float *row = z + i * block_rows;
        for (std::int64_t c = 0; c < end - begin; ++c) row[c] += bias.weights[begin + c];
        double score = 0;
        labels_within(labels, i, begin, end, [&](std::size_t label, std::int32_t c) {
            score += static_cast<double>(targets.t[label]) * row[c - begin];
        });
        const PartialLoss partial = loss_piece(loss, row, end - begin);
        if (!first_time) continue;
        partial_[static_cast<std::size_t>(b * samples_ + i)] = partial;
        target_score_[static_cast<std::size_t>(b * samples_ + i)] = score;
    }
}

void DenseOutput::forward(Arena &arena, std::int32_t loss, const CsrRows &labels, const Targets &targets,
                          const Matrix &h, const Parameters &weight, const Parameters &bias, Matrix &dh,
                          LossParts &parts) {
    samples_ = h.rows;
    classes_ = weight.rows;
    blocks_ = (classes_ + block_rows - 1) / block_rows;
    const std::int64_t block_size = samples_ * block_rows;
    keeps_scores_ = blocks_ * block_size * static_cast<std::int64_t>(sizeof(float)) <= most_score_bytes_;
    if (keeps_scores_) z_.ensure(static_cast<std::size_t>(blocks_ * block_size));
    partial_.resize(static_cast<std::size_t>(blocks_ * samples_));
    target_score_.resize(static_cast<std::size_t>(blocks_ * samples_));
    parts.reset(loss, samples_);
    parts_count_ = std::min(blocks_, GradientParts::choose(samples_, h.stride, samples_ * classes_));
    parts_.reset(arena, parts_count_, samples_, h.cols);
    dh.reshape(samples_, h.cols);

    arena.each(blocks_, [&](std::int64_t b) {
        Array<float> scratch;
        score_block(loss, b, labels, targets, h, weight, bias, piece_scores(b, scratch), true);
    });
    for (std::int64_t i = 0; i < samples_; ++i) {
        const float sample_weight = targets.sample_weight[static_cast<std::size_t>(i)];
        if (sample_weight == 0) continue;
        PartialLoss &part = parts.of_sample[static_cast<std::size_t>(i)];
        for (std::int64_t b = 0; b < blocks_; ++b) {
            part = merge(loss, part, partial_[static_cast<std::size_t>(b * samples_ + i)]);
            parts.target_score += sample_weight * target_score_[static_cast<std::size_t>(b * samples_ + i)];
        }
        parts.active_pairs += static_cast<double>(classes_);
    }
}

float *DenseOutput::piece_scores(std::int64_t b, Array<float> &scratch) {
    if (keeps_scores_) return z_.data() + b * samples_ * block_rows;
    scratch = Array<float>(static_cast<std::size_t>(samples_ * block_rows));
    return scratch.data();
}

void DenseOutput::update(Arena &arena, std::int32_t loss, const CsrRows &labels, const Targets &targets,
                         const Matrix &h, const Parameters &weight, const Parameters &bias, const Optimizer &optimizer,
                         const LossParts &whole, Matrix &dh) {
    arena.each(parts_count_, [&](std::int64_t part) {
        Array<float> scratch, grad(static_cast<std::size_t>(block_rows * weight.stride));
        float *part_dh = parts_.part(part);
        for (std::int64_t b = blocks_ * part / parts_count_; b < blocks_ * (part + 1) / parts_count_; ++b) {
            const std::int64_t begin = block(b).begin, end = block(b).end;
            float *g = piece_scores(b, scratch);
            if (!keeps_scores_) score_block(loss, b, labels, targets, h, weight, bias, g, false);
            float bias_gradient[block_rows] = {};
            for (std::int64_t i = 0; i < samples_; ++i) {
                float *row = g + i * block_rows;
                const float sample_weight = targets.sample_weight[static_cast<std::size_t>(i)];
                if (sample_weight == 0) { // not by a product: the scores may be infinite
                    std::fill(row, row + (end - begin), 0.0f);
                    continue;
                }
                const PartialLoss &piece = partial_[static_cast<std::size_t>(b * samples_ + i)];
                simd::kernels().scale(
                    row, gradient_factor(loss, piece, whole.of_sample[static_cast<std::size_t>(i)], sample_weight),
                    end - begin);
                labels_within(labels, i, begin, end, [&](std::size_t label, std::int32_t c) {
                    row[c - begin] -= sample_weight * targets.t[label];
                });
                for (std::int64_t c = 0; c < end - begin; ++c) bias_gradient[c] += row[c];
            }
            gemm(Transpose::no, Transpose::no, samples_, h.stride, end - begin, g, block_rows, weight.row(begin),
                 weight.stride, part_dh, h.stride, true);
            gemm(Transpose::yes, Transpose::no, end - begin, h.stride, samples_, g, block_rows, h.row(0), h.stride,
                 grad.data(), weight.stride);
            for (std::int64_t r = begin; r < end; ++r) {
                optimizer.update_row(weight, r, grad.data() + (r - begin) * weight.stride);
                optimizer.update_scalar(bias, r, bias_gradient[r - begin]);
            }
        }
    });
    std::memset(dh.row(0), 0, static_cast<std::size_t>(dh.rows * dh.stride) * sizeof(float));
    parts_.add_to(arena, dh);
}

std::size_t DenseOutput::bytes() const {
    return z_.bytes() + parts_.bytes() + partial_.size() * sizeof(PartialLoss) + target_score_.size() * sizeof(double);
}

} // namespace dslide
