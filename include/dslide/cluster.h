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

/** How activations and their gradients travel between ranks. */
enum {
    DSLIDE_PAYLOAD_FP32 = 0, /**< as they are */
    DSLIDE_PAYLOAD_BF16 = 1  /**< rounded to bfloat16: half the bytes; sums are formed in fp32 */
};

/** How this process takes part. */
typedef struct dslide_cluster_options {
    uint32_t struct_size; /**< set by dslide_cluster_options_init() */
    int32_t threads; /**< threads that compute, the calling one included; 0: what affinity and cgroup quota allow */
    double timeout_seconds; /**< a rank waits so long for the others, then gives up with DSLIDE_E_PEER, > 0; 0: 60 */
    double share;           /**< of classes and neurons, relative to other ranks', > 0; 0: 1 */
    int64_t most_message_bytes; /**< longer messages are cut, 1 .. 2^30; 0: 2^30 */
    int32_t payload;            /**< DSLIDE_PAYLOAD_*, the same on all ranks */
    int32_t init_mpi;           /**< 1: dslide_cluster_open_f() starts MPI if the host has not; 0: that is an error */
    const char *mpi_module;     /**< file of the module for the MPI in use; NULL: found by what MPI the process has */
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

/** Open a cluster whose ranks are threads of this process; needs no MPI. Each handle is one rank, and is then used by
 * one thread of its own, as a process of its own would. For hosts without MPI, and for tests.
 *
 * Local; any thread. The ranks meet here, on threads that end before the call does.
 * @param options  of every rank; NULL: the defaults. threads 0: one a rank
 * @param ranks    how many, 1 .. 256
 * @param out      room for `ranks` handles; close each on its rank, or free it. Untouched on failure
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: a value out of range; DSLIDE_E_MEMORY
 * @since 0.1 */
DSLIDE_API dslide_status dslide_cluster_open_threads(const dslide_cluster_options *options, int32_t ranks,
                                                     dslide_cluster **out) DSLIDE_NOEXCEPT;

/** The communicator of all processes, for dslide_cluster_open_f(). */
#define DSLIDE_COMM_WORLD INT64_MIN

/** Open a cluster over MPI, whose ranks are the processes of a communicator. The communicator is duplicated: traffic of
 * the host does not mix with the cluster's. A module for the MPI in use is loaded (`libdslide-mpi-*.so`, beside this
 * library or where the loader looks); the library itself needs no MPI.
 *
 * Collective over the communicator. MPI is called only by threads that call dslide, one at a time. Thread level
 * MPI_THREAD_FUNNELED is enough if that is the thread that initialised MPI; at MPI_THREAD_SERIALIZED it may be another
 * from call to call. Close the cluster before MPI_Finalize(). The host's error handlers are not called. If init_mpi
 * began MPI, it ends with the last of the clusters to be closed, unless one of them failed: a rank may be gone then,
 * and MPI_Finalize() might wait for it.
 * @param options       NULL: the defaults
 * @param communicator  Fortran handle (MPI_Comm_c2f()), the one form that is the same for every MPI and language, or
 *                      #DSLIDE_COMM_WORLD; dslide/mpi.h takes an MPI_Comm
 * @param out           the new handle; close or free it
 * @return DSLIDE_OK; DSLIDE_E_STATE: MPI is not initialised and init_mpi is 0, or it is finalised, or its thread level
 *         is MPI_THREAD_SINGLE, or it is MPI_THREAD_FUNNELED and this is another thread; DSLIDE_E_UNSUPPORTED: no
 *         module; DSLIDE_E_PEER: another rank did not come within timeout_seconds, or failed; DSLIDE_E_ARGUMENT: also a
 *         communicator that is none, or joins two groups; DSLIDE_E_MPI
 * @since 0.1 */
DSLIDE_API dslide_status dslide_cluster_open_f(const dslide_cluster_options *options, int64_t communicator,
                                               dslide_cluster **out) DSLIDE_NOEXCEPT;

/** End the wait of a collective call under way, or of the next one: it returns DSLIDE_E_STOPPED, other ranks'
 * DSLIDE_E_PEER, or that of their next call if they had all they needed; the cluster is spent. On a cluster of one rank
 * nothing waits, and nothing happens. Local; any thread.
 * @param cluster  handle
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: NULL
 * @since 0.1 */
DSLIDE_API dslide_status dslide_cluster_cancel(dslide_cluster *cluster) DSLIDE_NOEXCEPT;

/** What ranks exchange data for. */
enum {
    DSLIDE_PHASE_AGREE = 0,       /**< that all are in the same call with the same arguments */
    DSLIDE_PHASE_FEED = 1,        /**< rows of a batch */
    DSLIDE_PHASE_ACTIVATIONS = 2, /**< of hidden layers, forward */
    DSLIDE_PHASE_LOSS = 3,        /**< two numbers a sample */
    DSLIDE_PHASE_GRADIENTS = 4,   /**< of activations, backward */
    DSLIDE_PHASE_TABLES = 5,      /**< what a rebuild of hash tables must know of all rows */
    DSLIDE_PHASE_PREDICT = 6,     /**< the best classes of each rank */
    DSLIDE_PHASE_WEIGHTS = 7,     /**< rows that were asked for */
    DSLIDE_PHASE_CHECKPOINT = 8   /**< what was written; not the weights */
};

/** Room for phases. Never changes: arrays in structs have this length. */
#define DSLIDE_MAX_PHASES 16

/** What this rank has sent and received since the cluster was opened; without what the network adds. */
typedef struct dslide_traffic {
    uint32_t struct_size;                      /**< set by the caller: sizeof(dslide_traffic) */
    int32_t n_phases;                          /**< entries used below */
    int64_t bytes_sent[DSLIDE_MAX_PHASES];     /**< by DSLIDE_PHASE_* */
    int64_t bytes_received[DSLIDE_MAX_PHASES]; /**< likewise */
    int64_t messages_sent[DSLIDE_MAX_PHASES];  /**< likewise */
    double wait_seconds[DSLIDE_MAX_PHASES];    /**< in exchanges: sending, receiving and waiting for slower ranks */
} dslide_traffic;

/** What this rank has exchanged so far. Local.
 * @param cluster  handle
 * @param out      struct_size must be set
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT
 * @since 0.1 */
DSLIDE_API dslide_status dslide_cluster_traffic(const dslide_cluster *cluster, dslide_traffic *out) DSLIDE_NOEXCEPT;

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

/** How many threads compute in this process, as asked for; no more run at once than it has CPUs. Local.
 * @param cluster      handle
 * @param out_threads  the count, >= 1
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: NULL
 * @since 0.1 */
DSLIDE_API dslide_status dslide_cluster_threads(const dslide_cluster *cluster, int32_t *out_threads) DSLIDE_NOEXCEPT;

/** Leave the cluster; the handle is freed whatever the result. Models and trainers made with it stay valid until freed,
 * but their collective calls return DSLIDE_E_STATE; data sets and hash tables go on working.
 *
 * Collective. Over MPI, frees the communicator; dslide_cluster_open_f() says when MPI is finalised.
 * @param cluster  handle or NULL
 * @return DSLIDE_OK, also after a failure that left the cluster unusable: nothing is sent then; DSLIDE_E_PEER: another
 *         rank did not come to close
 * @since 0.1 */
DSLIDE_API dslide_status dslide_cluster_close(dslide_cluster *cluster) DSLIDE_NOEXCEPT;

/** Free the handle without talking to other ranks; what a garbage collector calls. Local; any thread. Over MPI the
 * duplicate of the communicator is left to the process, and the other ranks learn of it by their deadline only.
 * @param cluster  handle or NULL
 * @since 0.1 */
DSLIDE_API void dslide_cluster_free(dslide_cluster *cluster) DSLIDE_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
