// SPDX-License-Identifier: Apache-2.0
#include "lsh/row_statistics.hpp"

#include "simd/matrix.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace dslide {
namespace {

constexpr std::int64_t rows_a_task = 4096;

bool ranks_before(const RowStatistics::Head &a, const RowStatistics::Head &b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

std::vector<RowStatistics::Head> best_rows(const Array<float> &mean_logit, std::int64_t rows, const std::int32_t *ids,
                                           std::int64_t head_rows) {
    std::vector<RowStatistics::Head> all(static_cast<std::size_t>(rows));
    for (std::int64_t r = 0; r < rows; ++r)
        all[static_cast<std::size_t>(r)] = {mean_logit[static_cast<std::size_t>(r)],
                                            ids ? ids[r] : static_cast<std::int32_t>(r)};
    const auto n = static_cast<std::ptrdiff_t>(std::min(head_rows, rows));
    std::partial_sort(all.begin(), all.begin() + n, all.end(), ranks_before);
    all.resize(static_cast<std::size_t>(n));
    all.shrink_to_fit();
    return all;
}

struct PackedSums {
    double rows, square, logit, logit_square;
    std::int64_t head_rows;
};

} // namespace

void RowStatistics::merge(const RowStatistics &other, std::int64_t head_rows) {
    rows += other.rows;
    square += other.square;
    logit += other.logit;
    logit_square += other.logit_square;
    for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += other.sum[j];
    std::vector<Head> both;
    std::merge(head.begin(), head.end(), other.head.begin(), other.head.end(), std::back_inserter(both), ranks_before);
    both.resize(std::min(both.size(), static_cast<std::size_t>(head_rows)));
    head = std::move(both);
}

std::size_t RowStatistics::packed_bytes(std::int64_t width, std::int64_t head_rows) {
    return sizeof(PackedSums) + static_cast<std::size_t>(simd::padded(width)) * sizeof(float) +
           static_cast<std::size_t>(head_rows) * sizeof(Head);
}

void RowStatistics::pack(std::byte *to, std::int64_t head_rows) const {
    const PackedSums sums{rows, square, logit, logit_square, static_cast<std::int64_t>(head.size())};
    std::memcpy(to, &sums, sizeof sums);
    std::memcpy(to + sizeof sums, sum.data(), sum.size() * sizeof(float));
    std::byte *heads = to + sizeof sums + sum.size() * sizeof(float);
    std::memset(heads, 0, static_cast<std::size_t>(head_rows) * sizeof(Head));
    if (!head.empty()) std::memcpy(heads, head.data(), head.size() * sizeof(Head));
}

void RowStatistics::unpack(const std::byte *from, std::int64_t width) {
    PackedSums sums;
    std::memcpy(&sums, from, sizeof sums);
    rows = sums.rows;
    square = sums.square;
    logit = sums.logit;
    logit_square = sums.logit_square;
    sum.resize(static_cast<std::size_t>(simd::padded(width)));
    std::memcpy(sum.data(), from + sizeof sums, sum.size() * sizeof(float));
    head.resize(static_cast<std::size_t>(sums.head_rows));
    if (!head.empty())
        std::memcpy(head.data(), from + sizeof sums + sum.size() * sizeof(float), head.size() * sizeof(Head));
}

RowStatistics measure_rows(Arena &arena, const float *weights, std::int64_t stride, std::int64_t rows,
                           const float *bias, const std::vector<float> &mean, const std::int32_t *ids,
                           std::int64_t head_rows, Array<float> &mean_logit) {
    const simd::Kernels &k = simd::kernels();
    const std::int64_t tasks = (rows + rows_a_task - 1) / rows_a_task;
    Matrix sums(tasks, stride);
    std::vector<double> squares(static_cast<std::size_t>(tasks)), logits(squares.size()), logit_squares(squares.size());
    mean_logit.ensure(static_cast<std::size_t>(rows));
    arena.blocks(rows, rows_a_task, [&](std::int64_t begin, std::int64_t end) {
        const auto task = static_cast<std::size_t>(begin / rows_a_task);
        for (std::int64_t r = begin; r < end; ++r) {
            const float *w = weights + r * stride;
            const float logit = bias[r] + k.dot(mean.data(), w, stride);
            mean_logit[static_cast<std::size_t>(r)] = logit;
            k.axpy(1, w, sums.row(begin / rows_a_task), stride);
            squares[task] += k.dot(w, w, stride);
            logits[task] += logit;
            logit_squares[task] += static_cast<double>(logit) * logit;
        }
    });
    RowStatistics all;
    all.rows = static_cast<double>(rows);
    all.square = std::accumulate(squares.begin(), squares.end(), 0.0);
    all.logit = std::accumulate(logits.begin(), logits.end(), 0.0);
    all.logit_square = std::accumulate(logit_squares.begin(), logit_squares.end(), 0.0);
    all.sum.resize(static_cast<std::size_t>(stride));
    for (std::int64_t t = 0; t < tasks; ++t) k.axpy(1, sums.row(t), all.sum.data(), stride);
    all.head = best_rows(mean_logit, rows, ids, head_rows);
    return all;
}

} // namespace dslide
