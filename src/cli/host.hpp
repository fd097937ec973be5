// SPDX-License-Identifier: Apache-2.0
// dslide handles that free themselves, and status codes as exceptions.
#pragma once

#include "cli/options.hpp"

#include <dslide/dslide.h>

#include <cstdint>
#include <memory>
#include <string>

namespace dslide::cli {

template <auto free_handle>
struct FreeHandle {
    template <class Handle>
    void operator()(Handle *handle) const {
        free_handle(handle);
    }
};

using Cluster = std::unique_ptr<dslide_cluster, FreeHandle<dslide_cluster_free>>;
using Dataset = std::unique_ptr<dslide_dataset, FreeHandle<dslide_dataset_free>>;
using Model = std::unique_ptr<dslide_model, FreeHandle<dslide_model_free>>;
using Trainer = std::unique_ptr<dslide_trainer, FreeHandle<dslide_trainer_free>>;

/// Throws Failure with the library's text unless status is DSLIDE_OK.
void check(dslide_status status);

Cluster open_cluster(std::int32_t threads);
std::int32_t thread_count(const Cluster &cluster);
Model load_model(const Cluster &cluster, const std::string &dir);
dslide_model_info model_info(const Model &model);
/// The name of a class or feature; its number in the model's files if it has none.
std::string name_of(const Model &model, std::int32_t kind, std::int64_t id);

/// "-" is standard input.
Dataset open_dataset(const Cluster &cluster, const std::string &path, const dslide_dataset_options &options);
dslide_dataset_options dataset_options(const DataFlags &flags);
/// For data that goes through a model: its index base unless the user gave one, its width if wider features are
/// dropped.
dslide_dataset_options dataset_options_for(const Model &model, const DataFlags &flags, bool index_base_given);
dslide_dataset_info dataset_info(const Dataset &dataset);

std::string cpu_info();
std::string build_info();

/// Throws Failure unless path can be opened for reading; does not open it, because it may be a pipe.
void need_readable(const std::string &path);
/// A pipe or a socket: resident data only, or one epoch of a stream.
bool can_be_read_once(const std::string &path);
/// As need_readable(), and by each rank of this process: of a pipe each would get a part.
void need_readable_by(const RankFlags &flags, const std::string &path);
/// Throws Failure unless dir is a model directory that may be read.
void need_model_dir(const std::string &dir);

} // namespace dslide::cli
