// SPDX-License-Identifier: Apache-2.0
#include "layers/inverse.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace dslide {
namespace {

constexpr std::int64_t max_ranges = 512;
constexpr std::int64_t max_chunks = 32;

} // namespace

void Inverse::build(Arena &arena, const SampleLists &lists, std::int64_t n_rows) {
    // Ranges are powers of two wide, so that a row's range is a shift.
    int shift = 0;
    while ((n_rows >> shift) >= max_ranges) ++shift;
    const std::int64_t ranges = ((n_rows - 1) >> shift) + 1;
    const std::int64_t width = std::int64_t{1} << shift;
    const std::int64_t chunk_size = std::max<std::int64_t>(1, (lists.n_samples + max_chunks - 1) / max_chunks);
    const std::int64_t chunks = (lists.n_samples + chunk_size - 1) / chunk_size;
    const auto for_chunk = [&](std::int64_t c, auto &&visit) {
        for (std::int64_t s = c * chunk_size; s < std::min(lists.n_samples, (c + 1) * chunk_size); ++s)
            for (std::int64_t e = lists.begin[s]; e < lists.end[s]; ++e) visit(s, e);
    };

    std::vector<std::int64_t> offset(static_cast<std::size_t>(chunks * ranges));
    arena.each(chunks, [&](std::int64_t c) {
        std::int64_t *counts = offset.data() + c * ranges;
        for_chunk(c, [&](std::int64_t, std::int64_t e) { ++counts[lists.row[e] >> shift]; });
    });
    std::vector<std::int64_t> range_start(static_cast<std::size_t>(ranges + 1));
    std::int64_t total = 0;
    for (std::int64_t r = 0; r < ranges; ++r) {
        range_start[static_cast<std::size_t>(r)] = total;
        for (std::int64_t c = 0; c < chunks; ++c)
            total += std::exchange(offset[static_cast<std::size_t>(c * ranges + r)], total);
    }
    range_start[static_cast<std::size_t>(ranges)] = total;
    if (total > std::numeric_limits<std::int32_t>::max() ||
        (lists.n_samples && lists.end[lists.n_samples - 1] > INT32_MAX))
        fail(DSLIDE_E_ARGUMENT, total, " active pairs in one batch, at most 2^31 - 1: use a smaller batch");
    entries_.ensure(static_cast<std::size_t>(total));
    samples_.ensure(static_cast<std::size_t>(total));
    positions_.ensure(static_cast<std::size_t>(total));
    const std::int64_t most_touched = std::min(total, n_rows);
    rows_.ensure(static_cast<std::size_t>(most_touched));
    starts_.ensure(static_cast<std::size_t>(most_touched + 1));

    arena.each(chunks, [&](std::int64_t c) {
        std::int64_t *next = offset.data() + c * ranges;
        for_chunk(c, [&](std::int64_t s, std::int64_t e) {
            entries_[static_cast<std::size_t>(next[lists.row[e] >> shift]++)] = {
                lists.row[e], static_cast<std::int32_t>(s), static_cast<std::int32_t>(e)};
        });
    });

    // Each range: count its rows, then place entries. Touched rows are numbered in between. No memory is claimed from
    // the first count on: a failure would leave counts behind.
    if (static_cast<std::int64_t>(counts_.size()) < ranges * width)
        counts_ = Array<std::int32_t>(static_cast<std::size_t>(ranges * width));
    std::vector<std::int64_t> touched_before(static_cast<std::size_t>(ranges + 1));
    arena.each(ranges, [&](std::int64_t r) {
        std::int32_t *count = counts_.data() + r * width;
        std::int64_t touched = 0;
        for (std::int64_t e = range_start[static_cast<std::size_t>(r)];
             e < range_start[static_cast<std::size_t>(r + 1)]; ++e)
            touched += count[entries_[static_cast<std::size_t>(e)].row - r * width]++ == 0;
        touched_before[static_cast<std::size_t>(r + 1)] = touched;
    });
    for (std::int64_t r = 0; r < ranges; ++r)
        touched_before[static_cast<std::size_t>(r + 1)] += touched_before[static_cast<std::size_t>(r)];
    touched_ = touched_before[static_cast<std::size_t>(ranges)];
    arena.each(ranges, [&](std::int64_t r) {
        std::int32_t *count = counts_.data() + r * width;
        std::int64_t slot = touched_before[static_cast<std::size_t>(r)],
                     place = range_start[static_cast<std::size_t>(r)];
        for (std::int64_t w = 0; w < width; ++w) {
            if (count[w] == 0) continue;
            rows_[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(r * width + w);
            starts_[static_cast<std::size_t>(slot++)] = place;
            place += std::exchange(count[w], static_cast<std::int32_t>(place));
        }
        for (std::int64_t e = range_start[static_cast<std::size_t>(r)];
             e < range_start[static_cast<std::size_t>(r + 1)]; ++e) {
            const Entry &entry = entries_[static_cast<std::size_t>(e)];
            const auto to = static_cast<std::size_t>(count[entry.row - r * width]++);
            samples_[to] = entry.sample;
            positions_[to] = entry.position;
        }
        std::fill(count, count + width, 0);
    });
    starts_[static_cast<std::size_t>(touched_)] = total;
}

std::vector<std::int64_t> Inverse::cut(std::int64_t parts) const {
    // A row costs its own traffic besides its entries: about as much as 16 of them.
    constexpr std::int64_t row_cost = 16;
    std::vector<std::int64_t> cuts{0};
    const auto cost_before = [&](std::int64_t i) { return starts_[static_cast<std::size_t>(i)] + row_cost * i; };
    const std::int64_t total = touched_ ? cost_before(touched_) : 0;
    for (std::int64_t p = 1; p < parts && cuts.back() < touched_; ++p) {
        std::int64_t low = cuts.back(), high = touched_;
        const std::int64_t target = total / parts * p;
        while (low < high) {
            const std::int64_t middle = (low + high) / 2;
            if (cost_before(middle) < target)
                low = middle + 1;
            else
                high = middle;
        }
        if (low > cuts.back()) cuts.push_back(low);
    }
    if (cuts.back() < touched_ || touched_ == 0) cuts.push_back(touched_);
    return cuts;
}

} // namespace dslide
