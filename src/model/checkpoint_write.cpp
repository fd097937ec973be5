// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "model/checkpoint_files.hpp"
#include "model/checkpoint_format.hpp"
#include "model/little_endian.hpp"

#include <algorithm>
#include <cstdio>
#include <fcntl.h>
#include <numeric>
#include <sys/file.h>
#include <tuple>

namespace dslide {
namespace {

/// Writes a new file and takes the checksum of each block of it.
class BlockWriter {
public:
    BlockWriter(const SaveOptions &options, const File &dir, const std::string &name)
        : block_(static_cast<std::size_t>(options.block_bytes)),
          file_(File::open(*options.calls, dir.fd(), name, O_WRONLY | O_CREAT | O_EXCL, dir.path() + "/" + name)) {
        record_.name = name;
        buffer_.reserve(block_);
    }

    void append(const void *data, std::size_t size) {
        const char *from = static_cast<const char *>(data);
        while (size > 0) {
            const std::size_t taken = std::min(size, block_ - buffer_.size());
            buffer_.append(from, taken);
            if (buffer_.size() == block_) flush();
            from += taken;
            size -= taken;
        }
    }

    /// As append(), in the byte order of the files.
    void append_values(const void *values, std::size_t count, std::size_t value_size) {
        if constexpr (host_is_little_endian) return append(values, count * value_size);
        std::string value;
        for (std::size_t i = 0; i < count; ++i) {
            value.assign(static_cast<const char *>(values) + i * value_size, value_size);
            reverse_bytes(value.data(), 1, value_size);
            append(value.data(), value_size);
        }
    }

    FileRecord finish() {
        if (!buffer_.empty()) flush();
        file_.sync();
        file_.close();
        return std::move(record_);
    }

private:
    void flush() {
        record_.blocks.push_back(checksum(buffer_.data(), buffer_.size()));
        file_.write_all(buffer_.data(), buffer_.size());
        record_.size += static_cast<std::int64_t>(buffer_.size());
        buffer_.clear();
    }
    std::size_t block_;
    File file_;
    std::string buffer_;
    FileRecord record_;
};

std::int64_t row_bytes(const TensorPart &part) { return byte_count({part.type, 1, part.col_count()}); }

PartRecord place_of(const TensorPart &part, const std::string &shard) {
    return {shard, part.row_begin, part.row_end, part.col_begin, part.col_begin + part.col_count()};
}

/// The core's mistakes, found before anything is written.
void check_part(const TensorPart &part) {
    const auto wrong = [&](const char *what) {
        fail(DSLIDE_E_INTERNAL, "checkpoint tensor \"", part.name, "\": ", what);
    };
    if (!is_valid_name(part.name)) wrong("the name is not allowed");
    if (part.rows < 1 || part.cols < 1 || byte_count({part.type, part.rows, part.cols}) < 0) wrong("bad shape");
    if (part.row_begin < 0 || part.row_begin > part.row_end || part.row_end > part.rows) wrong("bad row range");
    if (part.col_begin < 0 || part.col_count() < 0 || part.col_begin + part.col_count() > part.cols)
        wrong("bad column range");
    if (part.row_begin < part.row_end && part.col_count() > 0 && !part.data) wrong("no data");
    if (part.row_stride < part.col_count()) wrong("row_stride < columns");
}

TensorPart cut(const TensorPart &part, std::int64_t begin, std::int64_t end) {
    TensorPart rows = part;
    rows.row_begin = begin;
    rows.row_end = end;
    const std::int64_t skipped =
        (begin - part.row_begin) * part.row_stride * static_cast<std::int64_t>(size_of(part.type));
    rows.data = static_cast<const char *>(part.data) + skipped;
    return rows;
}

bool names_tensor(const std::vector<TensorPart> &shard, const std::string &name) {
    return std::any_of(shard.begin(), shard.end(), [&](const TensorPart &part) { return part.name == name; });
}

/// Cuts the parts into shards of at most shard_bytes (or one row), none of which has a tensor twice.
std::vector<std::vector<TensorPart>> plan_shards(std::vector<TensorPart> parts, std::int64_t shard_bytes) {
    // Wide elements first: each tensor then begins at a multiple of its element size, as zero-copy readers like it.
    std::stable_sort(parts.begin(), parts.end(), [](auto &a, auto &b) { return size_of(a.type) > size_of(b.type); });
    constexpr std::size_t max_parts = 10000; // keeps the header well below its limit
    std::vector<std::vector<TensorPart>> shards;
    std::int64_t room = 0;
    for (const TensorPart &part : parts) {
        check_part(part);
        if (part.col_count() == 0) continue; // a rank without neurons
        for (std::int64_t begin = part.row_begin; begin < part.row_end;) {
            const bool full = shards.empty() || room < row_bytes(part) || shards.back().size() == max_parts;
            if (full || names_tensor(shards.back(), part.name)) {
                shards.emplace_back();
                room = shard_bytes;
            }
            const std::int64_t fitting = std::max<std::int64_t>(1, room / row_bytes(part));
            const std::int64_t end = std::min(part.row_end, begin + std::min(fitting, part.row_end - begin));
            shards.back().push_back(cut(part, begin, end));
            room -= (end - begin) * row_bytes(part);
            begin = end;
        }
    }
    return shards;
}

std::vector<ShardEntry> lay_out(const std::vector<TensorPart> &parts) {
    std::vector<ShardEntry> entries;
    std::int64_t next = 0;
    for (const TensorPart &part : parts) {
        const TensorShape shape{part.type, part.row_end - part.row_begin, part.col_count()};
        entries.push_back({part.name, shape, next, next + byte_count(shape),
                           range_text(place_of(part, ""), {part.type, part.rows, part.cols})});
        next = entries.back().end;
    }
    return entries;
}

void append_rows(BlockWriter &file, const TensorPart &part) {
    const std::size_t size = size_of(part.type);
    const auto cols = static_cast<std::size_t>(part.col_count()),
               rows = static_cast<std::size_t>(part.row_end - part.row_begin);
    if (part.row_stride == part.col_count()) return file.append_values(part.data, rows * cols, size);
    const char *row = static_cast<const char *>(part.data);
    for (std::size_t i = 0; i < rows; ++i, row += static_cast<std::size_t>(part.row_stride) * size)
        file.append_values(row, cols, size);
}

ShardRecord write_shard(const SaveOptions &options, const File &dir, const std::string &name,
                        std::vector<TensorPart> parts) {
    BlockWriter file(options, dir, name);
    const std::string header = print_shard_header(lay_out(parts));
    file.append(header.data(), header.size());
    for (const TensorPart &part : parts) append_rows(file, part);
    for (TensorPart &part : parts) part.data = nullptr;
    return {file.finish(), std::move(parts)};
}

/// Gathers the parts of each tensor from all shards.
std::vector<TensorRecord> gather_tensors(const std::vector<ShardRecord> &shards) {
    std::map<std::string, TensorRecord> tensors;
    for (const ShardRecord &shard : shards)
        for (const TensorPart &part : shard.parts) {
            const TensorShape shape{part.type, part.rows, part.cols};
            TensorRecord &tensor = tensors.try_emplace(part.name, TensorRecord{part.name, shape, {}}).first->second;
            if (tensor.shape.type != shape.type || tensor.shape.rows != shape.rows || tensor.shape.cols != shape.cols)
                fail(DSLIDE_E_INTERNAL, "checkpoint tensor ", part.name, " has two shapes");
            tensor.parts.push_back(place_of(part, shard.file.name));
        }
    std::vector<TensorRecord> list;
    for (auto &[name, tensor] : tensors) {
        std::sort(tensor.parts.begin(), tensor.parts.end(), [](auto &a, auto &b) {
            return std::tie(a.col_begin, a.row_begin) < std::tie(b.col_begin, b.row_begin);
        });
        list.push_back(std::move(tensor));
    }
    return list;
}

/// The manifest's text, after the reader's own check of it: what could not be read again is not written.
std::string checked_text(const Manifest &manifest) {
    std::string text;
    try {
        text = print_manifest(manifest);
        parse_manifest(text, "the new manifest");
    } catch (const Error &e) {
        throw Error(DSLIDE_E_INTERNAL, e.what());
    }
    if (text.size() > static_cast<std::size_t>(max_manifest_bytes))
        fail(DSLIDE_E_INTERNAL, "the manifest has ", text.size(), " bytes, at most ", max_manifest_bytes,
             " are allowed");
    return text;
}

} // namespace

std::vector<ShardRecord> write_shards(const std::string &pending, int writer, const std::vector<TensorPart> &parts,
                                      const SaveOptions &options) {
    const File dir = File::open(*options.calls, AT_FDCWD, pending, O_RDONLY | O_DIRECTORY, pending);
    std::vector<ShardRecord> records;
    for (std::vector<TensorPart> &shard : plan_shards(parts, options.shard_bytes)) {
        char name[64];
        std::snprintf(name, sizeof name, "tensors-%05d-%05zu.safetensors", writer, records.size());
        records.push_back(write_shard(options, dir, name, std::move(shard)));
    }
    return records;
}

struct PendingCheckpoint::State {
    const SaveOptions options;
    const FileCalls &calls;
    SplitPath target;  ///< where the checkpoint will be
    std::string path;  ///< of the target
    File parent;       ///< the directory of both
    std::string name;  ///< of the pending directory
    File dir;          ///< the pending directory, locked
    bool made = false; ///< the pending name is ours to remove

    State(const std::string &to, const SaveOptions &given)
        : options(given), calls(*options.calls), target(split_path(to)), path(to) {
        if (target.name.empty() || target.name == "." || target.name == "..")
            fail(DSLIDE_E_IO, "\"", path, "\" does not name a directory that could be replaced");
        parent = File::open(calls, AT_FDCWD, target.parent, O_RDONLY | O_DIRECTORY, target.parent);
        target_exists();
        clean();
        make_directory();
    }
    ~State() {
        if (made) remove_entry(calls, parent, name);
    }

    /// Error if something is there that is not a checkpoint.
    bool target_exists() const {
        if (!exists(calls, parent, target.name)) return false;
        if (!is_checkpoint(calls, parent, target.name))
            fail(DSLIDE_E_IO, path, " exists and is not a checkpoint (a directory with our ", manifest_name,
                 "): it is not replaced");
        return true;
    }

    /// Leftovers take disk space that the new checkpoint may need.
    void clean() const {
        remove_leftovers(calls, parent, [this](const std::string &found) { return found == target.name; });
    }

    void make_directory() {
        const mode_t all_by_umask = 0777;
        int result = 0;
        do {
            name = temporary_name(target.name, pending_suffix);
            result = retry([&] { return calls.mkdir(parent.fd(), name.c_str(), all_by_umask); });
        } while (result < 0 && errno == EEXIST);
        if (result < 0) fail_io("create", pending_path(), errno);
        made = true;
        try {
            dir = File::open(calls, parent.fd(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, pending_path());
        } catch (const Error &) {
            remove_entry(calls, parent, name); // a constructor that throws has no destructor
            throw;
        }
        // Without locks (some network file systems) saves still work; only the cleaning of leftovers is then careless.
        calls.flock(dir.fd(), LOCK_EX | LOCK_NB);
    }
    std::string pending_path() const { return target.parent + "/" + name; }

    void write_file(const std::string &file_name, const std::string &text, std::vector<FileRecord> *records) {
        BlockWriter file(options, dir, file_name);
        file.append(text.data(), text.size());
        FileRecord record = file.finish();
        if (records) records->push_back(std::move(record));
    }

    int rename(const std::string &from, const std::string &to, unsigned flags) const {
        return calls.rename(parent.fd(), from.c_str(), to.c_str(), flags);
    }

    /// Puts the pending directory into its place. The name that an older checkpoint has got, or "" if there was none.
    std::string move_into_place() {
        if (!target_exists()) {
            if (rename(name, target.name, 0) < 0) fail_io("rename to", path, errno);
            return "";
        }
        if (rename(name, target.name, RENAME_EXCHANGE) == 0) return name;
        if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) fail_io("replace", path, errno);
        // No exchange on this file system. Readers that come between the two calls find the checkpoint by its aside
        // name.
        const std::string aside = temporary_name(target.name, aside_suffix);
        if (rename(target.name, aside, 0) < 0) fail_io("move aside", path, errno);
        if (rename(name, target.name, 0) < 0) {
            const int error = errno;
            rename(aside, target.name, 0);
            fail_io("rename to", path, error);
        }
        return aside;
    }

    /// Gives the target back to the older checkpoint. If that fails too, what stands there is the new one, complete,
    /// and the older is kept under its temporary name.
    void move_back(const std::string &older) {
        if (older == name)
            made = rename(name, target.name, RENAME_EXCHANGE) == 0;
        else
            made = rename(target.name, name, 0) == 0 && (older.empty() || rename(older, target.name, 0) == 0);
    }

    void place() {
        const std::string older = move_into_place();
        try {
            parent.sync();
        } catch (const Error &) {
            move_back(older);
            throw;
        }
        made = false;
        if (!older.empty()) remove_entry(calls, parent, older);
        clean();
    }
};

PendingCheckpoint::PendingCheckpoint(const std::string &dir, const SaveOptions &options)
    : state_(std::make_unique<State>(dir, options)) {}
PendingCheckpoint::~PendingCheckpoint() = default;

std::string PendingCheckpoint::path() const { return state_->pending_path(); }

void PendingCheckpoint::publish(const CheckpointContent &content, const std::vector<ShardRecord> &shards) {
    Manifest manifest;
    manifest.block_bytes = state_->options.block_bytes;
    manifest.meta = content.meta;
    manifest.tensors = gather_tensors(shards);
    for (const ShardRecord &shard : shards) manifest.shards.push_back(shard.file);
    for (const auto &[name, text] : content.files) state_->write_file(name, text, &manifest.files);
    state_->write_file(manifest_name, checked_text(manifest), nullptr);
    state_->dir.sync();
    state_->place();
}

void write_checkpoint(const std::string &dir, const CheckpointContent &content, const SaveOptions &options) {
    for (const auto &[name, text] : content.files)
        if (!is_valid_name(name)) fail(DSLIDE_E_INTERNAL, "checkpoint file \"", name, "\": the name is not allowed");
    PendingCheckpoint pending(dir, options);
    pending.publish(content, write_shards(pending.path(), 0, content.tensors, options));
}

} // namespace dslide
