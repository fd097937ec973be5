// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "model/checkpoint_files.hpp"
#include "model/checkpoint_format.hpp"

#include <algorithm>
#include <fcntl.h>
#include <set>
#include <unistd.h>

namespace dslide {
namespace {

constexpr const char *latest_link = "latest";
constexpr const char *best_link = "best";
constexpr const char *probe_name = "write-test";

bool is_store_name(const std::string &name) {
    for (const std::string_view prefix : {"epoch-", "step-"})
        if (name.size() > prefix.size() && name.compare(0, prefix.size(), prefix) == 0)
            return is_valid_name(name) && name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
    return false;
}

/// Names whose leftovers a store may remove.
bool is_store_leftover(const std::string &name) {
    return is_store_name(name) || name == latest_link || name == best_link || name == probe_name;
}

std::string link_target(const FileCalls &calls, const File &root, const char *link) {
    char target[256] = "";
    const ssize_t length = retry([&] { return calls.readlink(root.fd(), link, target, sizeof target); });
    if (length >= 0) return std::string(target, static_cast<std::size_t>(length));
    if (errno == EINVAL)
        fail(DSLIDE_E_IO, root.path(), "/", link, " exists and is not a symbolic link: it is not replaced");
    if (errno != ENOENT) fail_io("read", root.path() + "/" + link, errno);
    return "";
}

/// Replaces the link in one step: readers see the old one or the new one.
void point(const FileCalls &calls, File &root, const char *link, const std::string &target) {
    const std::string made = temporary_name(link, pending_suffix), path = root.path() + "/" + link;
    if (retry([&] { return calls.symlink(target.c_str(), root.fd(), made.c_str()); }) < 0)
        fail_io("create", path, errno);
    if (calls.rename(root.fd(), made.c_str(), link, 0) < 0) {
        const int error = errno;
        remove_entry(calls, root, made);
        fail_io("replace", path, error);
    }
    root.sync();
}

/// Under a temporary name first: nobody then takes the half-removed directory for a checkpoint.
void remove_checkpoint(const FileCalls &calls, const File &root, const std::string &name) {
    const std::string removed = temporary_name(name, pending_suffix);
    if (calls.rename(root.fd(), name.c_str(), removed.c_str(), 0) == 0) remove_entry(calls, root, removed);
}

void keep_only(const FileCalls &calls, const File &root, const std::set<std::string> &kept) {
    for (const std::string &entry : root.list())
        if (is_store_name(entry) && !kept.count(entry) && is_checkpoint(calls, root, entry))
            remove_checkpoint(calls, root, entry);
}

} // namespace

CheckpointStore::CheckpointStore(std::string root, SaveOptions options) : root_(std::move(root)), options_(options) {}

void CheckpointStore::prepare() {
    const FileCalls &calls = *options_.calls;
    const mode_t all_by_umask = 0777;
    for (std::size_t slash = root_.find('/', 1);; slash = root_.find('/', slash + 1)) {
        const std::string path = root_.substr(0, slash);
        if (retry([&] { return calls.mkdir(AT_FDCWD, path.c_str(), all_by_umask); }) < 0 && errno != EEXIST)
            fail_io("create", path, errno);
        if (slash == std::string::npos) break;
    }
    File root = File::open(calls, AT_FDCWD, root_, O_RDONLY | O_DIRECTORY, root_);
    for (const char *link : {latest_link, best_link}) link_target(calls, root, link); // now, not after an epoch
    const std::string name = temporary_name(probe_name, pending_suffix);
    File probe = File::open(calls, root.fd(), name, O_WRONLY | O_CREAT | O_EXCL, root_ + "/" + name);
    try {
        probe.write_all("x", 1);
        probe.sync();
        probe.close();
    } catch (const Error &) {
        remove_entry(calls, root, name);
        throw;
    }
    remove_entry(calls, root, name);
    root.sync();
}

std::string CheckpointStore::path_of(const std::string &name) const {
    if (!is_store_name(name)) fail(DSLIDE_E_INTERNAL, "\"", name, "\" is not the name of a checkpoint of a run");
    return root_ + "/" + name;
}

std::string CheckpointStore::begin(const std::string &name) {
    path_of(name);
    const FileCalls &calls = *options_.calls;
    File root = File::open(calls, AT_FDCWD, root_, O_RDONLY | O_DIRECTORY, root_);
    const std::string previous = link_target(calls, root, latest_link);
    remove_leftovers(calls, root, is_store_leftover);
    return previous;
}

void CheckpointStore::finish(const std::string &name, const std::string &previous, bool is_best) {
    const FileCalls &calls = *options_.calls;
    File root = File::open(calls, AT_FDCWD, root_, O_RDONLY | O_DIRECTORY, root_);
    point(calls, root, latest_link, name);
    if (is_best) point(calls, root, best_link, name);
    if (previous == name) return; // which one came before it is not known: keep all
    try {
        keep_only(calls, root, {name, previous, link_target(calls, root, best_link)});
    } catch (const Error &e) {
        log_warning("older checkpoints are not removed: ", e.what()); // the save itself is done
    }
}

void CheckpointStore::save(const std::string &name, const CheckpointContent &content, bool is_best) {
    const std::string previous = begin(name);
    write_checkpoint(path_of(name), content, options_);
    finish(name, previous, is_best);
}

} // namespace dslide
