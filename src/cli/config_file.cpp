// SPDX-License-Identifier: Apache-2.0
#include "cli/config_file.hpp"

#include "cli/errors.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace dslide::cli {

namespace {

std::string trimmed(const std::string &text) {
    const char *blanks = " \t\r";
    const std::size_t begin = text.find_first_not_of(blanks);
    if (begin == std::string::npos) return "";
    return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::string unquoted(const std::string &text) {
    const bool quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
    return quoted ? text.substr(1, text.size() - 2) : text;
}

/// Bounded: a device or a data file given by mistake must not fill the memory.
std::string text_of(const std::string &path) {
    constexpr std::size_t most_bytes = 1 << 20;
    std::error_code ignored;
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Failure("cannot read '" + path + "': " + std::strerror(errno));
    if (std::filesystem::is_directory(path, ignored)) throw Failure("cannot read '" + path + "': is a directory");
    std::string text(most_bytes + 1, '\0');
    errno = 0;
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (file.bad()) throw Failure("cannot read '" + path + "': " + std::strerror(errno != 0 ? errno : EIO));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > most_bytes) throw Failure("'" + path + "' is longer than settings can be (1 MiB)");
    return text;
}

} // namespace

std::vector<ConfigEntry> read_config(const std::string &path) {
    std::istringstream lines(text_of(path));
    std::vector<ConfigEntry> entries;
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        const std::string text = trimmed(line);
        if (text.empty() || text.front() == '#') continue;
        const std::string where = path + ":" + std::to_string(number);
        const std::size_t equals = text.find('=');
        const std::string key = trimmed(text.substr(0, equals));
        if (equals == std::string::npos || key.empty()) throw UsageError(where + ": expected 'key = value'");
        const bool repeated = std::any_of(entries.begin(), entries.end(), [&](const auto &e) { return e.key == key; });
        if (repeated) throw UsageError(where + ": '" + key + "' stands twice");
        entries.push_back({where, key, unquoted(trimmed(text.substr(equals + 1)))});
    }
    return entries;
}

std::string config_line(const std::string &key, const std::string &value) {
    if (value.find('\n') != std::string::npos)
        throw UsageError("--" + key + ": a name with a line end cannot be kept in run.conf");
    // Quotes are taken off by reading, and so are blanks outside them.
    const bool quoted = trimmed(value) != value || unquoted(value) != value;
    return key + " = " + (quoted ? '"' + value + '"' : value) + "\n";
}

std::string saved_config_path(const std::string &model_dir) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    // "DIR/best" may be a link: look beside the link, in DIR, not beside what it names.
    const fs::path dir = fs::path(model_dir + "/").lexically_normal().parent_path();
    for (const fs::path &candidate : {dir / "run.conf", fs::absolute(dir, ignored).parent_path() / "run.conf"})
        if (fs::is_regular_file(candidate, ignored)) return candidate.string();
    return "";
}

} // namespace dslide::cli
