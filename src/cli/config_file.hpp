// SPDX-License-Identifier: Apache-2.0
// Settings files: `key = value` lines, keys named as the flags without their dashes, `#` starts a comment line.
#pragma once

#include <string>
#include <vector>

namespace dslide::cli {

struct ConfigEntry {
    std::string where; ///< "path:line"
    std::string key;
    std::string value;
};

/// Throws Failure if the file cannot be read, UsageError at a line that is not `key = value` or repeats a key.
std::vector<ConfigEntry> read_config(const std::string &path);

/// One line, with its end, that read_config() takes back; UsageError if there is none for this value.
std::string config_line(const std::string &key, const std::string &value);

/// The settings a run left beside its checkpoints: DIR/run.conf, or the one beside a checkpoint. Empty if there is
/// none.
std::string saved_config_path(const std::string &model_dir);

} // namespace dslide::cli
