/* SPDX-License-Identifier: Apache-2.0 */
/* The module: built once against each MPI. Plain C, and the only file that includes mpi.h. */
#include "module.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { tag = 0x6473 };

struct dslide_mpi_link {
    MPI_Comm comm;
    int rank, size;
    int began;             /* MPI was started here */
    int abandoned;         /* requests were given up: their memory may still be used */
    MPI_Request *requests; /* size receives, then size sends */
    int64_t *received;
};

static int mpi_is_running(void) {
    int initialised = 0, finalised = 0;
    MPI_Initialized(&initialised);
    if (initialised) MPI_Finalized(&finalised);
    return initialised && !finalised;
}

static int start_mpi(int *began) {
    int initialised = 0, finalised = 0, level = MPI_THREAD_SINGLE;
    MPI_Finalized(&finalised);
    if (finalised) return DSLIDE_MPI_FINALISED;
    MPI_Initialized(&initialised);
    if (initialised) return 0;
    int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    *began = error == MPI_SUCCESS;
    return error;
}

static int set_up(dslide_mpi_link *link, int64_t comm) {
    const MPI_Comm parent = comm == INT64_MIN ? MPI_COMM_WORLD : MPI_Comm_f2c((MPI_Fint)comm);
    int error = MPI_Comm_dup(parent, &link->comm);
    if (error) return error;
    error = MPI_Comm_set_errhandler(link->comm, MPI_ERRORS_RETURN);
    if (!error) error = MPI_Comm_rank(link->comm, &link->rank);
    if (!error) error = MPI_Comm_size(link->comm, &link->size);
    if (error) return error;
    link->requests = malloc(2 * (size_t)link->size * sizeof *link->requests);
    link->received = malloc((size_t)link->size * sizeof *link->received);
    if (!link->requests || !link->received) return DSLIDE_MPI_NO_MEMORY;
    for (int i = 0; i < 2 * link->size; ++i) link->requests[i] = MPI_REQUEST_NULL;
    return 0;
}

static void module_free(dslide_mpi_link *link) {
    if (!link->abandoned) {
        free(link->requests);
        free(link->received);
    }
    free(link);
}

static int module_open(int64_t comm, int init, dslide_mpi_link **out, int *rank, int *size) {
    int began = 0, level = MPI_THREAD_SINGLE, error = 0;
    if (init) {
        error = start_mpi(&began);
        if (error) return error;
    } else {
        int initialised = 0, finalised = 0;
        MPI_Initialized(&initialised);
        if (!initialised) return DSLIDE_MPI_NOT_INITIALISED;
        MPI_Finalized(&finalised);
        if (finalised) return DSLIDE_MPI_FINALISED;
    }
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_FUNNELED) return DSLIDE_MPI_THREAD_LEVEL;
    dslide_mpi_link *link = calloc(1, sizeof *link);
    if (!link) return DSLIDE_MPI_NO_MEMORY;
    link->began = began;
    error = set_up(link, comm);
    if (error) {
        module_free(link);
        return error;
    }
    *out = link;
    *rank = link->rank;
    *size = link->size;
    return 0;
}

static int module_start(dslide_mpi_link *link, const dslide_mpi_parcel *parcels) {
    if (!mpi_is_running()) return DSLIDE_MPI_FINALISED;
    for (int r = 0; r < link->size; ++r) link->received[r] = r == link->rank ? 0 : -1;
    for (int i = 1; i < link->size; ++i) { /* each rank begins with another peer */
        const int from = (link->rank + link->size - i) % link->size;
        const int error = MPI_Irecv(parcels[from].in, (int)parcels[from].in_capacity, MPI_BYTE, from, tag, link->comm,
                                    &link->requests[from]);
        if (error) return error;
    }
    for (int i = 1; i < link->size; ++i) {
        const int to = (link->rank + i) % link->size;
        const int error = MPI_Isend(parcels[to].out, (int)parcels[to].out_bytes, MPI_BYTE, to, tag, link->comm,
                                    &link->requests[link->size + to]);
        if (error) return error;
    }
    return 0;
}

static int module_test(dslide_mpi_link *link, int *done, int64_t *received, int8_t *pending) {
    if (!mpi_is_running()) return DSLIDE_MPI_FINALISED;
    *done = 1;
    for (int i = 0; i < 2 * link->size; ++i) {
        if (link->requests[i] == MPI_REQUEST_NULL) continue;
        MPI_Status status;
        int flag = 0, bytes = 0;
        int error = MPI_Test(&link->requests[i], &flag, &status);
        if (error) return error;
        if (!flag) {
            *done = 0;
        } else if (i < link->size) {
            error = MPI_Get_count(&status, MPI_BYTE, &bytes);
            if (error) return error;
            link->received[i] = bytes;
        }
    }
    for (int r = 0; r < link->size; ++r) {
        received[r] = link->received[r];
        pending[r] = link->requests[r] != MPI_REQUEST_NULL || link->requests[link->size + r] != MPI_REQUEST_NULL;
    }
    return 0;
}

static void module_send_last(dslide_mpi_link *link, const void *data, size_t bytes) {
    if (!mpi_is_running()) return;
    /* The message outlives this call, and is never freed: nobody waits for it. */
    char *copy = malloc(bytes);
    MPI_Request *requests = malloc((size_t)link->size * sizeof *requests);
    if (!copy || !requests) return;
    memcpy(copy, data, bytes);
    for (int r = 0; r < link->size; ++r) {
        requests[r] = MPI_REQUEST_NULL;
        if (r != link->rank) MPI_Isend(copy, (int)bytes, MPI_BYTE, r, tag, link->comm, &requests[r]);
    }
    for (int turn = 0; turn < 1000; ++turn) /* a little progress, for messages that go out at once */
        for (int r = 0; r < link->size; ++r) {
            MPI_Status status;
            int flag = 0;
            if (requests[r] != MPI_REQUEST_NULL) MPI_Test(&requests[r], &flag, &status);
        }
}

static void module_abandon(dslide_mpi_link *link) {
    if (!mpi_is_running()) return;
    for (int r = 0; r < link->size; ++r)
        if (link->requests[r] != MPI_REQUEST_NULL) MPI_Cancel(&link->requests[r]);
    link->abandoned = 1;
}

static int module_close(dslide_mpi_link *link) {
    if (!mpi_is_running()) return 0;
    if (link->abandoned) return 0; /* collective calls on the communicator would wait for ranks that are gone */
    int error = MPI_Comm_free(&link->comm);
    if (!error && link->began) error = MPI_Finalize();
    return error;
}

static void module_error_text(int code, char *text, size_t capacity) {
    char buffer[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (!mpi_is_running() || MPI_Error_string(code, buffer, &length)) length = 0;
    if (capacity == 0) return;
    const size_t n = (size_t)length < capacity ? (size_t)length : capacity - 1;
    memcpy(text, buffer, n);
    text[n] = '\0';
}

#if defined(OPEN_MPI)
#define MPI_KIND "Open MPI"
#elif defined(MPICH)
#define MPI_KIND "MPICH"
#else
#define MPI_KIND "MPI"
#endif

static const dslide_mpi_module module = {
    DSLIDE_MPI_MODULE_VERSION, MPI_KIND,       module_open,  module_start, module_test,
    module_send_last,          module_abandon, module_close, module_free,  module_error_text};

__attribute__((visibility("default"))) const dslide_mpi_module *dslide_mpi_module_get(void) { return &module; }
