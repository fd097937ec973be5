// SPDX-License-Identifier: Apache-2.0
// Directories of checkpoints: what is one, what interrupted saves leave behind, how both are removed.
//
// NAME.XXXXXXXX.dslide.tmp  a save under way, or a checkpoint being removed; locked (flock) while its maker lives
// NAME.XXXXXXXX.dslide.old  the checkpoint NAME, moved aside where the file system cannot exchange two names
#pragma once

#include "core/log.hpp"
#include "model/file_calls.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace dslide {

constexpr std::string_view pending_suffix = ".dslide.tmp";
constexpr std::string_view aside_suffix = ".dslide.old";

/// "NAME.XXXXXXXX" + suffix, other digits at each call.
std::string temporary_name(const std::string &name, std::string_view suffix);
/// NAME, if `entry` has the form that temporary_name(NAME, suffix) gives.
std::optional<std::string> name_behind(std::string_view entry, std::string_view suffix);

/// Is `name` in `dir` a directory whose manifest.json begins as a manifest does? Links are not followed.
bool is_checkpoint(const FileCalls &calls, const File &dir, const std::string &name);
bool exists(const FileCalls &calls, const File &dir, const std::string &name);

/// Removes a file or link, or a directory that holds no directories. False, and a line in the log, where it fails: what
/// is left has a temporary name, and the next save tries again.
bool remove_entry(const FileCalls &calls, const File &dir, const std::string &name) noexcept;

/// Removes what saves that no longer run left in `dir` under names that `ours` accepts. An aside checkpoint goes only
/// if its original place is taken again. What fails goes to the log.
void remove_leftovers(const FileCalls &calls, const File &dir,
                      const std::function<bool(const std::string &)> &ours) noexcept;

/// A line in the log, from where nothing may be thrown.
template <class... Parts>
void log_warning(const Parts &...parts) noexcept {
    try {
        log(DSLIDE_LOG_WARNING, parts...);
    } catch (const std::exception &) {
        // No memory for the line: the warning is lost, what it tells of is done.
    }
}

/// Opens the directory `name` under `dir`, or where it is missing the checkpoint of this name that was moved aside.
File open_checkpoint_dir(const FileCalls &calls, const File &parent, const std::string &name);

} // namespace dslide
