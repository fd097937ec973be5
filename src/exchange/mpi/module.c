/* SPDX-License-Identifier: Apache-2.0 */
/* The module: built once against each MPI. Plain C, and the only file that includes mpi.h. */
#include "module.h"

#include <mpi.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

enum { message_tag = 0x6473, last_words_tag };

struct dslide_mpi_link {
    MPI_Comm comm;
    int rank, size;
    int only_main_thread;  /* may call MPI */
    int abandoned;         /* requests were given up: their memory may still be used */
    MPI_Request *requests; /* size receives, then size sends */
    int64_t *received;
};

static int began_here;        /* MPI was started by open() */
static int was_abandoned;     /* some link was: MPI_Finalize() might wait for ranks that are gone */
static atomic_int links_open; /* freed by any thread */

static int mpi_is_running(void) {
    int initialised = 0, finalised = 0;
    MPI_Initialized(&initialised);
    if (initialised) MPI_Finalized(&finalised);
    return initialised && !finalised;
}

static int start_mpi(int init) {
    int initialised = 0, finalised = 0, level = MPI_THREAD_SINGLE;
    MPI_Finalized(&finalised);
    if (finalised) return DSLIDE_MPI_FINALISED;
    MPI_Initialized(&initialised);
    if (initialised) return 0;
    if (!init) return DSLIDE_MPI_NOT_INITIALISED;
    const int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    began_here = error == MPI_SUCCESS;
    return error;
}

static int check_thread(const dslide_mpi_link *link) {
    int is_main = 1;
    if (link->only_main_thread) MPI_Is_thread_main(&is_main);
    return is_main ? 0 : DSLIDE_MPI_OTHER_THREAD;
}

/* What MPI does with an error is the host's choice, by default to end the process. Errors that MPI cannot tell to a
 * communicator go to the world's, in newer versions to that of this process; MPICH tells those of requests so. The
 * host's choice is set aside while a call is made that may end so. */
typedef struct {
    MPI_Errhandler world, self;
} kept_handlers;

static MPI_Errhandler return_errors(MPI_Comm comm) {
    MPI_Errhandler kept = MPI_ERRHANDLER_NULL;
    MPI_Comm_get_errhandler(comm, &kept);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return kept;
}

static void put_back(MPI_Comm comm, MPI_Errhandler kept) {
    MPI_Comm_set_errhandler(comm, kept);
    MPI_Errhandler_free(&kept);
}

static kept_handlers return_all_errors(void) {
    const kept_handlers kept = {return_errors(MPI_COMM_WORLD), return_errors(MPI_COMM_SELF)};
    return kept;
}

static void put_all_back(kept_handlers kept) {
    put_back(MPI_COMM_SELF, kept.self);
    put_back(MPI_COMM_WORLD, kept.world);
}

static int check_comm(MPI_Comm comm) {
    int joins_two_groups = 0;
    if (comm == MPI_COMM_NULL || MPI_Comm_test_inter(comm, &joins_two_groups) || joins_two_groups)
        return DSLIDE_MPI_BAD_COMM;
    return 0;
}

/* MPI_Comm_dup() with a deadline. After a time-out *copy may still be written. */
static int duplicate(MPI_Comm parent, double timeout_seconds, MPI_Comm *copy) {
    const struct timespec pause = {0, 200000};
    const double deadline = MPI_Wtime() + timeout_seconds;
    const MPI_Errhandler kept = return_errors(parent);
    MPI_Request request;
    int done = 0, error = MPI_Comm_idup(parent, copy, &request);
    while (!error && !done) {
        error = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (error || done) break;
        if (MPI_Wtime() > deadline)
            error = DSLIDE_MPI_TIMED_OUT;
        else
            thrd_sleep(&pause, NULL);
    }
    put_back(parent, kept);
    return error;
}

static int set_up(dslide_mpi_link *link, int64_t comm, double timeout_seconds) {
    const MPI_Comm parent = comm == INT64_MIN ? MPI_COMM_WORLD : MPI_Comm_f2c((MPI_Fint)comm);
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_FUNNELED) return DSLIDE_MPI_THREAD_LEVEL;
    link->only_main_thread = level == MPI_THREAD_FUNNELED;
    int error = check_thread(link);
    if (error) return error;
    const kept_handlers kept = return_all_errors();
    error = check_comm(parent);
    if (!error) error = duplicate(parent, timeout_seconds, &link->comm);
    put_all_back(kept);
    if (!error) error = MPI_Comm_set_errhandler(link->comm, MPI_ERRORS_RETURN);
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
    --links_open;
    if (link->abandoned) return;
    free(link->requests);
    free(link->received);
    free(link);
}

static int module_open(int64_t comm, int init, double timeout_seconds, dslide_mpi_link **out, int *rank, int *size) {
    int error = start_mpi(init);
    if (error) return error;
    dslide_mpi_link *link = calloc(1, sizeof *link);
    if (!link) return DSLIDE_MPI_NO_MEMORY;
    ++links_open;
    error = set_up(link, comm, timeout_seconds);
    if (error) {
        link->abandoned = error == DSLIDE_MPI_TIMED_OUT;
        was_abandoned |= link->abandoned;
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
    if (check_thread(link)) return DSLIDE_MPI_OTHER_THREAD;
    for (int r = 0; r < link->size; ++r) link->received[r] = r == link->rank ? 0 : -1;
    for (int i = 1; i < link->size; ++i) { /* each rank begins with another peer */
        const int from = (link->rank + link->size - i) % link->size;
        const int error = MPI_Irecv(parcels[from].in, (int)parcels[from].in_capacity, MPI_BYTE, from, message_tag,
                                    link->comm, &link->requests[from]);
        if (error) return error;
    }
    for (int i = 1; i < link->size; ++i) {
        const int to = (link->rank + i) % link->size;
        const int error = MPI_Isend(parcels[to].out, (int)parcels[to].out_bytes, MPI_BYTE, to, message_tag, link->comm,
                                    &link->requests[link->size + to]);
        if (error) return error;
    }
    return 0;
}

static int poll_requests(dslide_mpi_link *link, int *done) {
    *done = 1;
    for (int i = 0; i < 2 * link->size; ++i) {
        if (link->requests[i] == MPI_REQUEST_NULL) continue;
        MPI_Status status;
        int flag = 0, bytes = 0;
        int error = MPI_Test(&link->requests[i], &flag, &status);
        if (error) {
            int kind = error;
            MPI_Error_class(error, &kind);
            return kind == MPI_ERR_TRUNCATE ? DSLIDE_MPI_TRUNCATED : error;
        }
        if (!flag) {
            *done = 0;
        } else if (i < link->size) {
            error = MPI_Get_count(&status, MPI_BYTE, &bytes);
            if (error) return error;
            link->received[i] = bytes;
        }
    }
    return 0;
}

static int module_test(dslide_mpi_link *link, int *done, int64_t *received, int8_t *pending) {
    if (!mpi_is_running()) return DSLIDE_MPI_FINALISED;
    const kept_handlers kept = return_all_errors();
    const int error = poll_requests(link, done);
    put_all_back(kept);
    if (error) return error;
    for (int r = 0; r < link->size; ++r) {
        received[r] = link->received[r];
        pending[r] = link->requests[r] != MPI_REQUEST_NULL || link->requests[link->size + r] != MPI_REQUEST_NULL;
    }
    return 0;
}

static void module_send_last_words(dslide_mpi_link *link, const char *words, size_t bytes) {
    if (!mpi_is_running() || check_thread(link)) return;
    /* The message outlives this call, and is never freed: nobody waits for it. */
    char *copy = malloc(bytes);
    MPI_Request *requests = malloc((size_t)link->size * sizeof *requests);
    if (!copy || !requests) return;
    memcpy(copy, words, bytes);
    const kept_handlers kept = return_all_errors();
    for (int r = 0; r < link->size; ++r) {
        requests[r] = MPI_REQUEST_NULL;
        if (r != link->rank) MPI_Isend(copy, (int)bytes, MPI_BYTE, r, last_words_tag, link->comm, &requests[r]);
    }
    for (int turn = 0; turn < 1000; ++turn) /* a little progress, for messages that go out at once */
        for (int r = 0; r < link->size; ++r) {
            int flag = 0;
            if (requests[r] != MPI_REQUEST_NULL && MPI_Test(&requests[r], &flag, MPI_STATUS_IGNORE))
                requests[r] = MPI_REQUEST_NULL;
        }
    put_all_back(kept);
}

static int module_take_last_words(dslide_mpi_link *link, int *from, char *words, size_t capacity, size_t *bytes) {
    MPI_Status status;
    int has_come = 0, size = 0;
    *from = -1;
    int error = MPI_Iprobe(MPI_ANY_SOURCE, last_words_tag, link->comm, &has_come, &status);
    if (error || !has_come) return error;
    error = MPI_Recv(words, (int)capacity, MPI_BYTE, status.MPI_SOURCE, last_words_tag, link->comm, &status);
    if (!error) error = MPI_Get_count(&status, MPI_BYTE, &size);
    if (error) return error;
    *from = status.MPI_SOURCE;
    *bytes = (size_t)size;
    return 0;
}

static void module_abandon(dslide_mpi_link *link) {
    link->abandoned = 1;
    was_abandoned = 1;
    if (!mpi_is_running() || check_thread(link)) return;
    const kept_handlers kept = return_all_errors();
    for (int r = 0; r < link->size; ++r) /* receives alone: some MPIs cannot cancel what is sent */
        if (link->requests[r] != MPI_REQUEST_NULL) MPI_Cancel(&link->requests[r]);
    put_all_back(kept);
}

static int module_close(dslide_mpi_link *link) {
    if (!mpi_is_running()) return 0;
    if (link->abandoned) return 0; /* collective calls on the communicator would wait for ranks that are gone */
    if (check_thread(link)) return DSLIDE_MPI_OTHER_THREAD;
    const kept_handlers kept = return_all_errors();
    int error = MPI_Comm_free(&link->comm);
    put_all_back(kept);
    if (!error && began_here && !was_abandoned && links_open == 1) error = MPI_Finalize();
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
    DSLIDE_MPI_MODULE_VERSION, MPI_KIND,       module_open,  module_start, module_test,      module_send_last_words,
    module_take_last_words,    module_abandon, module_close, module_free,  module_error_text};

__attribute__((visibility("default"))) const dslide_mpi_module *dslide_mpi_module_get(void) { return &module; }
