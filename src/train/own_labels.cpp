// SPDX-License-Identifier: Apache-2.0
#include "train/own_labels.hpp"

#include <algorithm>

namespace dslide {

void OwnLabels::set(const CsrRows &labels, const Targets &targets, const Placement &placement) {
    labels_ = labels;
    targets_ = &targets;
    if (placement.is_identity()) return;
    targets_ = &own_targets_;
    row_ptr_.assign(1, 0);
    col_.clear();
    own_targets_.t.ensure(static_cast<std::size_t>(labels.nnz()));
    own_targets_.sample_weight.ensure(static_cast<std::size_t>(labels.n_rows));
    std::copy_n(targets.sample_weight.data(), labels.n_rows, own_targets_.sample_weight.data());
    for (std::int64_t i = 0; i < labels.n_rows; ++i) {
        for (std::int64_t e = labels.row_ptr[i]; e < labels.row_ptr[i + 1]; ++e) {
            const std::int32_t row = placement.row_of(labels.col[e]);
            if (row < 0) continue;
            own_targets_.t[col_.size()] = targets.t[static_cast<std::size_t>(e - labels.row_ptr[0])];
            col_.push_back(row); // rows ascend with classes
        }
        row_ptr_.push_back(static_cast<std::int64_t>(col_.size()));
    }
    labels_ = {labels.n_rows, placement.classes(), row_ptr_.data(), col_.data(), nullptr};
}

} // namespace dslide
