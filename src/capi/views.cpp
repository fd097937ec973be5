// SPDX-License-Identifier: Apache-2.0
#include "capi/views.hpp"

#include "capi/boundary.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dslide::capi {
namespace {

dslide_csr_view checked_shape(const dslide_csr_view *given, const char *name, std::int64_t max_cols) {
    const dslide_csr_view view = read_options(need(given, name), dslide_csr_view{}, name);
    if (view.index_bits != 0 && view.index_bits != 32 && view.index_bits != 64)
        fail(DSLIDE_E_ARGUMENT, name, ": index_bits ", view.index_bits, " is neither 32 nor 64");
    if (view.n_rows < 0) fail(DSLIDE_E_ARGUMENT, name, ": n_rows ", view.n_rows, " < 0");
    if (view.n_cols < 1) fail(DSLIDE_E_ARGUMENT, name, ": n_cols ", view.n_cols, " < 1");
    if (view.n_cols > max_cols) fail(DSLIDE_E_ARGUMENT, name, ": n_cols ", view.n_cols, " > ", max_cols);
    if (!view.row_ptr) fail(DSLIDE_E_ARGUMENT, name, ": row_ptr is NULL");
    return view;
}

void check_offsets(const dslide_csr_view &view, const char *name) {
    if (view.row_ptr[0] != 0) fail(DSLIDE_E_ARGUMENT, name, ": row_ptr[0] is ", view.row_ptr[0], ", expected 0");
    for (std::int64_t row = 0; row < view.n_rows; ++row)
        if (view.row_ptr[row + 1] < view.row_ptr[row])
            fail(DSLIDE_E_ARGUMENT, name, ": row_ptr falls from ", view.row_ptr[row], " to ", view.row_ptr[row + 1],
                 " in row ", row);
    if (view.row_ptr[view.n_rows] > 0 && !view.col) fail(DSLIDE_E_ARGUMENT, name, ": col is NULL");
}

// Checks columns and values; true if the columns ascend in every row.
template <class Index>
bool check_entries(const dslide_csr_view &view, const char *name) {
    const Index *col = static_cast<const Index *>(view.col);
    bool ascending = true;
    for (std::int64_t row = 0; row < view.n_rows; ++row) {
        std::int64_t last = -1;
        for (std::int64_t i = view.row_ptr[row]; i < view.row_ptr[row + 1]; ++i) {
            const std::int64_t column = col[i];
            if (column < 0) fail(DSLIDE_E_ARGUMENT, name, ": column ", column, " < 0 in row ", row);
            if (column >= view.n_cols)
                fail(DSLIDE_E_ARGUMENT, name, ": column ", column, " >= n_cols ", view.n_cols, " in row ", row);
            if (view.val && !std::isfinite(view.val[i]))
                fail(DSLIDE_E_ARGUMENT, name, ": value ", view.val[i], " of column ", column, " in row ", row,
                     " is not finite");
            if (column == last) fail(DSLIDE_E_ARGUMENT, name, ": column ", column, " stands twice in row ", row);
            ascending &= column > last;
            last = column;
        }
    }
    return ascending;
}

// Sorts a row by column, values along with it, and refuses repeated columns.
void sort_row(std::int32_t *col, float *val, std::int64_t size, const char *name, std::int64_t row,
              std::vector<std::pair<std::int32_t, float>> &entries) {
    if (std::is_sorted(col, col + size)) {
        const std::int32_t *twice = std::adjacent_find(col, col + size);
        if (twice != col + size) fail(DSLIDE_E_ARGUMENT, name, ": column ", *twice, " stands twice in row ", row);
        return;
    }
    entries.clear();
    for (std::int64_t i = 0; i < size; ++i) entries.emplace_back(col[i], val ? val[i] : 1.0F);
    std::sort(entries.begin(), entries.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
    for (std::int64_t i = 0; i < size; ++i) {
        const auto &[column, value] = entries[static_cast<std::size_t>(i)];
        if (i > 0 && column == col[i - 1])
            fail(DSLIDE_E_ARGUMENT, name, ": column ", column, " stands twice in row ", row);
        col[i] = column;
        if (val) val[i] = value;
    }
}

} // namespace

CheckedRows::CheckedRows(const dslide_csr_view *given, const char *name, std::int64_t max_cols) {
    const dslide_csr_view view = checked_shape(given, name, std::min(max_cols, any_width));
    check_offsets(view, name);
    const bool wide = view.index_bits == 64;
    const bool ascending = wide ? check_entries<std::int64_t>(view, name) : check_entries<std::int32_t>(view, name);
    rows_ = {view.n_rows, view.n_cols, view.row_ptr, static_cast<const std::int32_t *>(view.col), view.val};
    if (ascending && !wide) return;

    const std::int64_t nnz = view.row_ptr[view.n_rows];
    if (wide) {
        const auto *col = static_cast<const std::int64_t *>(view.col);
        col_.resize(static_cast<std::size_t>(nnz));
        std::transform(col, col + nnz, col_.begin(), [](std::int64_t c) { return static_cast<std::int32_t>(c); });
    } else {
        col_.assign(rows_.col, rows_.col + nnz);
    }
    rows_.col = col_.data();
    if (ascending) return;

    if (view.val) {
        val_.assign(view.val, view.val + nnz);
        rows_.val = val_.data();
    }
    std::vector<std::pair<std::int32_t, float>> entries;
    for (std::int64_t row = 0; row < view.n_rows; ++row) {
        const std::int64_t begin = view.row_ptr[row];
        sort_row(col_.data() + begin, view.val ? val_.data() + begin : nullptr, view.row_ptr[row + 1] - begin, name,
                 row, entries);
    }
}

void check_label_weights(const CsrRows &labels) {
    if (!labels.val) return;
    for (std::int64_t row = 0; row < labels.n_rows; ++row)
        for (std::int64_t i = labels.row_ptr[row]; i < labels.row_ptr[row + 1]; ++i)
            if (!(labels.val[i] > 0))
                fail(DSLIDE_E_ARGUMENT, "labels: weight ", labels.val[i], " of column ", labels.col[i], " in row ", row,
                     " is not > 0");
}

void check_row_weights(const float *weights, std::int64_t n_rows) {
    if (!weights) return;
    for (std::int64_t row = 0; row < n_rows; ++row)
        if (!(weights[row] >= 0) || !std::isfinite(weights[row]))
            fail(DSLIDE_E_ARGUMENT, "weights: ", weights[row], " of row ", row, " is not finite and >= 0");
}

void check_same_rows(const CsrRows &features, const CsrRows &labels) {
    if (features.n_rows != labels.n_rows)
        fail(DSLIDE_E_ARGUMENT, "features have ", features.n_rows, " rows, labels ", labels.n_rows);
}

} // namespace dslide::capi
