// SPDX-License-Identifier: Apache-2.0
#include "layers/sampled_output.hpp"

#include "layers/gemm.hpp"
#include "layers/prefetch.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace dslide {
namespace {

constexpr float dropped = -std::numeric_limits<float>::infinity();
constexpr std::int64_t samples_a_task = 32;
constexpr std::int64_t shared_rows_a_task = 64;
constexpr std::int64_t parts_of_scoring = 64;

constexpr std::int64_t rows_ahead_of_scoring = 6;

// The scores of a row's samples lie all over the batch's list: without asking for them early, a quarter of an update is
// waiting.
constexpr std::int64_t scores_ahead = 16;

template <int for_write>
[[gnu::always_inline]] inline void prefetch_scores(const float *z, const Inverse &inverse, std::int64_t i) {
    const std::int32_t *position = inverse.positions() + inverse.begin(i);
    for (std::int64_t e = 0; e < inverse.count(i); ++e) __builtin_prefetch(z + position[e], for_write, 2);
}

// Floats in the order of integers: for finite and infinite x < y, order(x) < order(y). Its own inverse.
std::int32_t order(std::int32_t bits) { return bits ^ (bits >> 31 & 0x7fffffff); }

// The k-th largest of n values, 1 <= k <= n, by bisection over the floats: 32 counting passes at SIMD speed take a
// fraction of what std::nth_element does for the few hundred values of a sample.
float kth_largest(const float *z, std::int64_t n, std::int64_t k) {
    std::int64_t low = order(std::bit_cast<std::int32_t>(-std::numeric_limits<float>::infinity()));
    std::int64_t high = order(std::bit_cast<std::int32_t>(simd::kernels().max(z, n)));
    while (low < high) { // the smallest value that fewer than k exceed
        const std::int64_t middle = low + (high - low) / 2;
        const auto value = std::bit_cast<float>(order(static_cast<std::int32_t>(middle)));
        if (simd::kernels().count_above(z, n, value) < k)
            high = middle;
        else
            low = middle + 1;
    }
    return std::bit_cast<float>(order(static_cast<std::int32_t>(high)));
}

} // namespace

void SampledOutput::score(Arena &arena, const ActiveSet &active, const Matrix &h, const Parameters &weight,
                          const Parameters &bias, std::int64_t rows_a_sample) {
    inverse_.build(arena, active.lists(), weight.rows);
    z_.ensure(active.row.size());
    score_private(arena, h, weight, bias);
    score_shared(arena, active, h, weight, bias);
    keep_best(arena, active, rows_a_sample);
}

void SampledOutput::score_private(Arena &arena, const Matrix &h, const Parameters &weight, const Parameters &bias) {
    const simd::Kernels &k = simd::kernels();
    const std::vector<std::int64_t> cuts = inverse_.cut(parts_of_scoring);
    if (weight.bf16) {
        h_bf16_.ensure(static_cast<std::size_t>(h.rows * h.stride));
        k.to_bf16(h.row(0), h_bf16_.data(), h.rows * h.stride);
    }
    arena.each(static_cast<std::int64_t>(cuts.size()) - 1, [&](std::int64_t part) {
        std::vector<float> scores;
        const std::int64_t last = cuts[static_cast<std::size_t>(part) + 1];
        for (std::int64_t i = cuts[static_cast<std::size_t>(part)]; i < last; ++i) {
            if (i + rows_ahead_of_scoring < last) prefetch_for_score(weight, inverse_.row(i + rows_ahead_of_scoring));
            if (i + scores_ahead < last) prefetch_scores<1>(z_.data(), inverse_, i + scores_ahead);
            const std::int64_t begin = inverse_.begin(i), count = inverse_.count(i), row = inverse_.row(i);
            scores.resize(static_cast<std::size_t>(count));
            if (weight.bf16)
                k.score_row_bf16(weight.bf16 + row * weight.stride, bias.weights[row], h_bf16_.data(), h.stride,
                                 h.stride, inverse_.samples() + begin, count, scores.data());
            else
                k.score_row(weight.row(row), bias.weights[row], h.row(0), h.stride, h.stride,
                            inverse_.samples() + begin, count, scores.data());
            for (std::int64_t e = 0; e < count; ++e)
                z_[static_cast<std::size_t>(inverse_.positions()[begin + e])] = scores[static_cast<std::size_t>(e)];
        }
    });
}

void SampledOutput::score_shared(Arena &arena, const ActiveSet &active, const Matrix &h, const Parameters &weight,
                                 const Parameters &bias) {
    const auto n = static_cast<std::int64_t>(active.shared.size());
    if (n == 0) return;
    shared_weight_.reshape(n, weight.cols);
    shared_z_.reshape(h.rows, n);
    shared_offset_.ensure(static_cast<std::size_t>(shared_z_.stride));
    arena.blocks(n, shared_rows_a_task, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t s = begin; s < end; ++s) {
            const std::int32_t row = active.shared[static_cast<std::size_t>(s)];
            std::memcpy(shared_weight_.row(s), weight.row(row),
                        static_cast<std::size_t>(weight.stride) * sizeof(float));
            shared_offset_[static_cast<std::size_t>(s)] =
                bias.weights[row] - active.shared_log_inclusion[static_cast<std::size_t>(s)];
        }
    });
    arena.blocks(h.rows, samples_a_task, [&](std::int64_t begin, std::int64_t end) {
        gemm(Transpose::no, Transpose::yes, end - begin, n, h.stride, h.row(begin), h.stride, shared_weight_.row(0),
             shared_weight_.stride, shared_z_.row(begin), shared_z_.stride);
        for (std::int64_t i = begin; i < end; ++i)
            simd::kernels().axpy(1, shared_offset_.data(), shared_z_.row(i), shared_z_.stride);
    });
}

// Among equals at the threshold, those that the selection ranked first stay. A NaN stays, so that the loss shows it.
// A sample's labels take part anyway and count among its rows, but leave room for at least half as many others.
void SampledOutput::keep_best(Arena &arena, const ActiveSet &active, std::int64_t rows_a_sample) {
    arena.blocks(active.n_samples, samples_a_task, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
            const auto s = static_cast<std::size_t>(i);
            float *hard = z_.data() + active.begin[s] + active.n_labels[s];
            float *random = hard + active.n_hard[s];
            for (float *z = random; z < z_.data() + active.end[s]; ++z) *z -= active.random_log_inclusion;
            const std::int64_t keep = std::max(rows_a_sample - active.n_labels[s], (rows_a_sample + 1) / 2);
            if (active.n_hard[s] <= keep) continue;
            const float threshold =
                keep > 0 ? kth_largest(hard, active.n_hard[s], keep) : std::numeric_limits<float>::infinity();
            std::int64_t equal_left = keep - simd::kernels().count_above(hard, active.n_hard[s], threshold);
            for (float *z = hard; z < random; ++z)
                if (*z < threshold || (*z == threshold && equal_left-- <= 0)) *z = dropped;
        }
    });
}

float &SampledOutput::score_of(const ActiveSet &active, std::int64_t sample, std::int64_t label) {
    const std::int64_t place = active.label_place[static_cast<std::size_t>(label)];
    return place >= 0 ? z_[static_cast<std::size_t>(place)] : shared_z_.row(sample)[~place];
}

void SampledOutput::loss(Arena &arena, std::int32_t loss, const ActiveSet &active, const CsrRows &labels,
                         const Targets &targets, LossParts &parts) {
    const auto n_shared = static_cast<std::int64_t>(active.shared.size());
    parts.reset(loss, active.n_samples);
    own_piece_.ensure(static_cast<std::size_t>(active.n_samples));
    shared_piece_.ensure(static_cast<std::size_t>(active.n_samples));
    struct Sums {
        double target_score = 0, active_pairs = 0;
    };
    std::vector<Sums> sums(static_cast<std::size_t>((active.n_samples + samples_a_task - 1) / samples_a_task));
    arena.blocks(active.n_samples, samples_a_task, [&](std::int64_t first, std::int64_t last) {
        Sums &sum = sums[static_cast<std::size_t>(first / samples_a_task)];
        for (std::int64_t i = first; i < last; ++i) {
            const auto s = static_cast<std::size_t>(i);
            const float sample_weight = targets.sample_weight[s];
            float *own = z_.data() + active.begin[s];
            const std::int64_t n_own = active.end[s] - active.begin[s];
            float *shared = n_shared ? shared_z_.row(i) : nullptr;
            if (sample_weight == 0) {
                std::fill(own, own + n_own, 0.0f);
                if (shared) std::fill(shared, shared + n_shared, 0.0f);
                continue;
            }
            double target_score = 0;
            for (std::int64_t e = labels.row_ptr[i] - labels.row_ptr[0]; e < labels.row_ptr[i + 1] - labels.row_ptr[0];
                 ++e) {
                const std::int64_t place = active.label_place[static_cast<std::size_t>(e)];
                // A label takes part with certainty, whether or not it was drawn.
                if (place < 0) shared[~place] += active.shared_log_inclusion[static_cast<std::size_t>(~place)];
                target_score += static_cast<double>(targets.t[static_cast<std::size_t>(e)]) * score_of(active, i, e);
            }
            sum.target_score += sample_weight * target_score;
            sum.active_pairs += static_cast<double>(n_own - std::count(own, own + n_own, dropped) + n_shared);
            own_piece_[s] = n_own ? loss_piece(loss, own, n_own) : empty_partial(loss);
            shared_piece_[s] = n_shared ? loss_piece(loss, shared, n_shared) : empty_partial(loss);
            parts.of_sample[s] = merge(loss, own_piece_[s], shared_piece_[s]);
        }
    });
    for (const Sums &sum : sums) {
        parts.target_score += sum.target_score;
        parts.active_pairs += sum.active_pairs;
    }
}

void SampledOutput::gradients(Arena &arena, std::int32_t loss, const ActiveSet &active, const CsrRows &labels,
                              const Targets &targets, const LossParts &whole) {
    const simd::Kernels &k = simd::kernels();
    const auto n_shared = static_cast<std::int64_t>(active.shared.size());
    arena.blocks(active.n_samples, samples_a_task, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
            const auto s = static_cast<std::size_t>(i);
            const float sample_weight = targets.sample_weight[s];
            if (sample_weight == 0) continue;
            const PartialLoss &total = whole.of_sample[s];
            k.scale(z_.data() + active.begin[s], gradient_factor(loss, own_piece_[s], total, sample_weight),
                    active.end[s] - active.begin[s]);
            if (n_shared)
                k.scale(shared_z_.row(i), gradient_factor(loss, shared_piece_[s], total, sample_weight), n_shared);
            for (std::int64_t e = labels.row_ptr[i] - labels.row_ptr[0]; e < labels.row_ptr[i + 1] - labels.row_ptr[0];
                 ++e)
                score_of(active, i, e) -= sample_weight * targets.t[static_cast<std::size_t>(e)];
        }
    });
}

void SampledOutput::reserve(Arena &arena, const ActiveSet &active, const Matrix &h, Matrix &dh) {
    cuts_ = inverse_.cut(GradientParts::choose(h.rows, h.stride, inverse_.entries()));
    parts_.reset(arena, static_cast<std::int64_t>(cuts_.size()) - 1, h.rows, h.cols);
    shared_gradient_.reshape(static_cast<std::int64_t>(active.shared.size()), h.cols);
    dh.reshape(h.rows, h.cols);
}

std::int64_t SampledOutput::update(Arena &arena, const ActiveSet &active, const Matrix &h, const Parameters &weight,
                                   const Parameters &bias, const Optimizer &optimizer, bool every_row, Matrix &dh) {
    std::memset(dh.row(0), 0, static_cast<std::size_t>(dh.rows * dh.stride) * sizeof(float));
    if (every_row) update_untouched(arena, active, weight, bias, optimizer);
    update_shared(arena, active, h, weight, bias, optimizer, dh);
    const std::int64_t touched = update_private(arena, h, weight, bias, optimizer);
    parts_.add_to(arena, dh);
    return touched + static_cast<std::int64_t>(active.shared.size());
}

void SampledOutput::update_shared(Arena &arena, const ActiveSet &active, const Matrix &h, const Parameters &weight,
                                  const Parameters &bias, const Optimizer &optimizer, Matrix &dh) {
    const auto n = static_cast<std::int64_t>(active.shared.size());
    if (n == 0) return;
    arena.blocks(h.rows, samples_a_task, [&](std::int64_t begin, std::int64_t end) {
        gemm(Transpose::no, Transpose::no, end - begin, h.stride, n, shared_z_.row(begin), shared_z_.stride,
             shared_weight_.row(0), shared_weight_.stride, dh.row(begin), dh.stride);
    });
    arena.blocks(n, shared_rows_a_task, [&](std::int64_t begin, std::int64_t end) {
        gemm(Transpose::yes, Transpose::no, end - begin, h.stride, h.rows, shared_z_.row(0) + begin, shared_z_.stride,
             h.row(0), h.stride, shared_gradient_.row(begin), shared_gradient_.stride);
        float bias_gradient[shared_rows_a_task] = {};
        for (std::int64_t i = 0; i < h.rows; ++i)
            for (std::int64_t s = begin; s < end; ++s) bias_gradient[s - begin] += shared_z_.row(i)[s];
        for (std::int64_t s = begin; s < end; ++s) {
            const std::int32_t row = active.shared[static_cast<std::size_t>(s)];
            optimizer.update_row(weight, row, shared_gradient_.row(s));
            optimizer.update_scalar(bias, row, bias_gradient[s - begin]);
        }
    });
}

std::int64_t SampledOutput::update_private(Arena &arena, const Matrix &h, const Parameters &weight,
                                           const Parameters &bias, const Optimizer &optimizer) {
    const simd::Kernels &k = simd::kernels();
    std::vector<std::int64_t> touched(cuts_.size());
    arena.each(static_cast<std::int64_t>(cuts_.size()) - 1, [&](std::int64_t part) {
        Array<float> grad(static_cast<std::size_t>(weight.stride));
        std::vector<float> g;
        const std::int64_t last = cuts_[static_cast<std::size_t>(part) + 1];
        for (std::int64_t i = cuts_[static_cast<std::size_t>(part)]; i < last; ++i) {
            if (i + rows_ahead_of_update < last) prefetch_for_update(weight, inverse_.row(i + rows_ahead_of_update));
            if (i + scores_ahead < last) prefetch_scores<0>(z_.data(), inverse_, i + scores_ahead);
            const std::int64_t begin = inverse_.begin(i), count = inverse_.count(i), row = inverse_.row(i);
            g.resize(static_cast<std::size_t>(count));
            float bias_gradient = 0;
            bool any = false;
            for (std::int64_t e = 0; e < count; ++e) {
                const float value = z_[static_cast<std::size_t>(inverse_.positions()[begin + e])];
                g[static_cast<std::size_t>(e)] = value;
                bias_gradient += value;
                any |= value != 0;
            }
            if (!any) continue;
            k.backprop_row(weight.row(row), h.row(0), parts_.part(part), h.stride, h.stride, inverse_.samples() + begin,
                           g.data(), count, grad.data());
            optimizer.update_row(weight, row, grad.data());
            optimizer.update_scalar(bias, row, bias_gradient);
            ++touched[static_cast<std::size_t>(part)];
        }
    });
    std::int64_t total = 0;
    for (std::int64_t t : touched) total += t;
    return total;
}

// The textbook optimizer moves every row each step. Rows of the active set are updated elsewhere; a row whose pairs
// were all dropped belongs to the untouched ones.
void SampledOutput::update_untouched(Arena &arena, const ActiveSet &active, const Parameters &weight,
                                     const Parameters &bias, const Optimizer &optimizer) {
    std::vector<char> takes_part(static_cast<std::size_t>(weight.rows));
    for (std::int32_t row : active.shared) takes_part[static_cast<std::size_t>(row)] = 1;
    for (std::int64_t i = 0; i < inverse_.touched(); ++i)
        for (std::int64_t e = inverse_.begin(i); e < inverse_.begin(i) + inverse_.count(i); ++e)
            if (z_[static_cast<std::size_t>(inverse_.positions()[e])] != 0)
                takes_part[static_cast<std::size_t>(inverse_.row(i))] = 1;
    arena.blocks(weight.rows, 1024, [&](std::int64_t begin, std::int64_t end) {
        Array<float> grad(static_cast<std::size_t>(weight.stride));
        for (std::int64_t r = begin; r < end; ++r) {
            if (takes_part[static_cast<std::size_t>(r)]) continue;
            std::fill(grad.begin(), grad.end(), 0.0f);
            optimizer.update_row(weight, r, grad.data());
            optimizer.update_scalar(bias, r, 0);
        }
    });
}

std::size_t SampledOutput::bytes() const {
    return inverse_.bytes() + z_.bytes() + own_piece_.bytes() + shared_piece_.bytes() + shared_weight_.data.bytes() +
           shared_offset_.bytes() + shared_z_.data.bytes() + shared_gradient_.data.bytes() + parts_.bytes();
}

} // namespace dslide
