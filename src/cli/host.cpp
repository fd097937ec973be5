// SPDX-License-Identifier: Apache-2.0
#include "cli/host.hpp"

#include "cli/errors.hpp"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

namespace dslide::cli {

namespace {

std::string text_of(dslide_status (*get)(char *, std::size_t, std::size_t *)) {
    char text[4096];
    std::size_t length = 0;
    return get(text, sizeof text, &length) == DSLIDE_OK ? std::string(text, length) : "";
}

struct stat need_stat(const std::string &path) {
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0) throw Failure("cannot read '" + path + "': " + std::strerror(errno));
    return status;
}

} // namespace

void check(dslide_status status) {
    if (status == DSLIDE_OK) return;
    const std::string text = dslide_last_error();
    throw Failure(text.empty() ? std::string("error: ") + dslide_status_name(status) : text);
}

Cluster open_cluster(std::int32_t threads) {
    dslide_cluster_options options;
    dslide_cluster_options_init(&options, sizeof options);
    options.threads = threads;
    dslide_cluster *cluster = nullptr;
    check(dslide_cluster_open_self(&options, &cluster));
    return Cluster(cluster);
}

std::int32_t thread_count(const Cluster &cluster) {
    std::int32_t threads = 0;
    check(dslide_cluster_threads(cluster.get(), &threads));
    return threads;
}

Model load_model(const Cluster &cluster, const std::string &dir) {
    dslide_model *model = nullptr;
    check(dslide_model_load(cluster.get(), dir.c_str(), &model));
    return Model(model);
}

dslide_model_info model_info(const Model &model) {
    dslide_model_info info = {};
    info.struct_size = sizeof info;
    check(dslide_model_get_info(model.get(), &info));
    return info;
}

std::string name_of(const Model &model, std::int32_t kind, std::int64_t id) {
    std::size_t length = 0;
    // The first call tells the length; what else may be wrong, the second one tells.
    if (dslide_model_name(model.get(), kind, id, nullptr, 0, &length) == DSLIDE_E_STATE) return std::to_string(id);
    std::string name(length + 1, '\0');
    check(dslide_model_name(model.get(), kind, id, name.data(), name.size(), &length));
    name.resize(length);
    return name;
}

Dataset open_dataset(const Cluster &cluster, const std::string &path, const dslide_dataset_options &options) {
    dslide_dataset *dataset = nullptr;
    if (path == "-")
        check(dslide_dataset_open_fd(cluster.get(), STDIN_FILENO, "standard input", &options, &dataset));
    else
        check(dslide_dataset_open(cluster.get(), path.c_str(), &options, &dataset));
    return Dataset(dataset);
}

dslide_dataset_options dataset_options(const DataFlags &flags) {
    dslide_dataset_options options;
    dslide_dataset_options_init(&options, sizeof options);
    options.format = flags.format;
    options.index_base = flags.index_base;
    options.label_base = flags.label_base;
    options.n_features = flags.n_features;
    options.n_labels = flags.n_labels;
    options.mode = flags.stream ? DSLIDE_DATASET_STREAMING : DSLIDE_DATASET_RESIDENT;
    options.wide = flags.drop_wide ? DSLIDE_WIDE_DROP : DSLIDE_WIDE_REFUSE;
    options.normalize = flags.normalize ? 1 : 0;
    return options;
}

dslide_dataset_options dataset_options_for(const Model &model, const DataFlags &flags, bool index_base_given) {
    const dslide_model_info info = model_info(model);
    dslide_dataset_options options = dataset_options(flags);
    if (!index_base_given) options.index_base = info.index_base;
    if (flags.drop_wide) options.n_features = info.n_inputs;
    return options;
}

dslide_dataset_info dataset_info(const Dataset &dataset) {
    dslide_dataset_info info = {};
    info.struct_size = sizeof info;
    check(dslide_dataset_get_info(dataset.get(), &info));
    return info;
}

std::string cpu_info() { return text_of(dslide_cpu_info); }

std::string build_info() { return text_of(dslide_build_info); }

void need_readable(const std::string &path) {
    if (path == "-") return;
    if (S_ISDIR(need_stat(path).st_mode)) throw Failure("cannot read '" + path + "': is a directory");
    if (access(path.c_str(), R_OK) != 0) throw Failure("cannot read '" + path + "': " + std::strerror(errno));
}

bool can_be_read_once(const std::string &path) {
    struct stat status = {};
    const int failed = path == "-" ? fstat(STDIN_FILENO, &status) : stat(path.c_str(), &status);
    return failed == 0 && !S_ISREG(status.st_mode);
}

void need_readable_by(const RankFlags &flags, const std::string &path) {
    need_readable(path);
    if (flags.ranks > 1 && can_be_read_once(path))
        throw UsageError("--ranks " + std::to_string(flags.ranks) + ": each reads '" + path +
                         "', and a pipe can be read once");
}

void need_model_dir(const std::string &dir) {
    if (!S_ISDIR(need_stat(dir).st_mode)) throw Failure("'" + dir + "' is not a checkpoint: not a directory");
}

} // namespace dslide::cli
