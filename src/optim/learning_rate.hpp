// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules over the training samples seen, so that batch size and rank count do not change them.
#pragma once

#include <dslide/trainer.h>

#include <cstdint>

namespace dslide {

/// Rate of the step that starts after `samples_seen` samples: warm-up times schedule times options.learning_rate.
double learning_rate(const dslide_trainer_options &options, std::int64_t samples_seen);

} // namespace dslide
