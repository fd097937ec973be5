// SPDX-License-Identifier: Apache-2.0
#include "data/block_parser.hpp"

#include "core/text.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fast_float/fast_float.h>
#include <unordered_set>

namespace dslide {
namespace {

constexpr std::size_t bytes_per_feature = 4; // "1:1" and the blank before it
constexpr std::ptrdiff_t safe_digits = 18;   // fit an int64 whatever they are
constexpr std::size_t longest_shown = 32;    // bytes of a token in an error text

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_text(char c) { return c > ' ' && c <= '~'; }

} // namespace

std::int64_t read_digits(const char *&p, const char *end) {
    const char *begin = p;
    std::uint64_t number = 0;
    for (; p < end && is_digit(*p); ++p) number = number * 10 + static_cast<std::uint64_t>(*p - '0');
    if (p - begin <= safe_digits) return static_cast<std::int64_t>(number);
    constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
    std::int64_t exact = 0;
    for (const char *digit = begin; digit < p; ++digit)
        if (__builtin_mul_overflow(exact, 10, &exact) || __builtin_add_overflow(exact, *digit - '0', &exact))
            return largest;
    return exact;
}

TextCounts &TextCounts::operator+=(const TextCounts &other) {
    lines += other.lines;
    rows += other.rows;
    feature_values += other.feature_values;
    label_values += other.label_values;
    feature_width = std::max(feature_width, other.feature_width);
    label_width = std::max(label_width, other.label_width);
    rows_without_label += other.rows_without_label;
    rows_without_feature += other.rows_without_feature;
    blank_lines += other.blank_lines;
    comment_lines += other.comment_lines;
    dropped_features += other.dropped_features;
    dropped_labels += other.dropped_labels;
    zero_features += other.zero_features;
    repeated_labels += other.repeated_labels;
    ignored_qids += other.ignored_qids;
    return *this;
}

std::string describe(std::string_view rest) {
    if (rest.empty()) return "the end of the line";
    if (is_blank(rest[0])) return "a blank";
    if (!is_text(rest[0])) {
        static const char digits[] = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(rest[0]);
        return std::string("byte 0x") + digits[byte >> 4] + digits[byte & 15];
    }
    std::size_t length = 0;
    while (length < rest.size() && length < longest_shown && is_text(rest[length])) ++length;
    const bool cut = length < rest.size() && is_text(rest[length]);
    return "'" + std::string(rest.substr(0, length)) + (cut ? "...'" : "'");
}

std::string too_long_text(std::size_t max_line_bytes) {
    return "expected a line end within " + std::to_string(max_line_bytes) + " bytes, found none";
}

template <class... Parts>
void BlockParser::fault(const char *at, const Parts &...expected) const {
    throw Fault{at, joined("expected ", expected..., ", found ", describe({at, static_cast<std::size_t>(end_ - at)}))};
}

void BlockParser::reserve(std::size_t block_bytes) {
    const std::size_t features = block_bytes / bytes_per_feature + 1;
    if (features <= capacity_) return;
    index_ = std::make_unique_for_overwrite<std::int32_t[]>(features);
    value_ = std::make_unique_for_overwrite<float[]>(features);
    capacity_ = features;
}

void BlockParser::parse(std::string_view block, const TextRules &rules) {
    rules_ = rules;
    reserve(block.size());
    size_ = 0;
    all_one_ = true;
    labels_.clear();
    row_lines_.clear();
    rows_ = {};
    counts_ = {};
    defect_.reset();
    const char *end = block.data() + block.size();
    for (const char *line = block.data(); line < end;) {
        const void *newline = std::memchr(line, '\n', static_cast<std::size_t>(end - line));
        const char *line_end = newline ? static_cast<const char *>(newline) : end;
        try {
            parse_line(line, line_end);
        } catch (const Fault &fault) {
            defect_ = TextDefect{counts_.lines, fault.at - line + 1, fault.text};
            break;
        }
        ++counts_.lines;
        line = line_end + 1;
    }
    store_rows();
}

void BlockParser::parse_line(const char *begin, const char *end) {
    line_ = p_ = begin;
    end_ = end;
    if (static_cast<std::size_t>(end - begin) > rules_.max_line_bytes)
        throw Fault{begin + rules_.max_line_bytes, too_long_text(rules_.max_line_bytes)};
    if (end_ > begin && end_[-1] == '\r') --end_;
    bool comment = false;
    if (rules_.format == DSLIDE_FORMAT_SVMLIGHT) {
        if (const void *hash = std::memchr(begin, '#', static_cast<std::size_t>(end_ - begin))) {
            end_ = static_cast<const char *>(hash);
            comment = true;
        }
    }
    skip_blanks();
    // In XMC text a blank that begins a line stands for no labels; with nothing behind it the row has no features
    // either.
    const bool empty_row = rules_.format == DSLIDE_FORMAT_XMC && p_ == end_ && end_ > begin;
    if (p_ == end_ && !empty_row) {
        ++(comment ? counts_.comment_lines : counts_.blank_lines);
        return;
    }
    p_ = begin;
    row_begin_ = size_;
    labels_begin_ = labels_.size();
    features_ = nullptr;
    try {
        parse_row();
    } catch (const Fault &fault) {
        // A repeated feature shows only when the row is sorted; if one stands before this defect, it is the first.
        const char *repeat = features_ ? repeated_feature(fault.at) : nullptr;
        size_ = row_begin_;
        labels_.resize(labels_begin_);
        if (repeat && repeat < fault.at)
            throw Fault{repeat, "expected each feature once in a row, found " +
                                    describe({repeat, static_cast<std::size_t>(end_ - repeat)}) + " again"};
        throw;
    }
    row_lines_.push_back(counts_.lines);
}

void BlockParser::skip_blanks() {
    while (p_ < end_ && is_blank(*p_)) ++p_;
}

void BlockParser::parse_row() {
    if (!is_blank(*p_)) parse_labels();
    skip_blanks();
    if (rules_.format == DSLIDE_FORMAT_SVMLIGHT) parse_qid();
    last_index_ = -1;
    ascending_ = true;
    has_zero_ = false;
    features_ = p_;
    while (p_ < end_) {
        parse_feature();
        if (p_ < end_ && !is_blank(*p_)) fault(p_, "a blank after the value");
        skip_blanks();
    }
    finish_features();
    finish_labels(); // last: it cannot fail, so feature_ptr and label_ptr keep step
}

// The number that stands at `at`, counted from 0; -1: to be left out.
std::int64_t BlockParser::checked_number(const char *at, std::int64_t number, std::int64_t base, std::int64_t width,
                                         const char *what) const {
    if (number < base) fault(at, "a ", what, " of at least ", base);
    const std::int64_t limit = width ? width : max_width;
    if (number - base < limit) return number - base;
    constexpr std::int64_t saturated = std::numeric_limits<std::int64_t>::max();
    if (rules_.drop_wide && width && number < saturated) return -1;
    fault(at, "a ", what, " of at most ", limit - 1 + base);
}

void BlockParser::parse_labels() {
    for (;; ++p_) {
        const char *token = p_;
        const std::int64_t number = label_number();
        if (p_ < end_ && *p_ == ':' && token == line_)
            fault(token, "labels (a row without labels starts with a blank)");
        if (p_ < end_ && !is_blank(*p_) && *p_ != ',') fault(p_, "',' or a blank after the label");
        const std::int64_t label = checked_number(token, number, rules_.label_base, rules_.n_labels, "label");
        if (label < 0)
            ++counts_.dropped_labels;
        else
            labels_.push_back(static_cast<std::int32_t>(label));
        if (p_ == end_ || is_blank(*p_)) return;
    }
}

std::int64_t BlockParser::label_number() {
    const char *token = p_;
    const bool svmlight = rules_.format == DSLIDE_FORMAT_SVMLIGHT;
    if (svmlight && p_ < end_ && *p_ == '+') ++p_;
    if (p_ == end_ || !is_digit(*p_)) fault(token, "a label, a whole number >= ", rules_.label_base);
    const std::int64_t number = read_digits(p_, end_);
    if (svmlight && p_ < end_ && *p_ == '.') { // some writers put class 3 as 3.0
        ++p_;
        while (p_ < end_ && *p_ == '0') ++p_;
        if (p_ < end_ && is_digit(*p_)) fault(token, "a label, a whole number >= ", rules_.label_base);
    }
    return number;
}

void BlockParser::parse_qid() {
    constexpr std::string_view key = "qid:";
    if (!std::string_view(p_, static_cast<std::size_t>(end_ - p_)).starts_with(key)) return;
    p_ += key.size();
    if (p_ == end_ || !is_digit(*p_)) fault(p_, "a number after 'qid:'");
    read_digits(p_, end_);
    if (p_ < end_ && !is_blank(*p_)) fault(p_, "a blank after the qid");
    ++counts_.ignored_qids;
    skip_blanks();
}

void BlockParser::parse_feature() {
    const char *token = p_;
    if (!is_digit(*p_)) {
        if (*p_ == '-' && p_ + 1 < end_ && is_digit(p_[1])) fault(token, "a feature of at least ", rules_.index_base);
        fault(token, "feature:value");
    }
    const std::int64_t number = read_digits(p_, end_);
    if (p_ == end_ || *p_ != ':') fault(token, "feature:value");
    ++p_;
    const std::int64_t index = checked_number(token, number, rules_.index_base, rules_.n_features, "feature");
    const float value = feature_value();
    if (index < 0) {
        ++counts_.dropped_features;
        return;
    }
    ascending_ &= index > last_index_;
    last_index_ = index;
    has_zero_ |= value == 0;
    index_[size_] = static_cast<std::int32_t>(index);
    value_[size_] = value;
    ++size_;
}

float BlockParser::feature_value() {
    const char *token = p_;
    if (p_ + 1 < end_ && *p_ == '+' && (is_digit(p_[1]) || p_[1] == '.')) ++p_;
    float value = 0;
    const auto [stop, error] = fast_float::from_chars(p_, end_, value);
    if (error == std::errc::invalid_argument || stop == p_) fault(token, "a number after ':'");
    p_ = stop;
    if (std::isfinite(value)) return value; // a number too small for a float is 0
    const bool named = std::any_of(token, stop, [](char c) { return c == 'n' || c == 'N'; });
    if (named) fault(token, "a finite number");
    fault(token, "a number within the range of float (3.4e38)");
}

void BlockParser::finish_labels() {
    const auto begin = labels_.begin() + static_cast<std::ptrdiff_t>(labels_begin_);
    if (std::adjacent_find(begin, labels_.end(), std::greater_equal<>()) != labels_.end()) {
        std::sort(begin, labels_.end());
        const auto kept = std::unique(begin, labels_.end());
        counts_.repeated_labels += labels_.end() - kept;
        labels_.erase(kept, labels_.end());
    }
    const std::size_t count = labels_.size() - labels_begin_;
    if (count)
        counts_.label_width = std::max<std::int64_t>(counts_.label_width, std::int64_t{labels_.back()} + 1);
    else
        ++counts_.rows_without_label;
    rows_.label_ptr.push_back(static_cast<std::int64_t>(labels_.size()));
}

void BlockParser::finish_features() {
    if (!ascending_) sort_features();
    if (size_ > row_begin_)
        counts_.feature_width = std::max<std::int64_t>(counts_.feature_width, std::int64_t{index_[size_ - 1]} + 1);
    if (has_zero_) {
        std::size_t kept = row_begin_;
        for (std::size_t i = row_begin_; i < size_; ++i) {
            if (value_[i] == 0) continue;
            index_[kept] = index_[i];
            value_[kept++] = value_[i];
        }
        counts_.zero_features += static_cast<std::int64_t>(size_ - kept);
        size_ = kept;
    }
    if (rules_.normalize) normalize_row();
    if (all_one_) all_one_ = std::all_of(&value_[row_begin_], &value_[size_], [](float v) { return v == 1.0F; });
    counts_.rows_without_feature += size_ == row_begin_;
    rows_.feature_ptr.push_back(static_cast<std::int64_t>(size_));
}

void BlockParser::sort_features() {
    sort_space_.clear();
    for (std::size_t i = row_begin_; i < size_; ++i) sort_space_.emplace_back(index_[i], value_[i]);
    std::sort(sort_space_.begin(), sort_space_.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
    for (std::size_t i = row_begin_; i < size_; ++i) {
        const auto &[index, value] = sort_space_[i - row_begin_];
        if (i > row_begin_ && index == index_[i - 1]) fault(end_, "each feature once in a row");
        index_[i] = index;
        value_[i] = value;
    }
}

// The first feature before `until` that stands in the row already; null: none.
const char *BlockParser::repeated_feature(const char *until) const {
    std::unordered_set<std::int64_t> seen;
    for (const char *p = features_; p < until;) {
        const char *token = p;
        const std::int64_t number = read_digits(p, end_);
        const bool dropped = rules_.drop_wide && rules_.n_features && number - rules_.index_base >= rules_.n_features;
        if (p > token && p < until && *p == ':' && !dropped && !seen.insert(number).second) return token;
        while (p < until && !is_blank(*p)) ++p;
        while (p < until && is_blank(*p)) ++p;
    }
    return nullptr;
}

void BlockParser::normalize_row() {
    double square = 0;
    for (std::size_t i = row_begin_; i < size_; ++i)
        square += static_cast<double>(value_[i]) * static_cast<double>(value_[i]);
    const double scale = 1 / std::sqrt(square);
    for (std::size_t i = row_begin_; i < size_; ++i)
        value_[i] = static_cast<float>(static_cast<double>(value_[i]) * scale);
}

// Copies at their exact size what the work space holds.
void BlockParser::store_rows() {
    rows_.feature.assign(&index_[0], &index_[0] + size_);
    if (!all_one_) rows_.value.assign(&value_[0], &value_[0] + size_);
    rows_.label.assign(labels_.begin(), labels_.end());
    rows_.feature_ptr.shrink_to_fit();
    rows_.label_ptr.shrink_to_fit();
    counts_.rows = rows_.rows();
    counts_.feature_values = static_cast<std::int64_t>(size_);
    counts_.label_values = static_cast<std::int64_t>(labels_.size());
}

} // namespace dslide
