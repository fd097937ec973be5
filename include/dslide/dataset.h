/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file dataset.h
 * @brief Data sets: rows of sparse features and labels, read from text or taken from memory.
 *
 * Text may be plain or compressed with gzip, xz or zstd (told by the first bytes). docs/formats.md states what is
 * accepted, what is refused, and what is skipped by rule and counted.
 */
#ifndef DSLIDE_DATASET_H
#define DSLIDE_DATASET_H

#include <dslide/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Text formats. */
enum {
    DSLIDE_FORMAT_XMC = 0,     /**< `l1,l2 f:v f:v`, with or without a header line `points features labels` */
    DSLIDE_FORMAT_SVMLIGHT = 1 /**< `l1,l2 qid:q f:v f:v # comment`: SVMlight, LIBSVM */
};

/** How rows are kept. */
enum {
    DSLIDE_DATASET_RESIDENT = 0, /**< the whole set in memory */
    DSLIDE_DATASET_STREAMING = 1 /**< read again each epoch, in bounded memory */
};

/** What to do with a feature or label at or above the declared size. */
enum {
    DSLIDE_WIDE_REFUSE = 0, /**< an error */
    DSLIDE_WIDE_DROP = 1    /**< left out and counted */
};

/** How a data set is read. */
typedef struct dslide_dataset_options {
    uint32_t struct_size; /**< set by dslide_dataset_options_init() */
    int32_t format;       /**< DSLIDE_FORMAT_*; 0: XMC */
    int32_t index_base;   /**< what the first feature is called in the file: 0 or 1 */
    int32_t mode;         /**< DSLIDE_DATASET_*; 0: resident */
    int64_t n_features;   /**< width of the rows, up to 2^31 - 1; 0: from the header, or the highest index seen + 1 */
    int64_t n_labels;     /**< number of classes, up to 2^31 - 1; 0: from the header, or the highest label seen + 1 */
    int32_t wide;         /**< DSLIDE_WIDE_*; 0: refuse */
    int32_t shuffle;      /**< 1: another order each epoch, by seed; 0: file order */
    uint64_t seed;        /**< of the order; 0: the library's fixed seed */
    int64_t shuffle_rows; /**< streaming: rows shuffled together, up to 2^31 - 1; 0: 65,536 */
    int32_t normalize;    /**< 1: scale each row's features to Euclidean length 1 */
    int32_t label_base;   /**< what the first label is called in the file: 0 or 1 */
} dslide_dataset_options;

/** What a data set holds. */
typedef struct dslide_dataset_info {
    uint32_t struct_size;         /**< set by the caller: sizeof(dslide_dataset_info) */
    int32_t format;               /**< DSLIDE_FORMAT_* */
    int64_t n_rows;               /**< rows; -1: a stream not yet read to its end */
    int64_t n_features;           /**< width of the rows */
    int64_t n_labels;             /**< number of classes */
    int64_t n_feature_values;     /**< stored feature values; -1 as n_rows */
    int64_t n_label_values;       /**< stored labels; -1 as n_rows */
    int64_t rows_without_label;   /**< read so far; legal and kept */
    int64_t rows_without_feature; /**< read so far; legal and kept */
    int64_t blank_lines;          /**< skipped by rule so far */
    int64_t comment_lines;        /**< skipped by rule so far */
    int64_t dropped_features;     /**< with DSLIDE_WIDE_DROP, so far */
    int64_t dropped_labels;       /**< with DSLIDE_WIDE_DROP, so far */
    int64_t zero_features;        /**< explicit zeros, skipped by rule so far */
    int64_t resident_bytes;       /**< memory the rows take now */
    double read_seconds;          /**< time spent reading and parsing so far */
    int64_t repeated_labels;      /**< a label again in its row, taken once, so far */
    int64_t ignored_qids;         /**< `qid:` of SVMlight, which has no meaning here, so far */
} dslide_dataset_info;

/** A few rows of a data set; the views belong to the data set. */
typedef struct dslide_batch {
    uint32_t struct_size;     /**< set by the caller: sizeof(dslide_batch) */
    uint32_t reserved;        /**< 0 */
    dslide_csr_view features; /**< n_rows x n_features */
    dslide_csr_view labels;   /**< n_rows x n_labels */
    const float *weights;     /**< one weight a row; NULL: all 1 */
    const int64_t *row_ids;   /**< place of each row in the source, from 0 */
} dslide_batch;

/** Set every field to its default: all `size` bytes to 0, struct_size to `size`. Local; any thread.
 * @param options  NULL: nothing is done
 * @param size     sizeof *options, as the caller was compiled
 * @since 0.1 */
DSLIDE_API void dslide_dataset_options_init(dslide_dataset_options *options, size_t size) DSLIDE_NOEXCEPT;

/** Open a text file; a resident set is read whole by this call, with the cluster's threads.
 *
 * A pipe (FIFO) can be read once: resident mode, or one epoch of streaming; streaming then needs n_features and
 * n_labels from options or header. "-" is not special. Local; one thread per cluster handle.
 * @param cluster  whose threads parse
 * @param path     the file
 * @param options  NULL: the defaults
 * @param out      the new handle; free it with dslide_dataset_free()
 * @return DSLIDE_OK; DSLIDE_E_IO: cannot be read; DSLIDE_E_FORMAT: a defect, told as `path:line:column: ...`, or no
 *         usable row; DSLIDE_E_ARGUMENT; DSLIDE_E_MEMORY
 * @since 0.1 */
DSLIDE_API dslide_status dslide_dataset_open(dslide_cluster *cluster, const char *path,
                                             const dslide_dataset_options *options,
                                             dslide_dataset **out) DSLIDE_NOEXCEPT;

/** As dslide_dataset_open(), from an open file descriptor: a pipe, a socket, standard input.
 *
 * The descriptor stays the caller's and must stay open until the data set is freed (streaming) or the call returns. A
 * file is read from the descriptor's position, which does not move.
 * Local; one thread per cluster handle.
 * @param cluster  whose threads parse
 * @param fd       readable descriptor
 * @param name     what error texts call it
 * @param options  NULL: the defaults
 * @param out      the new handle; free it with dslide_dataset_free()
 * @return as dslide_dataset_open()
 * @since 0.1 */
DSLIDE_API dslide_status dslide_dataset_open_fd(dslide_cluster *cluster, int32_t fd, const char *name,
                                                const dslide_dataset_options *options,
                                                dslide_dataset **out) DSLIDE_NOEXCEPT;

/** As dslide_dataset_open(), from text in memory (plain or compressed); always resident, the text is not kept. Local;
 * one thread per cluster handle.
 * @param cluster  whose threads parse
 * @param data     the text; may be NULL if size is 0
 * @param size     bytes
 * @param options  NULL: the defaults
 * @param out      the new handle; free it with dslide_dataset_free()
 * @return as dslide_dataset_open()
 * @since 0.1 */
DSLIDE_API dslide_status dslide_dataset_open_memory(dslide_cluster *cluster, const void *data, size_t size,
                                                    const dslide_dataset_options *options,
                                                    dslide_dataset **out) DSLIDE_NOEXCEPT;

/** Make a data set of the host's arrays; they are copied. Features whose value is 0 are left out and counted.
 *
 * Local; one thread per cluster handle.
 * @param cluster   whose threads serve it
 * @param features  the rows' features; n_cols is the width
 * @param labels    as many rows; n_cols is the number of classes; values are the labels' weights, > 0
 * @param weights   one weight a row, >= 0; NULL: all 1
 * @param options   shuffle, seed and normalize are used; NULL: the defaults
 * @param out       the new handle; free it with dslide_dataset_free()
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: no rows, shapes disagree, a column is out of range or stands twice, a value is
 *         not finite
 * @since 0.1 */
DSLIDE_API dslide_status dslide_dataset_from_views(dslide_cluster *cluster, const dslide_csr_view *features,
                                                   const dslide_csr_view *labels, const float *weights,
                                                   const dslide_dataset_options *options,
                                                   dslide_dataset **out) DSLIDE_NOEXCEPT;

/** What the set holds, and what was skipped by rule. Local.
 * @param dataset  handle
 * @param out      struct_size must be set
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT
 * @since 0.1 */
DSLIDE_API dslide_status dslide_dataset_get_info(const dslide_dataset *dataset,
                                                 dslide_dataset_info *out) DSLIDE_NOEXCEPT;

/** Start an epoch: the next dslide_dataset_next() gives its first rows. The order depends on seed and epoch alone.
 * Local.
 * @param dataset  handle
 * @param epoch    >= 0
 * @return DSLIDE_OK; DSLIDE_E_STATE: a pipe that was read already, whose reading goes on where it was; DSLIDE_E_IO,
 *         DSLIDE_E_FORMAT: dslide_dataset_next() fails in the same way until another rewind succeeds
 * @since 0.1 */
DSLIDE_API dslide_status dslide_dataset_rewind(dslide_dataset *dataset, int64_t epoch) DSLIDE_NOEXCEPT;

/** The next rows, in order; every row comes exactly once an epoch, the last batch may be short.
 *
 * Local. After a failure in reading, the call fails in the same way until dslide_dataset_rewind().
 * @param dataset   handle
 * @param max_rows  1 .. 1,048,576
 * @param out       struct_size must be set; views are valid until the next call on this data set. features.n_rows 0:
 *                  the epoch has ended
 * @return DSLIDE_OK; DSLIDE_E_FORMAT, DSLIDE_E_IO: as dslide_dataset_open(), in streaming mode
 * @since 0.1 */
DSLIDE_API dslide_status dslide_dataset_next(dslide_dataset *dataset, int64_t max_rows,
                                             dslide_batch *out) DSLIDE_NOEXCEPT;

/** Free the data set. Local; any thread.
 * @param dataset  handle or NULL
 * @since 0.1 */
DSLIDE_API void dslide_dataset_free(dslide_dataset *dataset) DSLIDE_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
