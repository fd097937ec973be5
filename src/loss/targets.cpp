// SPDX-License-Identifier: Apache-2.0
#include "loss/targets.hpp"

#include <dslide/trainer.h>

namespace dslide {

void Targets::set(std::int32_t loss, const Batch &batch) {
    const CsrRows &labels = batch.labels;
    t.ensure(static_cast<std::size_t>(labels.nnz()));
    sample_weight.ensure(static_cast<std::size_t>(batch.size()));
    double weight_sum = 0;
    for (std::int64_t i = 0; i < batch.size(); ++i) {
        const std::int64_t first = labels.row_ptr[i] - labels.row_ptr[0], count = labels.nnz(i);
        const float *values = labels.vals(i);
        double sum = 0;
        for (std::int64_t e = 0; e < count; ++e) sum += values ? values[e] : 1;
        const double divisor = loss == DSLIDE_SOFTMAX ? sum : 1;
        for (std::int64_t e = 0; e < count; ++e)
            t[static_cast<std::size_t>(first + e)] = static_cast<float>((values ? values[e] : 1) / divisor);
        const bool counts = loss == DSLIDE_BCE || count > 0;
        const float weight = counts ? (batch.weights ? batch.weights[i] : 1.0f) : 0.0f;
        sample_weight[static_cast<std::size_t>(i)] = weight;
        weight_sum += weight;
    }
    if (weight_sum == 0) return;
    for (std::int64_t i = 0; i < batch.size(); ++i)
        sample_weight[static_cast<std::size_t>(i)] =
            static_cast<float>(sample_weight[static_cast<std::size_t>(i)] / weight_sum);
}

} // namespace dslide
