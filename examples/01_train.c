/* SPDX-License-Identifier: Apache-2.0 */
/* The shortest complete program: read a file, make a model of its shape, train, judge, save.
 *
 *     01_train TRAIN TEST CHECKPOINT */
#include <dslide/dslide.h>
#include <stdio.h>
#include <stdlib.h>

static void must(dslide_status status) {
    if (status == DSLIDE_OK) return;
    fprintf(stderr, "%s: %s\n", dslide_status_name(status), dslide_last_error());
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s TRAIN TEST CHECKPOINT\n", argv[0]);
        return 2;
    }
    dslide_cluster *cluster;
    dslide_dataset *train, *test;
    must(dslide_cluster_open_self(NULL, &cluster));
    must(dslide_dataset_open(cluster, argv[1], NULL, &train));
    must(dslide_dataset_open(cluster, argv[2], NULL, &test));
    dslide_dataset_info info = {.struct_size = sizeof info};
    must(dslide_dataset_get_info(train, &info));

    dslide_model_options shape;
    dslide_model_options_init(&shape, sizeof shape);
    shape.n_inputs = info.n_features;
    shape.n_outputs = info.n_labels;
    dslide_model *model;
    must(dslide_model_create(cluster, &shape, &model));

    dslide_trainer *trainer; /* NULL options: Adam, softmax, a selection that fits the shape */
    must(dslide_trainer_create(model, NULL, &trainer));
    dslide_run_options run;
    dslide_run_options_init(&run, sizeof run);
    run.epochs = 5;
    must(dslide_trainer_run(trainer, train, &run, NULL));

    dslide_metrics metrics = {.struct_size = sizeof metrics};
    must(dslide_model_evaluate(model, test, NULL, &metrics));
    for (int i = 0; i < metrics.n_cutoffs; ++i) printf("P@%d %.4f\n", (int)metrics.k[i], metrics.precision[i]);
    must(dslide_trainer_save(trainer, argv[3]));
    printf("saved to %s\n", argv[3]);

    dslide_trainer_free(trainer); /* handles hold what they need: any order will do */
    dslide_model_free(model);
    dslide_dataset_free(test);
    dslide_dataset_free(train);
    dslide_cluster_free(cluster);
    return 0;
}
