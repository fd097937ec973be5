// SPDX-License-Identifier: Apache-2.0
#include "lsh/tables.hpp"

#include <utility>
#include <vector>

namespace dslide {
namespace {

// Counting sort of ids by code, ascending within a bucket.
void fill_table(const std::uint32_t *codes, std::int64_t count, std::size_t buckets, std::int32_t *offsets,
                std::int32_t *ids) {
    std::fill(offsets, offsets + buckets + 1, 0);
    for (std::int64_t i = 0; i < count; ++i) ++offsets[codes[i] + 1];
    for (std::size_t b = 0; b < buckets; ++b) offsets[b + 1] += offsets[b];
    // Place through offsets[code], which ends as the bucket's end: shift back afterwards.
    for (std::int64_t i = 0; i < count; ++i) ids[offsets[codes[i]]++] = static_cast<std::int32_t>(i);
    for (std::size_t b = buckets; b > 0; --b) offsets[b] = offsets[b - 1];
    offsets[0] = 0;
}

} // namespace

void HashTables::reserve(std::int64_t count) {
    if (std::exchange(count_, -1) == count) return;
    const auto tables = static_cast<std::size_t>(family_->tables());
    ids_ = Array<std::int32_t>(checked_product(tables, static_cast<std::size_t>(count)));
    if (!offsets_.size()) offsets_ = Array<std::int32_t>(checked_product(tables, buckets() + 1));
}

void HashTables::fill(std::int64_t table, const std::uint32_t *codes, std::int64_t count) {
    fill_table(codes, count, buckets(), offsets_.data() + static_cast<std::size_t>(table) * (buckets() + 1),
               ids_.data() + table * count);
}

void HashTables::rebuild(Arena &arena, const VectorRows &x) {
    int largest_group = 0;
    for (int g = 0; g < family_->groups(); ++g)
        largest_group = std::max(largest_group, family_->first_table(g + 1) - family_->first_table(g));
    Array<std::uint32_t> codes(
        checked_product(static_cast<std::size_t>(largest_group), static_cast<std::size_t>(x.count)));
    reserve(x.count);
    for (int g = 0; g < family_->groups(); ++g) {
        const int first = family_->first_table(g);
        family_->hash(arena, g, x, codes.data());
        arena.each(family_->first_table(g + 1) - first,
                   [&](std::int64_t t) { fill(first + t, codes.data() + t * x.count, x.count); });
    }
    count_ = x.count;
}

void HashTables::write_codes(std::int32_t *codes) const {
    const std::int64_t tables = family_->tables();
    for (std::int64_t t = 0; t < tables; ++t)
        for (std::uint32_t code = 0; code < buckets(); ++code)
            for (const std::int32_t id : bucket(static_cast<int>(t), code))
                codes[id * tables + t] = static_cast<std::int32_t>(code);
}

void HashTables::restore(Arena &arena, const std::int32_t *codes, std::int64_t count) {
    const std::int64_t tables = family_->tables();
    reserve(count);
    arena.each(tables, [&](std::int64_t t) {
        std::vector<std::uint32_t> of_table(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i)
            of_table[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(codes[i * tables + t]);
        fill(t, of_table.data(), count);
    });
    count_ = count;
}

} // namespace dslide
