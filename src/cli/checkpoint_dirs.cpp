// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_dirs.hpp"

#include "cli/errors.hpp"

#include <algorithm>
#include <filesystem>

namespace dslide::cli {

namespace {

namespace fs = std::filesystem;

/// Names of a run's checkpoints: one that lost its manifest is damaged, not something else.
bool is_run_name(const std::string &name) {
    for (const std::string prefix : {"epoch-", "step-"})
        if (name.size() > prefix.size() && name.compare(0, prefix.size(), prefix) == 0)
            return name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
    return false;
}

} // namespace

bool is_checkpoint_dir(const std::string &dir) {
    std::error_code ignored;
    return fs::is_regular_file(fs::path(dir) / "manifest.json", ignored);
}

std::vector<std::string> checkpoints_under(const std::string &dir) {
    if (is_checkpoint_dir(dir)) return {dir};
    std::vector<std::string> found;
    std::error_code error;
    for (const fs::directory_entry &entry : fs::directory_iterator(dir, error)) {
        std::error_code ignored;
        if (entry.is_symlink(ignored) || !entry.is_directory(ignored)) continue;
        const std::string path = entry.path().string(), name = entry.path().filename().string();
        if (name.front() != '.' && (is_checkpoint_dir(path) || is_run_name(name))) found.push_back(path);
    }
    if (error) throw Failure("cannot read '" + dir + "': " + error.message());
    if (found.empty()) throw Failure("'" + dir + "' is not a checkpoint, and there is none in it");
    std::sort(found.begin(), found.end());
    return found;
}

std::string link_target(const std::string &dir, const char *link) {
    std::error_code error;
    const fs::path target = fs::read_symlink(fs::path(dir) / link, error);
    return error ? "" : target.string();
}

std::vector<NamedSize> files_in(const std::string &dir) {
    std::vector<NamedSize> files;
    std::error_code error;
    for (const fs::directory_entry &entry : fs::directory_iterator(dir, error)) {
        std::error_code ignored;
        if (!entry.is_regular_file(ignored)) continue;
        files.push_back({entry.path().filename().string(), static_cast<std::int64_t>(entry.file_size(ignored))});
    }
    if (error) throw Failure("cannot read '" + dir + "': " + error.message());
    std::sort(files.begin(), files.end(), [](const NamedSize &a, const NamedSize &b) { return a.name < b.name; });
    return files;
}

} // namespace dslide::cli
