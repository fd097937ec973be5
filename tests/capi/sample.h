/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of models and trainers share: a small data set, and short ways to make handles. */
#ifndef DSLIDE_TESTS_SAMPLE_H
#define DSLIDE_TESTS_SAMPLE_H

#ifndef _GNU_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include <dslide/dslide.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Sanitizers take memory of their own and keep what is freed for a while: nothing to be measured then. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DSLIDE_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DSLIDE_SANITIZED 1
#endif

enum { sample_rows = 60, sample_inputs = 30, sample_outputs = 200, features_a_row = 3 };

/* Row i has the features i, i + 7, i + 11 (modulo the width, ascending) and the label 3 i. */
typedef struct sample {
    int64_t feature_ptr[sample_rows + 1], label_ptr[sample_rows + 1];
    int32_t feature[sample_rows * features_a_row], label[sample_rows];
    float value[sample_rows * features_a_row];
    dslide_csr_view features, labels;
} sample;

static inline void sample_init(sample *s) {
    memset(s, 0, sizeof *s);
    for (int i = 0; i < sample_rows; ++i) {
        const int32_t offsets[features_a_row] = {0, 7, 11};
        for (int e = 0; e < features_a_row; ++e) {
            s->feature[features_a_row * i + e] = (i + offsets[e]) % sample_inputs; /* not sorted: the library sorts */
            s->value[features_a_row * i + e] = 0.5f + 0.1f * (float)((i + e) % 5);
        }
        s->label[i] = 3 * i % sample_outputs;
        s->feature_ptr[i + 1] = features_a_row * (i + 1);
        s->label_ptr[i + 1] = i + 1;
    }
    s->features =
        (dslide_csr_view){sizeof s->features, 32, sample_rows, sample_inputs, s->feature_ptr, s->feature, s->value};
    s->labels = (dslide_csr_view){sizeof s->labels, 32, sample_rows, sample_outputs, s->label_ptr, s->label, NULL};
}

static inline dslide_cluster *sample_cluster(int32_t threads) {
    dslide_cluster *cluster = NULL;
    dslide_cluster_options options;
    dslide_cluster_options_init(&options, sizeof options);
    options.threads = threads;
    assert_int_equal(dslide_cluster_open_self(&options, &cluster), DSLIDE_OK);
    return cluster;
}

static inline dslide_model *sample_model(dslide_cluster *cluster) {
    dslide_model *model = NULL;
    dslide_model_options options;
    dslide_model_options_init(&options, sizeof options);
    options.n_inputs = sample_inputs;
    options.n_outputs = sample_outputs;
    options.n_hidden = 2;
    options.hidden[0] = 24;
    options.hidden[1] = 16;
    assert_int_equal(dslide_model_create(cluster, &options, &model), DSLIDE_OK);
    return model;
}

static inline dslide_trainer *sample_trainer(dslide_model *model, int32_t select) {
    dslide_trainer *trainer = NULL;
    dslide_trainer_options options;
    dslide_trainer_options_init(&options, sizeof options);
    options.select = select;
    options.active_share = 0.1f;
    options.learning_rate = 0.01f;
    assert_int_equal(dslide_trainer_create(model, &options, &trainer), DSLIDE_OK);
    return trainer;
}

static inline dslide_dataset *sample_dataset(dslide_cluster *cluster, const sample *s) {
    dslide_dataset *dataset = NULL;
    assert_int_equal(dslide_dataset_from_views(cluster, &s->features, &s->labels, NULL, NULL, &dataset), DSLIDE_OK);
    return dataset;
}

/* The call fails with this status and says something on one line. */
#define assert_fails(call, expected)                                                                                   \
    do {                                                                                                               \
        assert_int_equal((call), (expected));                                                                          \
        assert_true(dslide_last_error()[0] != '\0');                                                                   \
        assert_null(strchr(dslide_last_error(), '\n'));                                                                \
    } while (0)
/* ... and names what is wrong. */
#define assert_fails_with(call, expected, part)                                                                        \
    do {                                                                                                               \
        assert_fails(call, expected);                                                                                  \
        if (!strstr(dslide_last_error(), (part))) fail_msg("\"%s\" does not say %s", dslide_last_error(), (part));     \
    } while (0)

#endif
