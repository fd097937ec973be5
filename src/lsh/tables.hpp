// SPDX-License-Identifier: Apache-2.0
// Hash tables as two flat arrays: a table is offsets[2^bits + 1] and the ids of all vectors in the order of their
// buckets. No bucket overflows; a limit is applied when querying, as a window of the bucket.
#pragma once

#include "core/memory.hpp"
#include "lsh/hash_family.hpp"

#include <span>

namespace dslide {

class HashTables {
public:
    explicit HashTables(std::unique_ptr<HashFamily> family) : family_(std::move(family)) {}
    const HashFamily &family() const { return *family_; }

    /// Hashes all vectors and fills all tables; ids are 0 .. x.count - 1. On failure the tables are as before or empty.
    void rebuild(Arena &arena, const VectorRows &x);
    /// Every vector's bucket in every table: codes[i * tables + t].
    void write_codes(std::int32_t *codes) const;
    /// Fills the tables from what write_codes() gave.
    void restore(Arena &arena, const std::int32_t *codes, std::int64_t count);
    bool built() const { return count_ >= 0; }
    std::int64_t count() const { return count_; }

    /// Ids in a bucket, ascending.
    std::span<const std::int32_t> bucket(int table, std::uint32_t code) const {
        const std::int32_t *offsets = offsets_.data() + static_cast<std::size_t>(table) * (buckets() + 1);
        return {ids_.data() + table * count_ + offsets[code],
                static_cast<std::size_t>(offsets[code + 1] - offsets[code])};
    }
    std::size_t buckets() const { return std::size_t{1} << family_->bits(); }
    std::size_t bytes() const { return offsets_.bytes() + ids_.bytes(); }

private:
    void reserve(std::int64_t count); ///< the tables count as empty until count_ is set again
    void fill(std::int64_t table, const std::uint32_t *codes, std::int64_t count);

    std::unique_ptr<HashFamily> family_;
    std::int64_t count_ = -1;
    Array<std::int32_t> offsets_; ///< table x (buckets + 1)
    Array<std::int32_t> ids_;     ///< table x count
};

} // namespace dslide
