/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file trainer.h
 * @brief The trainer: optimizer state, active-set selection, the step, the run over epochs, checkpoints.
 *
 * The loss of a batch is the weighted mean over its samples, sum_i w_i loss_i / sum_i w_i, so a sample of weight 2
 * counts as two equal samples. Softmax: cross-entropy against targets t_l = v_l / sum v over a sample's labels (v is
 * the labels' value in the view, 1 if there is none), normalised over the active rows; a sample without labels does
 * not count. BCE: binary cross-entropy summed over the active rows, against t_l = v_l at a label and 0 elsewhere (so v
 * should be at most 1); a sample without labels has only negatives.
 */
#ifndef DSLIDE_TRAINER_H
#define DSLIDE_TRAINER_H

#include <dslide/dataset.h>
#include <dslide/model.h>
#include <dslide/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Update rules. */
enum {
    DSLIDE_ADAM =
        0,          /**< Kingma and Ba, arXiv 1412.6980; lazy: only touched rows move, bias correction by global step */
    DSLIDE_SGD = 1, /**< with momentum, lazy */
    DSLIDE_ADAGRAD = 2 /**< Duchi et al., JMLR 2011 */
};

/** Losses. */
enum {
    DSLIDE_SOFTMAX = 0, /**< cross-entropy over the active rows */
    DSLIDE_BCE = 1      /**< binary cross-entropy over the active rows */
};

/** How the active rows of a sample are chosen, besides its true labels. */
enum {
    DSLIDE_SELECT_AUTO = 0,    /**< all rows where that is cheaper, otherwise SimHash; see dslide_trainer_get_info() */
    DSLIDE_SELECT_SIMHASH = 1, /**< hash tables over signs of projections */
    DSLIDE_SELECT_DWTA = 2,    /**< hash tables over winner-take-all codes */
    DSLIDE_SELECT_EXACT = 3,   /**< the rows with the highest logits, found by scoring all: the reference */
    DSLIDE_SELECT_RANDOM = 4,  /**< uniform: the other reference */
    DSLIDE_SELECT_ALL = 5      /**< every row: the dense network */
};

/** Learning-rate schedules, over the samples that this trainer, or the one it was loaded from, has trained on. */
enum {
    DSLIDE_SCHEDULE_CONSTANT = 0, /**< the rate itself */
    DSLIDE_SCHEDULE_LINEAR = 1,   /**< falls to final_rate over total_samples */
    DSLIDE_SCHEDULE_COSINE = 2,   /**< falls along half a cosine to final_rate over total_samples */
    DSLIDE_SCHEDULE_STEP = 3      /**< times step_factor every step_samples */
};

/** Weight decay. */
enum {
    DSLIDE_DECAY_L2 = 0,       /**< added to the gradient */
    DSLIDE_DECAY_DECOUPLED = 1 /**< w shrinks by rate * decay (AdamW, arXiv 1711.05101) */
};

/** Trainer flags. */
enum {
    DSLIDE_TRAINER_DENSE_UPDATES = 1, /**< update every row each step, touched or not: the textbook optimizer, slow */
    DSLIDE_TRAINER_NO_CENTRING = 2,   /**< hash activations and rows as they are, not minus their means */
    DSLIDE_TRAINER_CORRECTION = 4,    /**< divide exp(logit) of shared and random rows by their inclusion probability */
    DSLIDE_TRAINER_BF16_SCORES = 8    /**< score rows that the batch does not share from a bfloat16 copy of the weights:
                                           half the traffic, 2 more bytes a weight; updates stay fp32; ignored where
                                           all rows are active */
};

/** How a model is trained. */
typedef struct dslide_trainer_options {
    uint32_t struct_size;     /**< set by dslide_trainer_options_init() */
    uint32_t flags;           /**< DSLIDE_TRAINER_*; 0: none */
    uint64_t seed;            /**< 0: the library's fixed seed */
    int32_t optimizer;        /**< DSLIDE_ADAM, ..; 0: Adam */
    int32_t loss;             /**< DSLIDE_SOFTMAX, ..; 0: softmax */
    float learning_rate;      /**< > 0; 0: 1e-3 */
    float beta1;              /**< Adam, in (0, 1); 0: 0.9. A negative value means 0 */
    float beta2;              /**< Adam, in (0, 1); 0: 0.999. A negative value means 0 */
    float epsilon;            /**< Adam, Adagrad, > 0; 0: 1e-8 */
    float momentum;           /**< SGD, 0 .. 0.999999 */
    float weight_decay;       /**< >= 0, of touched rows (biases are not decayed) */
    int32_t decay_mode;       /**< DSLIDE_DECAY_* */
    float clip_value;         /**< each gradient element is kept in [-c, c]; 0: off */
    float clip_row_norm;      /**< each row's gradient is kept within this Euclidean norm; 0: off */
    int32_t schedule;         /**< DSLIDE_SCHEDULE_* */
    int64_t warmup_samples;   /**< the rate rises linearly over so many samples; 0: none */
    int64_t total_samples;    /**< LINEAR, COSINE: where the fall ends; must be set for them (run sets it if 0) */
    int64_t step_samples;     /**< STEP: must be set for it */
    float step_factor;        /**< STEP, in (0, 1]; 0: 0.5 */
    float final_rate;         /**< LINEAR, COSINE: share of learning_rate at the end, in [0, 1] */
    int32_t select;           /**< DSLIDE_SELECT_* */
    float active_share;       /**< target share of rows a sample, in (0, 1]; 0: chosen from the shape */
    int32_t tables;           /**< L, 1 .. 255; 0: chosen from the shape */
    int32_t bits;             /**< of a bucket number, 1 .. 24; 0: chosen from the shape */
    int32_t shared_negatives; /**< rows a batch drawn by label frequency and shared by its samples; -1: none; 0: none,
                                 or 1,024 with CORRECTION if tables select among 50,000 classes or more and active_share
                                   is 0 too */
    int32_t random_fill;      /**< uniform rows a sample; 0: none */
    float candidate_factor;   /**< rows retrieved and scored for each row kept, >= 1; 0: chosen */
    float rebuild_growth;     /**< each gap between rebuilds is so many times the last, 1 .. 1,000; 0: 1.1, from 50,000
                                   classes on 1.5 */
    int64_t rebuild_first;    /**< steps before the first rebuild of the tables, at most rebuild_max; 0: 50, or
                                   rebuild_max if that is less */
    int64_t rebuild_max;      /**< longest gap in steps; 0: 1,000, or rebuild_first if that is more */
    float frequency_power; /**< shared rows are drawn by (label frequency)^power; 0: 1. Below 0, down to -1: means 0 */
    int32_t reserved;      /**< 0 */
    int64_t hard_from;     /**< retrieval begins after so many training samples. Before, when it is no better than
                                chance, the batch shares as many more rows, drawn by label frequency; 0: at once */
} dslide_trainer_options;

/** What one step did. */
typedef struct dslide_step_stats {
    uint32_t struct_size;     /**< set by the caller: sizeof(dslide_step_stats) */
    uint32_t reserved;        /**< 0 */
    int64_t step;             /**< steps done, this one included */
    int64_t samples_seen;     /**< training samples so far */
    int64_t samples;          /**< in this step */
    double loss;              /**< mean loss of the batch before the update */
    double learning_rate;     /**< used */
    double active_share;      /**< mean share of the classes a sample updated */
    int64_t rows_touched;     /**< distinct output rows updated; with DENSE_UPDATES those with a gradient */
    int64_t features_touched; /**< distinct input rows updated, likewise */
    int64_t bytes_sent;       /**< to other ranks, by this rank */
    int32_t rebuilt;          /**< 1: the tables were rebuilt in this step */
    int32_t reserved2;        /**< 0 */
    double seconds;           /**< wall time */
    double seconds_forward;   /**< input and hidden layers */
    double seconds_select;    /**< hashing, queries, merging */
    double seconds_output;    /**< scores, softmax, gradient and update of the output layer */
    double seconds_backward;  /**< hidden and input layers */
    double seconds_rebuild;   /**< hash tables */
} dslide_step_stats;

/** What a trainer chose. */
typedef struct dslide_trainer_info {
    uint32_t struct_size;     /**< set by the caller: sizeof(dslide_trainer_info) */
    int32_t select;           /**< DSLIDE_SELECT_*, never AUTO */
    int32_t tables;           /**< L; 0: no tables */
    int32_t bits;             /**< of a bucket number */
    int32_t hard_rows;        /**< rows a sample kept by selection */
    int32_t candidates;       /**< rows a sample retrieved and scored */
    int32_t shared_negatives; /**< rows a batch, shared by its samples */
    int32_t random_fill;      /**< rows a sample */
    int64_t step;             /**< steps done */
    int64_t samples_seen;     /**< training samples so far */
    int64_t epochs_done;      /**< whole epochs finished by dslide_trainer_run() */
    int64_t weight_bytes;     /**< memory of weights */
    int64_t optimizer_bytes;  /**< memory of optimizer state */
    int64_t table_bytes;      /**< memory of tables */
    int64_t buffer_bytes;     /**< memory of the step's buffers so far */
    int64_t rebuilds;         /**< rebuilds of the tables so far */
} dslide_trainer_info;

/** What training will need, before anything is allocated. */
typedef struct dslide_memory_estimate {
    uint32_t struct_size;    /**< set by the caller: sizeof(dslide_memory_estimate) */
    uint32_t reserved;       /**< 0 */
    int64_t weight_bytes;    /**< weights and biases */
    int64_t optimizer_bytes; /**< moments */
    int64_t table_bytes;     /**< hash tables, with what rebuilding, searching and saving them takes */
    int64_t buffer_bytes;    /**< of a step and of evaluation */
    int64_t data_bytes;      /**< resident rows, as asked for */
    int64_t total_bytes;     /**< the sum, and what the process takes besides */
} dslide_memory_estimate;

/** Set every field to its default: all `size` bytes to 0, struct_size to `size`. Local; any thread.
 * @param options  NULL: nothing is done
 * @param size     sizeof *options, as the caller was compiled
 * @since 0.1 */
DSLIDE_API void dslide_trainer_options_init(dslide_trainer_options *options, size_t size) DSLIDE_NOEXCEPT;

/** Estimate peak memory of a run. Local; any thread.
 * @param model       shape
 * @param trainer     NULL: the defaults
 * @param batch_size  1 .. 1,048,576
 * @param data_bytes  what resident data sets take (dslide_dataset_info.resident_bytes), at most 2^60
 * @param out         struct_size must be set
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT
 * @since 0.1 */
DSLIDE_API dslide_status dslide_model_estimate_memory(const dslide_model_options *model,
                                                      const dslide_trainer_options *trainer, int64_t batch_size,
                                                      int64_t data_bytes, dslide_memory_estimate *out) DSLIDE_NOEXCEPT;

/** Make a trainer of a model. The model stays usable for prediction between steps. One trainer a model at a time.
 *
 * Collective.
 * @param model    kept by the trainer
 * @param options  NULL: the defaults
 * @param out      the new handle; free it with dslide_trainer_free()
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT; DSLIDE_E_STATE: the model has a trainer; DSLIDE_E_MEMORY
 * @since 0.1 */
DSLIDE_API dslide_status dslide_trainer_create(dslide_model *model, const dslide_trainer_options *options,
                                               dslide_trainer **out) DSLIDE_NOEXCEPT;

/** Go on from a full checkpoint: weights, optimizer, tables, counters; the next step gives the bits that the saving
 * trainer's next step would have given.
 *
 * Collective.
 * @param cluster    kept
 * @param dir        a full checkpoint, or a directory of checkpoints: the latest is taken
 * @param out_model  the model; free it with dslide_model_free()
 * @param out        the trainer; free it with dslide_trainer_free()
 * @return as dslide_model_load(); DSLIDE_E_STATE: a slim checkpoint
 * @since 0.1 */
DSLIDE_API dslide_status dslide_trainer_load(dslide_cluster *cluster, const char *dir, dslide_model **out_model,
                                             dslide_trainer **out) DSLIDE_NOEXCEPT;

/** Write weights, optimizer state, tables and counters.
 *
 * Collective. Complete or absent after any failure; an existing checkpoint is replaced only at the end.
 * @param trainer  handle
 * @param dir      new or existing checkpoint directory; an existing directory that is no checkpoint is refused
 * @return DSLIDE_OK; DSLIDE_E_IO; DSLIDE_E_DIVERGED: a weight is not finite; DSLIDE_E_STATE: an update was cut off, see
 *         dslide_trainer_step()
 * @since 0.1 */
DSLIDE_API dslide_status dslide_trainer_save(dslide_trainer *trainer, const char *dir) DSLIDE_NOEXCEPT;

/** What the trainer chose and holds. Local.
 * @param trainer  handle
 * @param out      struct_size must be set
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT
 * @since 0.1 */
DSLIDE_API dslide_status dslide_trainer_get_info(const dslide_trainer *trainer,
                                                 dslide_trainer_info *out) DSLIDE_NOEXCEPT;

/** The options the trainer works with, defaults resolved; after a load, those of the saved trainer. Local.
 * @param trainer  handle
 * @param out      struct_size must be set
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT
 * @since 0.1 */
DSLIDE_API dslide_status dslide_trainer_get_options(const dslide_trainer *trainer,
                                                    dslide_trainer_options *out) DSLIDE_NOEXCEPT;

/** Change the learning rate from the next step on; the schedule multiplies it. Local.
 * @param trainer  handle
 * @param rate     > 0 and finite
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT
 * @since 0.1 */
DSLIDE_API dslide_status dslide_trainer_set_learning_rate(dslide_trainer *trainer, float rate) DSLIDE_NOEXCEPT;

/** Tell how often each class is a label in training: shared rows are drawn by it, and PSP@k uses it. Without it
 * dslide_trainer_run() counts the data set, and dslide_trainer_step() counts what it sees. Kept by the model. Local.
 * @param trainer  handle
 * @param counts   n_outputs counts, 0 .. 2^60; copied
 * @param count    n_outputs
 * @param samples  rows they were counted over, 1 .. 2^60
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT
 * @since 0.1 */
DSLIDE_API dslide_status dslide_trainer_set_label_counts(dslide_trainer *trainer, const int64_t *counts, int64_t count,
                                                         int64_t samples) DSLIDE_NOEXCEPT;

/** Run one training step on one batch.
 *
 * Collective. Blocks; the views may be freed on return. A batch in which no sample counts, also an empty one, only adds
 * to samples_seen; stats give the step before.
 * @param trainer   handle
 * @param features  rows x inputs of the model; fewer columns are fine
 * @param labels    as many rows; columns are classes; values are label weights > 0
 * @param weights   one weight a row, finite and >= 0; NULL: all 1
 * @param stats     struct_size must be set; may be NULL
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: shapes disagree or a column is out of range; DSLIDE_E_DIVERGED: the loss is
 *         not finite, or an activation above 1e18. After these no weight was changed.
 *         DSLIDE_E_MEMORY, DSLIDE_E_INTERNAL: the update may have been cut off; steps and saves then fail with
 *         DSLIDE_E_STATE: load a checkpoint
 * @since 0.1 */
DSLIDE_API dslide_status dslide_trainer_step(dslide_trainer *trainer, const dslide_csr_view *features,
                                             const dslide_csr_view *labels, const float *weights,
                                             dslide_step_stats *stats) DSLIDE_NOEXCEPT;

/** Where a run stands. */
typedef struct dslide_progress {
    uint32_t struct_size;       /**< set by the library */
    int32_t epoch;              /**< from 1, since the start of training */
    int32_t epochs;             /**< asked for */
    int32_t reserved;           /**< 0 */
    int64_t step;               /**< since the start of training */
    int64_t samples_in_epoch;   /**< done */
    int64_t samples_of_epoch;   /**< rows of the set; -1: not known yet */
    double loss;                /**< mean over the epoch so far */
    double active_share;        /**< mean over the epoch so far */
    double rows_touched;        /**< mean a batch over the epoch so far */
    double samples_per_second;  /**< over the last seconds of training */
    double seconds;             /**< training time of the epoch so far: reading, evaluation, saving apart */
    double seconds_left;        /**< of the whole run, estimated; -1: not known yet */
    double last_precision_at_1; /**< of the last evaluation, at its first cut-off; -1: none yet in this run */
} dslide_progress;

/** What an epoch gave. */
typedef struct dslide_epoch_report {
    uint32_t struct_size;          /**< set by the library */
    int32_t epoch;                 /**< from 1, since the start of training */
    int64_t step;                  /**< since the start of training */
    int64_t samples;               /**< trained on in this epoch */
    double loss;                   /**< mean */
    double learning_rate;          /**< at its end */
    double active_share;           /**< mean share of the classes a sample updated */
    double rows_touched;           /**< distinct output rows a batch, mean */
    double seconds;                /**< wall time of training alone */
    double cpu_seconds;            /**< CPU time of training alone, all threads */
    double read_seconds;           /**< wall time waiting for data */
    double eval_seconds;           /**< wall time of evaluation */
    double save_seconds;           /**< wall time of saving */
    double rebuild_seconds;        /**< wall time of table rebuilds, within seconds */
    int64_t bytes_sent;            /**< to other ranks, by this rank */
    int64_t peak_rss_bytes;        /**< of the process so far */
    int32_t has_metrics;           /**< 1: metrics hold an evaluation of this epoch */
    int32_t is_best;               /**< 1: best precision so far at the first cut-off (P@1), or nothing to compare */
    dslide_metrics metrics;        /**< of the evaluation set */
    int64_t bytes_sent_all;        /**< by all ranks together in training, to each other */
    int64_t bytes_dense_allreduce; /**< what a rank would send in as many steps of dense data-parallel training: an
                                        all-reduce of all gradients in fp32, 2 (R - 1) / R * 4 bytes a parameter */
    double wait_seconds;      /**< of this rank within `seconds`: sending, receiving and waiting for slower ranks */
    double wait_seconds_all;  /**< of all ranks together */
    double imbalance_seconds; /**< time that the slowest rank computed, over the mean of all; 1: all alike */
    double imbalance_rows;    /**< rows that the busiest rank updated, over the mean of all */
} dslide_epoch_report;

/** Called between steps, at most about ten times a second, on the thread that called dslide_trainer_run(). Of several
 * ranks all are called after the same steps.
 *
 * The run's model and trainer may be asked, used for prediction and saved, and the learning rate may be set; no other
 * call may use the run's handles, nor its data sets.
 * @param user_data  as given
 * @param progress   valid during the call
 * @return 0 to go on; anything else stops after this step with DSLIDE_E_STOPPED */
typedef int32_t (*dslide_progress_fn)(void *user_data, const dslide_progress *progress);

/** Called after each whole epoch, after evaluation and after its checkpoint was written. What it may call:
 * see ::dslide_progress_fn.
 * @param user_data  as given
 * @param report     valid during the call
 * @return 0 to go on; anything else stops with DSLIDE_E_STOPPED */
typedef int32_t (*dslide_epoch_fn)(void *user_data, const dslide_epoch_report *report);

/** How a run goes. */
typedef struct dslide_run_options {
    uint32_t struct_size;            /**< set by dslide_run_options_init() */
    int32_t epochs;                  /**< counted from the start of training, so a resumed run does the rest; 0: 1 */
    int32_t batch_size;              /**< 1 .. 1,048,576; 0: 256 */
    int32_t early_stop;              /**< so many epochs in a row that were not the best end the run; 0: never */
    dslide_dataset *eval_data;       /**< judged after each epoch; NULL: none; kept for the call */
    const dslide_eval_options *eval; /**< NULL: the defaults */
    const char *save_dir;            /**< checkpoints go under it, with `latest` and `best`; NULL: none */
    int64_t save_every;              /**< also every so many steps; 0: only after epochs */
    dslide_progress_fn on_progress;  /**< may be NULL */
    dslide_epoch_fn on_epoch;        /**< may be NULL */
    void *user_data;                 /**< for both callbacks */
} dslide_run_options;

/** Set every field to its default: all `size` bytes to 0, struct_size to `size`. Local; any thread.
 * @param options  NULL: nothing is done
 * @param size     sizeof *options, as the caller was compiled
 * @since 0.1 */
DSLIDE_API void dslide_run_options_init(dslide_run_options *options, size_t size) DSLIDE_NOEXCEPT;

/** Train over whole epochs: read, step, evaluate, save, in this order, with callbacks.
 *
 * Collective. Stopped runs and failed saves lose nothing that was saved before. A run on a loaded trainer takes up the
 * epoch where the checkpoint was written, in the middle too. After an error the steps done before it stay done.
 * @param trainer  handle
 * @param data     training rows; its shuffle option decides about the order
 * @param options  NULL: the defaults
 * @param last     the last epoch's report; its struct_size must be set; may be NULL; written also with
 *                 DSLIDE_E_STOPPED; untouched if this call finished no epoch
 * @return DSLIDE_OK; DSLIDE_E_STOPPED: a callback asked for it, a checkpoint was written if save_dir is set;
 *         DSLIDE_E_ARGUMENT: an option, or rows wider than the model; DSLIDE_E_FORMAT: no rows, or as
 *         dslide_dataset_next(); DSLIDE_E_IO; and as dslide_trainer_step() and dslide_model_evaluate()
 * @since 0.1 */
DSLIDE_API dslide_status dslide_trainer_run(dslide_trainer *trainer, dslide_dataset *data,
                                            const dslide_run_options *options,
                                            dslide_epoch_report *last) DSLIDE_NOEXCEPT;

/** Free the trainer; its model stays. Local; any thread.
 * @param trainer  handle or NULL
 * @since 0.1 */
DSLIDE_API void dslide_trainer_free(dslide_trainer *trainer) DSLIDE_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
