/* SPDX-License-Identifier: Apache-2.0 */
/* Run by mpirun: a host that uses MPI itself. The cluster takes a part of its ranks, leaves its traffic alone, and
 * leaves MPI usable. The exit code tells. */
#include <dslide/dslide.h>
#include <dslide/mpi.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures;

static void expect(int ok, const char *what) {
    if (ok) return;
    ++failures;
    fprintf(stderr, "failed: %s (%s)\n", what, dslide_last_error());
}

/* A step on every rank of the cluster. */
static void train(dslide_cluster *cluster) {
    dslide_model_options shape;
    dslide_model_options_init(&shape, sizeof shape);
    shape.n_inputs = 4;
    shape.n_outputs = 9;
    shape.n_hidden = 1;
    shape.hidden[0] = 8;
    dslide_model *model = NULL;
    expect(dslide_model_create(cluster, &shape, &model) == DSLIDE_OK, "create a model");
    dslide_trainer *trainer = NULL;
    expect(dslide_trainer_create(model, NULL, &trainer) == DSLIDE_OK, "create a trainer");
    const int64_t ptr[] = {0, 1, 2};
    const int32_t feature[] = {1, 3}, label[] = {2, 8};
    dslide_csr_view x = {0}, y = {0};
    x.struct_size = y.struct_size = sizeof x;
    x.n_rows = y.n_rows = 2;
    x.n_cols = 4;
    y.n_cols = 9;
    x.row_ptr = y.row_ptr = ptr;
    x.col = feature;
    y.col = label;
    dslide_step_stats stats = {0};
    stats.struct_size = sizeof stats;
    for (int step = 0; step < 3; ++step)
        expect(dslide_trainer_step(trainer, &x, &y, NULL, &stats) == DSLIDE_OK, "a step");
    expect(stats.step == 3, "three steps");
    dslide_trainer_free(trainer);
    dslide_model_free(model);
}

static dslide_cluster_options options;
static int world_rank, world_size = 1;

static void begin_mpi(int wanted) {
    int level = 0;
    MPI_Init_thread(NULL, NULL, wanted, &level);
    expect(level == wanted, "the thread level asked for");
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
}

/* The host's own use of MPI, then the end of it. */
static void end_mpi(void) {
    int sum = 0;
    MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect(sum == world_size * (world_size - 1) / 2, "the host's MPI works");
    MPI_Finalize();
}

/* A host that has MPI for itself, and a cluster on a part of its ranks. */
static void test_beside_the_hosts_traffic(void) {
    dslide_cluster *cluster = NULL;
    expect(dslide_cluster_open_f(&options, DSLIDE_COMM_WORLD, &cluster) == DSLIDE_E_STATE, "before MPI_Init");
    begin_mpi(MPI_THREAD_FUNNELED);

    /* Ranks 0, 2, ... work together; a message of the host's, for any tag, is under way all the while. */
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &part);
    int mine = world_rank, theirs = -1;
    MPI_Request any, note;
    MPI_Irecv(&theirs, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, part, &any);
    expect(dslide_cluster_open_mpi(&options, part, &cluster) == DSLIDE_OK, "open over a part of the ranks");
    int32_t in_part = 0, cluster_rank = -1;
    dslide_cluster_size(cluster, &in_part);
    dslide_cluster_rank(cluster, &cluster_rank);
    expect(in_part == (world_size + 1 - world_rank % 2) / 2 && cluster_rank == world_rank / 2, "ranks of the part");
    train(cluster);
    int part_rank = 0, part_size = 1, done = 0;
    MPI_Comm_rank(part, &part_rank);
    MPI_Comm_size(part, &part_size);
    MPI_Test(&any, &done, MPI_STATUS_IGNORE);
    expect(!done, "the host's message was not taken by the cluster's");
    MPI_Barrier(part);
    MPI_Isend(&mine, 1, MPI_INT, (part_rank + 1) % part_size, 77, part, &note);
    MPI_Wait(&any, MPI_STATUS_IGNORE);
    MPI_Wait(&note, MPI_STATUS_IGNORE);
    expect(theirs == 2 * ((part_rank + part_size - 1) % part_size) + world_rank % 2, "the host's message arrived");
    expect(dslide_cluster_close(cluster) == DSLIDE_OK, "close");

    /* Again, on all ranks, and freed after MPI is gone. */
    expect(dslide_cluster_open_mpi(&options, MPI_COMM_WORLD, &cluster) == DSLIDE_OK, "open again");
    train(cluster);
    end_mpi();
    dslide_cluster_free(cluster);
    expect(dslide_cluster_open_f(&options, DSLIDE_COMM_WORLD, &cluster) == DSLIDE_E_STATE, "after MPI_Finalize");
}

/* MPI begun by the first cluster ends with the last. */
static void test_mpi_begun_by_a_cluster(void) {
    dslide_cluster *first = NULL, *second = NULL;
    int ended = 1;
    options.init_mpi = 1;
    expect(dslide_cluster_open_f(&options, DSLIDE_COMM_WORLD, &first) == DSLIDE_OK, "open with init_mpi");
    expect(dslide_cluster_open_mpi(&options, MPI_COMM_SELF, &second) == DSLIDE_OK, "open another");
    expect(dslide_cluster_close(first) == DSLIDE_OK, "close the first");
    MPI_Finalized(&ended);
    expect(!ended, "MPI is not finalised under the second cluster");
    train(second);
    expect(dslide_cluster_close(second) == DSLIDE_OK, "close the second");
    MPI_Finalized(&ended);
    expect(ended, "MPI is finalised with the last cluster");
    expect(dslide_cluster_open_f(&options, DSLIDE_COMM_WORLD, &first) == DSLIDE_E_STATE, "after the end");
}

/* Ranks that do not fit together: an error on all, and nothing is left behind. */
static void test_refused(void) {
    dslide_cluster *cluster = NULL;
    int ended = 0;
    const char *number = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
    options.init_mpi = 1;
    options.payload = number && strcmp(number, "0") != 0 ? DSLIDE_PAYLOAD_BF16 : DSLIDE_PAYLOAD_FP32;
    expect(dslide_cluster_open_f(&options, DSLIDE_COMM_WORLD, &cluster) == DSLIDE_E_ARGUMENT, "different payloads");
    expect(strstr(dslide_last_error(), "payload") != NULL, "the text names them");
    MPI_Finalized(&ended);
    expect(ended && cluster == NULL, "MPI, begun by the call, ended with it");
}

static void count_line(void *lines, int32_t level, const char *text) {
    (void)level;
    if (strstr(text, "without being closed")) ++*(int *)lines;
}

static void test_freed_but_not_closed(void) {
    dslide_cluster *cluster = NULL;
    int lines = 0;
    dslide_set_log(count_line, &lines, DSLIDE_LOG_INFO);
    begin_mpi(MPI_THREAD_FUNNELED);
    expect(dslide_cluster_open_mpi(&options, MPI_COMM_WORLD, &cluster) == DSLIDE_OK, "open");
    expect(dslide_cluster_close(cluster) == DSLIDE_OK && lines == 0, "no line after a close");
    expect(dslide_cluster_open_mpi(&options, MPI_COMM_WORLD, &cluster) == DSLIDE_OK, "open again");
    dslide_cluster_free(cluster);
    expect(lines == 1, "a line in the log");
    dslide_set_log(NULL, NULL, 0);
    end_mpi();
}

static void test_mpi_of_the_host_is_not_ended(void) {
    dslide_cluster *cluster = NULL;
    options.init_mpi = 1;
    begin_mpi(MPI_THREAD_SERIALIZED);
    expect(dslide_cluster_open_f(&options, DSLIDE_COMM_WORLD, &cluster) == DSLIDE_OK, "open");
    expect(dslide_cluster_close(cluster) == DSLIDE_OK, "close");
    end_mpi();
}

static void test_thread_level_too_low(void) {
    dslide_cluster *cluster = NULL;
    begin_mpi(MPI_THREAD_SINGLE);
    expect(dslide_cluster_open_mpi(&options, MPI_COMM_WORLD, &cluster) == DSLIDE_E_STATE, "MPI_THREAD_SINGLE");
    expect(strstr(dslide_last_error(), "MPI_THREAD_FUNNELED") != NULL, "the level is named");
    end_mpi();
}

static void *open_elsewhere(void *out) {
    dslide_cluster *cluster = NULL;
    *(dslide_status *)out = dslide_cluster_open_mpi(&options, MPI_COMM_SELF, &cluster);
    if (cluster) dslide_cluster_close(cluster);
    return NULL;
}

static void open_on_another_thread(int level, dslide_status expected) {
    dslide_status status = DSLIDE_OK;
    pthread_t thread;
    begin_mpi(level);
    pthread_create(&thread, NULL, open_elsewhere, &status);
    pthread_join(thread, NULL);
    expect(status == expected, "a thread that did not begin MPI");
    end_mpi();
}
static void test_other_thread(void) { open_on_another_thread(MPI_THREAD_FUNNELED, DSLIDE_E_STATE); }
static void test_other_thread_at_level_multiple(void) { open_on_another_thread(MPI_THREAD_MULTIPLE, DSLIDE_OK); }

static void complain(MPI_Comm *comm, int *code, ...) {
    (void)comm;
    (void)code;
    expect(0, "the host's error handler was called");
}

/* What is no communicator ends no process, and leaves the host's error handlers in their place. */
static void test_bad_communicators(void) {
    dslide_cluster *cluster = NULL;
    MPI_Errhandler ours, now;
    begin_mpi(MPI_THREAD_FUNNELED);
    MPI_Comm_create_errhandler(complain, &ours);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, ours);
    expect(dslide_cluster_open_mpi(&options, MPI_COMM_NULL, &cluster) == DSLIDE_E_ARGUMENT, "MPI_COMM_NULL");
    const int64_t handles[] = {123456, -77, INT32_MAX, (int64_t)1 << 32, INT64_MAX, INT64_MIN + 1};
    for (int i = 0; i < 6; ++i)
        expect(dslide_cluster_open_f(&options, handles[i], &cluster) == DSLIDE_E_ARGUMENT, "a handle of nothing");
    if (world_size > 1) {
        MPI_Comm part, between;
        MPI_Comm_split(MPI_COMM_WORLD, world_rank > 0, world_rank, &part);
        MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, world_rank > 0 ? 0 : 1, 5, &between);
        expect(dslide_cluster_open_mpi(&options, between, &cluster) == DSLIDE_E_ARGUMENT, "an intercommunicator");
        MPI_Comm_free(&between);
        MPI_Comm_free(&part);
    }
    expect(cluster == NULL, "no handle");
    expect(dslide_cluster_open_mpi(&options, MPI_COMM_WORLD, &cluster) == DSLIDE_OK, "open");
    train(cluster);
    expect(dslide_cluster_close(cluster) == DSLIDE_OK, "close");
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &now);
    expect(now == ours, "the host's error handler is in its place");
    MPI_Errhandler_free(&now);
    end_mpi();
}

/* Failures: the others are told at once or by the deadline, and MPI is still the host's to use and to end. */

static dslide_status create_a_model(dslide_cluster *cluster, int cancelled) {
    dslide_model_options shape;
    dslide_model *model = NULL;
    dslide_model_options_init(&shape, sizeof shape);
    shape.n_inputs = 4;
    shape.n_outputs = 9;
    shape.n_hidden = 1;
    shape.hidden[0] = 8;
    if (cancelled) dslide_cluster_cancel(cluster);
    const dslide_status status = dslide_model_create(cluster, &shape, &model);
    dslide_model_free(model);
    return status;
}

static void test_a_rank_that_cancels(void) {
    dslide_cluster *cluster = NULL;
    begin_mpi(MPI_THREAD_FUNNELED);
    expect(dslide_cluster_open_mpi(&options, MPI_COMM_WORLD, &cluster) == DSLIDE_OK, "open");
    const int last = world_rank == world_size - 1;
    const double start = MPI_Wtime();
    const dslide_status status = create_a_model(cluster, last);
    if (world_size > 1) {
        expect(status == (last ? DSLIDE_E_STOPPED : DSLIDE_E_PEER), "cancelled on all ranks");
        expect(strstr(dslide_last_error(), "cancelled") != NULL, "the others are told why");
        expect(MPI_Wtime() - start < 10, "at once");
        expect(create_a_model(cluster, 0) == status, "the cluster is spent");
    }
    expect(dslide_cluster_close(cluster) == DSLIDE_OK, "close");
    end_mpi();
}

static void test_a_silent_rank(void) {
    dslide_cluster *cluster = NULL;
    char name[32];
    begin_mpi(MPI_THREAD_FUNNELED);
    options.timeout_seconds = 1;
    expect(dslide_cluster_open_mpi(&options, MPI_COMM_WORLD, &cluster) == DSLIDE_OK, "open");
    const int last = world_rank == world_size - 1;
    const double start = MPI_Wtime();
    if (last) sleep(2); /* comes too late, and is told */
    const dslide_status status = create_a_model(cluster, 0);
    if (world_size > 1) {
        snprintf(name, sizeof name, "rank %d", world_size - 1);
        expect(status == DSLIDE_E_PEER, "a time-out");
        expect(strstr(dslide_last_error(), name) != NULL, "the silent rank is named");
        expect(MPI_Wtime() - start < 10, "by the deadline");
    }
    expect(dslide_cluster_close(cluster) == DSLIDE_OK, "close");
    end_mpi();
}

static void test_a_rank_that_does_not_open(void) {
    dslide_cluster *cluster = NULL;
    begin_mpi(MPI_THREAD_FUNNELED);
    options.timeout_seconds = 1;
    const double start = MPI_Wtime();
    if (world_rank == world_size - 1) {
        sleep(2);
    } else {
        expect(dslide_cluster_open_mpi(&options, MPI_COMM_WORLD, &cluster) == DSLIDE_E_PEER, "a time-out");
        expect(cluster == NULL && MPI_Wtime() - start < 10, "by the deadline");
    }
    end_mpi();
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"host-traffic", test_beside_the_hosts_traffic},
             {"begun-here", test_mpi_begun_by_a_cluster},
             {"refused", test_refused},
             {"freed", test_freed_but_not_closed},
             {"begun-by-host", test_mpi_of_the_host_is_not_ended},
             {"thread-single", test_thread_level_too_low},
             {"other-thread", test_other_thread},
             {"other-thread-multiple", test_other_thread_at_level_multiple},
             {"bad-communicators", test_bad_communicators},
             {"cancel", test_a_rank_that_cancels},
             {"silent", test_a_silent_rank},
             {"not-opened", test_a_rank_that_does_not_open}};

/* MODULE CASE; MODULE "-": the library looks for it */
int main(int argc, char **argv) {
    if (argc != 3) return 2;
    dslide_cluster_options_init(&options, sizeof options);
    options.threads = 1;
    options.timeout_seconds = 30;
    if (strcmp(argv[1], "-") != 0) options.mpi_module = argv[1];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
        if (strcmp(argv[2], cases[i].name) == 0) {
            cases[i].run();
            return failures > 0;
        }
    return 2;
}
