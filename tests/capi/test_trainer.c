/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <math.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_trainer__refuses_bad_arguments(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(1);
    dslide_model *model = sample_model(cluster), *none_model = NULL;
    dslide_trainer *none = NULL, *trainer;
    dslide_trainer_options options;
    dslide_trainer_info info = {0};
    dslide_memory_estimate estimate = {0};
    dslide_model_options shape;
    dslide_step_stats stats = {0};
    sample s;
    float weights[sample_rows];
    int64_t counts[sample_outputs] = {0};
    sample_init(&s);
    dslide_trainer_options_init(NULL, sizeof options);
    dslide_trainer_options_init(&options, sizeof options);
    assert_fails_with(dslide_trainer_create(NULL, &options, &none), DSLIDE_E_ARGUMENT, "model");
    assert_fails_with(dslide_trainer_create(model, &options, NULL), DSLIDE_E_ARGUMENT, "out");
    options.tables = 256;
    assert_fails_with(dslide_trainer_create(model, &options, &none), DSLIDE_E_ARGUMENT, "tables");
    options.tables = 0;
    options.flags = 1u << 31;
    assert_fails_with(dslide_trainer_create(model, &options, &none), DSLIDE_E_UNSUPPORTED, "flags");
    options.struct_size = 2;
    assert_fails_with(dslide_trainer_create(model, &options, &none), DSLIDE_E_ARGUMENT, "struct_size");
    assert_null(none);
    trainer = sample_trainer(model, DSLIDE_SELECT_SIMHASH); /* the failures have not taken the model */
    assert_fails_with(dslide_trainer_create(model, NULL, &none), DSLIDE_E_STATE, "trainer");
    assert_fails_with(dslide_trainer_load(NULL, "x", &none_model, &none), DSLIDE_E_ARGUMENT, "cluster");
    assert_fails_with(dslide_trainer_load(cluster, NULL, &none_model, &none), DSLIDE_E_ARGUMENT, "dir");
    assert_fails_with(dslide_trainer_load(cluster, "x", NULL, &none), DSLIDE_E_ARGUMENT, "out_model");
    assert_fails_with(dslide_trainer_load(cluster, "x", &none_model, NULL), DSLIDE_E_ARGUMENT, "out");
    assert_fails(dslide_trainer_load(cluster, "/nowhere", &none_model, &none), DSLIDE_E_IO);
    assert_null(none);
    assert_null(none_model);
    assert_fails_with(dslide_trainer_save(NULL, "x"), DSLIDE_E_ARGUMENT, "trainer");
    assert_fails_with(dslide_trainer_save(trainer, NULL), DSLIDE_E_ARGUMENT, "dir");
    assert_fails_with(dslide_trainer_get_info(trainer, &info), DSLIDE_E_ARGUMENT, "struct_size");
    assert_fails_with(dslide_trainer_get_info(NULL, &info), DSLIDE_E_ARGUMENT, "trainer");
    assert_fails_with(dslide_trainer_get_info(trainer, NULL), DSLIDE_E_ARGUMENT, "out");
    assert_fails_with(dslide_trainer_get_options(NULL, &options), DSLIDE_E_ARGUMENT, "trainer");
    assert_fails_with(dslide_trainer_get_options(trainer, NULL), DSLIDE_E_ARGUMENT, "out");
    assert_fails_with(dslide_trainer_set_learning_rate(NULL, 1), DSLIDE_E_ARGUMENT, "trainer");
    for (int i = 0; i < 4; ++i) {
        const float rates[] = {0, -1, NAN, INFINITY};
        assert_fails_with(dslide_trainer_set_learning_rate(trainer, rates[i]), DSLIDE_E_ARGUMENT, "rate");
    }
    assert_fails_with(dslide_trainer_set_label_counts(NULL, counts, sample_outputs, 1), DSLIDE_E_ARGUMENT, "trainer");
    assert_fails_with(dslide_trainer_set_label_counts(trainer, NULL, sample_outputs, 1), DSLIDE_E_ARGUMENT, "counts");
    assert_fails_with(dslide_trainer_set_label_counts(trainer, counts, 3, 1), DSLIDE_E_ARGUMENT, "count is 3");
    assert_fails_with(dslide_trainer_set_label_counts(trainer, counts, sample_outputs, 0), DSLIDE_E_ARGUMENT,
                      "samples");
    assert_fails_with(dslide_trainer_set_label_counts(trainer, counts, sample_outputs, INT64_MAX), DSLIDE_E_ARGUMENT,
                      "samples");
    for (int i = 0; i < 2; ++i) {
        counts[9] = i ? INT64_MAX : -1; /* more is in no checkpoint that can be loaded */
        assert_fails_with(dslide_trainer_set_label_counts(trainer, counts, sample_outputs, 1), DSLIDE_E_ARGUMENT,
                          "counts[9]");
    }

    assert_fails_with(dslide_trainer_step(NULL, &s.features, &s.labels, NULL, NULL), DSLIDE_E_ARGUMENT, "trainer");
    assert_fails_with(dslide_trainer_step(trainer, NULL, &s.labels, NULL, NULL), DSLIDE_E_ARGUMENT, "features");
    assert_fails_with(dslide_trainer_step(trainer, &s.features, NULL, NULL, NULL), DSLIDE_E_ARGUMENT, "labels");
    assert_fails_with(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, &stats), DSLIDE_E_ARGUMENT,
                      "struct_size");
    stats.struct_size = sizeof stats;
    s.labels.n_rows = 3;
    assert_fails_with(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, &stats), DSLIDE_E_ARGUMENT, "rows");
    s.labels.n_rows = sample_rows;
    s.labels.n_cols = sample_outputs + 1;
    assert_fails_with(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, &stats), DSLIDE_E_ARGUMENT, "labels");
    s.labels.n_cols = sample_outputs;
    s.label[5] = sample_outputs;
    assert_fails_with(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, &stats), DSLIDE_E_ARGUMENT, "row 5");
    s.label[5] = -1;
    assert_fails_with(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, &stats), DSLIDE_E_ARGUMENT, "row 5");
    s.label[5] = 15;
    for (int i = 0; i < sample_rows; ++i) weights[i] = 1;
    weights[7] = -1;
    assert_fails_with(dslide_trainer_step(trainer, &s.features, &s.labels, weights, &stats), DSLIDE_E_ARGUMENT,
                      "row 7");
    weights[7] = NAN;
    assert_fails_with(dslide_trainer_step(trainer, &s.features, &s.labels, weights, &stats), DSLIDE_E_ARGUMENT,
                      "row 7");
    weights[7] = 0;
    s.labels.val = weights;
    assert_fails_with(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, &stats), DSLIDE_E_ARGUMENT, "> 0");
    assert_int_equal(stats.step, 0);
    info.struct_size = sizeof info;
    assert_int_equal(dslide_trainer_get_info(trainer, &info), DSLIDE_OK);
    assert_int_equal(info.step, 0); /* none of them was applied */
    assert_int_equal(info.samples_seen, 0);

    assert_fails_with(dslide_trainer_run(NULL, NULL, NULL, NULL), DSLIDE_E_ARGUMENT, "trainer");
    assert_fails_with(dslide_trainer_run(trainer, NULL, NULL, NULL), DSLIDE_E_ARGUMENT, "data");

    dslide_model_options_init(&shape, sizeof shape);
    assert_fails_with(dslide_model_estimate_memory(NULL, NULL, 1, 0, &estimate), DSLIDE_E_ARGUMENT, "model");
    shape.n_inputs = shape.n_outputs = 5;
    assert_fails_with(dslide_model_estimate_memory(&shape, NULL, 1, 0, &estimate), DSLIDE_E_ARGUMENT, "struct_size");
    estimate.struct_size = sizeof estimate;
    shape.n_inputs = 0;
    assert_fails_with(dslide_model_estimate_memory(&shape, NULL, 1, 0, &estimate), DSLIDE_E_ARGUMENT, "n_inputs");
    shape.n_inputs = shape.n_outputs = INT32_MAX;
    assert_fails_with(dslide_model_estimate_memory(&shape, NULL, 0, 0, &estimate), DSLIDE_E_ARGUMENT, "batch_size");
    assert_fails_with(dslide_model_estimate_memory(&shape, NULL, INT64_MAX, 0, &estimate), DSLIDE_E_ARGUMENT,
                      "batch_size");
    assert_fails_with(dslide_model_estimate_memory(&shape, NULL, 1, -1, &estimate), DSLIDE_E_ARGUMENT, "data_bytes");
    assert_fails_with(dslide_model_estimate_memory(&shape, NULL, 1, 0, NULL), DSLIDE_E_ARGUMENT, "out");
    assert_int_equal(estimate.total_bytes, 0);
    dslide_trainer_free(trainer);
    dslide_trainer_free(NULL);
    dslide_model_free(model);
    dslide_cluster_free(cluster);
}

static void test_trainer__estimates_of_the_largest_shapes_do_not_overflow(void **state) {
    (void)state;
    dslide_model_options shape;
    dslide_trainer_options options;
    dslide_model_options_init(&shape, sizeof shape);
    dslide_trainer_options_init(&options, sizeof options);
    shape.n_inputs = shape.n_outputs = INT32_MAX;
    shape.n_hidden = DSLIDE_MAX_HIDDEN;
    for (int i = 0; i < DSLIDE_MAX_HIDDEN; ++i) shape.hidden[i] = 65536;
    options.tables = 255;
    options.bits = 24;
    options.active_share = 1;
    options.candidate_factor = 1000;
    for (options.select = DSLIDE_SELECT_SIMHASH; options.select <= DSLIDE_SELECT_ALL; ++options.select) {
        dslide_memory_estimate e = {.struct_size = sizeof e};
        assert_int_equal(dslide_model_estimate_memory(&shape, &options, 1048576, INT64_C(1) << 60, &e), DSLIDE_OK);
        assert_true(e.weight_bytes > 2 * INT64_C(2147483647) * 65536 * 4 - 1);
        assert_true(e.optimizer_bytes == 2 * e.weight_bytes);
        assert_true(e.table_bytes >= 0 && e.buffer_bytes > 0);
        assert_true(e.total_bytes > e.weight_bytes + e.optimizer_bytes + e.table_bytes + e.buffer_bytes + e.data_bytes);
    }
}

typedef struct shape_case {
    int64_t inputs, outputs, batch;
    int32_t width, select, optimizer;
} shape_case;

/* Trains a little in a process of its own and tells its peak memory over the estimate, in thousandths; 0: a failure. */
static int measured_over_estimated(const shape_case *c) {
    dslide_cluster *cluster = NULL;
    dslide_model *model = NULL;
    dslide_trainer *trainer = NULL;
    dslide_model_options shape;
    dslide_trainer_options options;
    dslide_memory_estimate estimate = {.struct_size = sizeof estimate};
    dslide_model_options_init(&shape, sizeof shape);
    shape.n_inputs = c->inputs;
    shape.n_outputs = c->outputs;
    shape.n_hidden = 1;
    shape.hidden[0] = c->width;
    dslide_trainer_options_init(&options, sizeof options);
    options.select = c->select;
    options.optimizer = c->optimizer;
    int64_t *ptr = calloc((size_t)c->batch + 1, sizeof *ptr), *label_ptr = calloc((size_t)c->batch + 1, sizeof *ptr);
    int32_t *col = calloc((size_t)c->batch * 50, sizeof *col), *label = calloc((size_t)c->batch, sizeof *label);
    for (int64_t i = 0; i < c->batch; ++i) {
        for (int64_t e = 0; e < 50; ++e) col[50 * i + e] = (int32_t)((i * 7919 + e * (c->inputs / 50)) % c->inputs);
        ptr[i + 1] = 50 * (i + 1);
        label[i] = (int32_t)(i * 7907 % c->outputs);
        label_ptr[i + 1] = i + 1;
    }
    dslide_csr_view x = {sizeof x, 32, c->batch, c->inputs, ptr, col, NULL},
                    y = {sizeof y, 32, c->batch, c->outputs, label_ptr, label, NULL};
    if (dslide_model_estimate_memory(&shape, &options, c->batch, 0, &estimate) != DSLIDE_OK) return 0;
    if (dslide_cluster_open_self(NULL, &cluster) != DSLIDE_OK) return 0;
    if (dslide_model_create(cluster, &shape, &model) != DSLIDE_OK) return 0;
    if (dslide_trainer_create(model, &options, &trainer) != DSLIDE_OK) return 0;
    for (int step = 0; step < 3; ++step)
        if (dslide_trainer_step(trainer, &x, &y, NULL, NULL) != DSLIDE_OK) return 0;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (int)(1000.0 * (double)usage.ru_maxrss * 1024 / (double)estimate.total_bytes);
}

static void test_trainer__estimates_come_near_what_is_taken(void **state) {
    (void)state;
#ifdef DSLIDE_SANITIZED
    skip();
#endif
    const shape_case cases[] = {
        {60000, 60000, 256, 64, DSLIDE_SELECT_SIMHASH, DSLIDE_ADAM},
        {300000, 150000, 64, 64, DSLIDE_SELECT_RANDOM, DSLIDE_SGD},
        {100000, 20000, 512, 96, DSLIDE_SELECT_ALL, DSLIDE_ADAGRAD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        int ends[2], permille = 0, status = 0;
        assert_int_equal(pipe(ends), 0);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            permille = measured_over_estimated(&cases[i]);
            _exit(write(ends[1], &permille, sizeof permille) == sizeof permille ? 0 : 1);
        }
        close(ends[1]);
        assert_int_equal(read(ends[0], &permille, sizeof permille), sizeof permille);
        close(ends[0]);
        waitpid(child, &status, 0);
        assert_int_equal(status, 0);
        printf("peak memory of shape %zu: %d thousandths of the estimate\n", i, permille);
        assert_in_range(permille, 850, 1150);
    }
}

static void test_trainer__takes_any_view_that_says_the_same(void **state) {
    (void)state;
    float first[16], now[16];
    for (int variant = 0; variant < 4; ++variant) {
        dslide_cluster *cluster = sample_cluster(2);
        dslide_model *model = sample_model(cluster);
        dslide_trainer *trainer = sample_trainer(model, DSLIDE_SELECT_SIMHASH);
        sample s;
        int64_t wide_feature[sample_rows * features_a_row], wide_label[sample_rows];
        float ones[sample_rows];
        sample_init(&s);
        for (int i = 0; i < sample_rows * features_a_row; ++i) wide_feature[i] = s.feature[i];
        for (int i = 0; i < sample_rows; ++i) {
            wide_label[i] = s.label[i];
            ones[i] = 1;
        }
        if (variant == 1) { /* 64-bit columns */
            s.features.index_bits = s.labels.index_bits = 64;
            s.features.col = wide_feature;
            s.labels.col = wide_label;
        }
        if (variant == 2) { /* in another order within the rows */
            for (int i = 0; i < sample_rows; ++i) {
                int32_t *col = s.feature + features_a_row * i;
                float *val = s.value + features_a_row * i;
                const int32_t c = col[0];
                const float v = val[0];
                col[0] = col[2], val[0] = val[2];
                col[2] = c, val[2] = v;
            }
            s.labels.index_bits = 0;
        }
        if (variant == 3) s.labels.val = ones; /* values of 1, spelt out */
        for (int step = 0; step < 3; ++step)
            assert_int_equal(dslide_trainer_step(trainer, &s.features, &s.labels, variant == 3 ? ones : NULL, NULL),
                             DSLIDE_OK);
        assert_int_equal(dslide_model_get_rows(model, "output.weight", 3, 1, now), DSLIDE_OK);
        if (variant == 0) memcpy(first, now, sizeof now);
        assert_memory_equal(first, now, sizeof now);
        dslide_trainer_free(trainer);
        dslide_model_free(model);
        dslide_cluster_free(cluster);
    }
}

static void test_trainer__steps_and_tells(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(2);
    dslide_model *model = sample_model(cluster);
    dslide_trainer *trainer = sample_trainer(model, DSLIDE_SELECT_SIMHASH);
    dslide_step_stats stats = {.struct_size = sizeof stats};
    dslide_trainer_info info = {.struct_size = sizeof info};
    dslide_trainer_options options = {.struct_size = sizeof options};
    dslide_model_info model_info = {.struct_size = sizeof model_info};
    sample s;
    double first = 0;
    sample_init(&s);
    for (int step = 1; step <= 60; ++step) {
        assert_int_equal(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, &stats), DSLIDE_OK);
        assert_int_equal(stats.struct_size, sizeof stats);
        assert_int_equal(stats.step, step);
        assert_int_equal(stats.samples_seen, step * sample_rows);
        assert_int_equal(stats.samples, sample_rows);
        assert_int_equal(stats.features_touched, sample_inputs);
        assert_int_equal(stats.rebuilt, step == 1 || step == 51); /* the default: first 50 steps apart */
        assert_true(stats.rows_touched > 0 && stats.rows_touched <= sample_outputs);
        assert_true(fabs(stats.learning_rate - 0.01) < 1e-9);
        assert_true(stats.active_share > 0 && stats.active_share <= 0.2);
        if (step == 1) first = stats.loss;
    }
    assert_true(stats.loss < first);
    assert_int_equal(dslide_trainer_get_info(trainer, &info), DSLIDE_OK);
    assert_int_equal(info.select, DSLIDE_SELECT_SIMHASH);
    assert_int_equal(info.step, 60);
    assert_int_equal(info.rebuilds, 2);
    assert_int_equal(info.hard_rows, 20);
    assert_true(info.weight_bytes > 0 && info.optimizer_bytes == 2 * info.weight_bytes && info.table_bytes > 0 &&
                info.buffer_bytes > 0);
    assert_int_equal(dslide_trainer_get_options(trainer, &options), DSLIDE_OK);
    assert_int_equal(options.rebuild_first, 50);
    assert_true(options.beta1 == 0.9f);
    assert_int_equal(dslide_trainer_set_learning_rate(trainer, 0.5f), DSLIDE_OK);
    assert_int_equal(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, &stats), DSLIDE_OK);
    assert_true(stats.learning_rate == 0.5);
    assert_int_equal(dslide_model_get_info(model, &model_info), DSLIDE_OK);
    assert_int_equal(model_info.samples_seen, 61 * sample_rows);
    dslide_trainer_free(trainer);
    dslide_model_free(model);
    dslide_cluster_free(cluster);
}

static void test_trainer__handles_are_freed_in_any_order(void **state) {
    (void)state;
    for (int order = 0; order < 6; ++order) {
        const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
        dslide_cluster *cluster = sample_cluster(2);
        dslide_model *model = sample_model(cluster);
        dslide_trainer *trainer = sample_trainer(model, DSLIDE_SELECT_SIMHASH);
        sample s;
        sample_init(&s);
        for (int i = 0; i < 3; ++i) {
            if (trainer) assert_int_equal(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, NULL), DSLIDE_OK);
            switch (orders[order][i]) {
            case 0:
                dslide_cluster_free(cluster); /* without closing: the others go on */
                break;
            case 1:
                dslide_model_free(model);
                break;
            default:
                dslide_trainer_free(trainer);
                trainer = NULL;
            }
        }
    }
}

static void test_trainer__a_closed_cluster_computes_no_more(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(1);
    dslide_model *model = sample_model(cluster);
    dslide_trainer *trainer = sample_trainer(model, DSLIDE_SELECT_ALL), *none = NULL;
    sample s;
    sample_init(&s);
    dslide_dataset *data = sample_dataset(cluster, &s);
    int64_t labels[sample_rows];
    float numbers[sample_rows * 16];
    dslide_metrics metrics = {.struct_size = sizeof metrics};
    dslide_trainer_info info = {.struct_size = sizeof info};
    assert_int_equal(dslide_cluster_close(cluster), DSLIDE_OK);
    assert_fails_with(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, NULL), DSLIDE_E_STATE, "closed");
    assert_fails_with(dslide_trainer_run(trainer, data, NULL, NULL), DSLIDE_E_STATE, "closed");
    assert_fails_with(dslide_trainer_save(trainer, "/tmp/never"), DSLIDE_E_STATE, "closed");
    assert_fails_with(dslide_model_save(model, "/tmp/never"), DSLIDE_E_STATE, "closed");
    assert_fails_with(dslide_model_predict(model, &s.features, 1, labels, NULL), DSLIDE_E_STATE, "closed");
    assert_fails_with(dslide_model_embed(model, &s.features, numbers), DSLIDE_E_STATE, "closed");
    assert_fails_with(dslide_model_evaluate(model, data, NULL, &metrics), DSLIDE_E_STATE, "closed");
    assert_fails_with(dslide_model_get_rows(model, "input.bias", 0, 1, numbers), DSLIDE_E_STATE, "closed");
    assert_fails_with(dslide_model_set_rows(model, "input.bias", 0, 1, numbers), DSLIDE_E_STATE, "closed");
    assert_int_equal(dslide_trainer_get_info(trainer, &info), DSLIDE_OK); /* local */
    dslide_trainer_free(trainer);
    assert_fails_with(dslide_trainer_create(model, NULL, &none), DSLIDE_E_STATE, "closed");
    dslide_dataset_free(data);
    dslide_model_free(model);
}

typedef struct record {
    pthread_t caller;
    int on_caller, epochs, progresses, stop_after_epoch, stop_progress;
    double share;
} record;

static int32_t on_epoch(void *data, const dslide_epoch_report *report) {
    record *r = data;
    r->on_caller += pthread_equal(pthread_self(), r->caller) != 0;
    ++r->epochs;
    r->share = (double)report->samples / (double)sample_rows;
    return r->stop_after_epoch && report->epoch >= r->stop_after_epoch ? 1 : 0;
}

static int32_t on_progress(void *data, const dslide_progress *progress) {
    record *r = data;
    r->on_caller += pthread_equal(pthread_self(), r->caller) != 0;
    ++r->progresses;
    r->share = (double)progress->samples_in_epoch / (double)progress->samples_of_epoch;
    return r->stop_progress;
}

static void test_trainer__run_calls_back_on_the_calling_thread(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(2);
    dslide_model *model = sample_model(cluster);
    dslide_trainer *trainer = sample_trainer(model, DSLIDE_SELECT_SIMHASH);
    dslide_run_options run;
    dslide_epoch_report last = {.struct_size = 0}, untouched;
    record r = {.caller = pthread_self()};
    sample s;
    sample_init(&s);
    dslide_dataset *data = sample_dataset(cluster, &s);
    dslide_run_options_init(&run, sizeof run);
    run.epochs = 5;
    run.batch_size = 7;
    run.on_epoch = on_epoch;
    run.user_data = &r;
    assert_fails_with(dslide_trainer_run(trainer, data, &run, &last), DSLIDE_E_ARGUMENT, "struct_size");
    assert_int_equal(r.epochs, 0); /* told before the work */
    last.struct_size = sizeof last;
    r.stop_after_epoch = 2;
    assert_fails_with(dslide_trainer_run(trainer, data, &run, &last), DSLIDE_E_STOPPED, "stop");
    assert_int_equal(last.epoch, 2); /* written also when stopped */
    assert_int_equal(last.step, 2 * 9);
    r.stop_after_epoch = 0;
    assert_int_equal(dslide_trainer_run(trainer, data, &run, &last), DSLIDE_OK);
    assert_int_equal(last.epoch, 5);
    assert_int_equal(last.samples, sample_rows);
    assert_int_equal(r.epochs, 5);
    assert_int_equal(r.on_caller, 5);
    assert_true(r.share == 1);
    memset(&untouched, 0x55, sizeof untouched);
    untouched.struct_size = sizeof untouched;
    assert_int_equal(dslide_trainer_run(trainer, data, &run, &untouched), DSLIDE_OK); /* nothing is left to do */
    assert_int_equal(untouched.epoch, 0x55555555);

    run.epochs = 1000000; /* until the first progress report, after a tenth of a second */
    run.on_epoch = NULL;
    run.on_progress = on_progress;
    r.stop_progress = 7;
    r.on_caller = 0;
    assert_fails(dslide_trainer_run(trainer, data, &run, NULL), DSLIDE_E_STOPPED);
    assert_int_equal(r.progresses, 1);
    assert_int_equal(r.on_caller, 1);
    assert_true(r.share > 0 && r.share <= 1);

    run.on_progress = NULL;
    run.epochs = -1;
    assert_fails_with(dslide_trainer_run(trainer, data, &run, NULL), DSLIDE_E_ARGUMENT, "epochs");
    run.epochs = 0;
    run.batch_size = 1048577;
    assert_fails_with(dslide_trainer_run(trainer, data, &run, NULL), DSLIDE_E_ARGUMENT, "batch_size");
    run.batch_size = 0;
    run.early_stop = 3;
    assert_fails_with(dslide_trainer_run(trainer, data, &run, NULL), DSLIDE_E_ARGUMENT, "eval_data");
    run.early_stop = 0;
    run.save_every = -1;
    assert_fails_with(dslide_trainer_run(trainer, data, &run, NULL), DSLIDE_E_ARGUMENT, "save_every");
    dslide_dataset_free(data);
    dslide_trainer_free(trainer);
    dslide_model_free(model);
    dslide_cluster_free(cluster);
}

static void test_trainer__diverges_without_harm(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(2);
    dslide_model *model = sample_model(cluster);
    dslide_trainer *trainer = sample_trainer(model, DSLIDE_SELECT_SIMHASH);
    static float before[sample_inputs * 24], after[sample_inputs * 24];
    dslide_step_stats stats = {.struct_size = sizeof stats, .step = -7};
    sample s;
    sample_init(&s);
    assert_int_equal(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, NULL), DSLIDE_OK);
    assert_int_equal(dslide_model_get_rows(model, "input.weight", 0, sample_inputs, before), DSLIDE_OK);
    for (int i = 0; i < sample_rows * features_a_row; ++i) s.value[i] = 1e38f;
    assert_fails_with(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, &stats), DSLIDE_E_DIVERGED, "step 2");
    assert_int_equal(stats.step, -7);
    assert_int_equal(dslide_model_get_rows(model, "input.weight", 0, sample_inputs, after), DSLIDE_OK);
    assert_memory_equal(before, after, sizeof before);
    sample_init(&s);
    assert_int_equal(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, &stats), DSLIDE_OK);
    assert_int_equal(stats.step, 2);
    dslide_trainer_free(trainer);
    dslide_model_free(model);
    dslide_cluster_free(cluster);
}

static void test_trainer__loads_what_it_saved(void **state) {
    (void)state;
    char dir[] = "/tmp/dslide-trainer-XXXXXX", full[64], slim[64];
    dslide_cluster *cluster = sample_cluster(2);
    dslide_model *model = sample_model(cluster), *loaded_model = NULL, *second_model = NULL;
    dslide_trainer *trainer = sample_trainer(model, DSLIDE_SELECT_SIMHASH), *loaded = NULL, *second = NULL;
    dslide_step_stats a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    dslide_checkpoint_info info = {.struct_size = sizeof info};
    sample s;
    sample_init(&s);
    assert_non_null(mkdtemp(dir));
    snprintf(full, sizeof full, "%s/full", dir);
    snprintf(slim, sizeof slim, "%s/slim", dir);
    for (int step = 0; step < 5; ++step)
        assert_int_equal(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, NULL), DSLIDE_OK);
    assert_int_equal(dslide_trainer_set_learning_rate(trainer, 3e30f), DSLIDE_OK); /* must load all the same */
    assert_int_equal(dslide_trainer_set_learning_rate(trainer, 1e-35f), DSLIDE_OK);
    assert_int_equal(dslide_trainer_save(trainer, full), DSLIDE_OK);
    assert_int_equal(dslide_model_save(model, slim), DSLIDE_OK);
    assert_int_equal(dslide_checkpoint_verify(full, &info), DSLIDE_OK);
    assert_int_equal(info.steps, 5);
    assert_int_equal(info.is_full, 1);
    assert_fails_with(dslide_trainer_load(cluster, slim, &second_model, &second), DSLIDE_E_STATE, "slim");
    assert_null(second);
    assert_null(second_model);
    assert_int_equal(dslide_trainer_load(cluster, full, &loaded_model, &loaded), DSLIDE_OK);
    for (int step = 0; step < 3; ++step) {
        assert_int_equal(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, &a), DSLIDE_OK);
        assert_int_equal(dslide_trainer_step(loaded, &s.features, &s.labels, NULL, &b), DSLIDE_OK);
        assert_true(a.loss == b.loss);
        assert_int_equal(a.step, b.step);
    }
    dslide_trainer_free(loaded);
    dslide_model_free(loaded_model);
    dslide_trainer_free(trainer);
    dslide_model_free(model);
    dslide_cluster_free(cluster);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

typedef struct worker {
    dslide_cluster *cluster;
    int32_t select;
    int failed;
    float row[16];
} worker;

static void *train_a_model(void *data) {
    worker *w = data;
    dslide_model *model = NULL;
    dslide_trainer *trainer = NULL;
    dslide_model_options shape;
    dslide_trainer_options options;
    sample s;
    sample_init(&s);
    dslide_model_options_init(&shape, sizeof shape);
    shape.n_inputs = sample_inputs;
    shape.n_outputs = sample_outputs;
    shape.n_hidden = 1;
    shape.hidden[0] = 16;
    dslide_trainer_options_init(&options, sizeof options);
    options.select = w->select;
    options.active_share = 0.1f;
    w->failed += dslide_model_create(w->cluster, &shape, &model) != DSLIDE_OK;
    w->failed += dslide_trainer_create(model, &options, &trainer) != DSLIDE_OK;
    for (int step = 0; step < 60; ++step)
        w->failed += dslide_trainer_step(trainer, &s.features, &s.labels, NULL, NULL) != DSLIDE_OK;
    w->failed += dslide_model_get_rows(model, "output.weight", 6, 1, w->row) != DSLIDE_OK;
    dslide_trainer_free(trainer);
    dslide_model_free(model);
    return NULL;
}

/* Two trainers of two models on one cluster, from two threads: each as if it were alone. */
static void test_trainer__two_at_once(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(2);
    worker alone[2] = {{cluster, DSLIDE_SELECT_SIMHASH, 0, {0}}, {cluster, DSLIDE_SELECT_DWTA, 0, {0}}}, together[2];
    pthread_t threads[2];
    memcpy(together, alone, sizeof alone);
    for (int i = 0; i < 2; ++i) train_a_model(&alone[i]);
    for (int i = 0; i < 2; ++i) assert_int_equal(pthread_create(&threads[i], NULL, train_a_model, &together[i]), 0);
    for (int i = 0; i < 2; ++i) {
        pthread_join(threads[i], NULL);
        assert_int_equal(alone[i].failed + together[i].failed, 0);
        assert_memory_equal(alone[i].row, together[i].row, sizeof alone[i].row);
    }
    dslide_cluster_free(cluster);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trainer__estimates_come_near_what_is_taken), /* forks: before any thread is started */
        cmocka_unit_test(test_trainer__refuses_bad_arguments),
        cmocka_unit_test(test_trainer__estimates_of_the_largest_shapes_do_not_overflow),
        cmocka_unit_test(test_trainer__takes_any_view_that_says_the_same),
        cmocka_unit_test(test_trainer__steps_and_tells),
        cmocka_unit_test(test_trainer__handles_are_freed_in_any_order),
        cmocka_unit_test(test_trainer__a_closed_cluster_computes_no_more),
        cmocka_unit_test(test_trainer__run_calls_back_on_the_calling_thread),
        cmocka_unit_test(test_trainer__diverges_without_harm),
        cmocka_unit_test(test_trainer__loads_what_it_saved),
        cmocka_unit_test(test_trainer__two_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
