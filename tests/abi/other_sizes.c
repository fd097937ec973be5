/* SPDX-License-Identifier: Apache-2.0 */
/* Programs built with older or newer headers, whose structs are shorter or longer than the library's: every options
 * struct in every size, every struct for results in every size, with canaries behind them.
 *
 *     other_sizes SCRATCH_DIR */
#include <dslide/dslide.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { canary = 0xA5, room = 64, most_bytes = 4096, inputs = 20, outputs = 40, rows = 64, dim = 16 };

static int failures = 0;
static const char *current = "";

static void expect(int holds, const char *what, size_t size) {
    if (holds) return;
    fprintf(stderr, "%s of %zu bytes: %s (last error: %s)\n", current, size, what, dslide_last_error());
    ++failures;
}

static void must(dslide_status status, const char *what) {
    if (status == DSLIDE_OK) return;
    fprintf(stderr, "%s: %s\n", what, dslide_last_error());
    exit(1);
}

static int all_are(const unsigned char *bytes, size_t count, int value) {
    size_t i;
    for (i = 0; i < count; ++i)
        if (bytes[i] != value) return 0;
    return 1;
}

/* What calls take that are given the structs */
static dslide_cluster *cluster;
static dslide_dataset *data;
static dslide_model *model;
static dslide_trainer *trainer;
static dslide_hashtable *table;
static const char *checkpoint_dir;
static int64_t row_ptr[rows + 1];
static int32_t feature[rows], label[rows];
static dslide_csr_view features, labels;

static dslide_model *new_model(void) {
    dslide_model *made = NULL;
    dslide_model_options shape;
    dslide_model_options_init(&shape, sizeof shape);
    shape.n_inputs = inputs;
    shape.n_outputs = outputs;
    must(dslide_model_create(cluster, &shape, &made), "model");
    return made;
}

static void make_handles(void) {
    dslide_hashtable_options shape;
    int i;
    for (i = 0; i < rows; ++i) {
        row_ptr[i + 1] = i + 1;
        feature[i] = i % inputs;
        label[i] = i % outputs;
    }
    memset(&features, 0, sizeof features);
    features.struct_size = (uint32_t)sizeof features;
    features.n_rows = rows;
    features.n_cols = inputs;
    features.row_ptr = row_ptr;
    features.col = feature;
    labels = features;
    labels.n_cols = outputs;
    labels.col = label;
    must(dslide_cluster_open_self(NULL, &cluster), "cluster");
    must(dslide_dataset_from_views(cluster, &features, &labels, NULL, NULL, &data), "data set");
    model = new_model();
    must(dslide_trainer_create(model, NULL, &trainer), "trainer");
    must(dslide_trainer_save(trainer, checkpoint_dir), "checkpoint");
    dslide_hashtable_options_init(&shape, sizeof shape);
    shape.dim = dim;
    must(dslide_hashtable_create(cluster, &shape, &table), "tables");
    must(dslide_hashtable_rebuild(table), "rebuild");
}

/* Options: how each struct is used, and the fields that must be set. */
static void init_cluster(void *o, size_t size) { dslide_cluster_options_init(o, size); }
static void init_dataset(void *o, size_t size) { dslide_dataset_options_init(o, size); }
static void init_model(void *o, size_t size) { dslide_model_options_init(o, size); }
static void init_hashtable(void *o, size_t size) { dslide_hashtable_options_init(o, size); }
static void init_trainer(void *o, size_t size) { dslide_trainer_options_init(o, size); }
static void init_run(void *o, size_t size) { dslide_run_options_init(o, size); }
static void init_eval(void *o, size_t size) { dslide_eval_options_init(o, size); }

static void set_model(void *o) {
    ((dslide_model_options *)o)->n_inputs = inputs;
    ((dslide_model_options *)o)->n_outputs = outputs;
}
static void set_hashtable(void *o) { ((dslide_hashtable_options *)o)->dim = dim; }

static dslide_status use_cluster(const void *o) {
    dslide_cluster *made = NULL;
    const dslide_status status = dslide_cluster_open_self(o, &made);
    dslide_cluster_free(made);
    return status;
}
static dslide_status use_dataset(const void *o) {
    static const char text[] = "2 4 5\n0,1 0:1 3:0.5\n2 1:2\n";
    dslide_dataset *made = NULL;
    const dslide_status status = dslide_dataset_open_memory(cluster, text, sizeof text - 1, o, &made);
    dslide_dataset_free(made);
    return status;
}
static dslide_status use_model(const void *o) {
    dslide_model *made = NULL;
    const dslide_status status = dslide_model_create(cluster, o, &made);
    dslide_model_free(made);
    return status;
}
static dslide_status use_hashtable(const void *o) {
    dslide_hashtable *made = NULL;
    const dslide_status status = dslide_hashtable_create(cluster, o, &made);
    dslide_hashtable_free(made);
    return status;
}
static dslide_status use_trainer(const void *o) {
    dslide_model *net = new_model();
    dslide_trainer *made = NULL;
    const dslide_status status = dslide_trainer_create(net, o, &made);
    dslide_trainer_free(made);
    dslide_model_free(net);
    return status;
}
static dslide_status use_run(const void *o) {
    dslide_model *net = new_model();
    dslide_trainer *made = NULL;
    dslide_status status;
    must(dslide_trainer_create(net, NULL, &made), "trainer");
    status = dslide_trainer_run(made, data, o, NULL);
    dslide_trainer_free(made);
    dslide_model_free(net);
    return status;
}
static dslide_status use_eval(const void *o) {
    dslide_metrics metrics;
    metrics.struct_size = (uint32_t)sizeof metrics;
    return dslide_model_evaluate(model, data, o, &metrics);
}

static const struct {
    const char *name;
    size_t size, least; /* least: up to the last field that must be set */
    void (*init)(void *, size_t);
    void (*set)(void *);
    dslide_status (*use)(const void *);
} option_structs[] = {
    {"dslide_cluster_options", sizeof(dslide_cluster_options), 4, init_cluster, NULL, use_cluster},
    {"dslide_dataset_options", sizeof(dslide_dataset_options), 4, init_dataset, NULL, use_dataset},
    {"dslide_model_options", sizeof(dslide_model_options), 24, init_model, set_model, use_model},
    {"dslide_hashtable_options", sizeof(dslide_hashtable_options), 12, init_hashtable, set_hashtable, use_hashtable},
    {"dslide_trainer_options", sizeof(dslide_trainer_options), 4, init_trainer, NULL, use_trainer},
    {"dslide_run_options", sizeof(dslide_run_options), 4, init_run, NULL, use_run},
    {"dslide_eval_options", sizeof(dslide_eval_options), 4, init_eval, NULL, use_eval},
};

/* Aligned as the structs are. */
static union {
    unsigned char bytes[most_bytes];
    uint32_t struct_size;
    int64_t align_integer;
    void *align_pointer;
} given, before;

static void refill(size_t i, size_t size) {
    memset(given.bytes, canary, sizeof given.bytes);
    option_structs[i].init(given.bytes, size);
    if (option_structs[i].set) option_structs[i].set(given.bytes);
}

static void test_init(size_t i) {
    uint32_t stated;
    size_t size;
    for (size = 0; size <= option_structs[i].size + room; ++size) {
        memset(given.bytes, canary, sizeof given.bytes);
        option_structs[i].init(given.bytes, size);
        expect(all_are(given.bytes + size, sizeof given.bytes - size, canary), "init wrote behind the struct", size);
        if (size < sizeof stated) continue;
        memcpy(&stated, given.bytes, sizeof stated);
        expect(stated == size, "init set another struct_size", size);
        expect(all_are(given.bytes + sizeof stated, size - sizeof stated, 0), "init left a field that is not 0", size);
    }
    option_structs[i].init(NULL, option_structs[i].size);
}

static void test_options(size_t i) {
    const size_t whole = option_structs[i].size, longer = whole + 24;
    static const uint32_t wrong[] = {0, 3, most_bytes + 1, 0xA5A5A5A5u};
    size_t size, j;
    for (size = option_structs[i].least; size <= longer; size += 4) {
        refill(i, size); /* what an older program has behind its struct would be refused as any field */
        before = given;
        expect(option_structs[i].use(given.bytes) == DSLIDE_OK, "refused", size);
        expect(memcmp(&before, &given, sizeof given) == 0, "options were written to", size);
    }
    refill(i, longer);
    for (j = whole; j < longer; ++j) {
        given.bytes[j] = 1;
        expect(option_structs[i].use(given.bytes) == DSLIDE_E_UNSUPPORTED, "an unknown field was not refused", j);
        given.bytes[j] = 0;
    }
    for (j = 0; j < sizeof wrong / sizeof wrong[0]; ++j) {
        given.struct_size = wrong[j];
        expect(option_structs[i].use(given.bytes) == DSLIDE_E_ARGUMENT, "struct_size was believed", wrong[j]);
    }
}

/* A field that has no meaning yet must be 0, or a later library could not give it one. */
static void test_reserved(void) {
    dslide_model_options shape;
    dslide_hashtable_options tables;
    dslide_trainer_options how;
    current = "reserved field";
    dslide_model_options_init(&shape, sizeof shape);
    set_model(&shape);
    shape.reserved = 1;
    expect(use_model(&shape) == DSLIDE_E_UNSUPPORTED, "not refused", sizeof shape);
    dslide_hashtable_options_init(&tables, sizeof tables);
    set_hashtable(&tables);
    tables.reserved = 1;
    expect(use_hashtable(&tables) == DSLIDE_E_UNSUPPORTED, "not refused", sizeof tables);
    dslide_trainer_options_init(&how, sizeof how);
    how.reserved = 1;
    expect(use_trainer(&how) == DSLIDE_E_UNSUPPORTED, "not refused", sizeof how);
    how.reserved = 0;
    how.flags = 1u << 31;
    expect(use_trainer(&how) == DSLIDE_E_UNSUPPORTED, "an unknown flag was not refused", sizeof how);
}

/* Results: how each struct is asked for. */
static dslide_status get_dataset_info(void *out) { return dslide_dataset_get_info(data, out); }
static dslide_status get_traffic(void *out) { return dslide_cluster_traffic(cluster, out); }
static dslide_status get_batch(void *out) {
    must(dslide_dataset_rewind(data, 0), "rewind");
    return dslide_dataset_next(data, 3, out);
}
static dslide_status get_stats(void *out) { return dslide_hashtable_get_stats(table, out); }
static dslide_status get_model_info(void *out) { return dslide_model_get_info(model, out); }
static dslide_status get_metrics(void *out) { return dslide_model_evaluate(model, data, NULL, out); }
static dslide_status get_checkpoint(void *out) { return dslide_checkpoint_verify(checkpoint_dir, out); }
static dslide_status get_step(void *out) { return dslide_trainer_step(trainer, &features, &labels, NULL, out); }
static dslide_status get_trainer_info(void *out) { return dslide_trainer_get_info(trainer, out); }
static dslide_status get_trainer_options(void *out) { return dslide_trainer_get_options(trainer, out); }
static dslide_status get_estimate(void *out) {
    dslide_model_options shape;
    init_model(&shape, sizeof shape);
    set_model(&shape);
    return dslide_model_estimate_memory(&shape, NULL, 4, 0, out);
}
static dslide_status get_report(void *out) {
    dslide_trainer_info info;
    dslide_run_options one_more;
    info.struct_size = (uint32_t)sizeof info;
    must(dslide_trainer_get_info(trainer, &info), "info");
    init_run(&one_more, sizeof one_more);
    one_more.epochs = (int32_t)info.epochs_done + 1;
    return dslide_trainer_run(trainer, data, &one_more, out);
}

static const struct {
    const char *name;
    size_t size;
    int repeats; /* the same bytes each time */
    dslide_status (*get)(void *);
} result_structs[] = {
    {"dslide_dataset_info", sizeof(dslide_dataset_info), 1, get_dataset_info},
    {"dslide_batch", sizeof(dslide_batch), 1, get_batch},
    {"dslide_traffic", sizeof(dslide_traffic), 1, get_traffic},
    {"dslide_hashtable_stats", sizeof(dslide_hashtable_stats), 1, get_stats},
    {"dslide_model_info", sizeof(dslide_model_info), 1, get_model_info},
    {"dslide_metrics", sizeof(dslide_metrics), 0, get_metrics},
    {"dslide_checkpoint_info", sizeof(dslide_checkpoint_info), 1, get_checkpoint},
    {"dslide_step_stats", sizeof(dslide_step_stats), 0, get_step},
    {"dslide_trainer_info", sizeof(dslide_trainer_info), 1, get_trainer_info},
    {"dslide_trainer_options", sizeof(dslide_trainer_options), 1, get_trainer_options},
    {"dslide_memory_estimate", sizeof(dslide_memory_estimate), 1, get_estimate},
    {"dslide_epoch_report", sizeof(dslide_epoch_report), 0, get_report},
};

static void refill_result(size_t size) {
    memset(given.bytes, canary, sizeof given.bytes);
    given.struct_size = (uint32_t)size;
}

static void test_result(size_t i) {
    const size_t whole = result_structs[i].size, step = whole > 200 ? 40 : 4;
    static unsigned char complete[most_bytes];
    size_t size;
    refill_result(whole);
    expect(result_structs[i].get(given.bytes) == DSLIDE_OK, "refused", whole);
    memcpy(complete, given.bytes, sizeof complete);
    for (size = 4; size <= whole + 24; size += step) {
        const size_t known = size < whole ? size : whole;
        refill_result(size);
        expect(result_structs[i].get(given.bytes) == DSLIDE_OK, "refused", size);
        expect(given.struct_size == size, "struct_size was changed", size);
        expect(all_are(given.bytes + known, sizeof given.bytes - known, canary), "written behind what fits", size);
        if (result_structs[i].repeats)
            expect(memcmp(given.bytes + 4, complete + 4, known - 4) == 0, "another result than in whole", size);
        else if (known > 8)
            expect(!all_are(given.bytes + 4, known - 4, canary), "nothing was written", size);
    }
}

/* A struct_size that was never set is refused, and before the work is done. */
static void test_wrong_result_sizes(size_t i) {
    static const uint32_t wrong[] = {0, 3, most_bytes + 1, 0xA5A5A5A5u};
    dslide_trainer_info was, is;
    size_t j;
    was.struct_size = is.struct_size = (uint32_t)sizeof was;
    for (j = 0; j < sizeof wrong / sizeof wrong[0]; ++j) {
        must(dslide_trainer_get_info(trainer, &was), "info");
        refill_result(wrong[j]);
        expect(result_structs[i].get(given.bytes) == DSLIDE_E_ARGUMENT, "struct_size was believed", wrong[j]);
        expect(all_are(given.bytes + 4, sizeof given.bytes - 4, canary), "written to all the same", wrong[j]);
        must(dslide_trainer_get_info(trainer, &is), "info");
        expect(was.step == is.step && was.epochs_done == is.epochs_done, "the work was done all the same", wrong[j]);
    }
}

static void test_checked_before_the_work(void) {
    dslide_batch batch;
    dslide_checkpoint_info info;
    current = "check before the work";
    must(dslide_dataset_rewind(data, 0), "rewind");
    batch.struct_size = 0;
    expect(dslide_dataset_next(data, 3, &batch) == DSLIDE_E_ARGUMENT, "not refused", 0);
    batch.struct_size = (uint32_t)sizeof batch;
    must(dslide_dataset_next(data, 3, &batch), "next");
    expect(batch.row_ids[0] == 0, "a refused call took rows", 0);
    info.struct_size = 0;
    expect(dslide_checkpoint_verify("no such directory", &info) == DSLIDE_E_ARGUMENT, "the files came first", 0);
}

/* Structs that the library fills for a callback, and those inside others, state the library's sizes. */
static int seen_epochs = 0;
static int32_t look_at_epoch(void *user_data, const dslide_epoch_report *report) {
    const int evaluated = user_data != NULL;
    expect(report->struct_size == sizeof *report, "struct_size of a report", sizeof *report);
    expect(report->metrics.struct_size == sizeof report->metrics, "struct_size of its metrics", sizeof *report);
    expect(report->has_metrics == evaluated, "has_metrics", sizeof *report);
    ++seen_epochs;
    return 0;
}
static int seen_progress = 0;
static int32_t look_at_progress(void *user_data, const dslide_progress *progress) {
    (void)user_data;
    expect(progress->struct_size == sizeof *progress, "struct_size of progress", sizeof *progress);
    return ++seen_progress < 3 ? 0 : 1;
}

static void test_sizes_set_by_the_library(void) {
    dslide_run_options run;
    dslide_batch batch;
    int evaluated;
    current = "struct filled by the library";
    batch.struct_size = (uint32_t)sizeof batch;
    must(get_batch(&batch), "batch");
    expect(batch.features.struct_size == sizeof batch.features, "struct_size of features", sizeof batch);
    expect(batch.labels.struct_size == sizeof batch.labels, "struct_size of labels", sizeof batch);
    for (evaluated = 0; evaluated < 2; ++evaluated) {
        dslide_model *net = new_model();
        dslide_trainer *made = NULL;
        dslide_dataset *other = NULL;
        must(dslide_trainer_create(net, NULL, &made), "trainer");
        must(dslide_dataset_from_views(cluster, &features, &labels, NULL, NULL, &other), "data set");
        dslide_run_options_init(&run, sizeof run);
        run.on_epoch = look_at_epoch;
        run.user_data = evaluated ? &run : NULL;
        run.eval_data = evaluated ? other : NULL;
        must(dslide_trainer_run(made, data, &run, NULL), "run");
        run.on_epoch = NULL;
        run.on_progress = look_at_progress;
        run.epochs = 1000000; /* look_at_progress stops it */
        run.eval_data = NULL;
        seen_progress = 0;
        expect(dslide_trainer_run(made, data, &run, NULL) == DSLIDE_E_STOPPED, "not stopped", sizeof run);
        dslide_trainer_free(made);
        dslide_dataset_free(other);
        dslide_model_free(net);
    }
    expect(seen_epochs == 2, "on_epoch was not called once an epoch", 0);
}

int main(int argc, char **argv) {
    size_t i;
    if (argc != 2) return 2;
    checkpoint_dir = argv[1];
    make_handles();
    for (i = 0; i < sizeof option_structs / sizeof option_structs[0]; ++i) {
        current = option_structs[i].name;
        test_init(i);
        test_options(i);
    }
    test_reserved();
    for (i = 0; i < sizeof result_structs / sizeof result_structs[0]; ++i) {
        current = result_structs[i].name;
        test_result(i);
        test_wrong_result_sizes(i);
    }
    test_checked_before_the_work();
    test_sizes_set_by_the_library();
    dslide_hashtable_free(table);
    dslide_trainer_free(trainer);
    dslide_model_free(model);
    dslide_dataset_free(data);
    dslide_cluster_free(cluster);
    return failures != 0;
}
