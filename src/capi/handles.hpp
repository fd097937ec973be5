// SPDX-License-Identifier: Apache-2.0
// What stands behind the opaque handles.
#pragma once

#include "data/dataset.hpp"
#include "exchange/cluster.hpp"

#include <dslide/types.h>

#include <memory>

struct dslide_cluster {
    std::shared_ptr<dslide::Cluster> impl;
};

struct dslide_dataset {
    std::unique_ptr<dslide::Dataset> impl;
};
