/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file model.h
 * @brief The model: a sparse input layer, dense hidden layers and a very wide output layer; prediction.
 *
 *     h_1 = relu(x W_1 + b_1),  h_i = relu(h_{i-1} W_i + b_i),  logits = W_out h_n + b_out
 *
 * Tensors, by name (rows x columns, fp32):
 *
 *     input.weight      n_inputs x hidden[0]         a row is a feature
 *     input.bias        1 x hidden[0]
 *     hidden.I.weight   hidden[I] x hidden[I-1]      I = 1 .. n_hidden - 1; a row is a neuron
 *     hidden.I.bias     1 x hidden[I]
 *     output.weight     n_outputs x hidden[last]     a row is a class
 *     output.bias       1 x n_outputs
 */
#ifndef DSLIDE_MODEL_H
#define DSLIDE_MODEL_H

#include <dslide/dataset.h>
#include <dslide/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Most hidden layers a model can have. Never changes: arrays in structs have this length. */
#define DSLIDE_MAX_HIDDEN 8

/** Shape and start of a model. */
typedef struct dslide_model_options {
    uint32_t struct_size;              /**< set by dslide_model_options_init() */
    int32_t n_hidden;                  /**< hidden layers, 1 .. DSLIDE_MAX_HIDDEN; 0: one of width 128 */
    int64_t n_inputs;                  /**< features, 1 .. 2^31 - 1 */
    int64_t n_outputs;                 /**< classes, 1 .. 2^31 - 1 */
    int32_t hidden[DSLIDE_MAX_HIDDEN]; /**< widths, 1 .. 65,536 */
    uint64_t seed;                     /**< of the start weights; 0: the library's fixed seed */
    float input_scale;                 /**< standard deviation of input.weight, > 0; 0: hidden[0]^-1/2 */
    float output_scale;                /**< standard deviation of output.weight, > 0; 0: 0.01 */
    int32_t index_base;                /**< of the text files it is trained on, kept with the model: 0 or 1 */
    int32_t reserved;                  /**< 0 */
} dslide_model_options;

/** What a model is. */
typedef struct dslide_model_info {
    uint32_t struct_size;              /**< set by the caller: sizeof(dslide_model_info) */
    int32_t n_hidden;                  /**< hidden layers */
    int64_t n_inputs;                  /**< features */
    int64_t n_outputs;                 /**< classes */
    int32_t hidden[DSLIDE_MAX_HIDDEN]; /**< widths */
    int64_t n_parameters;              /**< weights and biases */
    int64_t n_feature_names;           /**< n_inputs, or 0: none known */
    int64_t n_label_names;             /**< n_outputs, or 0: none known */
    int64_t samples_seen;              /**< training samples since the start */
    int64_t resident_bytes;            /**< memory the weights take in this process */
    int32_t index_base;                /**< of the text files it was trained on */
    int32_t reserved;                  /**< 0 */
} dslide_model_info;

/** Kinds of name. */
enum {
    DSLIDE_NAMES_LABELS = 0,  /**< one name a class */
    DSLIDE_NAMES_FEATURES = 1 /**< one name a feature */
};

/** Set every field to its default: all `size` bytes to 0, struct_size to `size`. Local; any thread.
 * @param options  NULL: nothing is done
 * @param size     sizeof *options, as the caller was compiled
 * @since 0.1 */
DSLIDE_API void dslide_model_options_init(dslide_model_options *options, size_t size) DSLIDE_NOEXCEPT;

/** Make a model with random weights. The same seed and shape give the same weights on any rank and thread count.
 *
 * Collective.
 * @param cluster  kept by the model
 * @param options  n_inputs and n_outputs must be set
 * @param out      the new handle; free it with dslide_model_free()
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: a size out of range; DSLIDE_E_MEMORY: with the bytes it needed
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_create(dslide_cluster *cluster, const dslide_model_options *options,
                                             dslide_model **out) DSLIDE_NOEXCEPT;

/** Load the weights of a checkpoint, slim or full, or of the best one under a directory of checkpoints.
 *
 * Collective. Checksums are verified.
 * @param cluster  kept by the model
 * @param dir      a checkpoint, or a directory with `best` and `latest`
 * @param out      the new handle; free it with dslide_model_free()
 * @return DSLIDE_OK; DSLIDE_E_IO; DSLIDE_E_FORMAT: damaged, or not a checkpoint; DSLIDE_E_UNSUPPORTED: newer;
 *         DSLIDE_E_MEMORY
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_load(dslide_cluster *cluster, const char *dir,
                                           dslide_model **out) DSLIDE_NOEXCEPT;

/** Write weights, names and label counts alone (the slim form, for serving); training cannot go on from it.
 *
 * Collective. The directory is complete or absent after any failure; an existing one is replaced only at the end.
 * @param model  handle
 * @param dir    new or existing checkpoint directory; an existing directory that is no checkpoint is refused
 * @return DSLIDE_OK; DSLIDE_E_IO; DSLIDE_E_DIVERGED: a weight is not finite
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_save(dslide_model *model, const char *dir) DSLIDE_NOEXCEPT;

/** What the model is. Local; any thread, but not while a trainer is in a step on the model.
 * @param model  handle
 * @param out    struct_size must be set
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_get_info(const dslide_model *model, dslide_model_info *out) DSLIDE_NOEXCEPT;

/** Read names from a text file, one a line, in the order of the ids; plain or compressed. Copied into the model and
 * saved with it. Local.
 * @param model  handle
 * @param kind   DSLIDE_NAMES_*
 * @param path   the file; its bytes are taken as they are
 * @return DSLIDE_OK; DSLIDE_E_FORMAT: not one line for each id, a zero byte, or damaged; DSLIDE_E_IO
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_read_names(dslide_model *model, int32_t kind, const char *path) DSLIDE_NOEXCEPT;

/** Set all names of a kind; copied. Local.
 * @param model  handle
 * @param kind   DSLIDE_NAMES_*
 * @param names  zero-terminated strings without line ends; UTF-8, which is not checked
 * @param count  n_outputs or n_inputs; 0: forget the names
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: another count, NULL, a line end in a name
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_set_names(dslide_model *model, int32_t kind, const char *const *names,
                                                int64_t count) DSLIDE_NOEXCEPT;

/** One name. Local; any thread.
 * @param model    handle
 * @param kind     DSLIDE_NAMES_*
 * @param id       class or feature, from 0
 * @param buf      where the text goes; may be NULL if cap is 0
 * @param cap      bytes at buf
 * @param out_len  length of the text; may be NULL
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: id out of range, or cap is not 0 and too small;
 *         DSLIDE_E_STATE: no names
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_name(const dslide_model *model, int32_t kind, int64_t id, char *buf, size_t cap,
                                           size_t *out_len) DSLIDE_NOEXCEPT;

/** The k classes with the highest logits, exactly, over all classes. Higher logit first, lower id first among equals.
 *
 * Collective. Any thread, also several at once, but not while a trainer is in a step on the model. Works in blocks of
 * classes: memory grows with n_rows * k, not with the number of classes.
 * @param model       handle
 * @param features    n_rows x n_inputs; fewer columns are taken as an input whose last features are 0
 * @param k           1 .. n_outputs
 * @param out_labels  n_rows * k classes, row by row; -1 in places that NaN logits leave (of inputs that overflow fp32)
 * @param out_scores  as many logits, -infinity beside -1; may be NULL
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: k or a column out of range; DSLIDE_E_MEMORY
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_predict(const dslide_model *model, const dslide_csr_view *features, int32_t k,
                                              int64_t *out_labels, float *out_scores) DSLIDE_NOEXCEPT;

/** The last hidden vector of each row: what the output layer sees.
 *
 * Collective; any thread, as dslide_model_predict().
 * @param model     handle
 * @param features  n_rows x n_inputs, or fewer columns
 * @param out       n_rows x hidden[last], row by row
 * @return as dslide_model_predict()
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_embed(const dslide_model *model, const dslide_csr_view *features,
                                            float *out) DSLIDE_NOEXCEPT;

/** Size of a tensor, by its name (see the head of this file). Local; any thread.
 * @param model     handle
 * @param name      "output.weight" and so on
 * @param out_rows  may be NULL
 * @param out_cols  may be NULL
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: no tensor of this name
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_tensor_shape(const dslide_model *model, const char *name, int64_t *out_rows,
                                                   int64_t *out_cols) DSLIDE_NOEXCEPT;

/** Copy rows of a tensor out: label vectors, feature vectors, biases.
 *
 * Collective; not while a trainer is in a step on the model.
 * @param model      handle
 * @param name       see dslide_model_tensor_shape()
 * @param row_begin  first row
 * @param n_rows     how many, >= 0
 * @param out        n_rows x columns
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: no such tensor or rows
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_get_rows(const dslide_model *model, const char *name, int64_t row_begin,
                                               int64_t n_rows, float *out) DSLIDE_NOEXCEPT;

/** Overwrite rows of a tensor, as with weights trained elsewhere.
 *
 * Collective; not while a trainer is in a step on the model. A trainer of the model keeps its optimizer state and
 * rebuilds its tables before its next step.
 * @param model      handle
 * @param name       see dslide_model_tensor_shape()
 * @param row_begin  first row
 * @param n_rows     how many, >= 0
 * @param data       n_rows x columns, finite
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: no such tensor or rows, or a value that is not finite: nothing is written
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_set_rows(dslide_model *model, const char *name, int64_t row_begin, int64_t n_rows,
                                               const float *data) DSLIDE_NOEXCEPT;

/** Most cut-offs one evaluation can have. Never changes: arrays in structs have this length. */
#define DSLIDE_MAX_CUTOFFS 16

/** How a model is judged. */
typedef struct dslide_eval_options {
    uint32_t struct_size;          /**< set by dslide_eval_options_init() */
    int32_t n_cutoffs;             /**< 1 .. DSLIDE_MAX_CUTOFFS; 0: three, 1 3 5 */
    int32_t k[DSLIDE_MAX_CUTOFFS]; /**< each >= 1, in any order; above n_outputs the missing places count as misses */
    int32_t batch_size;            /**< rows at a time, 1 .. 1,048,576; 0: 256 */
    int32_t unlabelled;            /**< rows without labels: 0 count as misses, 1 are left out; counted either way */
    int64_t max_rows;              /**< judge only the first so many rows; 0: all */
    float propensity_a;            /**< A of PSP@k (Jain et al., KDD 2016), > 0; 0: 0.55 */
    float propensity_b;            /**< B of PSP@k, > 0; 0: 1.5 */
} dslide_eval_options;

/** Result of an evaluation; means over rows. Formulas in docs/metrics.md.
 *
 * Never changes its size, since dslide_epoch_report holds one by value: new results take the reserved room. */
typedef struct dslide_metrics {
    uint32_t struct_size;                 /**< set by the caller: sizeof(dslide_metrics); in a report by the library */
    int32_t n_cutoffs;                    /**< entries used below, in the order asked for */
    int32_t k[DSLIDE_MAX_CUTOFFS];        /**< the cut-offs */
    double precision[DSLIDE_MAX_CUTOFFS]; /**< P@k, 0 .. 1 */
    double recall[DSLIDE_MAX_CUTOFFS];    /**< R@k */
    double ndcg[DSLIDE_MAX_CUTOFFS];      /**< nDCG@k */
    double psp[DSLIDE_MAX_CUTOFFS];       /**< PSP@k; 0 if label frequencies are unknown */
    double coverage[DSLIDE_MAX_CUTOFFS]; /**< share of the classes present in the rows found at least once in a top k */
    int64_t rows;                        /**< rows judged */
    int64_t rows_without_label;          /**< of the rows read */
    int64_t labels_out_of_range;         /**< labels >= n_outputs: counted as misses */
    double seconds;                      /**< wall time */
    double reserved[DSLIDE_MAX_CUTOFFS]; /**< 0; room for one more result a cut-off, or several of the whole */
} dslide_metrics;

/** Set every field to its default: all `size` bytes to 0, struct_size to `size`. Local; any thread.
 * @param options  NULL: nothing is done
 * @param size     sizeof *options, as the caller was compiled
 * @since 0.1 */
DSLIDE_API void dslide_eval_options_init(dslide_eval_options *options, size_t size) DSLIDE_NOEXCEPT;

/** Judge the model on a data set, with exact scores over all classes.
 *
 * Collective; any thread, as dslide_model_predict(), each with a data set of its own. Reads the set from its start in
 * file order; call dslide_dataset_rewind() before using it again.
 * Propensities are taken from the label frequencies of the training set, which the model keeps.
 * @param model    handle
 * @param dataset  rows to judge on
 * @param options  NULL: the defaults
 * @param out      struct_size must be set
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: more features than the model has inputs, a bad cut-off; DSLIDE_E_FORMAT: no row
 *         to judge, or as dslide_dataset_next()
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_evaluate(const dslide_model *model, dslide_dataset *dataset,
                                               const dslide_eval_options *options, dslide_metrics *out) DSLIDE_NOEXCEPT;

/** Free the model. Local; any thread.
 * @param model  handle or NULL
 * @since 0.1 */
DSLIDE_API void dslide_model_free(dslide_model *model) DSLIDE_NOEXCEPT;

/** What verification found. */
typedef struct dslide_checkpoint_info {
    uint32_t struct_size;   /**< set by the caller: sizeof(dslide_checkpoint_info) */
    int32_t format_version; /**< of the checkpoint */
    int32_t is_full;        /**< 1: training can go on from it; 0: slim */
    int32_t n_shards;       /**< tensor files */
    int64_t bytes;          /**< of all its files */
    int64_t n_tensors;      /**< tensors */
    int64_t samples_seen;   /**< training samples so far */
    int64_t steps;          /**< training steps so far */
} dslide_checkpoint_info;

/** Check a checkpoint: structure, sizes and all checksums. Local; any thread.
 * @param dir  a checkpoint, or a directory with `best` and `latest`
 * @param out  struct_size must be set; may be NULL
 * @return DSLIDE_OK; DSLIDE_E_IO; DSLIDE_E_FORMAT; DSLIDE_E_UNSUPPORTED
 * @since 0.1 */
DSLIDE_API dslide_status dslide_checkpoint_verify(const char *dir, dslide_checkpoint_info *out) DSLIDE_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
