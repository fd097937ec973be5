// SPDX-License-Identifier: Apache-2.0
// What a batch is trained towards.
#pragma once

#include "core/csr.hpp"
#include "core/memory.hpp"

#include <cstdint>

namespace dslide {

/// Targets of a batch: for label e, t[e]; weight[i] is the sample's share of the batch's mean loss (0: does not count).
class Targets {
public:
    /// Softmax: t = value / sum of the sample's values; BCE: t = value. Values default to 1.
    void set(std::int32_t loss, const Batch &batch);

    Array<float> t;
    Array<float> sample_weight;
};

} // namespace dslide
