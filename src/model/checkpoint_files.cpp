// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint_files.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/random.hpp"
#include "model/checkpoint_format.hpp"

#include <atomic>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>

namespace dslide {
namespace {

constexpr std::size_t random_digits = 8;

std::string child_path(const File &dir, const std::string &name) { return dir.path() + "/" + name; }

bool unlink_entry(const FileCalls &calls, int dir, const std::string &name, int flags) {
    return retry([&] { return calls.unlink(dir, name.c_str(), flags); }) == 0 || errno == ENOENT;
}

bool remove_directory(const FileCalls &calls, const File &parent, const std::string &name) {
    File dir = File::try_open(calls, parent.fd(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, child_path(parent, name));
    if (!dir.is_open()) return errno == ENOENT;
    for (const std::string &entry : dir.list())
        if (!unlink_entry(calls, dir.fd(), entry, 0)) return false;
    return unlink_entry(calls, parent.fd(), name, AT_REMOVEDIR);
}

/// True also where it cannot be found out.
bool is_in_use(const FileCalls &calls, const File &parent, const std::string &name) {
    const File dir = File::try_open(calls, parent.fd(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, name);
    if (!dir.is_open()) return errno != ENOTDIR && errno != ELOOP && errno != ENOENT;
    return retry([&] { return calls.flock(dir.fd(), LOCK_EX | LOCK_NB); }) < 0;
}

} // namespace

std::string temporary_name(const std::string &name, std::string_view suffix) {
    static std::atomic<std::uint64_t> counter{0};
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const auto nanoseconds =
        static_cast<std::uint64_t>(now.tv_sec) * 1000000000u + static_cast<std::uint64_t>(now.tv_nsec);
    std::uint64_t bits = mix(mix(nanoseconds) + mix(static_cast<std::uint64_t>(getpid())) + ++counter);
    std::string text = name + ".";
    for (std::size_t i = 0; i < random_digits; ++i, bits >>= 4) text += "0123456789abcdef"[bits & 15];
    return text.append(suffix);
}

std::optional<std::string> name_behind(std::string_view entry, std::string_view suffix) {
    const std::size_t added = 1 + random_digits + suffix.size();
    if (entry.size() <= added || entry.substr(entry.size() - suffix.size()) != suffix) return std::nullopt;
    const std::string_view digits = entry.substr(entry.size() - added + 1, random_digits);
    if (entry[entry.size() - added] != '.' || digits.find_first_not_of("0123456789abcdef") != std::string_view::npos)
        return std::nullopt;
    return std::string(entry.substr(0, entry.size() - added));
}

bool exists(const FileCalls &calls, const File &dir, const std::string &name) {
    struct stat status {};
    if (retry([&] { return calls.stat(dir.fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW); }) == 0) return true;
    if (errno != ENOENT) fail_io("look at", child_path(dir, name), errno);
    return false;
}

bool is_checkpoint(const FileCalls &calls, const File &dir, const std::string &name) {
    const std::string path = child_path(dir, name);
    const File found = File::try_open(calls, dir.fd(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, path);
    if (!found.is_open()) return false;
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK; // a pipe of this name must not block us
    const File manifest = File::try_open(calls, found.fd(), manifest_name, flags, path + "/" + manifest_name);
    if (!manifest.is_open() || !S_ISREG(manifest.status().st_mode)) return false;
    char start[64] = "";
    return begins_as_manifest({start, manifest.read_at(start, sizeof start, 0)});
}

bool remove_entry(const FileCalls &calls, const File &dir, const std::string &name) noexcept {
    bool removed = false;
    try {
        removed = unlink_entry(calls, dir.fd(), name, 0) ||
                  ((errno == EISDIR || errno == EPERM) && remove_directory(calls, dir, name));
        if (!removed)
            log(DSLIDE_LOG_WARNING, "cannot remove ", child_path(dir, name), ": ",
                std::generic_category().message(errno));
    } catch (const std::exception &) {
        // No memory for the list of names, or a directory that cannot be read: the same as not removed.
    }
    return removed;
}

void remove_leftovers(const FileCalls &calls, const File &dir,
                      const std::function<bool(const std::string &)> &ours) noexcept {
    try {
        for (const std::string &entry : dir.list()) {
            const auto pending = name_behind(entry, pending_suffix), aside = name_behind(entry, aside_suffix);
            if ((pending && ours(*pending) && !is_in_use(calls, dir, entry)) ||
                (aside && ours(*aside) && exists(calls, dir, *aside)))
                remove_entry(calls, dir, entry);
        }
    } catch (const std::exception &e) {
        log_warning("leftovers of interrupted saves are not removed: ", e.what());
    }
}

File open_checkpoint_dir(const FileCalls &calls, const File &parent, const std::string &name) {
    const std::string path = parent.path() == "." ? name : child_path(parent, name);
    File dir = File::try_open(calls, parent.fd(), name, O_RDONLY | O_DIRECTORY, path);
    if (dir.is_open()) return dir;
    const int error = errno;
    if (error == ENOTDIR) fail(DSLIDE_E_FORMAT, path, ": not a checkpoint: a directory was expected");
    if (error != ENOENT) fail_io("open", path, error);
    for (const std::string &entry : parent.list())
        if (name_behind(entry, aside_suffix) == name && is_checkpoint(calls, parent, entry))
            return File::open(calls, parent.fd(), entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW,
                              child_path(parent, entry));
    fail_io("open", path, error);
}

} // namespace dslide
