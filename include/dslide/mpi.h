/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file mpi.h
 * @brief Clusters over MPI for hosts that include <mpi.h>. Not part of dslide.h.
 */
#ifndef DSLIDE_MPI_H
#define DSLIDE_MPI_H

#include <dslide/cluster.h>
#include <mpi.h>

/** As dslide_cluster_open_f(), for a C communicator. Collective over it.
 * @param options  NULL: the defaults
 * @param comm     duplicated; stays the caller's
 * @param out      the new handle; close or free it
 * @return as dslide_cluster_open_f()
 * @since 0.1 */
static inline dslide_status dslide_cluster_open_mpi(const dslide_cluster_options *options, MPI_Comm comm,
                                                    dslide_cluster **out) {
    return dslide_cluster_open_f(options, (int64_t)MPI_Comm_c2f(comm), out);
}

#endif
