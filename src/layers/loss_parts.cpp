// SPDX-License-Identifier: Apache-2.0
#include "layers/loss_parts.hpp"

namespace dslide {

double LossParts::mean_loss(std::int32_t loss, const CsrRows &labels, const Targets &targets) const {
    double sum = -target_score;
    for (std::int64_t i = 0; i < labels.n_rows; ++i) {
        const float weight = targets.sample_weight[static_cast<std::size_t>(i)];
        if (weight == 0) continue;
        double target_sum = 0;
        for (std::int64_t e = labels.row_ptr[i]; e < labels.row_ptr[i + 1]; ++e)
            target_sum += targets.t[static_cast<std::size_t>(e - labels.row_ptr[0])];
        sum += weight * loss_value(loss, of_sample[static_cast<std::size_t>(i)], target_sum, 0);
    }
    return sum;
}

} // namespace dslide
