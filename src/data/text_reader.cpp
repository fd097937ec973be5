// SPDX-License-Identifier: Apache-2.0
#include "data/text_reader.hpp"

#include "core/error.hpp"
#include "core/log.hpp"

#include <algorithm>
#include <cstring>
#include <tbb/parallel_invoke.h>

namespace dslide {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

// Files that are given by mistake. None of these beginnings is valid text.
const char *known_binary(std::string_view bytes) {
    struct Kind {
        std::string_view magic;
        const char *name;
    };
    static constexpr Kind kinds[] = {
        {"PK\x03\x04"sv, "a zip archive (npz, PyTorch)"},
        {"\x93NUMPY"sv, "a NumPy array"},
        {"\x89HDF"sv, "an HDF5 file"},
        {"\x89PNG"sv, "a PNG image"},
        {"\xff\xd8\xff"sv, "a JPEG image"},
        {"%PDF"sv, "a PDF document"},
        {"\x7f"
         "ELF"sv,
         "a program"},
        {"PAR1"sv, "a Parquet file"},
        {"BZh"sv, "bzip2 data (gzip, xz and zstd are read)"},
        {"\x04\x22\x4d\x18"sv, "lz4 data (gzip, xz and zstd are read)"},
        {"\x1f\x8b"sv, "gzip data inside compressed data"},
        {"\xfd"
         "7zXZ"sv,
         "xz data inside compressed data"},
        {"\x28\xb5\x2f\xfd"sv, "zstd data inside compressed data"},
        {"\xff\xfe"sv, "UTF-16 text (UTF-8 is read)"},
        {"\xfe\xff"sv, "UTF-16 text (UTF-8 is read)"},
        {"{"sv, "JSON"},
    };
    constexpr std::size_t safetensors_length_bytes = 8;
    if (bytes.size() > safetensors_length_bytes && bytes.substr(safetensors_length_bytes).starts_with("{\"") &&
        bytes[safetensors_length_bytes - 1] == '\0')
        return "a safetensors file";
    for (const Kind &kind : kinds)
        if (bytes.starts_with(kind.magic)) return kind.name;
    return nullptr;
}

} // namespace

std::optional<TextHeader> read_header(std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    std::int64_t numbers[3] = {};
    std::size_t count = 0;
    const char *p = line.data(), *const end = p + line.size();
    const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
    for (;;) {
        while (p < end && is_blank(*p)) ++p;
        if (p == end) break;
        const char *token = p;
        const std::int64_t number = read_digits(p, end);
        if (p == token || count == std::size(numbers) || (p < end && !is_blank(*p))) return std::nullopt;
        numbers[count++] = number;
    }
    if (count < std::size(numbers)) return std::nullopt;
    return TextHeader{numbers[0], numbers[1], numbers[2]};
}

TextReader::TextReader(std::shared_ptr<Arena> arena, std::unique_ptr<ByteSource> source, std::string name,
                       TextRules rules, std::size_t block_bytes)
    : arena_(std::move(arena)), source_(std::move(source)), name_(std::move(name)), rules_(rules),
      block_bytes_(block_bytes), wave_blocks_(static_cast<std::size_t>(arena_->threads()) * 2) {
    current_.blocks.resize(1);
    take_head(current_.blocks[0]);
    if (!fill(current_.blocks[0])) {
        check_end();
        return;
    }
    current_.count = 1;
    take_first_line(current_.blocks[0]);
}

void TextReader::refuse(std::int64_t line, std::int64_t column, std::string_view text) const {
    fail(DSLIDE_E_FORMAT, name_, ':', line, ':', column, ": ", text);
}

// Reads on to `size` bytes; false: the source has no more.
bool TextReader::read_until(Block &block, std::size_t size) {
    if (block.bytes.size() < size) block.bytes.resize(size);
    while (block.size < size) {
        std::size_t count = 0;
        try {
            count = source_->read(block.bytes.data() + block.size, size - block.size);
        } catch (const DamagedInput &damage) {
            source_defect_ = damage.text;
        }
        if (count == 0) return false;
        block.size += count;
    }
    return true;
}

// Fills a block with whole lines; false: there are none left. Every block is filled up, however few bytes a read gives,
// so that the cut does not depend on timing.
bool TextReader::fill(Block &block) {
    block.begin = block.size = 0;
    if (ended_) return false;
    block.bytes.resize(std::max(block.bytes.size(), carry_.size()));
    std::copy(carry_.begin(), carry_.end(), block.bytes.begin());
    block.size = carry_.size();
    carry_.clear();
    for (std::size_t searched = 0, target = std::max(block_bytes_, block.size + 1);; target = block.size * 2) {
        const bool more = read_until(block, target);
        const void *newline = memrchr(block.bytes.data() + searched, '\n', block.size - searched);
        searched = block.size;
        std::size_t whole =
            newline ? static_cast<std::size_t>(static_cast<const char *>(newline) - block.bytes.data()) + 1 : 0;
        const std::size_t tail = block.size - whole;
        if (tail > rules_.max_line_bytes) {
            source_defect_ = too_long_text(rules_.max_line_bytes);
            source_column_ = static_cast<std::int64_t>(rules_.max_line_bytes) + 1;
            ended_ = true;
        } else if (!more) {
            source_column_ = static_cast<std::int64_t>(tail) + 1;
            ended_ = true;
            if (source_defect_.empty()) whole = block.size; // the last line needs no line end
        } else if (newline) {
            carry_.assign(block.bytes.data() + whole, block.bytes.data() + block.size);
        } else {
            continue;
        }
        block.size = whole;
        return whole > 0;
    }
}

void TextReader::fill(Wave &wave) {
    wave.blocks.resize(wave_blocks_);
    wave.count = 0;
    while (wave.count < wave_blocks_ && fill(wave.blocks[wave.count])) ++wave.count;
}

void TextReader::parse(Wave &wave) {
    arena_->each(static_cast<std::int64_t>(wave.count), [&](std::int64_t i) {
        Block &block = wave.blocks[static_cast<std::size_t>(i)];
        block.parser.parse({block.bytes.data() + block.begin, block.size - block.begin}, rules_);
    });
}

// Looks at the first bytes, which become the begin of the first block without their byte order mark.
void TextReader::take_head(Block &space) {
    constexpr std::size_t head_bytes = 16;
    read_until(space, head_bytes);
    std::string_view head(space.bytes.data(), space.size);
    if (head.starts_with(byte_order_mark)) head.remove_prefix(byte_order_mark.size());
    if (const char *binary = known_binary(head)) refuse(1, 1, std::string("expected text, found ") + binary);
    carry_.assign(head.begin(), head.end());
}

void TextReader::take_first_line(Block &block) {
    const std::string_view text(block.bytes.data(), block.size);
    if (rules_.format != DSLIDE_FORMAT_XMC) return;
    const std::string_view line = text.substr(0, text.find('\n'));
    header_ = read_header(line);
    if (!header_) return;
    take_header(*header_);
    block.begin = std::min(line.size() + 1, text.size());
    ++counts_.lines;
}

void TextReader::take_header(const TextHeader &header) {
    const auto size = [&](std::int64_t promised, std::int64_t &declared, const char *what, const char *option) {
        if (declared) {
            if (declared != promised)
                log(DSLIDE_LOG_INFO, name_, ": header has ", promised, ' ', what, ", taken are ", declared,
                    " by option ", option);
            return;
        }
        if (promised < 1 || promised > max_width)
            refuse(1, 1,
                   "expected a header with 1 to " + std::to_string(max_width) + " " + what + ", found " +
                       std::to_string(promised));
        declared = promised;
    };
    size(header.features, rules_.n_features, "features", "n_features");
    size(header.labels, rules_.n_labels, "labels", "n_labels");
}

std::vector<RowChunk> TextReader::next() {
    std::vector<RowChunk> chunks;
    if (current_.count == 0) return chunks;
    if (arena_->threads() == 1) {
        parse(current_);
        fill(following_);
    } else {
        arena_->run([&] { tbb::parallel_invoke([&] { parse(current_); }, [&] { fill(following_); }); });
    }
    for (std::size_t i = 0; i < current_.count; ++i) {
        Block &block = current_.blocks[i];
        check(block);
        counts_ += block.parser.counts();
        chunks.push_back(block.parser.take_rows());
    }
    std::swap(current_, following_);
    if (current_.count == 0) check_end();
    return chunks;
}

// Throws the first defect of a parsed block whose lines follow those counted.
void TextReader::check(const Block &block) {
    const BlockParser &parser = block.parser;
    if (header_ && counts_.rows + parser.counts().rows > header_->rows) {
        const std::int64_t line = counts_.lines + parser.line_of_row(header_->rows - counts_.rows) + 1;
        refuse(line, 1,
               "expected the end of the file after " + std::to_string(header_->rows) +
                   " rows, as the header says, found another row");
    }
    if (const auto &defect = parser.defect()) refuse(counts_.lines + defect->line + 1, defect->column, defect->text);
}

void TextReader::check_end() {
    const std::int64_t line = counts_.lines + 1;
    if (!source_defect_.empty()) refuse(line, source_column_, source_defect_);
    const auto skipped = [&] {
        std::string text;
        if (counts_.blank_lines) text += " (" + std::to_string(counts_.blank_lines) + " blank lines are not rows)";
        if (counts_.comment_lines)
            text += " (" + std::to_string(counts_.comment_lines) + " comment lines are not rows)";
        return text;
    };
    if (header_ && counts_.rows < header_->rows)
        refuse(line, 1,
               "expected " + std::to_string(header_->rows) + " rows, as the header says, found " +
                   std::to_string(counts_.rows) + skipped());
    if (counts_.rows == 0) refuse(line, 1, "expected at least one row, found the end of the file" + skipped());
}

} // namespace dslide
