// SPDX-License-Identifier: Apache-2.0
// The loss between the two passes over an output layer. The first pass gives each sample's loss over the rows at hand;
// where other ranks have rows too, their parts are merged; the second pass turns scores into gradients by the whole.
#pragma once

#include "core/csr.hpp"
#include "core/memory.hpp"
#include "loss/loss.hpp"
#include "loss/targets.hpp"

namespace dslide {

struct LossParts {
    Array<PartialLoss> of_sample;
    double target_score = 0; ///< sum over samples of weight * sum of t z over the labels at hand
    double active_pairs = 0; ///< (sample, row) pairs that take part

    void reset(std::int32_t loss, std::int64_t samples) {
        of_sample.ensure(static_cast<std::size_t>(samples));
        for (std::int64_t i = 0; i < samples; ++i) of_sample[static_cast<std::size_t>(i)] = empty_partial(loss);
        target_score = active_pairs = 0;
    }
    /// The batch's mean loss, once the parts are those of all rows. labels, targets: of the whole batch.
    double mean_loss(std::int32_t loss, const CsrRows &labels, const Targets &targets) const;
};

} // namespace dslide
