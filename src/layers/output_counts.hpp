// SPDX-License-Identifier: Apache-2.0
// What a step on the output layer reports.
#pragma once

#include <cstdint>

namespace dslide {

struct OutputCounts {
    double loss_sum = 0;     ///< sum over samples of weight * loss (the batch's mean loss)
    double active_pairs = 0; ///< (sample, row) pairs that took part
};

} // namespace dslide
