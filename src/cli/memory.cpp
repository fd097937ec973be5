// SPDX-License-Identifier: Apache-2.0
#include "cli/memory.hpp"

#include "cli/format.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace dslide::cli {

namespace {

namespace fs = std::filesystem;

/// The number after `key` in a file of "key number" or "key: number" lines; -1: not there.
std::int64_t number_after(const fs::path &file, const std::string &key) {
    std::ifstream lines(file);
    for (std::string word; lines >> word;) {
        if (word != key) continue;
        std::int64_t value = -1;
        return lines >> value ? value : -1;
    }
    return -1;
}

std::int64_t only_number(const fs::path &file) {
    std::int64_t value = -1;
    std::ifstream text(file);
    return text >> value ? value : -1; // "max" is no number: no limit
}

std::int64_t smaller_known(std::int64_t a, std::int64_t b) {
    if (a < 0) return b;
    return b < 0 ? a : std::min(a, b);
}

/// What one cgroup leaves. Page cache counts as used there, but is given back under pressure.
std::int64_t left_in_group(const fs::path &group, const char *limit, const char *usage, const char *cache_key) {
    const std::int64_t most = only_number(group / limit), used = only_number(group / usage);
    if (most < 0 || used < 0) return -1;
    return std::max<std::int64_t>(
        most - used + std::max<std::int64_t>(number_after(group / "memory.stat", cache_key), 0), 0);
}

std::int64_t left_up_the_tree(const fs::path &root, const std::string &group, const char *limit, const char *usage,
                              const char *cache_key) {
    std::int64_t least = -1;
    for (fs::path path = fs::path(group).relative_path();; path = path.parent_path()) {
        least = smaller_known(least, left_in_group(root / path, limit, usage, cache_key));
        if (path.empty()) return least;
    }
}

std::int64_t left_in_cgroups() {
    std::int64_t least = -1;
    std::ifstream lines("/proc/self/cgroup");
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line); // hierarchy:controllers:path
        std::string hierarchy, controllers, path;
        std::getline(fields, hierarchy, ':');
        std::getline(fields, controllers, ':');
        std::getline(fields, path);
        if (controllers.empty())
            least = smaller_known(
                least, left_up_the_tree("/sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file"));
        else if (("," + controllers + ",").find(",memory,") != std::string::npos)
            least = smaller_known(least, left_up_the_tree("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                                          "memory.usage_in_bytes", "total_inactive_file"));
    }
    return least;
}

} // namespace

std::int64_t available_memory() {
    constexpr std::int64_t bytes_per_kib = 1024;
    const std::int64_t kib = number_after("/proc/meminfo", "MemAvailable:");
    return smaller_known(kib < 0 ? -1 : kib * bytes_per_kib, left_in_cgroups());
}

std::string breakdown(const dslide_memory_estimate &estimate) {
    return "weights " + bytes_text(estimate.weight_bytes) + ", optimizer " + bytes_text(estimate.optimizer_bytes) +
           ", tables " + bytes_text(estimate.table_bytes) + ", buffers " + bytes_text(estimate.buffer_bytes) +
           ", data " + bytes_text(estimate.data_bytes);
}

} // namespace dslide::cli
