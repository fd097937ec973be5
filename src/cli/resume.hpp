// SPDX-License-Identifier: Apache-2.0
// Going on from a checkpoint: its settings hold, and flags that contradict them are refused.
#pragma once

#include "cli/train_setup.hpp"

namespace dslide::cli {

/// Loads the latest checkpoint into setup. Only the learning rate, the epochs, the batch and what does not change the
/// mathematics may differ from the first run. Throws UsageError for a flag that contradicts the checkpoint.
void load_for_resume(const TrainFlags &flags, TrainingSetup &setup);

} // namespace dslide::cli
