// SPDX-License-Identifier: Apache-2.0
#include "data/source.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace dslide {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

class MemorySource final : public ByteSource {
public:
    MemorySource(const char *data, std::size_t size) : data_(data), size_(size) {}
    std::size_t read(char *to, std::size_t cap) override {
        const std::size_t count = std::min(cap, size_ - position_);
        if (count) std::memcpy(to, data_ + position_, count);
        position_ += count;
        return count;
    }

private:
    const char *data_;
    std::size_t size_;
    std::size_t position_ = 0;
};

// A pipe is read where it stands; a seekable descriptor by offset, so that its position stays the caller's.
class DescriptorSource final : public ByteSource {
public:
    DescriptorSource(int fd, bool seekable, off_t start, const std::string &name)
        : fd_(fd), seekable_(seekable), offset_(start), name_(name) {}
    // Up to cap or the end, so that timing has no say in how a pipe is cut.
    std::size_t read(char *to, std::size_t cap) override {
        std::size_t total = 0;
        while (total < cap) {
            const ssize_t count =
                seekable_ ? ::pread(fd_, to + total, cap - total, offset_) : ::read(fd_, to + total, cap - total);
            if (count == 0) break;
            if (count < 0 && errno == EINTR) continue;
            if (count < 0) fail(DSLIDE_E_IO, "cannot read ", name_, ": ", reason(errno));
            offset_ += count;
            total += static_cast<std::size_t>(count);
        }
        return total;
    }

private:
    int fd_;
    bool seekable_;
    off_t offset_;
    std::string name_;
};

} // namespace

Input Input::file(const std::string &path) {
    int fd;
    do fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) fail(DSLIDE_E_IO, "cannot open ", path, ": ", reason(errno));
    return Input(path, fd, true);
}

Input Input::descriptor(int fd, std::string name) { return Input(std::move(name), fd, false); }

Input Input::memory(const void *data, std::size_t size) { return Input(size ? data : "", size); }

Input::Input(std::string name, int fd, bool owned) : name_(std::move(name)), fd_(fd), owned_(owned) {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) {
        const int error = errno;
        if (owned_) ::close(fd_);
        fail(DSLIDE_E_IO, "cannot read ", name_, ": ", reason(error));
    }
    start_ = S_ISREG(status.st_mode) ? ::lseek(fd_, 0, SEEK_CUR) : -1;
    seekable_ = start_ >= 0;
    if (!seekable_) start_ = 0;
}

Input::Input(Input &&other) noexcept
    : name_(std::move(other.name_)), data_(other.data_), size_(other.size_), fd_(other.fd_),
      owned_(std::exchange(other.owned_, false)), seekable_(other.seekable_), used_(other.used_), start_(other.start_) {
}

Input::~Input() {
    if (owned_) ::close(fd_);
}

std::unique_ptr<ByteSource> Input::open() {
    if (used_ && !repeatable()) fail(DSLIDE_E_STATE, name_, " is a pipe and was read already");
    used_ = true;
    if (data_) return decompressed(std::make_unique<MemorySource>(data_, size_));
    return decompressed(std::make_unique<DescriptorSource>(fd_, seekable_, start_, name_));
}

} // namespace dslide
