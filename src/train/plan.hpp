// SPDX-License-Identifier: Apache-2.0
// Turns a host's options into definite choices: which rows, how many, which tables; and what memory that takes.
#pragma once

#include <dslide/model.h>
#include <dslide/trainer.h>

#include <cstdint>

namespace dslide {

/// How many rows of each source a sample gets.
struct Plan {
    std::int64_t hard_rows = 0;  ///< kept by selection, true labels among them
    std::int64_t candidates = 0; ///< retrieved and scored, of which hard_rows are kept
    std::int64_t shared = 0;     ///< draws a batch
    std::int64_t random_fill = 0;
};

/// Options with every default filled in for a model of this (resolved) shape. Resolving twice changes nothing. Throws
/// Error(DSLIDE_E_ARGUMENT) with the field's name.
dslide_trainer_options resolved(dslide_trainer_options options, const dslide_model_options &shape);

/// DSLIDE_HASH_* of a selection by hash tables; -1: another selection.
std::int32_t hash_family_of(std::int32_t select);

Plan plan_of(const dslide_trainer_options &resolved_options, const dslide_model_options &shape);

/// The part of the plan that falls to a rank with `rows` of the classes: hard rows and candidates in proportion. Draws
/// are made on all ranks alike, and each keeps what is its own.
Plan part_of(const Plan &plan, std::int64_t rows, std::int64_t classes);

dslide_memory_estimate estimate_memory(const dslide_model_options &shape, const dslide_trainer_options &options,
                                       std::int64_t batch_size, std::int64_t data_bytes);

} // namespace dslide
