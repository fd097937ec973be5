/* SPDX-License-Identifier: Apache-2.0 */
#include <dslide/dslide.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cluster__refuses_bad_arguments),
        cmocka_unit_test(test_cluster__of_one_process),
        cmocka_unit_test(test_cluster__default_threads_and_none_started_by_opening),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
