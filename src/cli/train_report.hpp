// SPDX-License-Identifier: Apache-2.0
// What a training run tells: the header before it, JSON lines, the last line.
#pragma once

#include "cli/json_lines.hpp"
#include "cli/train_setup.hpp"

#include <optional>

namespace dslide::cli {

/// What the epochs of this call gave.
struct RunRecord {
    std::optional<dslide_epoch_report> last, best;
    std::int64_t samples = 0;
    double seconds = 0, cpu_seconds = 0;

    void add(const dslide_epoch_report &report);
};

std::string header_text(const TrainFlags &flags, const TrainingSetup &setup);
JsonObject settings_json(const TrainFlags &flags, const TrainingSetup &setup);
JsonObject epoch_json(const dslide_epoch_report &report);
/// `outcome`: finished, early_stop, interrupted or failed.
JsonObject result_json(const TrainFlags &flags, const RunRecord &record, const std::string &outcome,
                       const std::string &error);
std::string result_text(const TrainFlags &flags, const RunRecord &record, const std::string &outcome);

} // namespace dslide::cli
