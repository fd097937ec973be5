/* SPDX-License-Identifier: Apache-2.0 */
/* Load a checkpoint and show what the model says about a few rows, by name.
 *
 *     02_predict_with_names CHECKPOINT ROWS LABEL_NAMES FEATURE_NAMES
 *
 * The two name files are read only if the checkpoint holds no names. */
#include <dslide/dslide.h>
#include <stdio.h>
#include <stdlib.h>

enum { shown_rows = 5, top = 3 };

static void must(dslide_status status) {
    if (status == DSLIDE_OK) return;
    fprintf(stderr, "%s: %s\n", dslide_status_name(status), dslide_last_error());
    exit(1);
}

static void print_name(const dslide_model *model, int32_t kind, int64_t id) {
    char name[256];
    must(dslide_model_name(model, kind, id, name, sizeof name, NULL));
    printf(" %s", name);
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: %s CHECKPOINT ROWS LABEL_NAMES FEATURE_NAMES\n", argv[0]);
        return 2;
    }
    dslide_cluster *cluster;
    dslide_model *model;
    dslide_dataset *rows;
    must(dslide_cluster_open_self(NULL, &cluster));
    must(dslide_model_load(cluster, argv[1], &model));
    must(dslide_dataset_open(cluster, argv[2], NULL, &rows));
    dslide_model_info info = {.struct_size = sizeof info};
    must(dslide_model_get_info(model, &info));
    if (info.n_label_names == 0) must(dslide_model_read_names(model, DSLIDE_NAMES_LABELS, argv[3]));
    if (info.n_feature_names == 0) must(dslide_model_read_names(model, DSLIDE_NAMES_FEATURES, argv[4]));

    dslide_batch batch = {.struct_size = sizeof batch};
    must(dslide_dataset_rewind(rows, 0));
    must(dslide_dataset_next(rows, shown_rows, &batch));
    int64_t labels[shown_rows * top];
    float logits[shown_rows * top];
    must(dslide_model_predict(model, &batch.features, top, labels, logits));

    const int32_t *features = batch.features.col; /* a data set's own views have 32-bit columns */
    for (int64_t row = 0; row < batch.features.n_rows; ++row) {
        printf("row %lld:", (long long)batch.row_ids[row]);
        for (int64_t i = batch.features.row_ptr[row]; i < batch.features.row_ptr[row + 1]; ++i)
            print_name(model, DSLIDE_NAMES_FEATURES, features[i]);
        printf("\n");
        for (int place = 0; place < top; ++place) {
            printf("    %+8.3f ", logits[row * top + place]);
            print_name(model, DSLIDE_NAMES_LABELS, labels[row * top + place]);
            printf("\n");
        }
    }
    dslide_dataset_free(rows);
    dslide_model_free(model);
    dslide_cluster_free(cluster);
    return 0;
}
