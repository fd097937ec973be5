// SPDX-License-Identifier: Apache-2.0
#include "capi/boundary.hpp"
#include "capi/handles.hpp"

using namespace dslide;

void dslide_hashtable_options_init(dslide_hashtable_options *options, size_t size) noexcept {
    capi::init_options(options, size);
}

dslide_status dslide_hashtable_create(dslide_cluster *cluster, const dslide_hashtable_options *options,
                                      dslide_hashtable **out) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(cluster, "cluster");
        capi::need(out, "out");
        capi::need(options, "options");
        const auto given = capi::read_options(options, dslide_hashtable_options{}, "options");
        *out = new dslide_hashtable{std::make_unique<VectorIndex>(arena_of(cluster->impl), given)};
    };
}

dslide_status dslide_hashtable_insert(dslide_hashtable *table, const float *vectors, int64_t count,
                                      int64_t *out_first_id) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(table, "table");
        if (count > 0) capi::need(vectors, "vectors");
        const std::int64_t first = table->impl->insert(vectors, count);
        if (out_first_id) *out_first_id = first;
    };
}

dslide_status dslide_hashtable_update(dslide_hashtable *table, int64_t id, const float *vector) noexcept {
    return DSLIDE_BOUNDARY { capi::need(table, "table")->impl->update(id, capi::need(vector, "vector")); };
}

dslide_status dslide_hashtable_rebuild(dslide_hashtable *table) noexcept {
    return DSLIDE_BOUNDARY { capi::need(table, "table")->impl->rebuild(); };
}

dslide_status dslide_hashtable_query(const dslide_hashtable *table, const float *queries, int64_t n_queries, int32_t k,
                                     int64_t *out_ids, int32_t *out_collisions) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(table, "table");
        if (n_queries > 0) capi::need(queries, "queries"), capi::need(out_ids, "out_ids");
        table->impl->query(queries, n_queries, k, out_ids, out_collisions);
    };
}

dslide_status dslide_hashtable_get_stats(const dslide_hashtable *table, dslide_hashtable_stats *out) noexcept {
    return DSLIDE_BOUNDARY { capi::write_result(capi::need(table, "table")->impl->stats(), out, "out"); };
}

void dslide_hashtable_free(dslide_hashtable *table) noexcept { delete table; }
