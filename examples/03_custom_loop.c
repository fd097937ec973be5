/* SPDX-License-Identifier: Apache-2.0 */
/* A training loop of one's own, on arrays of one's own: dslide_trainer_step() takes rows in CSR form, borrowed for the
 * call. The task is made up here: a row holds two features, which together name its class.
 *
 *     03_custom_loop */
#include <dslide/dslide.h>
#include <stdio.h>
#include <stdlib.h>

enum { halves = 40, inputs = 2 * halves, outputs = halves * halves, batch_rows = 256, steps = 400 };

static void must(dslide_status status) {
    if (status == DSLIDE_OK) return;
    fprintf(stderr, "%s: %s\n", dslide_status_name(status), dslide_last_error());
    exit(1);
}

/* Any source of rows will do; a host may also fill its arrays from a data base or a socket. */
static uint32_t next_random(void) {
    static uint64_t state = 42;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static void fill(int32_t *features, int32_t *labels) {
    for (int row = 0; row < batch_rows; ++row) {
        const int32_t first = (int32_t)(next_random() % halves), second = (int32_t)(next_random() % halves);
        features[2 * row] = first;
        features[2 * row + 1] = halves + second;
        labels[row] = first * halves + second;
    }
}

int main(void) {
    static int64_t feature_ptr[batch_rows + 1], label_ptr[batch_rows + 1];
    static int32_t features[2 * batch_rows], labels[batch_rows];
    for (int row = 0; row <= batch_rows; ++row) {
        feature_ptr[row] = 2 * row;
        label_ptr[row] = row;
    }
    const dslide_csr_view x = {.struct_size = sizeof x,
                               .n_rows = batch_rows,
                               .n_cols = inputs,
                               .row_ptr = feature_ptr,
                               .col = features}; /* val NULL: every stored value is 1 */
    const dslide_csr_view y = {
        .struct_size = sizeof y, .n_rows = batch_rows, .n_cols = outputs, .row_ptr = label_ptr, .col = labels};

    dslide_cluster *cluster;
    dslide_model *model;
    dslide_trainer *trainer;
    must(dslide_cluster_open_self(NULL, &cluster));
    dslide_model_options shape;
    dslide_model_options_init(&shape, sizeof shape);
    shape.n_inputs = inputs;
    shape.n_outputs = outputs;
    must(dslide_model_create(cluster, &shape, &model));
    dslide_trainer_options options;
    dslide_trainer_options_init(&options, sizeof options);
    options.learning_rate = 5e-3f;
    options.select = DSLIDE_SELECT_SIMHASH;
    options.active_share = 0.05f;
    must(dslide_trainer_create(model, &options, &trainer));

    for (int step = 1; step <= steps; ++step) {
        dslide_step_stats stats = {.struct_size = sizeof stats};
        fill(features, labels);
        must(dslide_trainer_step(trainer, &x, &y, NULL, &stats));
        if (step % 100 == 0)
            printf("step %d: loss %.3f, %.1f %% of the classes active a sample\n", step, stats.loss,
                   100 * stats.active_share);
    }

    static int64_t best[batch_rows];
    int hits = 0;
    fill(features, labels);
    must(dslide_model_predict(model, &x, 1, best, NULL));
    for (int row = 0; row < batch_rows; ++row) hits += best[row] == labels[row];
    printf("right: %d of %d new rows\n", hits, batch_rows);

    dslide_trainer_free(trainer);
    dslide_model_free(model);
    dslide_cluster_free(cluster);
    return hits > batch_rows / 2 ? 0 : 1; /* chance would be right in one row of 1,600 */
}
