// SPDX-License-Identifier: Apache-2.0
#include "optim/learning_rate.hpp"

#include <algorithm>
#include <cmath>

namespace dslide {
namespace {

double schedule_factor(const dslide_trainer_options &o, double samples) {
    const double last = o.final_rate;
    const double done = o.total_samples > 0 ? std::min(1.0, samples / static_cast<double>(o.total_samples)) : 0.0;
    switch (o.schedule) {
    case DSLIDE_SCHEDULE_LINEAR:
        return 1 - (1 - last) * done;
    case DSLIDE_SCHEDULE_COSINE:
        return last + (1 - last) * 0.5 * (1 + std::cos(3.14159265358979323846 * done));
    case DSLIDE_SCHEDULE_STEP:
        return std::pow(o.step_factor, std::floor(samples / static_cast<double>(o.step_samples)));
    default:
        return 1;
    }
}

} // namespace

double learning_rate(const dslide_trainer_options &options, std::int64_t samples_seen) {
    const double samples = static_cast<double>(samples_seen);
    double warm_up = 1;
    if (samples_seen < options.warmup_samples)
        warm_up = (samples + 1) / (static_cast<double>(options.warmup_samples) + 1);
    return options.learning_rate * warm_up * schedule_factor(options, samples);
}

} // namespace dslide
