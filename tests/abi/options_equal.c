/* SPDX-License-Identifier: Apache-2.0 */
/* Options from dslide_*_options_init() do what options of all zeros do, for every options struct: so a host may use
 * either, and a field that an older host does not know (which reads as 0) means its default. */
#include <dslide/dslide.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { inputs = 20, outputs = 40, rows = 64, dim = 16, vectors = 200, wanted = 5 };

static int failures = 0;

static void expect(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "not equal: %s\n", what);
    ++failures;
}

static void must(dslide_status status, const char *what) {
    if (status == DSLIDE_OK) return;
    fprintf(stderr, "%s: %s\n", what, dslide_last_error());
    exit(1);
}

#define ZEROED(type, name)                                                                                             \
    type name;                                                                                                         \
    memset(&name, 0, sizeof name);                                                                                     \
    name.struct_size = (uint32_t)sizeof name

static dslide_cluster *cluster = NULL;
static int64_t row_ptr[rows + 1];
static int32_t feature[2 * rows], label[rows];
static int64_t label_ptr[rows + 1];
static dslide_csr_view features, labels;

static void fill_rows(void) {
    int i;
    for (i = 0; i < rows; ++i) {
        row_ptr[i + 1] = 2 * (i + 1);
        label_ptr[i + 1] = i + 1;
        feature[2 * i] = i % (inputs / 2);
        feature[2 * i + 1] = inputs / 2 + (i * 7) % (inputs / 2);
        label[i] = (i * 3) % outputs;
    }
    memset(&features, 0, sizeof features);
    features.struct_size = (uint32_t)sizeof features;
    features.n_rows = rows;
    features.n_cols = inputs;
    features.row_ptr = row_ptr;
    features.col = feature;
    labels = features;
    labels.n_cols = outputs;
    labels.row_ptr = label_ptr;
    labels.col = label;
}

static void test_cluster(void) {
    ZEROED(dslide_cluster_options, zero);
    dslide_cluster_options init;
    dslide_cluster *a = NULL, *b = NULL, *c = NULL;
    int32_t threads[3] = {0, -1, -2};
    dslide_cluster_options_init(&init, sizeof init);
    expect(init.struct_size == sizeof init, "dslide_cluster_options: struct_size");
    must(dslide_cluster_open_self(&zero, &a), "cluster, zero");
    must(dslide_cluster_open_self(&init, &b), "cluster, init");
    must(dslide_cluster_open_self(NULL, &c), "cluster, NULL");
    must(dslide_cluster_threads(a, &threads[0]), "threads");
    must(dslide_cluster_threads(b, &threads[1]), "threads");
    must(dslide_cluster_threads(c, &threads[2]), "threads");
    expect(threads[0] == threads[1] && threads[1] == threads[2], "threads of a cluster");
    dslide_cluster_free(a);
    dslide_cluster_free(b);
    dslide_cluster_free(c);
}

static dslide_dataset *dataset(const dslide_dataset_options *options) {
    static const char text[] = "3 4 5\n0,1 0:1 3:0.5\n2 1:2\n4 2:1.5\n";
    dslide_dataset *made = NULL;
    must(dslide_dataset_open_memory(cluster, text, sizeof text - 1, options, &made), "data set");
    return made;
}

static void test_dataset(void) {
    ZEROED(dslide_dataset_options, zero);
    dslide_dataset_options init;
    dslide_dataset *made[3];
    dslide_dataset_info info[3];
    int64_t order[3][3];
    int i, j;
    dslide_dataset_options_init(&init, sizeof init);
    expect(init.struct_size == sizeof init, "dslide_dataset_options: struct_size");
    made[0] = dataset(&zero);
    made[1] = dataset(&init);
    made[2] = dataset(NULL);
    for (i = 0; i < 3; ++i) {
        ZEROED(dslide_batch, batch);
        memset(&info[i], 0, sizeof info[i]);
        info[i].struct_size = (uint32_t)sizeof info[i];
        must(dslide_dataset_get_info(made[i], &info[i]), "info");
        info[i].read_seconds = 0; /* differs from run to run */
        must(dslide_dataset_rewind(made[i], 1), "rewind");
        must(dslide_dataset_next(made[i], 3, &batch), "next");
        expect(batch.features.n_rows == 3, "rows of a batch");
        for (j = 0; j < 3; ++j) order[i][j] = batch.row_ids[j];
        dslide_dataset_free(made[i]);
    }
    expect(memcmp(&info[0], &info[1], sizeof info[0]) == 0 && memcmp(&info[1], &info[2], sizeof info[0]) == 0,
           "what a data set holds");
    expect(memcmp(order[0], order[1], sizeof order[0]) == 0 && memcmp(order[1], order[2], sizeof order[0]) == 0,
           "order of the rows");
}

static dslide_model *model(dslide_model_options *options) {
    dslide_model *made = NULL;
    options->n_inputs = inputs;
    options->n_outputs = outputs;
    must(dslide_model_create(cluster, options, &made), "model");
    return made;
}

static void test_model(void) {
    static const char *const tensors[] = {"input.weight", "input.bias", "output.weight", "output.bias"};
    ZEROED(dslide_model_options, zero);
    dslide_model_options init;
    dslide_model *a, *b;
    size_t i;
    dslide_model_options_init(&init, sizeof init);
    expect(init.struct_size == sizeof init, "dslide_model_options: struct_size");
    a = model(&zero);
    b = model(&init);
    for (i = 0; i < sizeof tensors / sizeof tensors[0]; ++i) {
        int64_t n_rows = 0, n_cols = 0, other_rows = 0, other_cols = 0;
        must(dslide_model_tensor_shape(a, tensors[i], &n_rows, &n_cols), "shape");
        must(dslide_model_tensor_shape(b, tensors[i], &other_rows, &other_cols), "shape");
        expect(n_rows == other_rows && n_cols == other_cols, "shape of a tensor");
        if (n_rows == other_rows && n_cols == other_cols) {
            const size_t bytes = (size_t)(n_rows * n_cols) * sizeof(float);
            float *x = malloc(bytes), *y = malloc(bytes);
            if (!x || !y) exit(1);
            must(dslide_model_get_rows(a, tensors[i], 0, n_rows, x), "rows");
            must(dslide_model_get_rows(b, tensors[i], 0, n_rows, y), "rows");
            expect(memcmp(x, y, bytes) == 0, tensors[i]);
            free(x);
            free(y);
        }
    }
    dslide_model_free(a);
    dslide_model_free(b);
}

static void test_hashtable(void) {
    ZEROED(dslide_hashtable_options, zero);
    dslide_hashtable_options init;
    dslide_hashtable *made[2] = {NULL, NULL};
    int64_t ids[2][wanted * 4];
    int32_t collisions[2][wanted * 4];
    static float points[vectors * dim];
    int i;
    for (i = 0; i < vectors * dim; ++i) points[i] = (float)((i * 7919) % 1009) / 1009.0f - 0.5f;
    dslide_hashtable_options_init(&init, sizeof init);
    expect(init.struct_size == sizeof init, "dslide_hashtable_options: struct_size");
    zero.dim = init.dim = dim;
    must(dslide_hashtable_create(cluster, &zero, &made[0]), "tables, zero");
    must(dslide_hashtable_create(cluster, &init, &made[1]), "tables, init");
    for (i = 0; i < 2; ++i) {
        ZEROED(dslide_hashtable_stats, stats);
        must(dslide_hashtable_insert(made[i], points, vectors, NULL), "insert");
        must(dslide_hashtable_rebuild(made[i]), "rebuild");
        must(dslide_hashtable_query(made[i], points, 4, wanted, ids[i], collisions[i]), "query");
        must(dslide_hashtable_get_stats(made[i], &stats), "stats");
        expect(stats.tables == 50 && stats.bits == 8, "documented defaults of the tables: 50 of 8 bits");
        dslide_hashtable_free(made[i]);
    }
    expect(memcmp(ids[0], ids[1], sizeof ids[0]) == 0, "ids found by a query");
    expect(memcmp(collisions[0], collisions[1], sizeof collisions[0]) == 0, "collisions of a query");
}

static void test_trainer(void) {
    ZEROED(dslide_trainer_options, zero);
    dslide_trainer_options init, resolved[3];
    const dslide_trainer_options *given[3];
    float weights[3][outputs];
    int i, step;
    dslide_trainer_options_init(&init, sizeof init);
    expect(init.struct_size == sizeof init, "dslide_trainer_options: struct_size");
    given[0] = &zero;
    given[1] = &init;
    given[2] = NULL;
    for (i = 0; i < 3; ++i) {
        ZEROED(dslide_model_options, shape);
        dslide_model *net = model(&shape);
        dslide_trainer *trainer = NULL;
        must(dslide_trainer_create(net, given[i], &trainer), "trainer");
        memset(&resolved[i], 0, sizeof resolved[i]);
        resolved[i].struct_size = (uint32_t)sizeof resolved[i];
        must(dslide_trainer_get_options(trainer, &resolved[i]), "options of a trainer");
        for (step = 0; step < 3; ++step) must(dslide_trainer_step(trainer, &features, &labels, NULL, NULL), "step");
        must(dslide_model_get_rows(net, "output.bias", 0, 1, weights[i]), "biases");
        dslide_trainer_free(trainer);
        dslide_model_free(net);
    }
    expect(memcmp(&resolved[0], &resolved[1], sizeof resolved[0]) == 0, "resolved options, zero and init");
    expect(memcmp(&resolved[1], &resolved[2], sizeof resolved[0]) == 0, "resolved options, init and NULL");
    expect(memcmp(weights[0], weights[1], sizeof weights[0]) == 0, "biases after three steps, zero and init");
    expect(memcmp(weights[1], weights[2], sizeof weights[0]) == 0, "biases after three steps, init and NULL");
    expect(resolved[0].learning_rate == 1e-3f, "documented default of learning_rate: 1e-3");
}

static void test_eval_and_run(void) {
    ZEROED(dslide_eval_options, eval_zero);
    ZEROED(dslide_run_options, run_zero);
    dslide_eval_options eval_init;
    dslide_run_options run_init;
    dslide_metrics metrics[4];
    dslide_epoch_report report[2];
    const dslide_eval_options *given[3];
    dslide_dataset *data = NULL;
    ZEROED(dslide_model_options, shape);
    dslide_model *net;
    int i;
    dslide_eval_options_init(&eval_init, sizeof eval_init);
    dslide_run_options_init(&run_init, sizeof run_init);
    expect(eval_init.struct_size == sizeof eval_init, "dslide_eval_options: struct_size");
    expect(run_init.struct_size == sizeof run_init, "dslide_run_options: struct_size");
    must(dslide_dataset_from_views(cluster, &features, &labels, NULL, NULL, &data), "data set of views");

    for (i = 0; i < 2; ++i) {
        dslide_trainer *trainer = NULL;
        net = model(&shape);
        must(dslide_trainer_create(net, NULL, &trainer), "trainer");
        memset(&report[i], 0, sizeof report[i]);
        report[i].struct_size = (uint32_t)sizeof report[i];
        report[i].metrics.struct_size = (uint32_t)sizeof report[i].metrics;
        must(dslide_trainer_run(trainer, data, i == 0 ? &run_zero : &run_init, &report[i]), "run");
        dslide_trainer_free(trainer);
        if (i == 0) dslide_model_free(net);
    }
    expect(report[0].epoch == report[1].epoch && report[0].epoch == 1, "epochs of a run; documented default: 1");
    expect(report[0].step == report[1].step && report[0].samples == report[1].samples, "steps of a run");
    expect(report[0].loss == report[1].loss, "loss of a run");

    given[0] = &eval_zero;
    given[1] = &eval_init;
    given[2] = NULL;
    for (i = 0; i < 3; ++i) {
        memset(&metrics[i], 0, sizeof metrics[i]);
        metrics[i].struct_size = (uint32_t)sizeof metrics[i];
        must(dslide_dataset_rewind(data, 0), "rewind");
        must(dslide_model_evaluate(net, data, given[i], &metrics[i]), "evaluate");
        metrics[i].seconds = 0;
    }
    expect(memcmp(&metrics[0], &metrics[1], sizeof metrics[0]) == 0, "metrics, zero and init");
    expect(memcmp(&metrics[1], &metrics[2], sizeof metrics[0]) == 0, "metrics, init and NULL");
    expect(metrics[0].n_cutoffs == 3 && metrics[0].k[0] == 1 && metrics[0].k[1] == 3 && metrics[0].k[2] == 5,
           "documented default of the cut-offs: 1 3 5");
    dslide_model_free(net);
    dslide_dataset_free(data);
}

int main(void) {
    must(dslide_cluster_open_self(NULL, &cluster), "cluster");
    fill_rows();
    test_cluster();
    test_dataset();
    test_model();
    test_hashtable();
    test_trainer();
    test_eval_and_run();
    dslide_cluster_free(cluster);
    return failures != 0;
}
