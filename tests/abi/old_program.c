/* SPDX-License-Identifier: Apache-2.0 */
/* A program built with the headers of an older release: structs that end where they did then, on its stack, something
 * of its own behind each. It declares what it uses itself, as its headers did. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct dslide_cluster dslide_cluster;
typedef struct dslide_model dslide_model;
typedef struct dslide_trainer dslide_trainer;
typedef struct dslide_model_options {
    uint32_t struct_size;
    int32_t n_hidden;
    int64_t n_inputs;
    int64_t n_outputs;
} dslide_model_options;
typedef struct dslide_trainer_options {
    uint32_t struct_size;
    uint32_t flags;
    uint64_t seed;
    int32_t optimizer;
    int32_t loss;
    float learning_rate;
    float beta1;
} dslide_trainer_options;
typedef struct dslide_trainer_info {
    uint32_t struct_size;
    int32_t select;
} dslide_trainer_info;

int32_t dslide_cluster_open_self(const void *options, dslide_cluster **out);
void dslide_cluster_free(dslide_cluster *cluster);
void dslide_model_options_init(dslide_model_options *options, size_t size);
int32_t dslide_model_create(dslide_cluster *cluster, const dslide_model_options *options, dslide_model **out);
void dslide_model_free(dslide_model *model);
void dslide_trainer_options_init(dslide_trainer_options *options, size_t size);
int32_t dslide_trainer_create(dslide_model *model, const dslide_trainer_options *options, dslide_trainer **out);
int32_t dslide_trainer_get_info(const dslide_trainer *trainer, dslide_trainer_info *out);
int32_t dslide_trainer_get_options(const dslide_trainer *trainer, dslide_trainer_options *out);
void dslide_trainer_free(dslide_trainer *trainer);
const char *dslide_last_error(void);

enum { canary = 0xA5 };

/* On the stack, next to each other; volatile, so that the compiler does not know what the canaries hold. */
struct stack {
    dslide_model_options shape;
    volatile unsigned char behind_shape[256];
    dslide_trainer_options how;
    volatile unsigned char behind_how[256];
    dslide_trainer_info info;
    volatile unsigned char behind_info[256];
};

static int intact(const volatile unsigned char *bytes) {
    int i;
    for (i = 0; i < 256; ++i)
        if (bytes[i] != canary) return 0;
    return 1;
}

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, dslide_last_error());
    return 1;
}

int main(void) {
    struct stack own;
    dslide_cluster *cluster = NULL;
    dslide_model *model = NULL;
    dslide_trainer *trainer = NULL;
    int status = 0;
    memset(&own, canary, sizeof own);
    dslide_model_options_init(&own.shape, sizeof own.shape);
    dslide_trainer_options_init(&own.how, sizeof own.how);
    own.shape.n_inputs = 10;
    own.shape.n_outputs = 20;
    own.how.learning_rate = 0.25f;
    own.info.struct_size = (uint32_t)sizeof own.info;
    if (dslide_cluster_open_self(NULL, &cluster) != 0) return failed("cluster");
    if (dslide_model_create(cluster, &own.shape, &model) != 0) return failed("model");
    if (dslide_trainer_create(model, &own.how, &trainer) != 0) return failed("trainer");
    if (dslide_trainer_get_info(trainer, &own.info) != 0) return failed("info");
    if (dslide_trainer_get_options(trainer, &own.how) != 0) return failed("options");
    if (own.info.select != 5) status = failed("20 classes: all rows, DSLIDE_SELECT_ALL"); /* never another number */
    if (own.how.learning_rate != 0.25f || own.how.beta1 != 0.9f) status = failed("options as they are used");
    if (!intact(own.behind_shape)) status = failed("dslide_model_options: overrun");
    if (!intact(own.behind_how)) status = failed("dslide_trainer_options: overrun");
    if (!intact(own.behind_info)) status = failed("dslide_trainer_info: overrun");
    dslide_trainer_free(trainer);
    dslide_model_free(model);
    dslide_cluster_free(cluster);
    return status;
}
