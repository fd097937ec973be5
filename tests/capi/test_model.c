/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <math.h>
#include <pthread.h>

static void test_model__refuses_bad_arguments(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(1);
    dslide_model *model = sample_model(cluster), *none = NULL;
    dslide_model_options options;
    dslide_model_info info = {0};
    sample s;
    int64_t labels[sample_rows], rows = -7, cols = -7;
    float numbers[sample_rows * 16];
    size_t length = 77;
    char text[4] = "abc";
    sample_init(&s);
    labels[0] = -7;
    numbers[0] = -7;
    dslide_model_options_init(NULL, sizeof(dslide_model_options));
    dslide_model_options_init(&options, sizeof options);
    assert_fails_with(dslide_model_create(cluster, &options, &none), DSLIDE_E_ARGUMENT, "n_inputs");
    options.n_inputs = 5;
    assert_fails_with(dslide_model_create(cluster, &options, &none), DSLIDE_E_ARGUMENT, "n_outputs");
    options.n_outputs = (int64_t)1 << 31;
    assert_fails_with(dslide_model_create(cluster, &options, &none), DSLIDE_E_ARGUMENT, "n_outputs");
    options.n_outputs = 5;
    assert_fails_with(dslide_model_create(NULL, &options, &none), DSLIDE_E_ARGUMENT, "cluster");
    assert_fails_with(dslide_model_create(cluster, NULL, &none), DSLIDE_E_ARGUMENT, "options");
    assert_fails_with(dslide_model_create(cluster, &options, NULL), DSLIDE_E_ARGUMENT, "out");
    options.n_hidden = DSLIDE_MAX_HIDDEN + 1;
    assert_fails_with(dslide_model_create(cluster, &options, &none), DSLIDE_E_ARGUMENT, "n_hidden");
    options.n_hidden = 2;
    options.hidden[0] = 65536;
    assert_fails_with(dslide_model_create(cluster, &options, &none), DSLIDE_E_ARGUMENT, "hidden");
    options.n_hidden = 0;
    options.input_scale = NAN;
    assert_fails_with(dslide_model_create(cluster, &options, &none), DSLIDE_E_ARGUMENT, "scale");
    options.input_scale = 0;
    options.index_base = 2;
    assert_fails_with(dslide_model_create(cluster, &options, &none), DSLIDE_E_ARGUMENT, "index_base");
    assert_fails_with(dslide_model_load(NULL, "x", &none), DSLIDE_E_ARGUMENT, "cluster");
    assert_fails_with(dslide_model_load(cluster, NULL, &none), DSLIDE_E_ARGUMENT, "dir");
    assert_fails_with(dslide_model_load(cluster, "x", NULL), DSLIDE_E_ARGUMENT, "out");
    assert_fails_with(dslide_model_load(cluster, "/nowhere/at/all", &none), DSLIDE_E_IO, "/nowhere");
    assert_null(none);
    assert_fails_with(dslide_model_save(NULL, "x"), DSLIDE_E_ARGUMENT, "model");
    assert_fails_with(dslide_model_save(model, NULL), DSLIDE_E_ARGUMENT, "dir");
    assert_fails_with(dslide_model_get_info(NULL, &info), DSLIDE_E_ARGUMENT, "model");
    assert_fails_with(dslide_model_get_info(model, NULL), DSLIDE_E_ARGUMENT, "out");
    assert_fails_with(dslide_model_get_info(model, &info), DSLIDE_E_ARGUMENT, "struct_size");
    assert_fails_with(dslide_model_predict(NULL, &s.features, 1, labels, numbers), DSLIDE_E_ARGUMENT, "model");
    assert_fails_with(dslide_model_predict(model, NULL, 1, labels, numbers), DSLIDE_E_ARGUMENT, "features");
    assert_fails_with(dslide_model_predict(model, &s.features, 0, labels, numbers), DSLIDE_E_ARGUMENT, "k is 0");
    assert_fails_with(dslide_model_predict(model, &s.features, sample_outputs + 1, labels, numbers), DSLIDE_E_ARGUMENT,
                      "k is 201");
    assert_fails_with(dslide_model_predict(model, &s.features, 1, NULL, numbers), DSLIDE_E_ARGUMENT, "out_labels");
    assert_fails_with(dslide_model_embed(NULL, &s.features, numbers), DSLIDE_E_ARGUMENT, "model");
    assert_fails_with(dslide_model_embed(model, NULL, numbers), DSLIDE_E_ARGUMENT, "features");
    assert_fails_with(dslide_model_embed(model, &s.features, NULL), DSLIDE_E_ARGUMENT, "out");
    s.features.n_cols = sample_inputs + 1;
    assert_fails_with(dslide_model_predict(model, &s.features, 1, labels, numbers), DSLIDE_E_ARGUMENT, "n_cols 31");
    s.features.n_cols = sample_inputs;
    s.value[5] = INFINITY;
    assert_fails_with(dslide_model_predict(model, &s.features, 1, labels, numbers), DSLIDE_E_ARGUMENT, "row 1");
    assert_fails_with(dslide_model_embed(model, &s.features, numbers), DSLIDE_E_ARGUMENT, "finite");
    assert_fails_with(dslide_model_tensor_shape(model, "output", &rows, &cols), DSLIDE_E_ARGUMENT, "\"output\"");
    assert_fails_with(dslide_model_tensor_shape(model, NULL, &rows, &cols), DSLIDE_E_ARGUMENT, "name");
    assert_fails_with(dslide_model_tensor_shape(NULL, "input.bias", &rows, &cols), DSLIDE_E_ARGUMENT, "model");
    assert_fails(dslide_model_get_rows(model, "hidden.2.weight", 0, 1, numbers), DSLIDE_E_ARGUMENT);
    assert_fails(dslide_model_get_rows(model, "input.bias", 0, 2, numbers), DSLIDE_E_ARGUMENT);
    assert_fails(dslide_model_get_rows(model, "input.bias", -1, 1, numbers), DSLIDE_E_ARGUMENT);
    assert_fails(dslide_model_get_rows(model, "input.bias", INT64_MAX, INT64_MAX, numbers), DSLIDE_E_ARGUMENT);
    assert_fails(dslide_model_get_rows(model, "input.bias", INT64_MIN, INT64_MIN, numbers), DSLIDE_E_ARGUMENT);
    assert_fails_with(dslide_model_get_rows(model, "input.bias", 0, 1, NULL), DSLIDE_E_ARGUMENT, "out");
    assert_fails(dslide_model_set_rows(model, "input.bias", INT64_MAX, INT64_MAX, numbers), DSLIDE_E_ARGUMENT);
    assert_fails_with(dslide_model_set_rows(model, "input.bias", 0, 1, NULL), DSLIDE_E_ARGUMENT, "data");
    assert_fails_with(dslide_model_set_rows(NULL, "input.bias", 0, 0, NULL), DSLIDE_E_ARGUMENT, "model");
    assert_fails_with(dslide_model_set_names(model, 2, NULL, 0), DSLIDE_E_ARGUMENT, "kind");
    assert_fails_with(dslide_model_name(model, DSLIDE_NAMES_LABELS, 0, text, sizeof text, &length), DSLIDE_E_STATE,
                      "names");
    assert_fails_with(dslide_model_name(model, DSLIDE_NAMES_LABELS, sample_outputs, text, sizeof text, &length),
                      DSLIDE_E_ARGUMENT, "id");
    assert_fails_with(dslide_model_name(model, 7, 0, text, sizeof text, &length), DSLIDE_E_ARGUMENT, "kind");
    assert_fails_with(dslide_model_read_names(model, DSLIDE_NAMES_LABELS, NULL), DSLIDE_E_ARGUMENT, "path");
    assert_fails(dslide_model_read_names(model, DSLIDE_NAMES_LABELS, "/nowhere"), DSLIDE_E_IO);
    assert_int_equal(labels[0], -7);
    assert_true(numbers[0] == -7);
    assert_int_equal(rows, -7);
    assert_int_equal(length, 77);
    assert_string_equal(text, "abc");
    dslide_model_free(model);
    dslide_model_free(NULL);
    dslide_cluster_free(cluster);
}

/* The rules of struct_size: shorter is filled up with defaults, longer is fine if the rest is 0. */
static void test_model__struct_sizes(void **state) {
    (void)state;
    struct {
        dslide_model_options known;
        int32_t later[4];
    } longer;
    struct {
        dslide_model_info known;
        int32_t later[4];
    } info;
    dslide_cluster *cluster = sample_cluster(1);
    dslide_model *model = NULL;
    memset(&longer, 0, sizeof longer);
    longer.known.struct_size = sizeof longer;
    longer.known.n_inputs = longer.known.n_outputs = 3;
    assert_int_equal(dslide_model_create(cluster, &longer.known, &model), DSLIDE_OK);
    dslide_model_free(model);
    model = NULL;
    longer.later[3] = 1;
    assert_fails_with(dslide_model_create(cluster, &longer.known, &model), DSLIDE_E_UNSUPPORTED, "options");
    assert_null(model);
    longer.known.struct_size = offsetof(dslide_model_options, hidden); /* an older struct that ended before `hidden` */
    longer.known.hidden[0] = -99;                                      /* is not looked at */
    longer.known.index_base = 77;
    assert_int_equal(dslide_model_create(cluster, &longer.known, &model), DSLIDE_OK);
    memset(&info, 0x55, sizeof info);
    info.known.struct_size = sizeof info;
    assert_int_equal(dslide_model_get_info(model, &info.known), DSLIDE_OK);
    assert_int_equal(info.known.struct_size, sizeof info);
    assert_int_equal(info.known.hidden[0], 128);
    memset(&info, 0x55, sizeof info);
    info.known.struct_size = offsetof(dslide_model_info, n_outputs);
    assert_int_equal(dslide_model_get_info(model, &info.known), DSLIDE_OK);
    assert_int_equal(info.known.n_inputs, 3);
    assert_int_equal(info.known.n_outputs, 0x5555555555555555); /* not written past its end */
    dslide_model_free(model);
    dslide_cluster_free(cluster);
}

static void test_model__tells_its_shape(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(1);
    dslide_model *model = sample_model(cluster);
    dslide_model_info info = {.struct_size = sizeof info};
    int64_t rows = 0, cols = 0;
    assert_int_equal(dslide_model_get_info(model, &info), DSLIDE_OK);
    assert_int_equal(info.n_hidden, 2);
    assert_int_equal(info.hidden[1], 16);
    assert_int_equal(info.hidden[2], 0);
    assert_int_equal(info.n_parameters, 30 * 24 + 24 + 16 * 24 + 16 + 200 * 16 + 200);
    assert_true(info.resident_bytes >= 4 * info.n_parameters);
    assert_int_equal(info.samples_seen, 0);
    assert_int_equal(dslide_model_tensor_shape(model, "hidden.1.weight", &rows, &cols), DSLIDE_OK);
    assert_int_equal(rows, 16);
    assert_int_equal(cols, 24);
    assert_int_equal(dslide_model_tensor_shape(model, "output.bias", &rows, NULL), DSLIDE_OK);
    assert_int_equal(rows, 1);
    assert_int_equal(dslide_model_tensor_shape(model, "output.bias", NULL, &cols), DSLIDE_OK);
    assert_int_equal(cols, 200);
    dslide_model_free(model);
    dslide_cluster_free(cluster);
}

static void test_model__rows_in_and_out(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(1);
    dslide_model *model = sample_model(cluster);
    float in[2 * 16], out[2 * 16], before[16];
    for (int i = 0; i < 32; ++i) in[i] = (float)i;
    assert_int_equal(dslide_model_get_rows(model, "output.weight", 199, 1, before), DSLIDE_OK);
    assert_int_equal(dslide_model_set_rows(model, "output.weight", 197, 2, in), DSLIDE_OK);
    assert_int_equal(dslide_model_get_rows(model, "output.weight", 197, 2, out), DSLIDE_OK);
    assert_memory_equal(in, out, sizeof in);
    in[0] = 99;
    in[31] = NAN;
    assert_fails_with(dslide_model_set_rows(model, "output.weight", 197, 2, in), DSLIDE_E_ARGUMENT, "row 198");
    assert_int_equal(dslide_model_get_rows(model, "output.weight", 197, 1, out), DSLIDE_OK);
    assert_true(out[0] == 0); /* nothing was written */
    assert_int_equal(dslide_model_get_rows(model, "output.weight", 199, 1, out), DSLIDE_OK);
    assert_memory_equal(before, out, sizeof before);
    assert_int_equal(dslide_model_get_rows(model, "output.weight", 200, 0, NULL), DSLIDE_OK);
    assert_int_equal(dslide_model_set_rows(model, "output.weight", 0, 0, NULL), DSLIDE_OK);
    dslide_model_free(model);
    dslide_cluster_free(cluster);
}

/* All logits are made by hand: hidden units are |x| of one feature, class c has weight c on it. */
static void test_model__predicts_what_the_formula_says(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(2);
    dslide_model *model = NULL;
    dslide_model_options options;
    dslide_model_options_init(&options, sizeof options);
    options.n_inputs = 2;
    options.n_outputs = 4;
    options.n_hidden = 1;
    options.hidden[0] = 2;
    assert_int_equal(dslide_model_create(cluster, &options, &model), DSLIDE_OK);
    const float input[] = {1, -1, 2, 0.5f}, input_bias[] = {0.25f, 1}, output[] = {1, 0, 0, 1, 2, 2, -1, 3},
                output_bias[] = {0, 0.5f, -5, 0.5f};
    assert_int_equal(dslide_model_set_rows(model, "input.weight", 0, 2, input), DSLIDE_OK);
    assert_int_equal(dslide_model_set_rows(model, "input.bias", 0, 1, input_bias), DSLIDE_OK);
    assert_int_equal(dslide_model_set_rows(model, "output.weight", 0, 4, output), DSLIDE_OK);
    assert_int_equal(dslide_model_set_rows(model, "output.bias", 0, 1, output_bias), DSLIDE_OK);
    /* Row 0: x = (2, 0): h = relu(2.25, -1) = (2.25, 0): logits 2.25, 0.5, -0.5, -1.75.
       Row 1: no feature: h = (0.25, 1): 0.25, 1.5, -2.5, 3.25.
       Row 2: x = (0, -1): h = relu(-1.75, 0.5) = (0, 0.5): 0, 1, -4, 2. */
    const int64_t row_ptr[] = {0, 1, 1, 2}, col64[] = {0, 1};
    const int32_t col[] = {0, 1};
    const float val[] = {2, -1};
    const int64_t expected[] = {0, 1, 2, 3, 3, 1, 0, 2, 3, 1, 0, 2};
    const float scores_expected[] = {2.25f, 0.5f, -0.5f, -1.75f, 3.25f, 1.5f, 0.25f, -2.5f, 2, 1, 0, -4};
    const float h_expected[] = {2.25f, 0, 0.25f, 1, 0, 0.5f};
    dslide_csr_view x = {sizeof x, 32, 3, 2, row_ptr, col, val};
    int64_t labels[12];
    float scores[12], h[6];
    for (int wide = 0; wide < 2; ++wide) {
        x.index_bits = wide ? 64 : 0;
        x.col = wide ? (const void *)col64 : (const void *)col;
        memset(labels, 0, sizeof labels);
        assert_int_equal(dslide_model_predict(model, &x, 4, labels, scores), DSLIDE_OK);
        assert_memory_equal(labels, expected, sizeof labels);
        for (int i = 0; i < 12; ++i) assert_true(fabsf(scores[i] - scores_expected[i]) < 1e-6f);
        assert_int_equal(dslide_model_embed(model, &x, h), DSLIDE_OK);
        for (int i = 0; i < 6; ++i) assert_true(fabsf(h[i] - h_expected[i]) < 1e-6f);
    }
    x.n_rows = 1; /* fewer columns: the others are 0 */
    x.n_cols = 1;
    x.index_bits = 32;
    x.col = col;
    assert_int_equal(dslide_model_predict(model, &x, 1, labels, NULL), DSLIDE_OK);
    assert_int_equal(labels[0], 0);
    x.n_rows = 0;
    assert_int_equal(dslide_model_predict(model, &x, 1, NULL, NULL), DSLIDE_OK);
    assert_int_equal(dslide_model_embed(model, &x, NULL), DSLIDE_OK);
    dslide_model_free(model);
    dslide_cluster_free(cluster);
}

static void test_model__names(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(1);
    dslide_model *model = sample_model(cluster);
    dslide_model_info info = {.struct_size = sizeof info};
    const char *names[sample_inputs];
    char text[8] = "before", path[] = "/tmp/dslide-names-XXXXXX";
    size_t length = 0;
    for (int i = 0; i < sample_inputs; ++i) names[i] = i == 3 ? "d\xc3\xb6g" : i == 4 ? "" : "cat";
    assert_int_equal(dslide_model_set_names(model, DSLIDE_NAMES_FEATURES, names, sample_inputs), DSLIDE_OK);
    assert_int_equal(dslide_model_name(model, DSLIDE_NAMES_FEATURES, 3, text, 5, &length), DSLIDE_OK);
    assert_string_equal(text, "d\xc3\xb6g");
    assert_int_equal(length, 4);
    assert_fails_with(dslide_model_name(model, DSLIDE_NAMES_FEATURES, 3, text, 4, &length), DSLIDE_E_ARGUMENT, "cap 4");
    assert_int_equal(length, 4);
    assert_int_equal(dslide_model_name(model, DSLIDE_NAMES_FEATURES, 0, NULL, 0, &length), DSLIDE_OK);
    assert_int_equal(length, 3);
    assert_int_equal(dslide_model_name(model, DSLIDE_NAMES_FEATURES, 4, text, 1, NULL), DSLIDE_OK);
    assert_string_equal(text, "");
    assert_fails_with(dslide_model_name(model, DSLIDE_NAMES_FEATURES, 0, NULL, 9, &length), DSLIDE_E_ARGUMENT, "buf");
    assert_fails_with(dslide_model_name(model, DSLIDE_NAMES_FEATURES, -1, text, 8, &length), DSLIDE_E_ARGUMENT, "id");
    assert_fails_with(dslide_model_set_names(model, DSLIDE_NAMES_FEATURES, names, 3), DSLIDE_E_ARGUMENT, "count");
    assert_fails_with(dslide_model_set_names(model, DSLIDE_NAMES_FEATURES, NULL, sample_inputs), DSLIDE_E_ARGUMENT,
                      "names");
    names[7] = NULL;
    assert_fails(dslide_model_set_names(model, DSLIDE_NAMES_FEATURES, names, sample_inputs), DSLIDE_E_ARGUMENT);
    names[7] = "two\nlines";
    assert_fails_with(dslide_model_set_names(model, DSLIDE_NAMES_FEATURES, names, sample_inputs), DSLIDE_E_ARGUMENT,
                      "line end");
    assert_int_equal(dslide_model_name(model, DSLIDE_NAMES_FEATURES, 7, text, 8, NULL), DSLIDE_OK);
    assert_string_equal(text, "cat"); /* those before are kept */
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    for (int i = 0; i < sample_outputs; ++i) fprintf(file, "label %d\n", i);
    fclose(file);
    assert_int_equal(dslide_model_read_names(model, DSLIDE_NAMES_LABELS, path), DSLIDE_OK);
    assert_fails_with(dslide_model_read_names(model, DSLIDE_NAMES_FEATURES, path), DSLIDE_E_FORMAT, "200");
    remove(path);
    char name[32];
    assert_int_equal(dslide_model_name(model, DSLIDE_NAMES_LABELS, 199, name, sizeof name, NULL), DSLIDE_OK);
    assert_string_equal(name, "label 199");
    assert_int_equal(dslide_model_set_names(model, DSLIDE_NAMES_FEATURES, NULL, 0), DSLIDE_OK);
    assert_int_equal(dslide_model_get_info(model, &info), DSLIDE_OK);
    assert_int_equal(info.n_feature_names, 0);
    assert_int_equal(info.n_label_names, sample_outputs);
    dslide_model_free(model);
    dslide_cluster_free(cluster);
}

enum { callers = 16, rounds = 20, k = 5 };

typedef struct caller {
    const dslide_model *model;
    const sample *s;
    const int64_t *labels;
    const float *scores;
    int wrong;
} caller;

static void *predict_again_and_again(void *data) {
    caller *c = data;
    int64_t labels[sample_rows * k];
    float scores[sample_rows * k];
    for (int round = 0; round < rounds; ++round) {
        if (dslide_model_predict(c->model, &c->s->features, k, labels, scores) != DSLIDE_OK) ++c->wrong;
        if (memcmp(labels, c->labels, sizeof labels) != 0 || memcmp(scores, c->scores, sizeof scores) != 0) ++c->wrong;
    }
    return NULL;
}

static void test_model__predicts_from_many_threads_at_once(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(2);
    dslide_model *model = sample_model(cluster);
    sample s;
    int64_t labels[sample_rows * k];
    float scores[sample_rows * k];
    pthread_t threads[callers];
    caller work[callers];
    sample_init(&s);
    assert_int_equal(dslide_model_predict(model, &s.features, k, labels, scores), DSLIDE_OK);
    for (int i = 0; i < callers; ++i) {
        work[i] = (caller){model, &s, labels, scores, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, predict_again_and_again, &work[i]), 0);
    }
    for (int i = 0; i < callers; ++i) {
        pthread_join(threads[i], NULL);
        assert_int_equal(work[i].wrong, 0);
    }
    dslide_model_free(model);
    dslide_cluster_free(cluster);
}

static void test_model__same_seed_same_weights(void **state) {
    (void)state;
    float first[30 * 24], now[30 * 24];
    for (int threads = 1; threads <= 3; ++threads) {
        dslide_cluster *cluster = sample_cluster(threads);
        dslide_model *model = sample_model(cluster);
        assert_int_equal(dslide_model_get_rows(model, "input.weight", 0, 30, now), DSLIDE_OK);
        if (threads == 1) memcpy(first, now, sizeof now);
        assert_memory_equal(first, now, sizeof now);
        dslide_model_free(model);
        dslide_cluster_free(cluster);
    }
    /* Mean 0 and standard deviation 24^-1/2, each within four standard errors of 720 draws. */
    double sum = 0, square = 0;
    for (int i = 0; i < 720; ++i) {
        sum += first[i];
        square += (double)first[i] * first[i];
    }
    assert_true(fabs(sum / 720) < 4 * sqrt(1 / 24.0 / 720));
    assert_true(fabs(square / 720 * 24 - 1) < 4 * sqrt(2 / 720.0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model__refuses_bad_arguments),
        cmocka_unit_test(test_model__struct_sizes),
        cmocka_unit_test(test_model__tells_its_shape),
        cmocka_unit_test(test_model__rows_in_and_out),
        cmocka_unit_test(test_model__predicts_what_the_formula_says),
        cmocka_unit_test(test_model__names),
        cmocka_unit_test(test_model__predicts_from_many_threads_at_once),
        cmocka_unit_test(test_model__same_seed_same_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
