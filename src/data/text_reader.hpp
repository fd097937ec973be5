// SPDX-License-Identifier: Apache-2.0
// A text as chunks of rows: blocks of whole lines, parsed in parallel while the next ones are read and decompressed.
#pragma once

#include "core/arena.hpp"
#include "data/block_parser.hpp"
#include "data/source.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslide {

/// First line of an XMC text.
struct TextHeader {
    std::int64_t rows = 0;
    std::int64_t features = 0;
    std::int64_t labels = 0;
};

/// The three numbers of a header, or nothing: `line` is exactly three whole numbers with blanks between (no valid row
/// looks like that, as features have a ':').
std::optional<TextHeader> read_header(std::string_view line);

class TextReader {
public:
    /// Bytes of text parsed by one task. Does not change what is read, nor the order.
    static constexpr std::size_t default_block_bytes = std::size_t{512} << 10;

    /// Reads the first block, and the header if there is one; its sizes hold where `rules` declare none.
    TextReader(std::shared_ptr<Arena> arena, std::unique_ptr<ByteSource> source, std::string name, TextRules rules,
               std::size_t block_bytes = default_block_bytes);

    /// Some more rows in file order, none at the end. Throws E_FORMAT for the first defect in file order.
    std::vector<RowChunk> next();

    /// The rules with the header's sizes.
    const TextRules &rules() const { return rules_; }
    /// Of all rows given out.
    const TextCounts &counts() const { return counts_; }

private:
    struct Block {
        std::vector<char> bytes;
        std::size_t begin = 0; ///< > 0 behind a header
        std::size_t size = 0;
        BlockParser parser;
    };
    struct Wave {
        std::vector<Block> blocks;
        std::size_t count = 0;
    };

    bool fill(Block &block);
    void fill(Wave &wave);
    void parse(Wave &wave);
    bool read_until(Block &block, std::size_t size);
    void take_head(Block &space);
    void take_first_line(Block &block);
    void take_header(const TextHeader &header);
    void check(const Block &block);
    void check_end();
    [[noreturn]] void refuse(std::int64_t line, std::int64_t column, std::string_view text) const;

    std::shared_ptr<Arena> arena_;
    std::unique_ptr<ByteSource> source_;
    std::string name_;
    TextRules rules_;
    std::size_t block_bytes_;
    std::size_t wave_blocks_;

    Wave current_, following_;
    std::vector<char> carry_;   ///< begin of a line whose end is not read yet
    std::string source_defect_; ///< why the text ends before its end; "": it does not
    std::int64_t source_column_ = 0;
    bool ended_ = false;
    std::optional<TextHeader> header_;
    TextCounts counts_;
};

} // namespace dslide
