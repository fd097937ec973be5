// SPDX-License-Identifier: Apache-2.0
#include "lsh/table_source.hpp"

#include "core/random.hpp"

#include <algorithm>
#include <cmath>

namespace dslide {
namespace {

constexpr std::int64_t samples_a_task = 8;
constexpr std::int64_t rows_a_task = 4096;
constexpr float mean_decay = 0.9f; // a batch's share in the running mean is 0.1: some ten batches are remembered

} // namespace

TableSource::TableSource(std::unique_ptr<HashFamily> family, std::int64_t width, const Settings &settings)
    : tables_(std::move(family)), settings_(settings), width_(width),
      running_mean_(static_cast<std::size_t>(simd::padded(width))), frozen_mean_(running_mean_.size()) {
    state_.schedule.gap = static_cast<double>(settings.rebuild_first);
}

void TableSource::update_mean(const Matrix &h) {
    if (h.rows == 0) return;
    std::vector<float> mean(running_mean_.size());
    const simd::Kernels &k = simd::kernels();
    for (std::int64_t i = 0; i < h.rows; ++i) k.axpy(1 / static_cast<float>(h.rows), h.row(i), mean.data(), h.stride);
    double square = 0;
    for (std::int64_t i = 0; i < h.rows; ++i) square += k.dot(h.row(i), h.row(i), h.stride);
    square = square / static_cast<double>(h.rows) - k.dot(mean.data(), mean.data(), h.stride);
    if (!std::isfinite(square)) return; // such a batch diverges; the mean must not remember it
    const float keep = state_.batches == 0 ? 0 : mean_decay;
    for (std::size_t j = 0; j < mean.size(); ++j) running_mean_[j] = keep * running_mean_[j] + (1 - keep) * mean[j];
    state_.running_square = keep * state_.running_square + (1 - keep) * static_cast<float>(std::max(square, 0.0));
    ++state_.batches;
}

bool TableSource::prepare(Arena &arena, const Matrix &h, std::int64_t step, bool force, const float *weights,
                          std::int64_t stride, std::int64_t rows, const float *bias) {
    if (settings_.centring) update_mean(h);
    const bool due = step >= state_.schedule.next_step;
    if (!due && !force && tables_.built()) return false;
    rebuild(arena, weights, stride, rows, bias);
    if (due) {
        state_.schedule.next_step = step + static_cast<std::int64_t>(state_.schedule.gap);
        state_.schedule.gap =
            std::min(state_.schedule.gap * settings_.rebuild_growth, static_cast<double>(settings_.rebuild_max));
    }
    ++state_.rebuilds;
    return true;
}

void TableSource::rebuild(Arena &arena, const float *weights, std::int64_t stride, std::int64_t rows,
                          const float *bias) {
    frozen_mean_ = running_mean_;
    const double rms = std::sqrt(state_.running_square / static_cast<double>(width_));
    state_.scale = settings_.centring && rms > 0 ? static_cast<float>(4 * rms) : 1.0f;
    Array<float> last(static_cast<std::size_t>(rows));
    arena.blocks(rows, rows_a_task, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
            last[static_cast<std::size_t>(r)] =
                (bias[r] + simd::kernels().dot(frozen_mean_.data(), weights + r * stride, stride)) / state_.scale;
    });
    tables_.rebuild(arena, {weights, stride, rows, last.data()});
}

void TableSource::find(Arena &arena, const Matrix &h, std::int64_t step, std::int64_t want, Candidates &out) {
    const HashFamily &family = tables_.family();
    want = std::min(want, tables_.count());
    out.reshape(h.rows, want);
    queries_.reshape(h.rows, h.cols);
    last_.ensure(static_cast<std::size_t>(h.rows));
    codes_.ensure(static_cast<std::size_t>(family.tables() * h.rows));
    std::fill_n(last_.data(), h.rows, state_.scale);
    std::copy_n(h.row(0), h.rows * h.stride, queries_.row(0));
    for (std::int64_t i = 0; i < h.rows; ++i) simd::kernels().axpy(-1, frozen_mean_.data(), queries_.row(i), h.stride);
    const VectorRows x{queries_.row(0), queries_.stride, h.rows, last_.data()};
    for (int g = 0; g < family.groups(); ++g) family.hash(arena, g, x, codes_.data() + family.first_table(g) * h.rows);

    // A bucket far longer than the mean holds rows that differ from nothing: a window of it is as good.
    const std::int64_t bucket_limit = 64 + 8 * (tables_.count() >> family.bits());
    arena.blocks(h.rows, samples_a_task, [&](std::int64_t begin, std::int64_t end) {
        CollisionCounter &counter = counters_.local();
        for (std::int64_t i = begin; i < end; ++i) {
            RandomStream random(settings_.seed, Purpose::bucket_window, static_cast<std::uint64_t>(step),
                                static_cast<std::uint64_t>(i));
            out.count[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(counter.query(
                tables_, codes_.data() + i, h.rows, want, bucket_limit, random, out.row.data() + i * want));
        }
    });
}

} // namespace dslide
