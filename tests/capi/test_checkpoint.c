/* SPDX-License-Identifier: Apache-2.0 */
#include <dslide/dslide.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A checkpoint of format 1.0 that tests/checkpoint/make_checkpoint.py made; its numbers follow from sample.py. */
static char golden[4096];

static int find_golden(void **state) {
    (void)state;
    const char *folder = getenv("DSLIDE_GOLDEN");
    if (!folder || strlen(folder) > sizeof golden - 32) return -1;
    snprintf(golden, sizeof golden, "%s/checkpoint-1.0", folder);
    return 0;
}

static void test_checkpoint__refuses_bad_arguments(void **state) {
    (void)state;
    dslide_checkpoint_info info;
    memset(&info, 0, sizeof info);
    assert_int_equal(dslide_checkpoint_verify(NULL, NULL), DSLIDE_E_ARGUMENT);
    assert_non_null(strstr(dslide_last_error(), "dir is NULL"));
    assert_int_equal(dslide_checkpoint_verify(golden, &info), DSLIDE_E_ARGUMENT);
    assert_non_null(strstr(dslide_last_error(), "struct_size"));
    assert_int_equal(info.n_shards, 0);
}

static void test_checkpoint__names_what_is_wrong(void **state) {
    (void)state;
    assert_int_equal(dslide_checkpoint_verify("/nonexistent/checkpoint", NULL), DSLIDE_E_IO);
    assert_non_null(strstr(dslide_last_error(), "/nonexistent: No such file or directory"));
    assert_int_equal(dslide_checkpoint_verify("/dev/null", NULL), DSLIDE_E_FORMAT);
    assert_non_null(strstr(dslide_last_error(), "not a checkpoint"));
    assert_int_equal(dslide_checkpoint_verify("/", NULL), DSLIDE_E_FORMAT);
    assert_non_null(strstr(dslide_last_error(), "no manifest.json"));
}

static void test_checkpoint__tells_what_is_inside(void **state) {
    (void)state;
    dslide_checkpoint_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    assert_int_equal(dslide_checkpoint_verify(golden, NULL), DSLIDE_OK);
    assert_int_equal(dslide_checkpoint_verify(golden, &info), DSLIDE_OK);
    assert_int_equal(info.struct_size, sizeof info);
    assert_int_equal(info.format_version, 1);
    assert_int_equal(info.is_full, 1);
    assert_int_equal(info.n_shards, 2);
    assert_int_equal(info.bytes, 348 + 807 + 9 + 0 + 871); /* sizes of its files on disk */
    assert_int_equal(info.n_tensors, 4);
    assert_int_equal(info.samples_seen, 70);
    assert_int_equal(info.steps, 7);
}

static void test_checkpoint__fills_as_much_as_the_caller_has_room_for(void **state) {
    (void)state;
    dslide_checkpoint_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = offsetof(dslide_checkpoint_info, bytes);
    assert_int_equal(dslide_checkpoint_verify(golden, &info), DSLIDE_OK);
    assert_int_equal(info.n_shards, 2);
    assert_int_equal(info.bytes, 0);
    assert_int_equal(info.steps, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint__refuses_bad_arguments),
        cmocka_unit_test(test_checkpoint__names_what_is_wrong),
        cmocka_unit_test(test_checkpoint__tells_what_is_inside),
        cmocka_unit_test(test_checkpoint__fills_as_much_as_the_caller_has_room_for),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, find_golden, NULL);
}
