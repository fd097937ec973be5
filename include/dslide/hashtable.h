/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file hashtable.h
 * @brief Locality-sensitive hash tables over vectors, alone: insert, query by collision count, rebuild, statistics.
 *
 * A handle holds its own copy of the vectors. A query returns the vectors that share a bucket with it in most tables,
 * as they were at the last rebuild: vectors that came or changed since are found after the next one.
 */
#ifndef DSLIDE_HASHTABLE_H
#define DSLIDE_HASHTABLE_H

#include <dslide/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Hash families. */
enum {
    DSLIDE_HASH_SIMHASH = 0, /**< signs of random projections: angle (Charikar, STOC 2002) */
    DSLIDE_HASH_DWTA = 1     /**< densified winner-take-all: rank order (Chen and Shrivastava, UAI 2018) */
};

/** Shape of the tables. */
typedef struct dslide_hashtable_options {
    uint32_t struct_size; /**< set by dslide_hashtable_options_init() */
    int32_t family;       /**< DSLIDE_HASH_*; 0: SimHash */
    int32_t dim;          /**< length of the vectors, 1 .. 65,536 */
    int32_t tables;       /**< 1 .. 255; 0: 50 */
    int32_t bits;         /**< of a bucket number, 1 .. 24; 0: 8 (DWTA rounds down to a multiple of 3, at least 3) */
    int32_t reserved;     /**< 0 */
    uint64_t seed;        /**< of the hash functions; 0: the library's fixed seed */
} dslide_hashtable_options;

/** How full the tables are. */
typedef struct dslide_hashtable_stats {
    uint32_t struct_size;   /**< set by the caller: sizeof(dslide_hashtable_stats) */
    int32_t tables;         /**< L */
    int32_t bits;           /**< of a bucket number */
    int32_t reserved;       /**< 0 */
    int64_t vectors;        /**< held */
    int64_t built;          /**< of them in the tables */
    int64_t buckets;        /**< in all tables */
    int64_t buckets_used;   /**< with at least one vector */
    int64_t largest_bucket; /**< vectors in it */
    double mean_load;       /**< vectors a used bucket */
    double expected_bucket; /**< mean size of the bucket that a stored vector falls into */
    int64_t table_bytes;    /**< memory of the tables */
    int64_t vector_bytes;   /**< memory of the vectors */
    double build_seconds;   /**< of the last rebuild */
} dslide_hashtable_stats;

/** Set every field to its default: all `size` bytes to 0, struct_size to `size`. Local; any thread.
 * @param options  NULL: nothing is done
 * @param size     sizeof *options, as the caller was compiled
 * @since 0.1 */
DSLIDE_API void dslide_hashtable_options_init(dslide_hashtable_options *options, size_t size) DSLIDE_NOEXCEPT;

/** Make empty tables. Local.
 * @param cluster  whose threads hash; kept
 * @param options  dim must be set
 * @param out      the new handle; free it with dslide_hashtable_free()
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT; DSLIDE_E_MEMORY
 * @since 0.1 */
DSLIDE_API dslide_status dslide_hashtable_create(dslide_cluster *cluster, const dslide_hashtable_options *options,
                                                 dslide_hashtable **out) DSLIDE_NOEXCEPT;

/** Append vectors; they get the ids n, n+1, ... in the order given and are found after the next rebuild. Copied. Local.
 * @param table         handle
 * @param vectors       count x dim, finite
 * @param count         >= 0; in all at most 2^31 - 1
 * @param out_first_id  id of the first one; may be NULL
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT; DSLIDE_E_MEMORY
 * @since 0.1 */
DSLIDE_API dslide_status dslide_hashtable_insert(dslide_hashtable *table, const float *vectors, int64_t count,
                                                 int64_t *out_first_id) DSLIDE_NOEXCEPT;

/** Overwrite one vector; found under its new value after the next rebuild. Local.
 * @param table   handle
 * @param id      of an inserted vector
 * @param vector  dim values, finite; copied
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT
 * @since 0.1 */
DSLIDE_API dslide_status dslide_hashtable_update(dslide_hashtable *table, int64_t id,
                                                 const float *vector) DSLIDE_NOEXCEPT;

/** Hash all vectors again and fill the tables. Local.
 * @param table  handle
 * @return DSLIDE_OK; DSLIDE_E_MEMORY: the tables are as they were, or empty until the next rebuild
 * @since 0.1 */
DSLIDE_API dslide_status dslide_hashtable_rebuild(dslide_hashtable *table) DSLIDE_NOEXCEPT;

/** For each query the ids that share a bucket with it in most tables: more collisions first, lower id first among
 * equals. Local.
 * @param table           handle
 * @param queries         n_queries x dim, finite
 * @param n_queries       >= 0
 * @param k               ids wanted a query, >= 1
 * @param out_ids         n_queries * k ids; -1 where fewer were found
 * @param out_collisions  as many counts, 0 beside -1; may be NULL
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT; DSLIDE_E_STATE: the tables were never rebuilt
 * @since 0.1 */
DSLIDE_API dslide_status dslide_hashtable_query(const dslide_hashtable *table, const float *queries, int64_t n_queries,
                                                int32_t k, int64_t *out_ids, int32_t *out_collisions) DSLIDE_NOEXCEPT;

/** How full the tables are. Local.
 * @param table  handle
 * @param out    struct_size must be set
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT
 * @since 0.1 */
DSLIDE_API dslide_status dslide_hashtable_get_stats(const dslide_hashtable *table,
                                                    dslide_hashtable_stats *out) DSLIDE_NOEXCEPT;

/** Free the tables. Local; any thread.
 * @param table  handle or NULL
 * @since 0.1 */
DSLIDE_API void dslide_hashtable_free(dslide_hashtable *table) DSLIDE_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
