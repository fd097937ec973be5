// SPDX-License-Identifier: Apache-2.0
// Callers' arrays, checked and brought into the form the core works on.
#pragma once

#include "core/csr.hpp"

#include <dslide/types.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace dslide::capi {

constexpr std::int64_t any_width = std::numeric_limits<std::int32_t>::max();

/// Rows of a caller's view as CsrRows: borrowed where they are 32-bit and sorted already, otherwise a sorted copy.
/// Every offset, column and value is looked at; a fault is an E_ARGUMENT that names the parameter, the row and the
/// column.
class CheckedRows {
public:
    /// max_cols: the widest view that is accepted; narrower ones are.
    CheckedRows(const dslide_csr_view *view, const char *name, std::int64_t max_cols = any_width);
    CheckedRows(const CheckedRows &) = delete;
    CheckedRows &operator=(const CheckedRows &) = delete;

    const CsrRows &rows() const { return rows_; }

private:
    CsrRows rows_;
    std::vector<std::int32_t> col_;
    std::vector<float> val_;
};

/// Labels' values are weights: E_ARGUMENT for one that is not > 0.
void check_label_weights(const CsrRows &labels);
/// E_ARGUMENT for a row weight that is negative or not finite; NULL is fine.
void check_row_weights(const float *weights, std::int64_t n_rows);
/// E_ARGUMENT if labels are not as many rows as features.
void check_same_rows(const CsrRows &features, const CsrRows &labels);

} // namespace dslide::capi
