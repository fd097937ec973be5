// SPDX-License-Identifier: Apache-2.0
// The labels of a batch whose rows this rank has.
#pragma once

#include "core/csr.hpp"
#include "exchange/placement.hpp"
#include "loss/targets.hpp"

#include <vector>

namespace dslide {

class OwnLabels {
public:
    /// Columns become this rank's rows; targets are those of the whole batch, of which it keeps its part.
    void set(const CsrRows &labels, const Targets &targets, const Placement &placement);
    const CsrRows &labels() const { return labels_; }
    const Targets &targets() const { return *targets_; }

private:
    CsrRows labels_;
    const Targets *targets_ = nullptr;
    Targets own_targets_;
    std::vector<std::int64_t> row_ptr_;
    std::vector<std::int32_t> col_;
};

} // namespace dslide
