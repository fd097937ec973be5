// SPDX-License-Identifier: Apache-2.0
#include "lsh/collisions.hpp"

#include "simd/kernels.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace dslide {

void CollisionCounter::count(std::span<const std::int32_t> ids) {
    if (!notes_ids_) {
        for (const std::int32_t id : ids) ++count_[static_cast<std::size_t>(id)];
        return;
    }
    if (touched_.size() < n_touched_ + ids.size()) touched_.resize(2 * (n_touched_ + ids.size()));
    // Without a branch: the id is always written, and stays only if it was new.
    std::size_t n = n_touched_;
    for (const std::int32_t id : ids) {
        touched_[n] = id;
        n += count_[static_cast<std::size_t>(id)]++ == 0;
    }
    n_touched_ = n;
}

void CollisionCounter::count_all(const HashTables &tables, const std::uint32_t *codes, std::int64_t code_stride,
                                 std::int64_t bucket_limit, RandomStream &random) {
    const auto limit = static_cast<std::size_t>(bucket_limit);
    for (int t = 0; t < tables.family().tables(); ++t) {
        const auto ids = tables.bucket(t, codes[t * code_stride]);
        if (ids.size() <= limit) {
            count(ids);
            continue;
        }
        const std::size_t start = random.below(ids.size()), head = std::min(limit, ids.size() - start);
        count(ids.subspan(start, head));
        count(ids.first(limit - head));
    }
}

// One pass over the noted ids; without notes each level is counted when asked for.
void CollisionCounter::count_levels() {
    if (!notes_ids_) return;
    reach_.fill(0);
    for (std::size_t i = 0; i < n_touched_; ++i) ++reach_[count_[static_cast<std::size_t>(touched_[i])]];
    for (std::size_t level = max_tables; level-- > 0;) reach_[level] += reach_[level + 1];
}

std::int64_t CollisionCounter::at_least(std::uint8_t level) const {
    if (notes_ids_) return reach_[level];
    return simd::kernels().count_bytes_from(count_.data(), static_cast<std::int64_t>(count_.size()), level);
}

void CollisionCounter::list(std::uint8_t level) {
    if (notes_ids_) {
        found_.clear();
        for (std::size_t i = 0; i < n_touched_; ++i)
            if (count_[static_cast<std::size_t>(touched_[i])] >= level) found_.push_back(touched_[i]);
    } else {
        found_.resize(count_.size());
        found_.resize(static_cast<std::size_t>(simd::kernels().find_bytes_from(
            count_.data(), static_cast<std::int64_t>(count_.size()), level, found_.data())));
    }
}

void CollisionCounter::clear() noexcept {
    if (notes_ids_)
        for (std::size_t i = 0; i < n_touched_; ++i) count_[static_cast<std::size_t>(touched_[i])] = 0;
    else
        std::fill(count_.begin(), count_.end(), std::uint8_t{0});
    n_touched_ = 0;
}

std::int64_t CollisionCounter::query(const HashTables &tables, const std::uint32_t *codes, std::int64_t code_stride,
                                     std::int64_t want, std::int64_t bucket_limit, RandomStream &random,
                                     std::int32_t *out, std::int32_t *collisions) {
    const int n_tables = tables.family().tables();
    count_.resize(static_cast<std::size_t>(tables.count()));
    const Clear clear_at_end{*this};
    notes_ids_ = 16 * n_tables < static_cast<std::int64_t>(tables.buckets()); // fewer than a sixteenth of all collide
    count_all(tables, codes, code_stride, bucket_limit, random);
    count_levels();

    // Everything above `cut` collisions is taken, and as many of those with exactly `cut` as there is room for.
    int low = 0, high = n_tables; // at_least(high + 1) <= want
    while (low < high) {
        const int middle = (low + high) / 2;
        if (at_least(static_cast<std::uint8_t>(middle + 1)) <= want)
            high = middle;
        else
            low = middle + 1;
    }
    const int cut = high;
    list(static_cast<std::uint8_t>(std::max(cut, 1)));

    // A counting sort from the most collisions down.
    std::array<std::int64_t, max_tables + 1> place{};
    for (const std::int32_t id : found_) ++place[count_[static_cast<std::size_t>(id)]];
    const std::int64_t tied = cut > 0 ? place[static_cast<std::size_t>(cut)] : 0;
    const std::int64_t above = static_cast<std::int64_t>(found_.size()) - tied, at_cut = std::min(tied, want - above);
    const std::int64_t window =
        tied > at_cut ? static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(tied))) : 0;
    std::int64_t next = 0;
    for (int c = n_tables; c >= std::max(cut, 1); --c) next += std::exchange(place[static_cast<std::size_t>(c)], next);
    std::int64_t seen_tied = 0;
    for (const std::int32_t id : found_) {
        const int c = count_[static_cast<std::size_t>(id)];
        if (c == cut && (seen_tied++ - window + tied) % tied >= at_cut) continue;
        const std::int64_t at = place[static_cast<std::size_t>(c)]++;
        out[at] = id;
        if (collisions) collisions[at] = c;
    }
    return above + at_cut;
}

} // namespace dslide
