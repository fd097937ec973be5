// SPDX-License-Identifier: Apache-2.0
#include "model/file_calls.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>

namespace dslide {
namespace {

int list_names(int dir, std::vector<std::string> *names) {
    const int fd = ::openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    DIR *stream = ::fdopendir(fd);
    if (!stream) {
        const int error = errno;
        ::close(fd);
        errno = error;
        return -1;
    }
    names->clear();
    errno = 0;
    while (const dirent *entry = ::readdir(stream)) {
        if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
            names->emplace_back(entry->d_name);
        errno = 0;
    }
    const int error = errno;
    ::closedir(stream);
    errno = error;
    return error ? -1 : 0;
}

} // namespace

const FileCalls &system_calls() {
    static const FileCalls calls{
        [](int dir, const char *name, int flags, mode_t mode) { return ::openat(dir, name, flags, mode); },
        ::close,
        ::pread,
        ::write,
        ::fsync,
        ::flock,
        ::fstatat,
        ::mkdirat,
        [](int dir, const char *from, const char *to, unsigned flags) {
            return flags ? ::renameat2(dir, from, dir, to, flags) : ::renameat(dir, from, dir, to);
        },
        ::unlinkat,
        ::symlinkat,
        ::readlinkat,
        list_names,
    };
    return calls;
}

void fail_io(const char *action, const std::string &path, int error) {
    fail(DSLIDE_E_IO, "cannot ", action, " ", path, ": ", std::generic_category().message(error));
}

File &File::operator=(File &&other) noexcept {
    std::swap(calls_, other.calls_);
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    return *this;
}

File::~File() {
    if (fd_ >= 0) calls_->close(fd_);
}

File File::try_open(const FileCalls &calls, int dir, const std::string &name, int flags, const std::string &path) {
    const mode_t all_by_umask = 0666;
    return {calls, retry([&] { return calls.open(dir, name.c_str(), flags | O_CLOEXEC, all_by_umask); }), path};
}

File File::open(const FileCalls &calls, int dir, const std::string &name, int flags, const std::string &path) {
    File file = try_open(calls, dir, name, flags, path);
    if (!file.is_open()) fail_io(flags & O_CREAT ? "create" : "open", path, errno);
    return file;
}

struct stat File::status() const {
    struct stat status {};
    if (retry([&] { return calls_->stat(fd_, "", &status, AT_EMPTY_PATH); }) < 0) fail_io("look at", path_, errno);
    return status;
}

void File::write_all(const void *data, std::size_t size) {
    const char *from = static_cast<const char *>(data);
    while (size > 0) {
        const ssize_t written = retry([&] { return calls_->write(fd_, from, size); });
        if (written < 0) fail_io("write", path_, errno);
        if (written == 0) fail_io("write", path_, EIO); // would repeat for ever
        from += written;
        size -= static_cast<std::size_t>(written);
    }
}

std::size_t File::read_at(void *to, std::size_t size, std::int64_t offset) const {
    std::size_t done = 0;
    while (done < size) {
        char *rest = static_cast<char *>(to) + done;
        const auto at = static_cast<off_t>(offset + static_cast<std::int64_t>(done));
        const ssize_t got = retry([&] { return calls_->pread(fd_, rest, size - done, at); });
        if (got < 0) fail_io("read", path_, errno);
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

void File::sync() {
    if (retry([&] { return calls_->fsync(fd_); }) < 0) fail_io("sync", path_, errno);
}

void File::close() {
    const int fd = std::exchange(fd_, -1);
    // Linux frees the descriptor also when it answers EINTR; the data was synced before.
    if (fd >= 0 && calls_->close(fd) < 0 && errno != EINTR) fail_io("close", path_, errno);
}

std::vector<std::string> File::list() const {
    std::vector<std::string> names;
    if (retry([&] { return calls_->list(fd_, &names); }) < 0) fail_io("list", path_, errno);
    std::sort(names.begin(), names.end());
    return names;
}

SplitPath split_path(const std::string &path) {
    const std::size_t last = path.find_last_not_of('/');
    if (last == std::string::npos) return {"/", ""};
    const std::string trimmed = path.substr(0, last + 1);
    const std::size_t slash = trimmed.rfind('/');
    if (slash == std::string::npos) return {".", trimmed};
    return {slash == 0 ? "/" : trimmed.substr(0, slash), trimmed.substr(slash + 1)};
}

} // namespace dslide
