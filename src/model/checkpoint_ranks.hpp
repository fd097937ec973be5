// SPDX-License-Identifier: Apache-2.0
// Checkpoints that several ranks write: each its part of the tensors, the first one the rest. Collective; any failure
// is one on every rank, and leaves what was there before.
#pragma once

#include "exchange/exchange.hpp"
#include "model/checkpoint.hpp"

namespace dslide {

/// As write_checkpoint(). content: this rank's tensors; meta and files are taken from rank 0. All ranks see one file
/// system.
void write_checkpoint(Exchange &exchange, const std::string &dir, const CheckpointContent &content,
                      const SaveOptions &options = {});

/// As CheckpointStore::save().
void save(Exchange &exchange, CheckpointStore &store, const std::string &name, const CheckpointContent &content,
          bool is_best);

} // namespace dslide
