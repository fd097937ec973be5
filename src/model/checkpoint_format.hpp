// SPDX-License-Identifier: Apache-2.0
// The texts inside a checkpoint, the manifest and the shards' headers, as structs; docs/checkpoint.md describes them.
#pragma once

#include "model/checkpoint.hpp"

#include <string_view>

namespace dslide {

constexpr const char *manifest_name = "manifest.json";
constexpr std::int32_t format_major = 1;
constexpr std::int32_t format_minor = 0;

constexpr std::int64_t max_manifest_bytes = std::int64_t{64} << 20;
constexpr std::int64_t max_header_bytes = std::int64_t{16} << 20;
constexpr std::int64_t min_block_bytes = 512;
constexpr std::int64_t max_block_bytes = std::int64_t{64} << 20;
constexpr std::size_t max_json_depth = 32;
constexpr std::size_t max_json_values = std::size_t{1} << 20;
constexpr std::size_t max_name_length = 128;
constexpr std::size_t shard_alignment = 64;   ///< the data of a shard begins at a multiple of it
constexpr std::size_t length_field_bytes = 8; ///< before a shard's header

struct PartRecord {
    std::string shard;
    std::int64_t row_begin = 0, row_end = 0;
    std::int64_t col_begin = 0, col_end = 0;
};

struct TensorRecord {
    std::string name;
    TensorShape shape;
    std::vector<PartRecord> parts; ///< stripes of columns, each by ascending rows, without holes
};

struct Manifest {
    std::int32_t major = format_major, minor = format_minor;
    std::int64_t block_bytes = 0;
    std::vector<FileRecord> shards, files;
    std::vector<TensorRecord> tensors;
    std::string meta;
};

/// Letters, digits, dot, underscore and hyphen, no dot first: safe as a file's name on every system.
bool is_valid_name(std::string_view name);

std::uint64_t checksum(const void *data, std::size_t size);

/// Does a file begin as a manifest of any version does?
bool begins_as_manifest(std::string_view text);
std::string print_manifest(const Manifest &manifest);
/// Checks all that can be checked without the other files. `path` is for messages.
Manifest parse_manifest(std::string_view text, const std::string &path);

/// A tensor in a shard: its rows, and where its bytes are, counted from the end of the header.
struct ShardEntry {
    std::string name;
    TensorShape shape;
    std::int64_t begin = 0, end = 0;
    std::string range; ///< of __metadata__, see range_text()
};

/// "row_begin:row_end/rows", and ",col_begin:col_end/cols" if these are not all columns.
std::string range_text(const PartRecord &part, const TensorShape &whole);
/// Length field, header and padding.
std::string print_shard_header(const std::vector<ShardEntry> &entries);
/// Checks that the entries fill `data_bytes` without holes or overlaps.
std::vector<ShardEntry> parse_shard_header(std::string_view text, std::int64_t data_bytes, const std::string &path);

/// Bytes of rows x cols elements; -1 where it exceeds 2^62.
std::int64_t byte_count(const TensorShape &shape);

} // namespace dslide
