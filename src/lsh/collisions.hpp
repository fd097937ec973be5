// SPDX-License-Identifier: Apache-2.0
// Ranks the vectors that share buckets with a query by how many tables they share one in. Taking the most frequent ones
// is worth several points of precision over taking buckets until full.
#pragma once

#include "core/random.hpp"
#include "lsh/tables.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace dslide {

/// Scratch of one thread; as large as the number of vectors.
class CollisionCounter {
public:
    static constexpr int max_tables = 255; ///< counts are bytes, so that they stay in the cache

    /// Writes the ids with most collisions, at most `want`, to `out` and returns how many: more collisions first. Of
    /// those that tie at the cut a window is taken that starts at a random place. Of a bucket longer than bucket_limit
    /// only a window is looked at. Table t's code is codes[t * code_stride]. `collisions` may be null.
    std::int64_t query(const HashTables &tables, const std::uint32_t *codes, std::int64_t code_stride,
                       std::int64_t want, std::int64_t bucket_limit, RandomStream &random, std::int32_t *out,
                       std::int32_t *collisions = nullptr);

private:
    void count_all(const HashTables &tables, const std::uint32_t *codes, std::int64_t code_stride,
                   std::int64_t bucket_limit, RandomStream &random);
    void count(std::span<const std::int32_t> ids);
    void count_levels();
    std::int64_t at_least(std::uint8_t level) const; ///< how many collided so often
    void list(std::uint8_t level);                   ///< ... and which: to found_
    void clear() noexcept;
    struct Clear { ///< also after an exception
        CollisionCounter &counter;
        ~Clear() { counter.clear(); }
    };

    std::vector<std::uint8_t> count_; ///< zero between calls
    /// Where few of all vectors collide, their ids are noted while counting; otherwise the counts are scanned
    /// afterwards.
    bool notes_ids_ = false;
    std::vector<std::int32_t> touched_;
    std::size_t n_touched_ = 0;
    std::array<std::int64_t, max_tables + 1> reach_{}; ///< of the noted ids, how many have so many collisions or more
    std::vector<std::int32_t> found_;
};

} // namespace dslide
