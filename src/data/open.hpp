// SPDX-License-Identifier: Apache-2.0
// How data sets are made.
#pragma once

#include "core/arena.hpp"
#include "data/dataset.hpp"
#include "data/source.hpp"
#include "data/text_reader.hpp"

#include <memory>

namespace dslide {

/// Reads the text, or starts to (streaming). Options are checked here: E_ARGUMENT.
std::unique_ptr<Dataset> open_text(std::shared_ptr<Arena> arena, Input input, const dslide_dataset_options &options,
                                   std::size_t block_bytes = TextReader::default_block_bytes);

/// Copies checked rows (`labels.val`, if any, > 0; `weights`, if any, >= 0).
std::unique_ptr<Dataset> dataset_of_rows(const CsrRows &features, const CsrRows &labels, const float *weights,
                                         const dslide_dataset_options &options);

} // namespace dslide
