// SPDX-License-Identifier: Apache-2.0
// A family of locality-sensitive hash functions: vectors to bucket numbers, one for each table.
//
// To add a family: a class beside simhash.hpp, its case in possible_bits() and make_hash_family(), its DSLIDE_HASH_
// value in hashtable.h. To train with it: a DSLIDE_SELECT_ value in trainer.h and its line in hash_family_of()
// (train/plan.cpp).
#pragma once

#include "core/arena.hpp"

#include <cstdint>
#include <memory>

namespace dslide {

/// Vectors to hash: rows of `data`, and one more coordinate each (a bias, say), if `last` is given.
struct VectorRows {
    const float *data = nullptr;
    std::int64_t stride = 0; ///< padded to simd::row_lanes
    std::int64_t count = 0;
    const float *last = nullptr;   ///< `count` values, or null: 0
    const float *origin = nullptr; ///< subtracted from each row (not from `last`), or null: 0
};

class HashFamily {
public:
    virtual ~HashFamily() = default;
    int tables() const { return tables_; }
    int bits() const { return bits_; }

    /// Tables are hashed in groups that share work; a group is what one call computes.
    virtual int groups() const = 0;
    virtual int first_table(int group) const = 0; ///< first_table(groups()) == tables()

    /// codes[(t - first_table(group)) * x.count + i]: bucket number of vector i in table t, below 2^bits. Depends on
    /// the vector alone.
    virtual void hash(Arena &arena, int group, const VectorRows &x, std::uint32_t *codes) const = 0;

protected:
    HashFamily(int tables, int bits) : tables_(tables), bits_(bits) {}

private:
    int tables_, bits_;
};

/// The bits of a bucket number that the family gives when `bits` are asked for (DWTA: a multiple of 3, at least 3).
int possible_bits(std::int32_t family, int bits);

/// @param family  DSLIDE_HASH_*
/// @param dim     length of the vectors without the last coordinate
/// @param bits    rounded by possible_bits()
std::unique_ptr<HashFamily> make_hash_family(std::int32_t family, std::int64_t dim, int tables, int bits,
                                             std::uint64_t seed);

} // namespace dslide
