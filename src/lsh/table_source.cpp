// SPDX-License-Identifier: Apache-2.0
#include "lsh/table_source.hpp"

#include "core/random.hpp"

#include <algorithm>
#include <cmath>

namespace dslide {
namespace {

constexpr std::int64_t samples_a_task = 8;
constexpr float mean_decay = 0.9f; // a batch's share in the running mean is 0.1: some ten batches are remembered

} // namespace

TableSource::TableSource(std::unique_ptr<HashFamily> family, std::int64_t width, const Settings &settings)
    : tables_(std::move(family)), settings_(settings), running_mean_(static_cast<std::size_t>(simd::padded(width))),
      frozen_mean_(running_mean_.size()) {
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

bool TableSource::observe(const Matrix &h, std::int64_t step) {
    if (settings_.centring) update_mean(h);
    return step >= state_.schedule.next_step || !tables_.built();
}

RowStatistics TableSource::measure(Arena &arena, const Rows &rows) {
    frozen_mean_ = running_mean_;
    return measure_rows(arena, rows.weights, rows.stride, rows.count, rows.bias, frozen_mean_, rows.ids,
                        settings_.head_rows, last_);
}

void TableSource::rebuild(Arena &arena, const Rows &rows, const RowStatistics &all, std::int64_t step) {
    const simd::Kernels &k = simd::kernels();
    std::vector<std::int32_t> head;
    for (const RowStatistics::Head &h : all.head) head.push_back(h.id);
    set_head(std::move(head), rows.row_of, rows.count);

    std::vector<float> mean_row(static_cast<std::size_t>(rows.stride));
    k.axpy(static_cast<float>(1 / all.rows), all.sum.data(), mean_row.data(), rows.stride);
    const double mean_logit = all.logit / all.rows;
    float shift = 0;
    state_.scale = 1;
    if (settings_.centring) {
        const double length =
            std::sqrt(std::max(0.0, all.square / all.rows - k.dot(mean_row.data(), mean_row.data(), rows.stride)));
        const double deviation = std::sqrt(std::max(0.0, all.logit_square / all.rows - mean_logit * mean_logit));
        const double best = std::sqrt(std::sqrt(static_cast<double>(state_.running_square)) * deviation / length);
        if (best > 0 && std::isfinite(best)) state_.scale = static_cast<float>(best);
        shift = static_cast<float>(mean_logit);
    }
    for (std::int64_t r = 0; r < rows.count; ++r) {
        float &x = last_[static_cast<std::size_t>(r)];
        x = (x - shift) / state_.scale;
    }
    tables_.rebuild(
        arena, {rows.weights, rows.stride, rows.count, last_.data(), settings_.centring ? mean_row.data() : nullptr});
    if (step >= state_.schedule.next_step) {
        state_.schedule.next_step = step + static_cast<std::int64_t>(state_.schedule.gap);
        state_.schedule.gap =
            std::min(state_.schedule.gap * settings_.rebuild_growth, static_cast<double>(settings_.rebuild_max));
    }
    ++state_.rebuilds;
}

void TableSource::set_head(std::vector<std::int32_t> classes, const std::int32_t *row_of, std::int64_t rows) {
    head_classes_ = std::move(classes);
    head_.clear();
    is_head_.assign(static_cast<std::size_t>(rows), 0);
    for (const std::int32_t c : head_classes_) {
        const std::int32_t row = row_of ? row_of[c] : c;
        if (row < 0) continue;
        head_.push_back(row);
        is_head_[static_cast<std::size_t>(row)] = 1;
    }
}

void TableSource::find(Arena &arena, const Matrix &h, std::int64_t step, std::int64_t want, Candidates &out) {
    const HashFamily &family = tables_.family();
    want = std::min(want, tables_.count());
    out.reshape(h.rows, want);
    last_.ensure(static_cast<std::size_t>(h.rows));
    codes_.ensure(static_cast<std::size_t>(family.tables() * h.rows));
    std::fill_n(last_.data(), h.rows, state_.scale);
    const VectorRows x{h.row(0), h.stride, h.rows, last_.data(), frozen_mean_.data()};
    for (int g = 0; g < family.groups(); ++g) family.hash(arena, g, x, codes_.data() + family.first_table(g) * h.rows);

    const std::int64_t n_head = std::min(static_cast<std::int64_t>(head_.size()), want);
    // A bucket far longer than the mean holds rows that differ from nothing: a window of it is as good.
    const std::int64_t bucket_limit = 64 + 8 * (tables_.count() >> family.bits());
    arena.blocks(h.rows, samples_a_task, [&](std::int64_t begin, std::int64_t end) {
        CollisionCounter &counter = counters_.local();
        for (std::int64_t i = begin; i < end; ++i) {
            RandomStream random(settings_.seed, Purpose::bucket_window, static_cast<std::uint64_t>(step),
                                static_cast<std::uint64_t>(i));
            std::int32_t *rows = out.row.data() + i * want;
            const std::int64_t found =
                counter.query(tables_, codes_.data() + i, h.rows, want - n_head, bucket_limit, random, rows);
            std::int32_t *last = std::remove_if(
                rows, rows + found, [&](std::int32_t row) { return is_head_[static_cast<std::size_t>(row)] != 0; });
            last = std::copy_n(head_.data(), n_head, last);
            out.count[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(last - rows);
        }
    });
}

} // namespace dslide
