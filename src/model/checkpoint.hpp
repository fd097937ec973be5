// SPDX-License-Identifier: Apache-2.0
// A checkpoint directory: safetensors shards addressed by global row range, and a manifest written last.
// docs/checkpoint.md is the description for readers in other languages.
#pragma once

#include "core/error.hpp"
#include "model/file_calls.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dslide {

enum class DType { f32, i64, i32, u8 };
std::size_t size_of(DType type);

/// Rows [row_begin, row_end) of a rows x cols tensor; this process's part of it.
struct TensorPart {
    std::string name; ///< 1 .. 128 of A-Z a-z 0-9 . _ -, not a dot first
    DType type = DType::f32;
    std::int64_t rows = 0, cols = 0;
    std::int64_t row_begin = 0, row_end = 0;
    const void *data = nullptr;  ///< the first row
    std::int64_t row_stride = 0; ///< elements from one row to the next, at least as many as this part has columns
    std::int64_t col_begin = 0, col_end = -1; ///< this process's columns; -1: all up to cols

    std::int64_t col_count() const { return (col_end < 0 ? cols : col_end) - col_begin; }
};

struct CheckpointContent {
    /// A JSON object: the trainer's and model's settings and counters (see Meta in model/meta.hpp). The format gives a
    /// meaning to "full" (a boolean), "steps" and "samples_seen".
    std::string meta = "{}";
    std::vector<TensorPart> tensors;
    std::map<std::string, std::string> files; ///< whole files beside the shards, as label names; named like tensors
};

struct SaveOptions {
    std::int64_t shard_bytes = std::int64_t{1} << 30; ///< a shard holds at most so much data, or one row
    std::int64_t block_bytes = std::int64_t{1} << 20; ///< one checksum for so many bytes of a file
    const FileCalls *calls = &system_calls();
};

/// Writes into a new directory beside `dir`, syncs, and renames it to `dir`; an existing checkpoint there is removed
/// only afterwards. Throws Error and leaves `dir` as it was. Refuses (DSLIDE_E_IO) a `dir` that exists and is no
/// checkpoint.
void write_checkpoint(const std::string &dir, const CheckpointContent &content, const SaveOptions &options = {});

/// A file of a checkpoint as its manifest lists it.
struct FileRecord {
    std::string name;
    std::int64_t size = 0;
    std::vector<std::uint64_t> blocks; ///< XXH3-64 of each block_bytes
};

/// A shard that was written: the file, and what is in it (`data` is not kept).
struct ShardRecord {
    FileRecord file;
    std::vector<TensorPart> parts;
};

/// The steps of write_checkpoint(), for a checkpoint that several processes write: one makes the pending directory,
/// each writes shards into it, the first gathers their records and publishes.
class PendingCheckpoint {
public:
    explicit PendingCheckpoint(const std::string &dir, const SaveOptions &options = {});
    /// Removes the directory if it was not published.
    ~PendingCheckpoint();
    PendingCheckpoint(const PendingCheckpoint &) = delete;
    PendingCheckpoint &operator=(const PendingCheckpoint &) = delete;

    std::string path() const;
    /// Writes the files and the manifest, syncs, renames. `content.tensors` is not looked at.
    void publish(const CheckpointContent &content, const std::vector<ShardRecord> &shards);

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Writes and syncs the shards of one writer; writers of one checkpoint have different numbers.
std::vector<ShardRecord> write_shards(const std::string &pending, int writer, const std::vector<TensorPart> &parts,
                                      const SaveOptions &options = {});

struct TensorShape {
    DType type = DType::f32;
    std::int64_t rows = 0, cols = 0;
};

/// Trusts no number in the files: sizes are checked against the files' sizes before anything is allocated, and
/// checksums before any byte is handed out. Throws Error(DSLIDE_E_FORMAT, _IO, _UNSUPPORTED). Const functions: any
/// thread.
class CheckpointReader {
public:
    /// `dir` itself, or what `best` (or `latest`, if prefer_latest, or the other where one is missing) under it names.
    explicit CheckpointReader(const std::string &dir, bool prefer_latest = false,
                              const FileCalls &calls = system_calls());
    ~CheckpointReader();
    CheckpointReader(CheckpointReader &&) noexcept;

    const std::string &dir() const;
    std::int32_t format_version() const; ///< the major one
    const std::string &meta() const;     ///< keys in alphabetical order
    std::vector<std::string> tensor_names() const;
    bool has(const std::string &name) const;
    TensorShape shape(const std::string &name) const;
    /// Reads rows [begin, end) to `out`, whose rows are `row_stride` elements apart.
    void read_rows(const std::string &name, std::int64_t begin, std::int64_t end, void *out,
                   std::int64_t row_stride) const;
    /// The same of columns [col_begin, col_end) alone.
    void read_block(const std::string &name, std::int64_t begin, std::int64_t end, std::int64_t col_begin,
                    std::int64_t col_end, void *out, std::int64_t row_stride) const;
    /// Reads rows in any order, each once: row i of `out` is row rows[i].
    void read_list(const std::string &name, std::span<const std::int64_t> rows, void *out,
                   std::int64_t row_stride) const;
    std::vector<std::string> file_names() const;
    std::string read_file(const std::string &name) const;
    std::int64_t total_bytes() const;
    std::int32_t shard_count() const;
    /// Reads and checks every byte.
    void verify() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// What a caller may not ask for is damage where a file asks for it.
template <class Body>
auto from_file(const CheckpointReader &checkpoint, Body &&body) {
    try {
        return body();
    } catch (const Error &e) {
        if (e.status() != DSLIDE_E_ARGUMENT) throw;
        fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": ", e.what());
    }
}

/// The checkpoints of a run under one directory: `epoch-000001`, `step-000000500`, links `latest` and `best`. Keeps the
/// best, the latest and the one before it; removes the others of such names, and leftovers of interrupted saves.
class CheckpointStore {
public:
    explicit CheckpointStore(std::string root, SaveOptions options = {});
    /// Creates the directory if need be and proves that it can be written; throws Error(DSLIDE_E_IO) before long work.
    void prepare();
    /// `name`: "epoch-" or "step-" and digits.
    void save(const std::string &name, const CheckpointContent &content, bool is_best);
    /// The steps of save(), for a checkpoint that several processes write: what `latest` names before; the checkpoint
    /// is then written to path_of(name); links are moved and older ones removed.
    std::string begin(const std::string &name);
    std::string path_of(const std::string &name) const;
    void finish(const std::string &name, const std::string &previous, bool is_best);
    const SaveOptions &options() const { return options_; }

private:
    std::string root_;
    SaveOptions options_;
};

} // namespace dslide
