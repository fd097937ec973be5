/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file cluster.h
 * @brief The cluster: which processes and threads compute together.
 */
#ifndef DSLIDE_CLUSTER_H
#define DSLIDE_CLUSTER_H

#include <dslide/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How this process takes part. */
typedef struct dslide_cluster_options {
    uint32_t struct_size; /**< set by dslide_cluster_options_init() */
    int32_t threads; /**< threads that compute, the calling one included; 0: what affinity and cgroup quota allow */
} dslide_cluster_options;

/** Set every field to its default: all `size` bytes to 0, struct_size to `size`. Local; any thread.
 * @param options  NULL: nothing is done
 * @param size     sizeof *options, as the caller was compiled
 * @since 0.1 */
DSLIDE_API void dslide_cluster_options_init(dslide_cluster_options *options, size_t size) DSLIDE_NOEXCEPT;

/** Open a cluster of this process alone; needs no MPI. Threads start at the first use, not here.
 *
 * Local; any thread.
 * @param options  NULL: the defaults
 * @param out      the new handle; close or free it
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: threads < 0 or > 1024; DSLIDE_E_MEMORY
 * @since 0.1 */
DSLIDE_API dslide_status dslide_cluster_open_self(const dslide_cluster_options *options,
                                                  dslide_cluster **out) DSLIDE_NOEXCEPT;

/** This process's number in the cluster, from 0. Local.
 * @param cluster   handle
 * @param out_rank  the number
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: NULL
 * @since 0.1 */
DSLIDE_API dslide_status dslide_cluster_rank(const dslide_cluster *cluster, int32_t *out_rank) DSLIDE_NOEXCEPT;

/** How many ranks the cluster has. Local.
 * @param cluster   handle
 * @param out_size  the count, >= 1
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: NULL
 * @since 0.1 */
DSLIDE_API dslide_status dslide_cluster_size(const dslide_cluster *cluster, int32_t *out_size) DSLIDE_NOEXCEPT;

/** How many threads compute in this process. Local.
 * @param cluster      handle
 * @param out_threads  the count, >= 1
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: NULL
 * @since 0.1 */
DSLIDE_API dslide_status dslide_cluster_threads(const dslide_cluster *cluster, int32_t *out_threads) DSLIDE_NOEXCEPT;

/** Leave the cluster; the handle is freed whatever the result. Models and trainers made with it stay valid until freed,
 * but their collective calls return DSLIDE_E_STATE; data sets and hash tables go on working.
 *
 * Collective.
 * @param cluster  handle or NULL
 * @return DSLIDE_OK
 * @since 0.1 */
DSLIDE_API dslide_status dslide_cluster_close(dslide_cluster *cluster) DSLIDE_NOEXCEPT;

/** Free the handle without talking to other ranks; what a garbage collector calls. Local.
 * @param cluster  handle or NULL
 * @since 0.1 */
DSLIDE_API void dslide_cluster_free(dslide_cluster *cluster) DSLIDE_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
