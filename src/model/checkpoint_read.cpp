// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "model/checkpoint_files.hpp"
#include "model/checkpoint_format.hpp"
#include "model/little_endian.hpp"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <unordered_map>

namespace dslide {
namespace {

template <class... Parts>
[[noreturn]] void damaged(const Parts &...parts) {
    fail(DSLIDE_E_FORMAT, parts...);
}

/// Opens a regular file inside the checkpoint; neither links out of it nor pipes.
File open_file(const FileCalls &calls, const File &dir, const std::string &name) {
    const std::string path = dir.path() + "/" + name;
    File file = File::try_open(calls, dir.fd(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, path);
    if (!file.is_open() && errno == ENOENT) damaged(path, ": missing");
    if (!file.is_open() && errno == ELOOP) damaged(path, ": a symbolic link; only plain files are read");
    if (!file.is_open()) fail_io("open", path, errno);
    if (!S_ISREG(file.status().st_mode)) damaged(path, ": not a plain file");
    return file;
}

void check_size(const File &file, std::int64_t expected) {
    const std::int64_t size = file.status().st_size;
    if (size < expected) damaged(file.path(), ": truncated: ", size, " bytes, the manifest says ", expected);
    if (size > expected) damaged(file.path(), ": ", size, " bytes, the manifest says ", expected);
}

std::string read_manifest(const FileCalls &calls, const File &dir) {
    const File file = open_file(calls, dir, manifest_name);
    const std::int64_t size = file.status().st_size;
    if (size > max_manifest_bytes)
        damaged(file.path(), ": ", size, " bytes, at most ", max_manifest_bytes, " are allowed");
    std::string text(static_cast<std::size_t>(size), '\0');
    text.resize(file.read_at(text.data(), text.size(), 0));
    return text;
}

/// Where `link` under the run's directory leads, or "" if there is no such link.
std::string pointed_name(const FileCalls &calls, const File &root, const char *link) {
    char target[256] = "";
    const ssize_t length = retry([&] { return calls.readlink(root.fd(), link, target, sizeof target); });
    const std::string path = root.path() + "/" + link;
    if (length < 0 && errno == ENOENT) return "";
    if (length < 0 && errno == EINVAL) return link; // no link: copied as a directory
    if (length < 0) fail_io("read", path, errno);
    const std::string name(target, static_cast<std::size_t>(length));
    if (!is_valid_name(name)) damaged(path, ": leads out of its directory");
    return name;
}

/// The directory that holds the manifest: `dir` itself, or the one that its links name.
File find_checkpoint(const FileCalls &calls, const std::string &dir, bool prefer_latest) {
    const SplitPath split = split_path(dir);
    const bool has_name = !split.name.empty() && split.name != "." && split.name != "..";
    File root = has_name ? open_checkpoint_dir(
                               calls, File::open(calls, AT_FDCWD, split.parent, O_RDONLY | O_DIRECTORY, split.parent),
                               split.name)
                         : File::open(calls, AT_FDCWD, dir, O_RDONLY | O_DIRECTORY, dir);
    if (exists(calls, root, manifest_name)) return root;
    for (const char *link : {prefer_latest ? "latest" : "best", prefer_latest ? "best" : "latest"}) {
        const std::string name = pointed_name(calls, root, link);
        if (name.empty()) continue;
        try {
            return open_checkpoint_dir(calls, root, name);
        } catch (const Error &e) {
            fail(e.status(), root.path(), "/", link, ": ", e.what());
        }
    }
    damaged(dir, ": not a checkpoint: it has no ", manifest_name, " and neither best nor latest");
}

} // namespace

struct CheckpointReader::State {
    const FileCalls &calls;
    File dir;
    Manifest manifest;
    std::int64_t manifest_bytes = 0;
    std::unordered_map<std::string, const TensorRecord *> tensors;
    std::unordered_map<std::string, const FileRecord *> files, shards;
    struct Data {
        const FileRecord *shard = nullptr;
        std::int64_t offset = 0; ///< of the part's first row in the shard
        PartRecord place;
    };
    std::unordered_map<std::string, std::vector<Data>> data; ///< by tensor, in the manifest's order

    State(const std::string &path, bool prefer_latest, const FileCalls &file_calls)
        : calls(file_calls), dir(find_checkpoint(calls, path, prefer_latest)) {
        const std::string text = read_manifest(calls, dir);
        manifest_bytes = static_cast<std::int64_t>(text.size());
        manifest = parse_manifest(text, dir.path() + "/" + manifest_name);
        for (const TensorRecord &tensor : manifest.tensors) tensors.emplace(tensor.name, &tensor);
        for (const FileRecord &file : manifest.files) files.emplace(file.name, &file);
        for (const FileRecord &shard : manifest.shards) shards.emplace(shard.name, &shard);
        for (const FileRecord &file : manifest.files) open_checked(file);
        read_headers();
    }

    File open_checked(const FileRecord &record) const {
        File file = open_file(calls, dir, record.name);
        check_size(file, record.size);
        return file;
    }

    /// Hands bytes [begin, end) of a file to sink(bytes, size), block by block, each after its checksum was checked.
    template <class Sink>
    void read_checked(const File &file, const FileRecord &record, std::int64_t begin, std::int64_t end,
                      Sink &&sink) const {
        const std::int64_t block_bytes = manifest.block_bytes;
        std::string block(static_cast<std::size_t>(std::min(block_bytes, record.size)), '\0');
        for (std::int64_t at = begin; at < end;) {
            const std::int64_t index = at / block_bytes, start = index * block_bytes;
            const auto size = static_cast<std::size_t>(std::min(block_bytes, record.size - start));
            if (file.read_at(block.data(), size, start) != size) damaged(file.path(), ": truncated while it was read");
            if (checksum(block.data(), size) != record.blocks[static_cast<std::size_t>(index)])
                damaged(file.path(), ": checksum mismatch in bytes ", start, " .. ",
                        start + static_cast<std::int64_t>(size) - 1);
            const std::int64_t stop = std::min(end, start + static_cast<std::int64_t>(size));
            sink(block.data() + (at - start), static_cast<std::size_t>(stop - at));
            at = stop;
        }
    }

    std::string read_text(const File &file, const FileRecord &record, std::int64_t begin, std::int64_t end) const {
        std::string text;
        text.reserve(static_cast<std::size_t>(end - begin));
        read_checked(file, record, begin, end, [&](const char *bytes, std::size_t size) { text.append(bytes, size); });
        return text;
    }

    /// The entries of a shard's header; their offsets are made to count from the start of the file.
    std::vector<ShardEntry> read_header(const FileRecord &shard) const {
        const File file = open_checked(shard);
        const auto prefix = static_cast<std::int64_t>(length_field_bytes);
        if (shard.size < prefix) damaged(file.path(), ": truncated: no room for a header");
        std::uint64_t length = 0;
        const std::string field = read_text(file, shard, 0, prefix);
        for (std::size_t i = 0; i < field.size(); ++i)
            length |= std::uint64_t{static_cast<unsigned char>(field[i])} << (8 * i);
        if (length > static_cast<std::uint64_t>(std::min(max_header_bytes, shard.size - prefix)))
            damaged(file.path(), ": header of ", length, " bytes in a file of ", shard.size);
        const std::int64_t data_begin = prefix + static_cast<std::int64_t>(length);
        std::vector<ShardEntry> entries =
            parse_shard_header(read_text(file, shard, prefix, data_begin), shard.size - data_begin, file.path());
        for (ShardEntry &entry : entries) {
            entry.begin += data_begin;
            entry.end += data_begin;
        }
        return entries;
    }

    /// Reads all headers and finds in them each part that the manifest names, and no other.
    void read_headers() {
        std::unordered_map<std::string, std::unordered_map<std::string, ShardEntry>> entries;
        for (const FileRecord &shard : manifest.shards)
            for (ShardEntry &entry : read_header(shard)) {
                std::string name = entry.name;
                entries[shard.name].emplace(std::move(name), std::move(entry));
            }
        for (const TensorRecord &tensor : manifest.tensors)
            for (const PartRecord &part : tensor.parts) {
                auto &shard_entries = entries[part.shard];
                const auto found = shard_entries.find(tensor.name);
                if (found == shard_entries.end())
                    damaged(dir.path(), "/", part.shard, ": ", tensor.name, " is missing in its header");
                check_part(tensor, part, found->second);
                data[tensor.name].push_back({shards.at(part.shard), found->second.begin, part});
                shard_entries.erase(found);
            }
        for (const auto &[shard, rest] : entries)
            if (!rest.empty()) damaged(dir.path(), "/", shard, ": ", rest.begin()->first, " is not in the manifest");
    }

    void check_part(const TensorRecord &tensor, const PartRecord &part, const ShardEntry &entry) const {
        const TensorShape &shape = entry.shape;
        if (shape.type != tensor.shape.type || shape.cols != part.col_end - part.col_begin ||
            shape.rows != part.row_end - part.row_begin)
            damaged(dir.path(), "/", part.shard, ": ", tensor.name,
                    " has another type or shape than the manifest says");
        if (entry.range != range_text(part, tensor.shape))
            damaged(dir.path(), "/", part.shard, ": ", tensor.name,
                    " has other rows or columns than the manifest says");
    }

    /// Reads what lies in rows [begin, end) and columns [col_begin, col_end); row r goes to place(r), null: nowhere.
    template <class Place>
    void read_places(const std::string &name, std::int64_t begin, std::int64_t end, std::int64_t col_begin,
                     std::int64_t col_end, Place &&place) const;

    const TensorRecord &tensor(const std::string &name) const {
        const auto found = tensors.find(name);
        if (found == tensors.end()) damaged(dir.path(), ": no tensor ", name);
        return *found->second;
    }
};

namespace {

/// Takes a stream of rows of `row_bytes`; of those that `place` gives an address (in order, null: none), the bytes
/// [first, last) are copied there.
template <class Place>
class RowSink {
public:
    RowSink(std::size_t row_bytes, std::size_t first, std::size_t last, Place place)
        : row_bytes_(row_bytes), first_(first), last_(last), place_(place) {}
    void operator()(const char *bytes, std::size_t size) {
        while (size > 0) {
            if (column_ == 0) out_ = place_(row_);
            const std::size_t taken = std::min(size, row_bytes_ - column_);
            const std::size_t from = std::max(column_, first_), to = std::min(column_ + taken, last_);
            if (out_ && from < to) std::memcpy(out_ + (from - first_), bytes + (from - column_), to - from);
            bytes += taken;
            size -= taken;
            column_ += taken;
            if (column_ < row_bytes_) continue;
            column_ = 0;
            ++row_;
        }
    }

private:
    std::size_t row_bytes_, first_, last_;
    Place place_;
    std::size_t column_ = 0;
    std::int64_t row_ = 0; ///< counted from the stream's first
    char *out_ = nullptr;
};

void to_host_order(void *out, std::int64_t rows, std::int64_t cols, std::int64_t row_stride, std::size_t size) {
    if constexpr (host_is_little_endian) return;
    for (std::int64_t row = 0; row < rows; ++row)
        reverse_bytes(static_cast<char *>(out) + static_cast<std::size_t>(row * row_stride) * size,
                      static_cast<std::size_t>(cols), size);
}

} // namespace

template <class Place>
void CheckpointReader::State::read_places(const std::string &name, std::int64_t begin, std::int64_t end,
                                          std::int64_t col_begin, std::int64_t col_end, Place &&place) const {
    const std::size_t size = size_of(tensor(name).shape.type);
    for (const Data &part : data.at(name)) {
        const PartRecord &p = part.place;
        const std::int64_t first = std::max(begin, p.row_begin), last = std::min(end, p.row_end);
        const std::int64_t left = std::max(col_begin, p.col_begin), right = std::min(col_end, p.col_end);
        if (first >= last || left >= right) continue;
        const File file = open_checked(*part.shard);
        const std::int64_t row_bytes = (p.col_end - p.col_begin) * static_cast<std::int64_t>(size);
        const std::int64_t from = part.offset + (first - p.row_begin) * row_bytes;
        const auto bytes = [&](std::int64_t columns) { return static_cast<std::size_t>(columns) * size; };
        const auto address = [&](std::int64_t row) -> char * {
            char *out = place(first + row);
            return out ? out + bytes(left - col_begin) : nullptr;
        };
        RowSink<decltype(address)> sink(static_cast<std::size_t>(row_bytes), bytes(left - p.col_begin),
                                        bytes(right - p.col_begin), address);
        read_checked(file, *part.shard, from, from + (last - first) * row_bytes, sink);
    }
}

CheckpointReader::CheckpointReader(const std::string &dir, bool prefer_latest, const FileCalls &calls)
    : state_(std::make_unique<State>(dir, prefer_latest, calls)) {}
CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader &&) noexcept = default;

const std::string &CheckpointReader::dir() const { return state_->dir.path(); }
std::int32_t CheckpointReader::format_version() const { return state_->manifest.major; }
const std::string &CheckpointReader::meta() const { return state_->manifest.meta; }

std::vector<std::string> CheckpointReader::tensor_names() const {
    std::vector<std::string> names;
    for (const TensorRecord &tensor : state_->manifest.tensors) names.push_back(tensor.name);
    return names;
}

bool CheckpointReader::has(const std::string &name) const { return state_->tensors.count(name) != 0; }
TensorShape CheckpointReader::shape(const std::string &name) const { return state_->tensor(name).shape; }

void CheckpointReader::read_rows(const std::string &name, std::int64_t begin, std::int64_t end, void *out,
                                 std::int64_t row_stride) const {
    read_block(name, begin, end, 0, state_->tensor(name).shape.cols, out, row_stride);
}

void CheckpointReader::read_block(const std::string &name, std::int64_t begin, std::int64_t end, std::int64_t col_begin,
                                  std::int64_t col_end, void *out, std::int64_t row_stride) const {
    const TensorShape shape = state_->tensor(name).shape;
    if (begin < 0 || begin > end || end > shape.rows || col_begin < 0 || col_begin > col_end || col_end > shape.cols ||
        row_stride < col_end - col_begin)
        fail(DSLIDE_E_ARGUMENT, "rows ", begin, " .. ", end, ", columns ", col_begin, " .. ", col_end, " of ", name,
             ", which has ", shape.rows, " x ", shape.cols);
    const std::size_t stride = static_cast<std::size_t>(row_stride) * size_of(shape.type);
    state_->read_places(name, begin, end, col_begin, col_end, [&](std::int64_t row) {
        return static_cast<char *>(out) + static_cast<std::size_t>(row - begin) * stride;
    });
    to_host_order(out, end - begin, col_end - col_begin, row_stride, size_of(shape.type));
}

void CheckpointReader::read_list(const std::string &name, std::span<const std::int64_t> rows, void *out,
                                 std::int64_t row_stride) const {
    const TensorShape shape = state_->tensor(name).shape;
    if (rows.empty()) return;
    std::vector<std::pair<std::int64_t, std::int64_t>> wanted; // row, place in out
    for (std::size_t i = 0; i < rows.size(); ++i) wanted.emplace_back(rows[i], static_cast<std::int64_t>(i));
    std::sort(wanted.begin(), wanted.end());
    if (wanted.front().first < 0 || wanted.back().first >= shape.rows || row_stride < shape.cols)
        fail(DSLIDE_E_ARGUMENT, "a row in the list of ", name, " is not below ", shape.rows);
    const std::size_t stride = static_cast<std::size_t>(row_stride) * size_of(shape.type);
    state_->read_places(
        name, wanted.front().first, wanted.back().first + 1, 0, shape.cols, [&](std::int64_t row) -> char * {
            const auto found = std::lower_bound(wanted.begin(), wanted.end(), std::pair{row, std::int64_t{0}});
            if (found == wanted.end() || found->first != row) return nullptr;
            return static_cast<char *>(out) + static_cast<std::size_t>(found->second) * stride;
        });
    to_host_order(out, static_cast<std::int64_t>(rows.size()), shape.cols, row_stride, size_of(shape.type));
}

std::vector<std::string> CheckpointReader::file_names() const {
    std::vector<std::string> names;
    for (const FileRecord &file : state_->manifest.files) names.push_back(file.name);
    return names;
}

std::string CheckpointReader::read_file(const std::string &name) const {
    const auto found = state_->files.find(name);
    if (found == state_->files.end()) damaged(state_->dir.path(), ": no file ", name);
    const FileRecord &record = *found->second;
    return state_->read_text(state_->open_checked(record), record, 0, record.size);
}

std::int64_t CheckpointReader::total_bytes() const {
    std::int64_t bytes = state_->manifest_bytes;
    for (const auto *list : {&state_->manifest.shards, &state_->manifest.files})
        for (const FileRecord &file : *list) bytes += file.size;
    return bytes;
}

std::int32_t CheckpointReader::shard_count() const { return static_cast<std::int32_t>(state_->manifest.shards.size()); }

void CheckpointReader::verify() const {
    for (const auto *list : {&state_->manifest.shards, &state_->manifest.files})
        for (const FileRecord &record : *list)
            state_->read_checked(state_->open_checked(record), record, 0, record.size,
                                 [](const char *, std::size_t) {});
}

} // namespace dslide
