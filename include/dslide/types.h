/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file types.h
 * @brief Handles and views shared by the other headers.
 */
#ifndef DSLIDE_TYPES_H
#define DSLIDE_TYPES_H

#include <dslide/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dslide_cluster dslide_cluster;     /**< ranks, threads, transport */
typedef struct dslide_dataset dslide_dataset;     /**< rows of features and labels */
typedef struct dslide_model dslide_model;         /**< layers and their weights */
typedef struct dslide_trainer dslide_trainer;     /**< optimizer state, tables, step loop */
typedef struct dslide_hashtable dslide_hashtable; /**< hash tables over vectors */

/** Rows of a CSR (compressed sparse row) matrix that the caller owns; borrowed for one call.
 *
 * Columns are 0-based. Within a row they need not be sorted; a column that stands twice in a row is refused with
 * DSLIDE_E_ARGUMENT, as are columns outside [0, n_cols) and values that are not finite.
 *
 * Never changes its size, since dslide_batch holds two by value: another kind of matrix gets a struct of its own. */
typedef struct dslide_csr_view {
    uint32_t struct_size;   /**< sizeof(dslide_csr_view) */
    int32_t index_bits;     /**< width of `col`: 32 (also 0) or 64 */
    int64_t n_rows;         /**< >= 0 */
    int64_t n_cols;         /**< 1 .. 2^31 - 1 */
    const int64_t *row_ptr; /**< n_rows + 1 offsets, non-decreasing, the first one 0 */
    const void *col;        /**< row_ptr[n_rows] columns, int32_t or int64_t */
    const float *val;       /**< as many values; NULL: every stored value is 1 */
} dslide_csr_view;

#ifdef __cplusplus
}
#endif
#endif
