/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* mkstemp */
#include <dslide/dslide.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char text[] = "3 5 4\n3,1 1:0.5 0:2\n 4:1\n2 2:-1\n";

static dslide_cluster *cluster;

static int open_cluster(void **state) {
    dslide_cluster_options options;
    (void)state;
    dslide_cluster_options_init(&options, sizeof options);
    options.threads = 2;
    return dslide_cluster_open_self(&options, &cluster);
}

static int close_cluster(void **state) {
    (void)state;
    return dslide_cluster_close(cluster);
}

static dslide_dataset *open_text(const dslide_dataset_options *options) {
    dslide_dataset *data = NULL;
    assert_int_equal(dslide_dataset_open_memory(cluster, text, strlen(text), options, &data), DSLIDE_OK);
    assert_non_null(data);
    return data;
}

static dslide_batch next(dslide_dataset *data, int64_t max_rows) {
    dslide_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.struct_size = sizeof batch;
    assert_int_equal(dslide_dataset_next(data, max_rows, &batch), DSLIDE_OK);
    return batch;
}

static dslide_dataset_info info_of(const dslide_dataset *data) {
    dslide_dataset_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    assert_int_equal(dslide_dataset_get_info(data, &info), DSLIDE_OK);
    return info;
}

static void test_dataset__open_refuses_bad_arguments(void **state) {
    dslide_dataset *data = NULL;
    dslide_dataset_options options;
    (void)state;
    assert_int_equal(dslide_dataset_open(NULL, "x", NULL, &data), DSLIDE_E_ARGUMENT);
    assert_string_equal(dslide_last_error(), "cluster is NULL");
    assert_int_equal(dslide_dataset_open(cluster, NULL, NULL, &data), DSLIDE_E_ARGUMENT);
    assert_string_equal(dslide_last_error(), "path is NULL");
    assert_int_equal(dslide_dataset_open(cluster, "x", NULL, NULL), DSLIDE_E_ARGUMENT);
    assert_string_equal(dslide_last_error(), "out is NULL");
    assert_int_equal(dslide_dataset_open_fd(cluster, -1, "x", NULL, &data), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_dataset_open_fd(cluster, 0, NULL, NULL, &data), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_dataset_open_fd(NULL, 0, "x", NULL, &data), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_dataset_open_fd(cluster, 0, "x", NULL, NULL), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_dataset_open_fd(cluster, 1000000, "x", NULL, &data), DSLIDE_E_IO);
    assert_string_equal(dslide_last_error(), "cannot read x: Bad file descriptor");
    assert_int_equal(dslide_dataset_open_memory(cluster, NULL, 1, NULL, &data), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_dataset_open_memory(NULL, text, 1, NULL, &data), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_dataset_open_memory(cluster, text, 1, NULL, NULL), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_dataset_open_memory(cluster, NULL, 0, NULL, &data), DSLIDE_E_FORMAT);
    memset(&options, 0, sizeof options);
    assert_int_equal(dslide_dataset_open_memory(cluster, text, 1, &options, &data), DSLIDE_E_ARGUMENT);
    dslide_dataset_options_init(&options, sizeof options);
    options.format = 9;
    assert_int_equal(dslide_dataset_open_memory(cluster, text, 1, &options, &data), DSLIDE_E_ARGUMENT);
    assert_string_equal(dslide_last_error(), "format 9 is outside 0..1");
    assert_null(data);
}

static void test_dataset__other_calls_refuse_bad_arguments(void **state) {
    dslide_dataset *data = open_text(NULL);
    dslide_batch batch;
    dslide_dataset_info info;
    (void)state;
    memset(&batch, 0, sizeof batch);
    memset(&info, 0, sizeof info);
    assert_int_equal(dslide_dataset_get_info(data, &info), DSLIDE_E_ARGUMENT); /* struct_size 0 */
    assert_int_equal(dslide_dataset_get_info(data, NULL), DSLIDE_E_ARGUMENT);
    info.struct_size = sizeof info;
    assert_int_equal(dslide_dataset_get_info(NULL, &info), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_dataset_rewind(NULL, 0), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_dataset_rewind(data, -1), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_dataset_next(data, 1, &batch), DSLIDE_E_ARGUMENT);
    batch.struct_size = sizeof batch;
    assert_int_equal(dslide_dataset_next(NULL, 1, &batch), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_dataset_next(data, 1, NULL), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_dataset_next(data, 0, &batch), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_dataset_next(data, 1048577, &batch), DSLIDE_E_ARGUMENT);
    assert_int_equal(next(data, 1048576).features.n_rows, 3); /* bad calls took no row */
    dslide_dataset_free(data);
    dslide_dataset_free(NULL);
}

static void test_dataset__gives_batches(void **state) {
    dslide_dataset *data = open_text(NULL);
    dslide_batch batch = next(data, 2);
    const int32_t *features = batch.features.col, *labels = batch.labels.col;
    (void)state;
    assert_int_equal(batch.features.struct_size, sizeof(dslide_csr_view));
    assert_int_equal(batch.features.index_bits, 32);
    assert_int_equal(batch.features.n_rows, 2);
    assert_int_equal(batch.features.n_cols, 5);
    assert_int_equal(batch.labels.n_rows, 2);
    assert_int_equal(batch.labels.n_cols, 4);
    assert_int_equal(batch.features.row_ptr[0], 0);
    assert_int_equal(batch.features.row_ptr[1], 2);
    assert_int_equal(batch.features.row_ptr[2], 3);
    assert_int_equal(features[0], 0);
    assert_int_equal(features[1], 1);
    assert_int_equal(features[2], 4);
    assert_true(batch.features.val[0] == 2.0F && batch.features.val[1] == 0.5F && batch.features.val[2] == 1.0F);
    assert_int_equal(batch.labels.row_ptr[1], 2);
    assert_int_equal(batch.labels.row_ptr[2], 2);
    assert_int_equal(labels[0], 1);
    assert_int_equal(labels[1], 3);
    assert_null(batch.labels.val);
    assert_null(batch.weights);
    assert_int_equal(batch.row_ids[0], 0);
    assert_int_equal(batch.row_ids[1], 1);
    batch = next(data, 2);
    assert_int_equal(batch.features.n_rows, 1);
    assert_int_equal(batch.features.row_ptr[0], 0);
    assert_int_equal(batch.row_ids[0], 2);
    assert_int_equal(next(data, 2).features.n_rows, 0);
    assert_int_equal(dslide_dataset_rewind(data, 1), DSLIDE_OK);
    assert_int_equal(next(data, 5).features.n_rows, 3);
    dslide_dataset_free(data);
}

static void test_dataset__tells_what_it_holds(void **state) {
    dslide_dataset *data = open_text(NULL);
    dslide_dataset_info info = info_of(data);
    (void)state;
    assert_int_equal(info.struct_size, sizeof info);
    assert_int_equal(info.format, DSLIDE_FORMAT_XMC);
    assert_int_equal(info.n_rows, 3);
    assert_int_equal(info.n_features, 5);
    assert_int_equal(info.n_labels, 4);
    assert_int_equal(info.n_feature_values, 4);
    assert_int_equal(info.n_label_values, 3);
    assert_int_equal(info.rows_without_label, 1);
    assert_true(info.resident_bytes > 0);
    assert_true(info.read_seconds >= 0);
    info.n_label_values = -3; /* a shorter struct of an older host: nothing behind it is written */
    info.struct_size = offsetof(dslide_dataset_info, n_label_values);
    assert_int_equal(dslide_dataset_get_info(data, &info), DSLIDE_OK);
    assert_int_equal(info.n_label_values, -3);
    dslide_dataset_free(data);
}

static void test_dataset__memory_is_copied_and_cluster_may_go_first(void **state) {
    char copy[sizeof text];
    dslide_cluster *own = NULL;
    dslide_dataset *data = NULL;
    (void)state;
    memcpy(copy, text, sizeof text);
    assert_int_equal(dslide_cluster_open_self(NULL, &own), DSLIDE_OK);
    assert_int_equal(dslide_dataset_open_memory(own, copy, strlen(copy), NULL, &data), DSLIDE_OK);
    memset(copy, 'x', sizeof copy);
    assert_int_equal(dslide_cluster_close(own), DSLIDE_OK);
    assert_int_equal(next(data, 5).features.n_rows, 3);
    dslide_dataset_free(data);
}

static void test_dataset__names_file_line_and_column(void **state) {
    char path[] = "/tmp/dslide-test-XXXXXX", expected[200];
    const int fd = mkstemp(path);
    const char defect[] = "1 1:1\n1 1:1 2:\n";
    dslide_dataset *data = NULL;
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, defect, strlen(defect)), strlen(defect));
    assert_int_equal(dslide_dataset_open(cluster, path, NULL, &data), DSLIDE_E_FORMAT);
    snprintf(expected, sizeof expected, "%s:2:9: expected a number after ':', found the end of the line", path);
    assert_string_equal(dslide_last_error(), expected);
    /* by descriptor: from where it stands, which stays */
    assert_int_equal(lseek(fd, 6, SEEK_SET), 6);
    assert_int_equal(dslide_dataset_open_fd(cluster, fd, "standard input", NULL, &data), DSLIDE_E_FORMAT);
    assert_string_equal(dslide_last_error(),
                        "standard input:1:9: expected a number after ':', found the end of the line");
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 6);
    assert_null(data);
    close(fd);
    unlink(path);
    assert_int_equal(dslide_dataset_open(cluster, path, NULL, &data), DSLIDE_E_IO);
    assert_int_equal(dslide_dataset_open(cluster, "/", NULL, &data), DSLIDE_E_IO);
    assert_int_equal(dslide_dataset_open(cluster, "", NULL, &data), DSLIDE_E_IO);
}

static void test_dataset__any_file_name_gives_one_line_of_text(void **state) {
    dslide_dataset *data = NULL;
    char name[3000];
    (void)state;
    assert_int_equal(dslide_dataset_open(cluster, "/no\nwhere\xff", NULL, &data), DSLIDE_E_IO);
    assert_string_equal(dslide_last_error(), "cannot open /no?where?: No such file or directory");
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(dslide_dataset_open(cluster, name, NULL, &data), DSLIDE_E_IO);
    assert_non_null(strstr(dslide_last_error(), "aaa: File name too long"));
}

static void test_dataset__streams_a_pipe_once(void **state) {
    int ends[2];
    dslide_dataset_options options;
    dslide_dataset *data = NULL;
    (void)state;
    dslide_dataset_options_init(&options, sizeof options);
    options.mode = DSLIDE_DATASET_STREAMING;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], text, strlen(text)), strlen(text)); /* fits into the pipe's buffer */
    close(ends[1]);
    assert_int_equal(dslide_dataset_open_fd(cluster, ends[0], "pipe", &options, &data), DSLIDE_OK);
    assert_int_equal(info_of(data).n_rows, -1);
    assert_int_equal(dslide_dataset_rewind(data, 0), DSLIDE_OK);
    assert_int_equal(next(data, 10).features.n_rows, 3);
    assert_int_equal(next(data, 10).features.n_rows, 0);
    assert_int_equal(info_of(data).n_rows, 3);
    assert_int_equal(dslide_dataset_rewind(data, 1), DSLIDE_E_STATE);
    assert_int_equal(info_of(data).n_rows, 3);
    assert_int_equal(next(data, 10).features.n_rows, 0);
    dslide_dataset_free(data);
    close(ends[0]);
}

/* A refused rewind leaves the pipe's reading where it was. */
static void test_dataset__a_pipe_goes_on_after_a_refused_rewind(void **state) {
    enum { rows = 200000, bytes_a_row = 6 };
    static char lines[rows * bytes_a_row + 1];
    int ends[2];
    int64_t found = 0;
    pid_t writer;
    dslide_dataset_options options;
    dslide_dataset *data = NULL;
    (void)state;
    for (int i = 0; i < rows; ++i)
        memcpy(lines + i * bytes_a_row, "1 2:1\n", bytes_a_row); /* several waves of blocks */
    dslide_dataset_options_init(&options, sizeof options);
    options.mode = DSLIDE_DATASET_STREAMING;
    options.n_features = options.n_labels = 3;
    assert_int_equal(pipe(ends), 0);
    writer = fork();
    assert_true(writer >= 0);
    if (writer == 0) {
        for (size_t at = 0; at < sizeof lines - 1;) {
            const ssize_t count = write(ends[1], lines + at, sizeof lines - 1 - at);
            if (count <= 0) _exit(1);
            at += (size_t)count;
        }
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(dslide_dataset_open_fd(cluster, ends[0], "pipe", &options, &data), DSLIDE_OK);
    found += next(data, 5).features.n_rows;
    assert_int_equal(dslide_dataset_rewind(data, 1), DSLIDE_E_STATE);
    for (int64_t n = 1; n > 0; found += n) n = next(data, 100000).features.n_rows;
    assert_int_equal(found, rows);
    assert_int_equal(info_of(data).n_rows, rows);
    dslide_dataset_free(data);
    close(ends[0]);
    assert_int_equal(waitpid(writer, NULL, 0), writer);
}

/* A file that is no text any more when it is read again: told by rewind and by what follows, until it is text again. */
static void test_dataset__a_stream_that_broke_says_so_until_it_is_mended(void **state) {
    char path[] = "/tmp/dslide-test-XXXXXX";
    const int fd = mkstemp(path);
    dslide_dataset_options options;
    dslide_dataset *data = NULL;
    dslide_batch batch;
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    dslide_dataset_options_init(&options, sizeof options);
    options.mode = DSLIDE_DATASET_STREAMING;
    assert_int_equal(dslide_dataset_open(cluster, path, &options, &data), DSLIDE_OK);
    assert_int_equal(next(data, 1).features.n_rows, 1);
    assert_int_equal(pwrite(fd, "{", 1, 0), 1); /* JSON, by its first byte */
    assert_int_equal(dslide_dataset_rewind(data, 1), DSLIDE_E_FORMAT);
    assert_int_equal(info_of(data).n_features, 5);
    memset(&batch, 0, sizeof batch);
    batch.struct_size = sizeof batch;
    assert_int_equal(dslide_dataset_next(data, 1, &batch), DSLIDE_E_FORMAT);
    assert_int_equal(pwrite(fd, text, 1, 0), 1);
    assert_int_equal(dslide_dataset_rewind(data, 1), DSLIDE_OK);
    assert_int_equal(next(data, 10).features.n_rows, 3);
    dslide_dataset_free(data);
    close(fd);
    unlink(path);
}

/* Two rows: columns 4, 0, 2 and 1; labels 1 and none. */
static const int64_t view_ptr[] = {0, 3, 4}, label_ptr[] = {0, 1, 1};
static const int32_t columns_32[] = {4, 0, 2, 1}, label_columns[] = {1};
static const int64_t columns_64[] = {4, 0, 2, 1};
static const float view_values[] = {4.0F, 3.0F, 0.0F, 7.0F};

static dslide_csr_view view_of(int64_t n_rows, int64_t n_cols, const int64_t *row_ptr, const void *col,
                               const float *val) {
    dslide_csr_view view;
    memset(&view, 0, sizeof view);
    view.struct_size = sizeof view;
    view.n_rows = n_rows;
    view.n_cols = n_cols;
    view.row_ptr = row_ptr;
    view.col = col;
    view.val = val;
    return view;
}

static void test_views__both_widths_unsorted(void **state) {
    const dslide_csr_view labels = view_of(2, 3, label_ptr, label_columns, NULL);
    const float weights[] = {0.0F, 2.5F};
    dslide_dataset_options options;
    (void)state;
    dslide_dataset_options_init(&options, sizeof options);
    options.normalize = 1;
    for (int bits = 0; bits <= 64; bits += 32) {
        dslide_csr_view features =
            view_of(2, 5, view_ptr, bits == 64 ? (const void *)columns_64 : columns_32, view_values);
        dslide_dataset *data = NULL;
        dslide_batch batch;
        const int32_t *columns;
        features.index_bits = bits;
        assert_int_equal(dslide_dataset_from_views(cluster, &features, &labels, weights, &options, &data), DSLIDE_OK);
        batch = next(data, 10);
        columns = batch.features.col;
        assert_int_equal(batch.features.n_rows, 2);
        assert_int_equal(batch.features.n_cols, 5);
        assert_int_equal(batch.labels.n_cols, 3);
        assert_int_equal(batch.features.row_ptr[1], 2); /* the zero is left out and counted */
        assert_int_equal(batch.features.row_ptr[2], 3);
        assert_int_equal(columns[0], 0);
        assert_int_equal(columns[1], 4);
        assert_int_equal(columns[2], 1);
        assert_true(fabsf(batch.features.val[0] - 0.6F) < 1e-7F); /* 3, 4 has length 5 */
        assert_true(fabsf(batch.features.val[1] - 0.8F) < 1e-7F);
        assert_true(batch.features.val[2] == 1.0F);
        assert_true(batch.weights[0] == 0.0F && batch.weights[1] == 2.5F);
        assert_int_equal(info_of(data).zero_features, 1);
        assert_int_equal(info_of(data).rows_without_label, 1);
        assert_int_equal(info_of(data).n_feature_values, 3);
        dslide_dataset_free(data);
    }
}

static void refuse(const dslide_csr_view *features, const dslide_csr_view *labels, const float *weights,
                   const char *expected) {
    dslide_dataset *data = NULL;
    assert_int_equal(dslide_dataset_from_views(cluster, features, labels, weights, NULL, &data), DSLIDE_E_ARGUMENT);
    assert_string_equal(dslide_last_error(), expected);
    assert_null(data);
}

static void test_views__shapes_are_checked(void **state) {
    const dslide_csr_view labels = view_of(2, 3, label_ptr, label_columns, NULL);
    const dslide_csr_view good = view_of(2, 5, view_ptr, columns_32, view_values);
    const int64_t one[] = {1, 3, 4}, falling[] = {0, 3, 2}, nothing[] = {0, 0, 0};
    dslide_csr_view bad = good;
    (void)state;
    refuse(NULL, &labels, NULL, "features is NULL");
    refuse(&good, NULL, NULL, "labels is NULL");
    bad.struct_size = 0;
    refuse(&bad, &labels, NULL, "features.struct_size is 0; call its _init first");
    bad = good, bad.index_bits = 16;
    refuse(&bad, &labels, NULL, "features: index_bits 16 is neither 32 nor 64");
    bad = good, bad.n_rows = -1;
    refuse(&bad, &labels, NULL, "features: n_rows -1 < 0");
    bad = good, bad.n_cols = 0;
    refuse(&bad, &labels, NULL, "features: n_cols 0 < 1");
    bad = good, bad.n_cols = INT64_C(2147483648);
    refuse(&bad, &labels, NULL, "features: n_cols 2147483648 > 2147483647");
    bad = good, bad.row_ptr = NULL;
    refuse(&bad, &labels, NULL, "features: row_ptr is NULL");
    bad = good, bad.row_ptr = one;
    refuse(&bad, &labels, NULL, "features: row_ptr[0] is 1, expected 0");
    bad = good, bad.row_ptr = falling;
    refuse(&bad, &labels, NULL, "features: row_ptr falls from 3 to 2 in row 1");
    bad = good, bad.col = NULL;
    refuse(&bad, &labels, NULL, "features: col is NULL");
    bad = good, bad.n_rows = 1;
    refuse(&bad, &labels, NULL, "features have 1 rows, labels 2");
    bad = view_of(0, 5, nothing, NULL, NULL);
    refuse(&bad, &bad, NULL, "features have no rows");
}

static void test_views__entries_are_checked(void **state) {
    const dslide_csr_view labels = view_of(2, 3, label_ptr, label_columns, NULL);
    const int32_t high[] = {4, 0, 2, 5}, negative[] = {4, -1, 2, 1}, apart[] = {4, 0, 4, 1}, together[] = {0, 4, 4, 1};
    const int64_t high_64[] = {4, 0, 2, INT64_C(4294967297)}, apart_64[] = {4, 0, 4, 1};
    const float infinite[] = {1.0F, 2.0F, INFINITY, 1.0F}, zero[] = {0.0F}, minus[] = {-1.0F};
    const float weights[] = {1.0F, -0.5F}, no_number[] = {NAN, 1.0F};
    dslide_csr_view bad = view_of(2, 5, view_ptr, high, NULL);
    (void)state;
    refuse(&bad, &labels, NULL, "features: column 5 >= n_cols 5 in row 1");
    bad.col = negative;
    refuse(&bad, &labels, NULL, "features: column -1 < 0 in row 0");
    bad.col = apart;
    refuse(&bad, &labels, NULL, "features: column 4 stands twice in row 0");
    bad.col = together;
    refuse(&bad, &labels, NULL, "features: column 4 stands twice in row 0");
    bad.index_bits = 64;
    bad.col = high_64;
    refuse(&bad, &labels, NULL, "features: column 4294967297 >= n_cols 5 in row 1");
    bad.col = apart_64;
    refuse(&bad, &labels, NULL, "features: column 4 stands twice in row 0");
    bad = view_of(2, 5, view_ptr, columns_32, infinite);
    refuse(&bad, &labels, NULL, "features: value inf of column 2 in row 0 is not finite");
    bad.val = NULL;
    refuse(&bad, &labels, weights, "weights: -0.5 of row 1 is not finite and >= 0");
    refuse(&bad, &labels, no_number, "weights: nan of row 0 is not finite and >= 0");
    {
        dslide_csr_view bad_labels = labels;
        bad_labels.val = zero;
        refuse(&bad, &bad_labels, NULL, "labels: weight 0 of column 1 in row 0 is not > 0");
        bad_labels.val = minus;
        refuse(&bad, &bad_labels, NULL, "labels: weight -1 of column 1 in row 0 is not > 0");
        bad_labels = labels;
        bad_labels.n_cols = 1;
        refuse(&bad, &bad_labels, NULL, "labels: column 1 >= n_cols 1 in row 0");
    }
}

static void test_views__arrays_are_copied(void **state) {
    int64_t ptr[] = {0, 1};
    int32_t col[] = {3};
    float val[] = {0.5F}, label_val[] = {2.0F};
    const dslide_csr_view features = view_of(1, 5, ptr, col, val), labels = view_of(1, 5, ptr, col, label_val);
    dslide_dataset *data = NULL;
    dslide_batch batch;
    (void)state;
    assert_int_equal(dslide_dataset_from_views(cluster, &features, &labels, NULL, NULL, &data), DSLIDE_OK);
    col[0] = 1;
    val[0] = label_val[0] = 9.0F;
    batch = next(data, 1);
    assert_int_equal(((const int32_t *)batch.features.col)[0], 3);
    assert_true(batch.features.val[0] == 0.5F && batch.labels.val[0] == 2.0F);
    dslide_dataset_free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dataset__open_refuses_bad_arguments),
        cmocka_unit_test(test_dataset__other_calls_refuse_bad_arguments),
        cmocka_unit_test(test_dataset__gives_batches),
        cmocka_unit_test(test_dataset__tells_what_it_holds),
        cmocka_unit_test(test_dataset__memory_is_copied_and_cluster_may_go_first),
        cmocka_unit_test(test_dataset__names_file_line_and_column),
        cmocka_unit_test(test_dataset__any_file_name_gives_one_line_of_text),
        cmocka_unit_test(test_dataset__streams_a_pipe_once),
        cmocka_unit_test(test_dataset__a_pipe_goes_on_after_a_refused_rewind),
        cmocka_unit_test(test_dataset__a_stream_that_broke_says_so_until_it_is_mended),
        cmocka_unit_test(test_views__both_widths_unsorted),
        cmocka_unit_test(test_views__shapes_are_checked),
        cmocka_unit_test(test_views__entries_are_checked),
        cmocka_unit_test(test_views__arrays_are_copied),
    };
    return cmocka_run_group_tests(tests, open_cluster, close_cluster);
}
