/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dslide/dslide.h>

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* How many threads may still be started; < 0: any number. The library's own go by here too. */
static int threads_left = -1;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    if (threads_left == 0) return EAGAIN;
    if (threads_left > 0) --threads_left;
    return create(thread, attributes, body, argument);
}

static void test_cluster__refuses_bad_arguments(void **state) {
    (void)state;
    dslide_cluster *cluster = NULL;
    dslide_cluster_options options;
    int32_t number = -7;
    dslide_cluster_options_init(&options, sizeof options);
    assert_int_equal(dslide_cluster_open_self(&options, NULL), DSLIDE_E_ARGUMENT);
    options.threads = -1;
    assert_int_equal(dslide_cluster_open_self(&options, &cluster), DSLIDE_E_ARGUMENT);
    assert_non_null(strstr(dslide_last_error(), "threads -1"));
    options.threads = 1025;
    assert_int_equal(dslide_cluster_open_self(&options, &cluster), DSLIDE_E_ARGUMENT);
    memset(&options, 0, sizeof options);
    assert_int_equal(dslide_cluster_open_self(&options, &cluster), DSLIDE_E_ARGUMENT);
    assert_null(cluster);
    assert_int_equal(dslide_cluster_rank(NULL, &number), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_cluster_size(NULL, &number), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_cluster_threads(NULL, &number), DSLIDE_E_ARGUMENT);
    assert_int_equal(number, -7);
}

static void test_cluster__of_one_process(void **state) {
    (void)state;
    dslide_cluster *cluster = NULL;
    dslide_cluster_options options;
    int32_t rank = -1, size = -1, threads = -1;
    dslide_cluster_options_init(&options, sizeof options);
    assert_int_equal(options.struct_size, sizeof options);
    assert_int_equal(options.threads, 0);
    options.threads = 3;
    assert_int_equal(dslide_cluster_open_self(&options, &cluster), DSLIDE_OK);
    assert_int_equal(dslide_cluster_rank(cluster, &rank), DSLIDE_OK);
    assert_int_equal(dslide_cluster_size(cluster, &size), DSLIDE_OK);
    assert_int_equal(dslide_cluster_threads(cluster, &threads), DSLIDE_OK);
    assert_int_equal(rank, 0);
    assert_int_equal(size, 1);
    assert_int_equal(threads, 3);
    assert_int_equal(dslide_cluster_rank(cluster, NULL), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_cluster_close(cluster), DSLIDE_OK);
    assert_int_equal(dslide_cluster_close(NULL), DSLIDE_OK);
    dslide_cluster_free(NULL);
}

/* Lines of /proc/self/task: one a thread. */
static long threads_of_process(void) {
    char line[256];
    long threads = -1;
    FILE *status = fopen("/proc/self/status", "r");
    if (!status) return -1;
    while (fgets(line, sizeof line, status)) {
        if (sscanf(line, "Threads: %ld", &threads) == 1) break;
    }
    fclose(status);
    return threads;
}

static void test_cluster__default_threads_and_none_started_by_opening(void **state) {
    (void)state;
    dslide_cluster *cluster = NULL;
    int32_t threads = 0;
    const long before = threads_of_process();
    assert_true(before >= 1);
    assert_int_equal(dslide_cluster_open_self(NULL, &cluster), DSLIDE_OK);
    assert_int_equal(dslide_cluster_threads(cluster, &threads), DSLIDE_OK);
    assert_in_range(threads, 1, 1024);
    assert_int_equal(threads_of_process(), before);
    dslide_cluster_free(cluster);
}

static void test_cluster__several_ranks_refuse_bad_arguments(void **state) {
    (void)state;
    dslide_cluster *clusters[3] = {NULL, NULL, NULL};
    dslide_cluster_options options;
    dslide_traffic traffic;
    memset(&traffic, 0, sizeof traffic);
    assert_int_equal(dslide_cluster_open_threads(NULL, 0, clusters), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_cluster_open_threads(NULL, 257, clusters), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_cluster_open_threads(NULL, 3, NULL), DSLIDE_E_ARGUMENT);
    const double bad[] = {-1, NAN, INFINITY};
    for (int i = 0; i < 3; ++i) {
        dslide_cluster_options_init(&options, sizeof options);
        options.timeout_seconds = bad[i];
        assert_int_equal(dslide_cluster_open_threads(&options, 3, clusters), DSLIDE_E_ARGUMENT);
        assert_non_null(strstr(dslide_last_error(), "timeout_seconds"));
        dslide_cluster_options_init(&options, sizeof options);
        options.share = bad[i];
        assert_int_equal(dslide_cluster_open_threads(&options, 3, clusters), DSLIDE_E_ARGUMENT);
        assert_non_null(strstr(dslide_last_error(), "share"));
    }
    dslide_cluster_options_init(&options, sizeof options);
    options.payload = 2;
    assert_int_equal(dslide_cluster_open_threads(&options, 3, clusters), DSLIDE_E_ARGUMENT);
    dslide_cluster_options_init(&options, sizeof options);
    options.most_message_bytes = -1;
    assert_int_equal(dslide_cluster_open_threads(&options, 3, clusters), DSLIDE_E_ARGUMENT);
    assert_null(clusters[0]);
    dslide_cluster_options_init(&options, sizeof options);
    options.mpi_module = "/nowhere/module.so";
    assert_int_equal(dslide_cluster_open_f(&options, DSLIDE_COMM_WORLD, &clusters[0]), DSLIDE_E_UNSUPPORTED);
    assert_non_null(strstr(dslide_last_error(), "/nowhere/module.so"));
    options.mpi_module = "libz.so.1"; /* a library, but no module */
    assert_int_equal(dslide_cluster_open_f(&options, DSLIDE_COMM_WORLD, &clusters[0]), DSLIDE_E_UNSUPPORTED);
    assert_non_null(strstr(dslide_last_error(), "libz.so.1 is not a module"));
    assert_int_equal(dslide_cluster_open_f(&options, DSLIDE_COMM_WORLD, NULL), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_cluster_open_f(&options, (int64_t)INT32_MAX + 1, &clusters[0]), DSLIDE_E_ARGUMENT);
    options.init_mpi = 2;
    assert_int_equal(dslide_cluster_open_f(&options, DSLIDE_COMM_WORLD, &clusters[0]), DSLIDE_E_ARGUMENT);
    assert_non_null(strstr(dslide_last_error(), "init_mpi"));
    assert_null(clusters[0]);
    assert_int_equal(dslide_cluster_cancel(NULL), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_cluster_traffic(NULL, &traffic), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_cluster_open_self(NULL, &clusters[0]), DSLIDE_OK);
    assert_int_equal(dslide_cluster_traffic(clusters[0], &traffic), DSLIDE_E_ARGUMENT); /* no struct_size */
    assert_int_equal(dslide_cluster_cancel(clusters[0]), DSLIDE_OK);
    dslide_cluster_free(clusters[0]);
}

static void test_cluster__ranks_whose_threads_cannot_start_are_not_waited_for(void **state) {
    (void)state;
    dslide_cluster *clusters[4] = {NULL, NULL, NULL, NULL};
    for (int started = 0; started < 4; ++started) {
        const time_t begin = time(NULL);
        threads_left = started;
        const dslide_status status = dslide_cluster_open_threads(NULL, 4, clusters);
        threads_left = -1;
        assert_int_equal(status, DSLIDE_E_MEMORY);
        assert_non_null(strstr(dslide_last_error(), "thread"));
        assert_null(clusters[0]);
        assert_in_range(time(NULL) - begin, 0, 20); /* the time-out is 60 */
    }
}

/* A rank: what its thread does, and what came of it. */
struct rank {
    dslide_cluster *cluster;
    int number;
    int fault; /* 1: NULL labels in step 2; 2: leaves after step 2; 3: cancels itself there */
    dslide_status status;
    char text[512];
    double loss;
    float weights[9 * 8];
    dslide_traffic traffic;
    dslide_status close_status;
};

static dslide_status train(struct rank *r) {
    dslide_model_options shape;
    dslide_model *model = NULL;
    dslide_trainer *trainer = NULL;
    dslide_step_stats stats;
    dslide_csr_view x, y;
    static const int64_t ptr[] = {0, 1, 2};
    static const int32_t feature[] = {1, 3}, label[] = {2, 8};
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    memset(&x, 0, sizeof x);
    x.struct_size = sizeof x;
    x.n_rows = 2;
    x.row_ptr = ptr;
    y = x;
    x.n_cols = 4;
    x.col = feature;
    y.n_cols = 9;
    y.col = label;
    dslide_model_options_init(&shape, sizeof shape);
    shape.n_inputs = 4;
    shape.n_outputs = 9;
    shape.n_hidden = 1;
    shape.hidden[0] = 8;
    dslide_status status = dslide_model_create(r->cluster, &shape, &model);
    if (status == DSLIDE_OK) status = dslide_trainer_create(model, NULL, &trainer);
    for (int step = 0; status == DSLIDE_OK && step < 5; ++step) {
        if (step == 2 && r->fault == 2) break;
        if (step == 2 && r->fault == 3) dslide_cluster_cancel(r->cluster);
        status = dslide_trainer_step(trainer, &x, step == 2 && r->fault == 1 ? NULL : &y, NULL, &stats);
    }
    r->loss = stats.loss;
    if (status == DSLIDE_OK && r->fault != 2) status = dslide_model_get_rows(model, "output.weight", 0, 9, r->weights);
    if (status != DSLIDE_OK) strncpy(r->text, dslide_last_error(), sizeof r->text - 1);
    dslide_trainer_free(trainer);
    dslide_model_free(model);
    return status;
}

static void *run_rank(void *argument) {
    struct rank *r = argument;
    r->status = train(r);
    r->traffic.struct_size = sizeof r->traffic;
    dslide_cluster_traffic(r->cluster, &r->traffic);
    if (r->fault == 2)
        dslide_cluster_free(r->cluster);
    else
        r->close_status = dslide_cluster_close(r->cluster);
    return NULL;
}

static void run_ranks(struct rank *ranks, int n, int faulty, int fault, const dslide_cluster_options *options) {
    dslide_cluster *clusters[8];
    pthread_t threads[8];
    memset(ranks, 0, (size_t)n * sizeof *ranks);
    assert_int_equal(dslide_cluster_open_threads(options, n, clusters), DSLIDE_OK);
    for (int r = 0; r < n; ++r) {
        ranks[r].cluster = clusters[r];
        ranks[r].number = r;
        ranks[r].fault = r == faulty ? fault : 0;
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < n; ++r) assert_int_equal(pthread_join(threads[r], NULL), 0);
}

static void test_cluster__ranks_as_threads_train_one_model(void **state) {
    (void)state;
    static struct rank one[1], many[4];
    dslide_cluster_options options;
    dslide_cluster_options_init(&options, sizeof options);
    options.share = 1.5e308; /* of each; their sum is no number any more */
    run_ranks(one, 1, -1, 0, NULL);
    run_ranks(many, 4, -1, 0, &options);
    assert_int_equal(one[0].status, DSLIDE_OK);
    assert_int_equal(one[0].traffic.bytes_sent[DSLIDE_PHASE_GRADIENTS], 0);
    for (int r = 0; r < 4; ++r) {
        assert_int_equal(many[r].status, DSLIDE_OK);
        assert_int_equal(many[r].close_status, DSLIDE_OK);
        assert_true(fabs(many[r].loss - one[0].loss) < 1e-5);
        for (int i = 0; i < 9 * 8; ++i) assert_true(fabsf(many[r].weights[i] - one[0].weights[i]) < 1e-5f);
        /* 5 steps, 2 samples of 2 of the 8 activations in fp32, to 3 ranks, with a header of 32 bytes each. */
        assert_int_equal(many[r].traffic.bytes_sent[DSLIDE_PHASE_ACTIVATIONS], 5 * 3 * (2 * 2 * 4 + 32));
        assert_int_equal(many[r].traffic.messages_sent[DSLIDE_PHASE_ACTIVATIONS], 5 * 3);
    }
}

static void test_cluster__a_bad_argument_on_one_rank_is_an_error_on_all(void **state) {
    (void)state;
    static struct rank ranks[3];
    run_ranks(ranks, 3, 1, 1, NULL);
    for (int r = 0; r < 3; ++r) {
        assert_int_equal(ranks[r].status, r == 1 ? DSLIDE_E_ARGUMENT : DSLIDE_E_PEER);
        assert_non_null(strstr(ranks[r].text, "labels"));
        assert_int_equal(ranks[r].close_status, DSLIDE_OK); /* the cluster goes on */
    }
    assert_non_null(strstr(ranks[0].text, "rank 1"));
}

static void test_cluster__a_rank_that_is_freed_is_named(void **state) {
    (void)state;
    static struct rank ranks[3];
    run_ranks(ranks, 3, 2, 2, NULL);
    for (int r = 0; r < 2; ++r) {
        assert_int_equal(ranks[r].status, DSLIDE_E_PEER);
        assert_non_null(strstr(ranks[r].text, "rank 2"));
        assert_int_equal(ranks[r].close_status, DSLIDE_OK); /* nothing is left to say goodbye to */
    }
}

static void test_cluster__cancel_stops_every_rank(void **state) {
    (void)state;
    static struct rank ranks[3];
    run_ranks(ranks, 3, 0, 3, NULL);
    assert_int_equal(ranks[0].status, DSLIDE_E_STOPPED);
    for (int r = 1; r < 3; ++r) {
        assert_int_equal(ranks[r].status, DSLIDE_E_PEER);
        assert_non_null(strstr(ranks[r].text, "cancelled"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cluster__refuses_bad_arguments),
        cmocka_unit_test(test_cluster__of_one_process),
        cmocka_unit_test(test_cluster__default_threads_and_none_started_by_opening),
        cmocka_unit_test(test_cluster__several_ranks_refuse_bad_arguments),
        cmocka_unit_test(test_cluster__ranks_whose_threads_cannot_start_are_not_waited_for),
        cmocka_unit_test(test_cluster__ranks_as_threads_train_one_model),
        cmocka_unit_test(test_cluster__a_bad_argument_on_one_rank_is_an_error_on_all),
        cmocka_unit_test(test_cluster__a_rank_that_is_freed_is_named),
        cmocka_unit_test(test_cluster__cancel_stops_every_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
