// SPDX-License-Identifier: Apache-2.0
// What a person sees while a model is trained: on a terminal a bar that is redrawn, and a line an epoch everywhere.
#pragma once

#include <dslide/dslide.h>

#include <cstdint>
#include <string>

namespace dslide::cli {

class ProgressDisplay {
public:
    explicit ProgressDisplay(bool quiet);

    void show(const dslide_progress &progress);
    void finish_epoch(const dslide_epoch_report &report, std::int32_t epochs);
    /// Removes the bar, so that an error line stands alone.
    void clear();

private:
    bool quiet_, terminal_;
    bool drawn_ = false;
};

} // namespace dslide::cli
