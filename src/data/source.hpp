// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a text come from: a file, a descriptor or memory; plain or compressed, told by the first bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>

namespace dslide {

/// Bytes in order.
class ByteSource {
public:
    virtual ~ByteSource() = default;
    /// Up to `cap` bytes, at least one unless the end is reached; throws E_IO, or DamagedInput once all bytes before
    /// the damage have been given out.
    virtual std::size_t read(char *to, std::size_t cap) = 0;
};

/// Compressed data that breaks off or makes no sense. The text reader knows the line where that happens.
struct DamagedInput {
    std::string text; ///< "expected ..., found ..."
};

/// Decompresses gzip, xz and zstd, also several members one after the other; hands other bytes through.
std::unique_ptr<ByteSource> decompressed(std::unique_ptr<ByteSource> raw);

/// A place that bytes can be read from, once (pipes) or again and again.
class Input {
public:
    /// Opens the file; the descriptor is this object's.
    static Input file(const std::string &path);
    /// Borrows the descriptor. A seekable one is read from its present position, which does not move.
    static Input descriptor(int fd, std::string name);
    /// Borrows the memory.
    static Input memory(const void *data, std::size_t size);

    Input(Input &&other) noexcept;
    Input &operator=(Input &&) = delete;
    ~Input();

    /// The bytes from the start; E_STATE for a pipe's second time.
    std::unique_ptr<ByteSource> open();
    bool repeatable() const { return data_ || seekable_; }
    /// What error texts call it.
    const std::string &name() const { return name_; }

private:
    Input(std::string name, int fd, bool owned);
    Input(const void *data, std::size_t size) : name_("memory"), data_(static_cast<const char *>(data)), size_(size) {}

    std::string name_;
    const char *data_ = nullptr;
    std::size_t size_ = 0;
    int fd_ = -1;
    bool owned_ = false;
    bool seekable_ = false;
    bool used_ = false;
    off_t start_ = 0;
};

} // namespace dslide
