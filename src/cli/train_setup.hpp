// SPDX-License-Identifier: Apache-2.0
// Everything a training run needs, made in the order that lets mistakes show before long work.
#pragma once

#include "cli/host.hpp"

#include <cstdint>

namespace dslide::cli {

struct TrainingSetup {
    const Cluster &cluster;
    Dataset train, test; ///< test may be empty
    Model model;
    Trainer trainer;
    dslide_memory_estimate memory;
    std::int64_t available_bytes = -1;
};

/// Files can be read, DIR can be written, flags do not contradict each other.
void check_before_work(const TrainFlags &flags);

/// Reads the data, loads or makes model and trainer. Refuses a run that memory cannot hold, unless --force.
TrainingSetup set_up_training(const TrainFlags &flags, const Cluster &cluster);

/// Leaves the run's flags in DIR/run.conf, for --resume and for repetitions.
void save_run_config(const TrainFlags &flags);

dslide_trainer_info trainer_info(const Trainer &trainer);
dslide_trainer_options trainer_options(const Trainer &trainer);

} // namespace dslide::cli
