// SPDX-License-Identifier: Apache-2.0
// What stands behind the opaque handles.
#pragma once

#include "data/dataset.hpp"
#include "exchange/cluster.hpp"
#include "lsh/vector_index.hpp"
#include "model/model.hpp"
#include "train/trainer.hpp"

#include <dslide/types.h>

#include <memory>

struct dslide_cluster {
    std::shared_ptr<dslide::Cluster> impl;
};

struct dslide_dataset {
    std::unique_ptr<dslide::Dataset> impl;
};

struct dslide_model {
    std::shared_ptr<dslide::Model> impl;
};

struct dslide_trainer {
    std::unique_ptr<dslide::Trainer> impl;
};

struct dslide_hashtable {
    std::unique_ptr<dslide::VectorIndex> impl;
};
