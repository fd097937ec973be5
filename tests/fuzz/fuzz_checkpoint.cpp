// SPDX-License-Identifier: Apache-2.0
// Any bytes as a checkpoint of a manifest and one shard, "s", kept in memory.
//
// An input is the manifest without its last line, a line "====", and the shard. So that a fuzzer gets past the
// checksums, they are filled in: the manifest's own is appended, "size":# and ################ become the size and
// checksum of the shard, and ######## at the shard's start the length of its first line, the header. An input that
// begins with ! has its manifest taken as it is.
#include "core/error.hpp"
#include "model/checkpoint.hpp"
#include "model/checkpoint_format.hpp"
#include "model/meta.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

using namespace dslide;

namespace {

enum Descriptor { directory_fd = 1000, manifest_fd, shard_fd };
std::string manifest_bytes, shard;

int find(const char *name) {
    if (std::strcmp(name, manifest_name) == 0) return manifest_fd;
    if (std::strcmp(name, "s") == 0) return shard_fd;
    if (std::strcmp(name, "dir") == 0 || std::strcmp(name, ".") == 0) return directory_fd;
    errno = ENOENT;
    return -1;
}

const std::string &bytes_of(int fd) { return fd == shard_fd ? shard : manifest_bytes; }

int read_only() {
    std::abort(); // a reader that writes
}

const FileCalls &memory_calls() {
    static const FileCalls calls{
        [](int, const char *name, int, mode_t) { return find(name); },
        [](int) { return 0; },
        [](int fd, void *to, std::size_t size, off_t offset) {
            const std::string &bytes = bytes_of(fd);
            if (offset < 0 || static_cast<std::size_t>(offset) >= bytes.size()) return ssize_t{0};
            const std::size_t taken = std::min(size, bytes.size() - static_cast<std::size_t>(offset));
            std::memcpy(to, bytes.data() + offset, taken);
            return static_cast<ssize_t>(taken);
        },
        [](int, const void *, std::size_t) { return ssize_t{read_only()}; },
        [](int) { return read_only(); },
        [](int, int) { return read_only(); },
        [](int dir, const char *name, struct stat *out, int) {
            const int fd = *name ? find(name) : dir;
            if (fd < 0) return -1;
            *out = {};
            out->st_mode = fd == directory_fd ? S_IFDIR : S_IFREG;
            out->st_size = static_cast<off_t>(bytes_of(fd).size());
            return 0;
        },
        [](int, const char *, mode_t) { return read_only(); },
        [](int, const char *, const char *, unsigned) { return read_only(); },
        [](int, const char *, int) { return read_only(); },
        [](const char *, int, const char *) { return read_only(); },
        [](int, const char *name, char *, std::size_t) { return ssize_t{find(name)}; },
        [](int, std::vector<std::string> *names) {
            *names = {manifest_name, "s"};
            return 0;
        },
    };
    return calls;
}

void replace_all(std::string &text, std::string_view what, const std::string &with) {
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
        text.replace(at, what.size(), with);
}

std::string hex(std::uint64_t value) {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
    return digits;
}

void lay_out(std::string_view input) {
    constexpr std::string_view separator = "\n====\n";
    const std::size_t cut = input.find(separator);
    manifest_bytes = input.substr(0, cut);
    shard = cut == std::string_view::npos ? "" : input.substr(cut + separator.size());
    if (shard.substr(0, length_field_bytes) == "########") {
        const std::size_t length = std::min(shard.find('\n') + 1, shard.size()) - length_field_bytes;
        for (std::size_t i = 0; i < length_field_bytes; ++i) shard[i] = static_cast<char>(length >> (8 * i) & 255);
    }
    if (!manifest_bytes.empty() && manifest_bytes[0] == '!') {
        manifest_bytes.erase(0, 1);
        return;
    }
    replace_all(manifest_bytes, "\"size\":#", "\"size\":" + std::to_string(shard.size()));
    replace_all(manifest_bytes, "################", hex(checksum(shard.data(), shard.size())));
    manifest_bytes += ",\n\"xxh3\":\"" + hex(checksum(manifest_bytes.data(), manifest_bytes.size())) + "\"}\n";
}

void use(const CheckpointReader &reader) {
    reader.verify();
    const Meta meta(reader.meta());
    for (const std::string &name : reader.tensor_names()) {
        const TensorShape shape = reader.shape(name);
        const std::int64_t bytes = byte_count(shape);
        if (bytes < 1 || bytes > static_cast<std::int64_t>(shard.size())) std::abort(); // more than the file can hold
        std::vector<char> whole(static_cast<std::size_t>(bytes));
        reader.read_rows(name, 0, shape.rows, whole.data(), shape.cols);
        std::vector<char> last(static_cast<std::size_t>(bytes / shape.rows));
        reader.read_rows(name, shape.rows - 1, shape.rows, last.data(), shape.cols);
        if (!std::equal(last.begin(), last.end(), whole.end() - static_cast<std::ptrdiff_t>(last.size()))) std::abort();
    }
    for (const std::string &name : reader.file_names()) (void)reader.read_file(name);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    lay_out({reinterpret_cast<const char *>(data), size});
    try {
        use(CheckpointReader("dir", false, memory_calls()));
    } catch (const Error &) { // whatever else is thrown is a defect
    }
    return 0;
}
