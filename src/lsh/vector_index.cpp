// SPDX-License-Identifier: Apache-2.0
#include "lsh/vector_index.hpp"

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "lsh/collisions.hpp"
#include "simd/matrix.hpp"

#include <algorithm>
#include <cmath>
#include <tbb/enumerable_thread_specific.h>

namespace dslide {
namespace {

constexpr std::int64_t queries_a_task = 8;

dslide_hashtable_options resolved(dslide_hashtable_options o) {
    const auto check = [](std::int64_t value, std::int64_t low, std::int64_t high, const char *name) {
        if (value < low || value > high) fail(DSLIDE_E_ARGUMENT, name, " is ", value, ", expected ", low, " .. ", high);
    };
    check(o.family, DSLIDE_HASH_SIMHASH, DSLIDE_HASH_DWTA, "family");
    check(o.dim, 1, 65536, "dim");
    check(o.tables, 0, CollisionCounter::max_tables, "tables");
    check(o.bits, 0, 24, "bits");
    if (o.tables == 0) o.tables = 50;
    if (o.bits == 0) o.bits = 8;
    if (o.seed == 0) o.seed = default_seed;
    return o;
}

} // namespace

VectorIndex::VectorIndex(std::shared_ptr<Arena> arena, dslide_hashtable_options options)
    : arena_(std::move(arena)), options_(resolved(options)),
      tables_(make_hash_family(options_.family, options_.dim, options_.tables, options_.bits, options_.seed)),
      stride_(simd::padded(options_.dim)) {}

void VectorIndex::check_finite(const float *vectors, std::int64_t count) const {
    checked_product(static_cast<std::size_t>(count), static_cast<std::size_t>(options_.dim) * sizeof(float));
    for (std::int64_t i = 0; i < count * options_.dim; ++i)
        if (!std::isfinite(vectors[i]))
            fail(DSLIDE_E_ARGUMENT, "vector ", i / options_.dim, " holds ", vectors[i], " at place ", i % options_.dim,
                 ", expected finite values");
}

std::int64_t VectorIndex::insert(const float *vectors, std::int64_t n) {
    const std::int64_t first = count();
    if (n < 0 || n > INT32_MAX - first) fail(DSLIDE_E_ARGUMENT, "count is ", n, ", expected 0 .. ", INT32_MAX - first);
    check_finite(vectors, n);
    vectors_.resize(static_cast<std::size_t>((first + n) * stride_));
    for (std::int64_t i = 0; i < n; ++i)
        std::copy_n(vectors + i * options_.dim, options_.dim, vectors_.data() + (first + i) * stride_);
    return first;
}

void VectorIndex::update(std::int64_t id, const float *vector) {
    if (id < 0 || id >= count()) fail(DSLIDE_E_ARGUMENT, "id is ", id, ", expected 0 .. ", count() - 1);
    check_finite(vector, 1);
    std::copy_n(vector, options_.dim, vectors_.data() + id * stride_);
}

void VectorIndex::rebuild() {
    const Stopwatch watch;
    tables_.rebuild(*arena_, {vectors_.data(), stride_, count(), nullptr});
    build_seconds_ = watch.seconds();
}

void VectorIndex::query(const float *queries, std::int64_t n, std::int32_t k, std::int64_t *ids,
                        std::int32_t *collisions) const {
    if (n < 0) fail(DSLIDE_E_ARGUMENT, "n_queries is ", n, ", expected >= 0");
    if (k < 1) fail(DSLIDE_E_ARGUMENT, "k is ", k, ", expected >= 1");
    if (!tables_.built()) fail(DSLIDE_E_STATE, "the tables are empty: call rebuild after inserting");
    check_finite(queries, n);
    Matrix padded(n, options_.dim);
    for (std::int64_t i = 0; i < n; ++i) std::copy_n(queries + i * options_.dim, options_.dim, padded.row(i));
    const HashFamily &family = tables_.family();
    std::vector<std::uint32_t> codes(static_cast<std::size_t>(family.tables() * n));
    for (int g = 0; g < family.groups(); ++g)
        family.hash(*arena_, g, {padded.row(0), padded.stride, n, nullptr}, codes.data() + family.first_table(g) * n);
    // Into buffers of our own first: outputs are untouched if memory runs out on the way.
    std::vector<std::int64_t> all_ids(checked_product(static_cast<std::size_t>(n), static_cast<std::size_t>(k)));
    std::vector<std::int32_t> all_counts(all_ids.size());
    tbb::enumerable_thread_specific<CollisionCounter> counters;
    arena_->blocks(n, queries_a_task, [&](std::int64_t begin, std::int64_t end) {
        CollisionCounter &counter = counters.local();
        std::vector<std::int32_t> found(static_cast<std::size_t>(tables_.count())), counts(found.size());
        std::vector<std::int32_t> order;
        for (std::int64_t i = begin; i < end; ++i) {
            RandomStream unused(options_.seed, Purpose::bucket_window);
            // All that collide, so that ties at the cut can be broken by id.
            const std::int64_t n_found = counter.query(tables_, codes.data() + i, n, tables_.count(), tables_.count(),
                                                       unused, found.data(), counts.data());
            order.resize(static_cast<std::size_t>(n_found));
            for (std::size_t j = 0; j < order.size(); ++j) order[j] = static_cast<std::int32_t>(j);
            const std::size_t kept = std::min(order.size(), static_cast<std::size_t>(k));
            std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                              [&](std::int32_t a, std::int32_t b) {
                                  const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
                                  return counts[x] != counts[y] ? counts[x] > counts[y] : found[x] < found[y];
                              });
            for (std::size_t j = 0; j < static_cast<std::size_t>(k); ++j) {
                const std::size_t at = static_cast<std::size_t>(i) * static_cast<std::size_t>(k) + j;
                all_ids[at] = j < kept ? found[static_cast<std::size_t>(order[j])] : -1;
                all_counts[at] = j < kept ? counts[static_cast<std::size_t>(order[j])] : 0;
            }
        }
    });
    std::copy(all_ids.begin(), all_ids.end(), ids);
    if (collisions) std::copy(all_counts.begin(), all_counts.end(), collisions);
}

dslide_hashtable_stats VectorIndex::stats() const {
    dslide_hashtable_stats s{};
    s.struct_size = sizeof s;
    const HashFamily &family = tables_.family();
    s.tables = family.tables();
    s.bits = family.bits();
    s.vectors = count();
    s.buckets = static_cast<std::int64_t>(tables_.buckets()) * family.tables();
    s.vector_bytes = static_cast<std::int64_t>(vectors_.size() * sizeof(float));
    s.table_bytes = static_cast<std::int64_t>(tables_.bytes());
    s.build_seconds = build_seconds_;
    if (!tables_.built()) return s;
    s.built = tables_.count();
    double squares = 0;
    for (int t = 0; t < family.tables(); ++t)
        for (std::uint32_t code = 0; code < tables_.buckets(); ++code) {
            const auto size = static_cast<std::int64_t>(tables_.bucket(t, code).size());
            s.buckets_used += size > 0;
            s.largest_bucket = std::max(s.largest_bucket, size);
            squares += static_cast<double>(size) * static_cast<double>(size);
        }
    const auto entries = static_cast<double>(s.built) * family.tables();
    if (s.buckets_used > 0) {
        s.mean_load = entries / static_cast<double>(s.buckets_used);
        s.expected_bucket = squares / entries;
    }
    return s;
}

} // namespace dslide
