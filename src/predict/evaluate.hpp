// SPDX-License-Identifier: Apache-2.0
// Judges a model on a data set with exact scores over all classes.
#pragma once

#include "data/dataset.hpp"
#include "model/model.hpp"

namespace dslide {

/// Options with their defaults filled in; throws Error(DSLIDE_E_ARGUMENT).
dslide_eval_options resolved(dslide_eval_options options);

/// Reads the set from its start, in file order. Throws Error(DSLIDE_E_FORMAT) where no row is left to judge.
dslide_metrics evaluate(const Model &model, Dataset &dataset, const dslide_eval_options &options);

} // namespace dslide
