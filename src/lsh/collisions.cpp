// SPDX-License-Identifier: Apache-2.0
#include "lsh/collisions.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace dslide {

void CollisionCounter::count(std::span<const std::int32_t> ids) {
    if (touched_.size() < n_touched_ + ids.size()) touched_.resize(2 * (n_touched_ + ids.size()));
    // Without a branch: the id is always written, and stays only if it was new.
    std::size_t n = n_touched_;
    for (const std::int32_t id : ids) {
        touched_[n] = id;
        n += count_[static_cast<std::size_t>(id)]++ == 0;
    }
    n_touched_ = n;
}

std::int64_t CollisionCounter::query(const HashTables &tables, const std::uint32_t *codes, std::int64_t code_stride,
                                     std::int64_t want, std::int64_t bucket_limit, RandomStream &random,
                                     std::int32_t *out, std::int32_t *collisions) {
    count_.resize(static_cast<std::size_t>(tables.count()));
    n_touched_ = 0;
    const int n_tables = tables.family().tables();
    for (int t = 0; t < n_tables; ++t) {
        const auto ids = tables.bucket(t, codes[t * code_stride]);
        const auto limit = static_cast<std::size_t>(bucket_limit);
        if (ids.size() <= limit) {
            count(ids);
            continue;
        }
        const std::size_t start = random.below(ids.size()), head = std::min(limit, ids.size() - start);
        count(ids.subspan(start, head));
        count(ids.first(limit - head));
    }

    std::array<std::int64_t, max_tables + 1> histogram{};
    for (std::size_t i = 0; i < n_touched_; ++i) ++histogram[count_[static_cast<std::size_t>(touched_[i])]];
    // Everything above `cut` is taken, and `at_cut` of those with exactly `cut` collisions.
    int cut = n_tables;
    std::int64_t above = 0;
    while (cut > 0 && above + histogram[static_cast<std::size_t>(cut)] <= want)
        above += histogram[static_cast<std::size_t>(cut--)];
    const std::int64_t tied = cut > 0 ? histogram[static_cast<std::size_t>(cut)] : 0,
                       at_cut = std::min(tied, want - above);
    const std::int64_t window =
        tied > at_cut ? static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(tied))) : 0;

    // Places for each count, from the most collisions down: a counting sort, stable in the order of first collision.
    std::array<std::int64_t, max_tables + 1> place{};
    std::int64_t next = 0;
    for (int c = n_tables; c > cut; --c) {
        place[static_cast<std::size_t>(c)] = next;
        next += histogram[static_cast<std::size_t>(c)];
    }
    std::int64_t seen_tied = 0, taken = above;
    for (std::size_t i = 0; i < n_touched_; ++i) {
        const std::int32_t id = touched_[i];
        const int c = std::exchange(count_[static_cast<std::size_t>(id)], std::uint8_t{0});
        std::int64_t at;
        if (c > cut) {
            at = place[static_cast<std::size_t>(c)]++;
        } else if (c == cut && c > 0) {
            const std::int64_t from_window = (seen_tied++ - window + tied) % tied;
            if (from_window >= at_cut) continue;
            at = taken++;
        } else {
            continue;
        }
        out[at] = id;
        if (collisions) collisions[at] = c;
    }
    return above + at_cut;
}

} // namespace dslide
