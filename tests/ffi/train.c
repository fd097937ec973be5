/* SPDX-License-Identifier: Apache-2.0 */
/* Trains on a small set through the C ABI and prints what came out; the programs in other languages must print the
 * same line. Then provokes errors, and fails if they are not told as the headers say.
 *
 *     train TRAIN TEST */
#define _POSIX_C_SOURCE 200809L
#include <dslide/dslide.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { threads = 2, hidden = 64, epochs = 2, most_epochs = 4, batch_size = 32 };
enum { model_seed = 11, trainer_seed = 12, order_seed = 13 };

/* The callbacks' user data. */
struct host {
    pthread_t thread;
    int stop; /* the progress callback asks for it */
    int progress_calls, epoch_calls;
    double losses[most_epochs];
    double precision_at_1;
};

static void expect(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "expected: %s\n", what);
    exit(1);
}

static void must(dslide_status status) {
    if (status == DSLIDE_OK) return;
    fprintf(stderr, "%s: %s\n", dslide_status_name(status), dslide_last_error());
    exit(1);
}

static int32_t on_progress(void *user_data, const dslide_progress *progress) {
    struct host *host = user_data;
    expect(pthread_equal(host->thread, pthread_self()), "progress callback on the calling thread");
    expect(progress->struct_size == sizeof *progress, "size of dslide_progress");
    ++host->progress_calls;
    return host->stop;
}

static int32_t on_epoch(void *user_data, const dslide_epoch_report *report) {
    struct host *host = user_data;
    expect(pthread_equal(host->thread, pthread_self()), "epoch callback on the calling thread");
    expect(report->struct_size == sizeof *report, "size of dslide_epoch_report");
    expect(report->has_metrics == 1 && report->epoch <= most_epochs, "an epoch with metrics");
    host->losses[host->epoch_calls++] = report->loss;
    host->precision_at_1 = report->metrics.precision[0];
    /* Progress is told about ten times a second: after this pause the next epoch's first step tells it. */
    nanosleep(&(struct timespec){.tv_nsec = 150 * 1000 * 1000}, NULL);
    return 0;
}

static dslide_status run(dslide_trainer *trainer, dslide_dataset *train, dslide_dataset *test, int32_t up_to_epoch,
                         struct host *host) {
    dslide_run_options options;
    dslide_run_options_init(&options, sizeof options);
    options.epochs = up_to_epoch;
    options.batch_size = batch_size;
    options.eval_data = test;
    options.on_progress = on_progress;
    options.on_epoch = on_epoch;
    options.user_data = host;
    return dslide_trainer_run(trainer, train, &options, NULL);
}

/* FNV-1a, 64 bits, of the bytes of output.weight. */
static uint64_t hash_of_output(const dslide_model *model) {
    int64_t rows, cols;
    must(dslide_model_tensor_shape(model, "output.weight", &rows, &cols));
    const size_t size = (size_t)rows * (size_t)cols * sizeof(float);
    float *weights = malloc(size);
    expect(weights != NULL, "memory");
    must(dslide_model_get_rows(model, "output.weight", 0, rows, weights));
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; ++i) hash = (hash ^ ((const unsigned char *)weights)[i]) * 0x100000001b3u;
    free(weights);
    return hash;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s TRAIN TEST\n", argv[0]);
        return 2;
    }
    dslide_cluster_options workers;
    dslide_cluster_options_init(&workers, sizeof workers);
    workers.threads = threads;
    dslide_cluster *cluster;
    must(dslide_cluster_open_self(&workers, &cluster));

    dslide_dataset_options reading;
    dslide_dataset_options_init(&reading, sizeof reading);
    reading.shuffle = 1;
    reading.seed = order_seed;
    dslide_dataset *train, *test;
    must(dslide_dataset_open(cluster, argv[1], &reading, &train));
    must(dslide_dataset_open(cluster, argv[2], NULL, &test));
    dslide_dataset_info info = {.struct_size = sizeof info};
    must(dslide_dataset_get_info(train, &info));

    dslide_model_options shape;
    dslide_model_options_init(&shape, sizeof shape);
    shape.n_inputs = info.n_features;
    shape.n_outputs = info.n_labels;
    shape.n_hidden = 1;
    shape.hidden[0] = hidden;
    shape.seed = model_seed;
    dslide_model *model;
    must(dslide_model_create(cluster, &shape, &model));

    dslide_trainer_options how;
    dslide_trainer_options_init(&how, sizeof how);
    how.seed = trainer_seed;
    how.learning_rate = 0.01f;
    how.select = DSLIDE_SELECT_SIMHASH;
    how.active_share = 0.05f;
    how.shared_negatives = 0;
    dslide_trainer *trainer;
    must(dslide_trainer_create(model, &how, &trainer));

    struct host host = {.thread = pthread_self()};
    must(run(trainer, train, test, epochs, &host));
    expect(host.epoch_calls == epochs, "one call an epoch");
    expect(host.progress_calls >= 1, "progress told");
    dslide_metrics metrics = {.struct_size = sizeof metrics};
    must(dslide_model_evaluate(model, test, NULL, &metrics));
    expect(metrics.precision[0] == host.precision_at_1, "the evaluation that the epoch's report holds");
    printf("losses %.12f %.12f p_at_1 %.12f hash %016llx\n", host.losses[0], host.losses[1], metrics.precision[0],
           (unsigned long long)hash_of_output(model));

    dslide_dataset *none;
    const char *missing = "no-such-folder/caf\xc3\xa9.txt";
    expect(dslide_dataset_open(cluster, missing, NULL, &none) == DSLIDE_E_IO, "E_IO for a missing file");
    expect(strstr(dslide_last_error(), missing) != NULL, "the path in the error text");
    host.stop = 1;
    expect(run(trainer, train, test, most_epochs, &host) == DSLIDE_E_STOPPED, "E_STOPPED by the progress callback");
    expect(dslide_last_error()[0] != '\0', "a text for E_STOPPED");

    dslide_cluster_free(cluster); /* handles hold what they need: any order will do */
    dslide_dataset_free(train);
    dslide_dataset_free(test);
    dslide_model_free(model);
    dslide_trainer_free(trainer);
    return 0;
}
