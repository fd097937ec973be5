// SPDX-License-Identifier: Apache-2.0
// Training over whole epochs: read, step, evaluate, report, save.
#pragma once

#include "data/dataset.hpp"
#include "train/trainer.hpp"

namespace dslide {

struct RunOptions {
    std::int32_t epochs = 1, batch_size = 256, early_stop = 0;
    Dataset *eval_data = nullptr;
    dslide_eval_options eval{};
    std::string save_dir; ///< empty: none
    std::int64_t save_every = 0;
    dslide_progress_fn on_progress = nullptr;
    dslide_epoch_fn on_epoch = nullptr;
    void *user_data = nullptr;
};

/// Returns whether a callback asked to stop. `last` holds the last finished epoch (epoch 0: none was finished).
bool run(Trainer &trainer, Dataset &data, const RunOptions &options, dslide_epoch_report &last);

} // namespace dslide
