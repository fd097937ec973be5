// SPDX-License-Identifier: Apache-2.0
// Hash tables over vectors of their own: the hash-table handle.
#pragma once

#include "lsh/tables.hpp"

#include <dslide/hashtable.h>

#include <memory>
#include <vector>

namespace dslide {

class VectorIndex {
public:
    /// Throws Error(DSLIDE_E_ARGUMENT).
    VectorIndex(std::shared_ptr<Arena> arena, dslide_hashtable_options options);

    std::int64_t insert(const float *vectors, std::int64_t count);
    void update(std::int64_t id, const float *vector);
    void rebuild();
    /// ids, collisions: n_queries x k; collisions may be null.
    void query(const float *queries, std::int64_t n_queries, std::int32_t k, std::int64_t *ids,
               std::int32_t *collisions) const;
    dslide_hashtable_stats stats() const;

private:
    std::int64_t count() const { return static_cast<std::int64_t>(vectors_.size()) / stride_; }
    void check_finite(const float *vectors, std::int64_t count) const;

    std::shared_ptr<Arena> arena_;
    dslide_hashtable_options options_;
    HashTables tables_;
    std::int64_t stride_;
    std::vector<float> vectors_; ///< rows padded to the SIMD width
    double build_seconds_ = 0;
};

} // namespace dslide
