// SPDX-License-Identifier: Apache-2.0
// Every call that the checkpoint code makes to the file system, in one table, so that a test can make the n-th of them
// fail; and an open file or directory whose calls are all checked.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>
#include <vector>

namespace dslide {

/// As the system calls of these names with a directory descriptor; each returns -1 and sets errno on failure.
struct FileCalls {
    int (*open)(int dir, const char *name, int flags, mode_t mode);
    int (*close)(int fd);
    ssize_t (*pread)(int fd, void *to, std::size_t size, off_t offset);
    ssize_t (*write)(int fd, const void *from, std::size_t size);
    int (*fsync)(int fd);
    int (*flock)(int fd, int operation);
    int (*stat)(int dir, const char *name, struct stat *out, int flags);
    int (*mkdir)(int dir, const char *name, mode_t mode);
    int (*rename)(int dir, const char *from, const char *to, unsigned flags); ///< both names in `dir`
    int (*unlink)(int dir, const char *name, int flags);
    int (*symlink)(const char *target, int dir, const char *name);
    ssize_t (*readlink)(int dir, const char *name, char *to, std::size_t size);
    int (*list)(int dir, std::vector<std::string> *names); ///< without "." and ".."
};
const FileCalls &system_calls();

/// Repeats a call that a signal interrupted. Not for close (the descriptor is gone) nor rename (it may have happened).
template <class Call>
auto retry(Call &&call) {
    for (;;) {
        const auto result = call();
        if (result >= 0 || errno != EINTR) return result;
    }
}

/// Error(DSLIDE_E_IO): "cannot ACTION PATH: the system's text".
[[noreturn]] void fail_io(const char *action, const std::string &path, int error);

/// An open file or directory. Unlike the destructor, the named functions check and throw Error(DSLIDE_E_IO).
class File {
public:
    File() = default;
    File(const FileCalls &calls, int fd, std::string path) : calls_(&calls), fd_(fd), path_(std::move(path)) {}
    File(File &&other) noexcept { *this = std::move(other); }
    File &operator=(File &&other) noexcept;
    ~File();

    bool is_open() const { return fd_ >= 0; }
    int fd() const { return fd_; }
    const std::string &path() const { return path_; }

    /// Opens; `path` is for messages.
    static File open(const FileCalls &calls, int dir, const std::string &name, int flags, const std::string &path);
    /// The same, but not open (and errno set) where it fails.
    static File try_open(const FileCalls &calls, int dir, const std::string &name, int flags, const std::string &path);

    struct stat status() const;
    void write_all(const void *data, std::size_t size);
    /// Reads until `size` bytes or the end of the file; the bytes read.
    std::size_t read_at(void *to, std::size_t size, std::int64_t offset) const;
    void sync();
    void close();
    std::vector<std::string> list() const;

private:
    const FileCalls *calls_ = nullptr;
    int fd_ = -1;
    std::string path_;
};

/// A path as its directory ("." if it names none) and last component, without slashes at its end.
struct SplitPath {
    std::string parent, name;
};
SplitPath split_path(const std::string &path);

} // namespace dslide
