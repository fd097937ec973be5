// SPDX-License-Identifier: Apache-2.0
// Lines of text to rows. docs/formats.md states the rules that this file carries out.
#pragma once

#include "data/row_store.hpp"

#include <dslide/dataset.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslide {

/// Columns are 32-bit, and so is a width.
constexpr std::int64_t max_width = std::numeric_limits<std::int32_t>::max();

/// What a line may hold.
struct TextRules {
    std::int32_t format = DSLIDE_FORMAT_XMC;
    std::int64_t index_base = 0;
    std::int64_t label_base = 0;
    std::int64_t n_features = 0; ///< declared width; 0: none
    std::int64_t n_labels = 0;   ///< declared number of classes; 0: none
    bool drop_wide = false;
    bool normalize = false;
    std::size_t max_line_bytes = std::size_t{64} << 20;
};

/// What was read, and what was skipped by rule.
struct TextCounts {
    std::int64_t lines = 0;
    std::int64_t rows = 0;
    std::int64_t feature_values = 0;
    std::int64_t label_values = 0;
    std::int64_t feature_width = 0; ///< highest feature kept + 1
    std::int64_t label_width = 0;   ///< highest label kept + 1
    std::int64_t rows_without_label = 0;
    std::int64_t rows_without_feature = 0;
    std::int64_t blank_lines = 0;
    std::int64_t comment_lines = 0;
    std::int64_t dropped_features = 0;
    std::int64_t dropped_labels = 0;
    std::int64_t zero_features = 0;
    std::int64_t repeated_labels = 0;
    std::int64_t ignored_qids = 0;

    TextCounts &operator+=(const TextCounts &other);
};

/// Where a text breaks a rule, and how.
struct TextDefect {
    std::int64_t line = 0;   ///< from 0, within the block
    std::int64_t column = 0; ///< from 1, in bytes
    std::string text;        ///< "expected ..., found ..."
};

/// The digits at p as a number, p moved behind them; a number beyond int64 gives its largest value.
std::int64_t read_digits(const char *&p, const char *end);
/// "a blank", "byte 0x00", "'12:x'": what stands at the start of `rest`, a line's remainder.
std::string describe(std::string_view rest);
/// The defect's text for a line above the limit.
std::string too_long_text(std::size_t max_line_bytes);

/// Parses blocks of whole lines. Work space is kept from one block to the next.
class BlockParser {
public:
    /// Up to the first defect; results are those of the lines before it.
    void parse(std::string_view block, const TextRules &rules);

    RowChunk take_rows() { return std::move(rows_); }
    const TextCounts &counts() const { return counts_; }
    const std::optional<TextDefect> &defect() const { return defect_; }
    /// Line, from 0 within the block just parsed, that holds row `row` (from 0).
    std::int64_t line_of_row(std::int64_t row) const { return row_lines_[static_cast<std::size_t>(row)]; }

private:
    struct Fault {
        const char *at;
        std::string text;
    };
    template <class... Parts>
    [[noreturn]] void fault(const char *at, const Parts &...expected) const;

    void reserve(std::size_t block_bytes);
    void parse_line(const char *begin, const char *end);
    void parse_row();
    void parse_labels();
    std::int64_t label_number();
    void parse_qid();
    void parse_feature();
    float feature_value();
    std::int64_t checked_number(const char *at, std::int64_t number, std::int64_t base, std::int64_t width,
                                const char *what) const;
    void skip_blanks();
    void finish_labels();
    void finish_features();
    void sort_features();
    const char *repeated_feature(const char *until) const;
    void normalize_row();
    void store_rows();

    TextRules rules_;
    const char *line_ = nullptr; ///< start of the line
    const char *p_ = nullptr;    ///< where parsing stands
    const char *end_ = nullptr;  ///< end of the line without line end and comment

    // Features of the block: an "i:v" and its blank take at least 4 bytes, so the size is known before.
    std::unique_ptr<std::int32_t[]> index_;
    std::unique_ptr<float[]> value_;
    std::size_t capacity_ = 0;
    std::size_t size_ = 0;           ///< features stored
    std::size_t row_begin_ = 0;      ///< first one of the row being read
    const char *features_ = nullptr; ///< where the row's features begin
    std::int64_t last_index_ = -1;
    bool ascending_ = true;
    bool has_zero_ = false;
    bool all_one_ = true;

    std::vector<std::int32_t> labels_;
    std::size_t labels_begin_ = 0;
    std::vector<std::pair<std::int32_t, float>> sort_space_;
    std::vector<std::int64_t> row_lines_;

    RowChunk rows_;
    TextCounts counts_;
    std::optional<TextDefect> defect_;
};

} // namespace dslide
