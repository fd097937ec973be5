// SPDX-License-Identifier: Apache-2.0
// What training and evaluation read from.
#pragma once

#include "core/csr.hpp"

#include <dslide/dataset.h>

namespace dslide {

class Dataset {
public:
    virtual ~Dataset() = default;
    virtual dslide_dataset_info info() const = 0;
    /// Starts epoch `epoch`; with `in_file_order` no shuffle is applied whatever the options say (evaluation).
    virtual void rewind(std::int64_t epoch, bool in_file_order = false) = 0;
    /// Skips rows of the epoch (a run taken up in its middle).
    virtual void skip(std::int64_t rows) = 0;
    /// The next rows; size() 0 at the end of the epoch. Valid until the next call.
    virtual Batch next(std::int64_t max_rows) = 0;
};

} // namespace dslide
