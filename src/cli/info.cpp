// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_dirs.hpp"
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/format.hpp"
#include "cli/host.hpp"
#include "cli/json_lines.hpp"
#include "cli/values.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace dslide::cli {

namespace {

using Counts = std::vector<std::pair<const char *, std::int64_t>>;

Counts counts_of(const dslide_dataset_info &info) {
    return {{"rows", info.n_rows},
            {"features", info.n_features},
            {"labels", info.n_labels},
            {"feature_values", info.n_feature_values},
            {"label_values", info.n_label_values},
            {"rows_without_label", info.rows_without_label},
            {"rows_without_feature", info.rows_without_feature},
            {"blank_lines", info.blank_lines},
            {"comment_lines", info.comment_lines},
            {"zero_features", info.zero_features},
            {"resident_bytes", info.resident_bytes}};
}

void tell_data(const InfoFlags &flags, JsonLines &json) {
    const Cluster cluster = open_cluster(flags.threads);
    const Dataset dataset = open_dataset(cluster, flags.path, dataset_options(flags.data));
    const dslide_dataset_info info = dataset_info(dataset);
    const char *format = choice_name(format_choices, info.format);
    JsonObject object("info");
    object.set("path", flags.path).set("kind", "data").set("format", format);
    std::string text = flags.path + ": data, " + format + "\n";
    for (const auto &[key, count] : counts_of(info)) {
        object.set(key, count);
        text += line_text("  %-22s", key) + with_commas(count) + "\n";
    }
    object.set("read_seconds", info.read_seconds);
    text += line_text("  %-22s%.2f\n", "read_seconds", info.read_seconds);
    json.write(object);
    if (flags.json != "-") print(text);
}

JsonDocument read_manifest(const std::string &dir) {
    constexpr std::uintmax_t most_bytes = 64 << 20; // of the format
    const std::string path = dir + "/manifest.json";
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (!error && size > most_bytes) throw Failure("'" + path + "' is damaged: longer than 64 MiB");
    if (error) throw Failure("cannot read '" + path + "': " + error.message());
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Failure("cannot read '" + path + "': " + std::strerror(errno));
    std::ostringstream text;
    text << file.rdbuf();
    try {
        JsonDocument manifest(text.str());
        if (manifest.at({"format"}) != "dslide-checkpoint") throw Failure("not a checkpoint's manifest");
        return manifest;
    } catch (const Failure &failure) {
        throw Failure("'" + path + "' is damaged: " + failure.what());
    }
}

/// Settings that a manifest keeps as the numbers of the public headers.
std::string setting_text(const std::string &key, const std::string &value) {
    const std::pair<const char *, const std::vector<Choice> *> named[] = {{"trainer.optimizer", &optimizer_choices},
                                                                          {"trainer.loss", &loss_choices},
                                                                          {"trainer.select", &select_choices},
                                                                          {"trainer.schedule", &schedule_choices},
                                                                          {"trainer.decay_mode", &decay_choices}};
    for (const auto &[name, choices] : named)
        for (const Choice &choice : *choices)
            if (key == name && value == std::to_string(choice.value)) return choice.name;
    return key == "trainer.select" && value == std::to_string(DSLIDE_SELECT_ALL) ? "all" : value;
}

/// Writes the JSON line; returns the lines for people.
std::string tell_checkpoint(const std::string &dir, JsonLines &json) {
    const JsonDocument manifest = read_manifest(dir);
    JsonObject object("info");
    object.set("path", dir).set("kind", "checkpoint");
    std::string lines;
    std::int64_t bytes = 0;
    for (const NamedSize &file : files_in(dir)) {
        bytes += file.bytes;
        lines += line_text("  file    %-34s", file.name.c_str()) + bytes_text(file.bytes) + "\n";
        object.append("files", std::move(JsonObject().set("name", file.name).set("bytes", file.bytes)));
    }
    object.set("bytes", bytes);
    for (std::size_t i = 0; i < manifest.size({"tensors"}); ++i) {
        const auto field = [&](const char *key) { return manifest.at({"tensors", std::to_string(i), key}); };
        lines += line_text("  tensor  %-34s%s ", field("name").c_str(), field("dtype").c_str()) + field("shape") + "\n";
        JsonObject tensor;
        tensor.set("name", field("name")).set("dtype", field("dtype")).set_parsed("shape", field("shape"));
        object.append("tensors", std::move(tensor));
    }
    for (const auto &[key, value] : manifest.entries({"meta"})) {
        lines += line_text("  %-42s", key.c_str()) + setting_text(key, value) + "\n";
        object.set_parsed(key.c_str(), setting_text(key, value));
    }
    json.write(object);
    return dir + ": checkpoint, " + bytes_text(bytes) + "\n" + lines;
}

void tell_checkpoints(const InfoFlags &flags, JsonLines &json) {
    const std::vector<std::string> dirs = checkpoints_under(flags.path);
    std::string text;
    if (!is_checkpoint_dir(flags.path)) {
        text += flags.path + ": " + std::to_string(dirs.size()) + " checkpoints";
        for (const char *link : {"latest", "best"})
            if (const std::string target = link_target(flags.path, link); !target.empty())
                text += std::string(", ") + link + " " + target;
        text += "\n";
    }
    for (const std::string &dir : dirs) text += tell_checkpoint(dir, json);
    if (flags.json != "-") print(text);
}

} // namespace

int run_info(const InfoFlags &flags) {
    std::error_code ignored; // what is wrong with the path is told where it is read
    const bool is_directory = std::filesystem::is_directory(flags.path, ignored);
    if (!is_directory) need_readable(flags.path);
    JsonLines json(flags.json);
    if (is_directory)
        tell_checkpoints(flags, json);
    else
        tell_data(flags, json);
    json.finish();
    return exit_ok;
}

} // namespace dslide::cli
