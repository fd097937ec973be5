// SPDX-License-Identifier: Apache-2.0
// The rules of docs/formats.md. Texts are read with several thread counts and block sizes; all must agree.
#include "core/error.hpp"
#include "data/open.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <lzma.h>
#include <set>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>
#include <zlib.h>
#include <zstd.h>

#include "cmocka.hpp" // after dataset.hpp: its macro skip() would hide Dataset::skip()
#undef skip

using namespace dslide;
using namespace std::string_literals;

namespace {

struct Options : dslide_dataset_options {
    Options() : dslide_dataset_options{} { struct_size = sizeof(dslide_dataset_options); }
    Options with(const std::function<void(Options &)> &change) const {
        Options changed = *this;
        change(changed);
        return changed;
    }
};

const Options xmc;
const Options svmlight = xmc.with([](Options &o) { o.format = DSLIDE_FORMAT_SVMLIGHT; });

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    return text;
}

// "1,2|3:0.5 4:1": labels, then features.
std::string row_text(const Batch &batch, std::int64_t row) {
    std::string text;
    for (const std::int32_t label : batch.labels.cols(row)) text += (text.empty() ? "" : ",") + std::to_string(label);
    text += '|';
    const auto cols = batch.features.cols(row);
    const float *vals = batch.features.vals(row);
    for (std::size_t i = 0; i < cols.size(); ++i)
        text += (i ? " " : "") + std::to_string(cols[i]) + ':' + number(vals ? vals[i] : 1.0);
    return text;
}

// All rows of the epoch, with ';' between them.
std::string rows_text(Dataset &data, std::int64_t batch_rows = 3) {
    std::string text;
    for (Batch batch = data.next(batch_rows); batch.size(); batch = data.next(batch_rows))
        for (std::int64_t row = 0; row < batch.size(); ++row) text += (text.empty() ? "" : ";") + row_text(batch, row);
    return text;
}

std::string error_text(const Error &error) {
    return (error.status() == DSLIDE_E_FORMAT ? "" : "status " + std::to_string(error.status()) + ": ") + error.what();
}

std::unique_ptr<Dataset> open(const std::string &text, const Options &options = {}, int threads = 1,
                              std::size_t block_bytes = TextReader::default_block_bytes) {
    return open_text(std::make_shared<Arena>(threads), Input::memory(text.data(), text.size()), options, block_bytes);
}

std::string read_once(const std::string &text, const Options &options, int threads, std::size_t block_bytes) {
    try {
        const auto data = open(text, options, threads, block_bytes);
        return rows_text(*data);
    } catch (const Error &error) {
        return error_text(error);
    }
}

// The rows or the error, which must not depend on threads, on the size of blocks, nor on streaming.
std::string read(const std::string &text, const Options &options = {}) {
    const std::string expected = read_once(text, options, 1, TextReader::default_block_bytes);
    for (const int threads : {1, 3})
        for (const std::size_t block_bytes : {1, 7, 50})
            for (const std::int32_t mode : {DSLIDE_DATASET_RESIDENT, DSLIDE_DATASET_STREAMING}) {
                const auto other = options.with([&](Options &o) { o.mode = mode; });
                const std::string got = read_once(text, other, threads, block_bytes);
                if (got != expected)
                    return "threads " + std::to_string(threads) + ", block " + std::to_string(block_bytes) + ", mode " +
                           std::to_string(mode) + ": " + got + " INSTEAD OF " + expected;
            }
    return expected;
}

dslide_dataset_info info_of(const std::string &text, const Options &options = {}) {
    return open(text, options)->info();
}

struct Case {
    std::string text;
    std::string expected;
};

// The first case that fails, told in words; "" if none does.
std::string failures(const std::vector<Case> &cases, const Options &options = {}) {
    for (const Case &c : cases) {
        const std::string got = read(c.text, options);
        if (got == c.expected) continue;
        std::string shown = c.text.substr(0, 80);
        std::replace_if(
            shown.begin(), shown.end(), [](char ch) { return ch < ' ' || ch > '~'; }, '.');
        return "text [" + shown + "] gave [" + got + "], expected [" + c.expected + "]";
    }
    return "";
}

#define ASSERT_CASES(...)                                                                                              \
    do {                                                                                                               \
        char failure[2048];                                                                                            \
        std::snprintf(failure, sizeof failure, "%s", failures(__VA_ARGS__).c_str());                                   \
        assert_string_equal(failure, "");                                                                              \
    } while (0)

std::string gzip(const std::string &text) {
    std::string out(text.size() + 200, '\0');
    z_stream stream{};
    deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
    stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef *>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
}

std::string xz(const std::string &text) {
    std::string out(lzma_stream_buffer_bound(text.size()), '\0');
    std::size_t size = 0;
    lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const std::uint8_t *>(text.data()),
                            text.size(), reinterpret_cast<std::uint8_t *>(out.data()), &size, out.size());
    out.resize(size);
    return out;
}

std::string zstd(const std::string &text) {
    std::string out(ZSTD_compressBound(text.size()), '\0');
    out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1));
    return out;
}

// n rows "row % 7 row:1", with a header.
std::string numbered_rows(std::int64_t n) {
    std::string text = std::to_string(n) + ' ' + std::to_string(n) + " 7\n";
    for (std::int64_t row = 0; row < n; ++row) text += std::to_string(row % 7) + ' ' + std::to_string(row) + ":1\n";
    return text;
}

std::vector<std::int64_t> epoch_ids(Dataset &data, std::int64_t batch_rows) {
    std::vector<std::int64_t> ids;
    for (Batch batch = data.next(batch_rows); batch.size(); batch = data.next(batch_rows))
        for (std::int64_t row = 0; row < batch.size(); ++row) {
            ids.push_back(batch.row_ids[row]);
            // The only feature of a numbered row is its number.
            if (batch.features.cols(row)[0] != batch.row_ids[row]) ids.push_back(-1);
        }
    return ids;
}

bool is_permutation(std::vector<std::int64_t> ids, std::int64_t n) {
    std::sort(ids.begin(), ids.end());
    for (std::size_t i = 0; i < ids.size(); ++i)
        if (ids[i] != static_cast<std::int64_t>(i)) return false;
    return static_cast<std::int64_t>(ids.size()) == n;
}

} // namespace

static void test_text__layouts_give_equal_rows(void **) {
    const std::string rows = "1,2|0:0.5 3:2;|3:1";
    ASSERT_CASES({
        {"1,2 0:0.5 3:2\n 3:1\n", rows},
        {"1,2 0:0.5 3:2\n 3:1", rows},
        {"1,2 0:0.5 3:2\r\n 3:1\r\n", rows},
        {"1,2 0:0.5 3:2\r\n 3:1\r", rows},
        {"\xef\xbb\xbf"
         "1,2 0:0.5 3:2\n 3:1\n",
         rows},
        {"1,2\t0:0.5\t3:2\n\t3:1\n", rows},
        {"1,2   0:0.5 \t 3:2  \n   3:1 \t\n", rows},
        {"\n1,2 0:0.5 3:2\n\n\n 3:1\n\r\n", rows},
        {"\n1,2 0:0.5 3:2\n \t \n 3:1\n", "1,2|0:0.5 3:2;|;|3:1"}, // a row without labels and features
        {"2 4 3\n1,2 0:0.5 3:2\n 3:1\n", rows},
        {"2\t4  3 \r\n1,2 0:0.5 3:2\r\n 3:1\r\n", rows},
        {" 2 4 3\n1,2 0:0.5 3:2\n 3:1\n", rows},
        {"\xef\xbb\xbf"
         "2 4 3\n1,2 0:0.5 3:2\n 3:1\n",
         rows},
        {"2,1 3:2 0:0.5\n 3:1\n", rows},
        {"1,2,1,2,2 3:+2 0:5e-1\n 3:1.0\n", rows},
        {"01,002 00:.5 0000000000000000000000003:2.\n 3:1000e-3\n", rows},
        {"1,2 0:0.5 3:2 1:0 2:-0.0\n 3:1\n", rows},
    });
}

static void test_text__svmlight_layouts_give_equal_rows(void **) {
    const std::string rows = "1,2|0:0.5 3:2;|3:1";
    ASSERT_CASES(
        {
            {"1,2 0:0.5 3:2\n 3:1\n", rows},
            {"# sklearn\n1,2 0:0.5 3:2 # first\n 3:1#second\n  # end\n#\n", rows},
            {"+1,2.0 0:0.5 3:2\n 3:1\n", rows},
            {"1.,+2.00 qid:7 0:0.5 3:2\r\n qid:123456789012345678901 3:1\r\n", rows},
            {"1,2 0:0.5 3:2\n 3:1 # caf\xc3\xa9 \x01\n", rows},
        },
        svmlight);
}

static void test_text__rows_may_lack_labels_or_features(void **) {
    ASSERT_CASES({{" 0:1\n4\n4 \n5,6\n", "|0:1;4|;4|;5,6|"}});
    const auto info = info_of(" 0:1\n4\n4 \n\n5,6\n 7:0\n");
    assert_int_equal(info.n_rows, 5);
    assert_int_equal(info.rows_without_label, 2);
    assert_int_equal(info.rows_without_feature, 4);
    assert_int_equal(info.blank_lines, 1);
    assert_int_equal(info.zero_features, 1);
    assert_int_equal(info.n_features, 8); // the zero's place counts
    assert_int_equal(info.n_labels, 7);
    const auto unlabelled = info_of(" 0:1\n");
    assert_int_equal(unlabelled.n_labels, 1);
    assert_int_equal(unlabelled.rows_without_label, 1);
}

static void test_text__bases_are_explicit(void **) {
    const auto ones = xmc.with([](Options &o) { o.index_base = o.label_base = 1; });
    ASSERT_CASES(
        {
            {"1,3 1:1 4:2\n", "0,2|0:1 3:2"},
            {"1 0:1\n", "memory:1:3: expected a feature of at least 1, found '0:1'"},
            {"0 1:1\n", "memory:1:1: expected a label of at least 1, found '0'"},
            {"1 4 3\n3 4:1\n", "2|3:1"},
            {"1 4 3\n3 5:1\n", "memory:2:3: expected a feature of at most 4, found '5:1'"},
            {"1 4 3\n4 4:1\n", "memory:2:1: expected a label of at most 3, found '4'"},
        },
        ones);
}

static void test_text__defects_are_told_with_their_place(void **) {
    ASSERT_CASES({
        // labels
        {"1 1:1\n1:3 2:1\n", "memory:2:1: expected labels (a row without labels starts with a blank), found '1:3'"},
        {"1,2:3 2:1\n", "memory:1:4: expected ',' or a blank after the label, found ':3'"},
        {"1, 2 3:1\n", "memory:1:3: expected a label, a whole number >= 0, found a blank"},
        {"1,,2 3:1\n", "memory:1:3: expected a label, a whole number >= 0, found ',2'"},
        {"1,\n", "memory:1:3: expected a label, a whole number >= 0, found the end of the line"},
        {",1\n", "memory:1:1: expected a label, a whole number >= 0, found ',1'"},
        {"-1 3:1\n", "memory:1:1: expected a label, a whole number >= 0, found '-1'"},
        {"3.0 3:1\n", "memory:1:2: expected ',' or a blank after the label, found '.0'"},
        {"text_id 3:1\n", "memory:1:1: expected a label, a whole number >= 0, found 'text_id'"},
        {"2147483647 3:1\n", "memory:1:1: expected a label of at most 2147483646, found '2147483647'"},
        {"9223372036854775808,1 3:1\n",
         "memory:1:1: expected a label of at most 2147483646, found '9223372036854775808,1'"},
        // features
        {"1 1:1\n5 3 2\n", "memory:2:3: expected feature:value, found '3'"},
        {"1 2\n", "memory:1:3: expected feature:value, found '2'"},
        {"1 1:1 abc 2:1\n", "memory:1:7: expected feature:value, found 'abc'"},
        {"1 -3:1\n", "memory:1:3: expected a feature of at least 0, found '-3:1'"},
        {"1 +3:1\n", "memory:1:3: expected feature:value, found '+3:1'"},
        {"1 0x3:1\n", "memory:1:3: expected feature:value, found '0x3:1'"},
        {"1 3 :1\n", "memory:1:3: expected feature:value, found '3'"},
        {"1 2147483647:1\n", "memory:1:3: expected a feature of at most 2147483646, found '2147483647:1'"},
        {"1 2147483648:1\n", "memory:1:3: expected a feature of at most 2147483646, found '2147483648:1'"},
        {"1 2147483653:1\n", "memory:1:3: expected a feature of at most 2147483646, found '2147483653:1'"},
        {"1 4294967296:1\n", "memory:1:3: expected a feature of at most 2147483646, found '4294967296:1'"},
        {"1 9223372036854775808:1\n",
         "memory:1:3: expected a feature of at most 2147483646, found '9223372036854775808:1'"},
        {"1 18446744073709551616:1\n",
         "memory:1:3: expected a feature of at most 2147483646, found '18446744073709551616:1'"},
        {"1 5:1 5:2\n", "memory:1:7: expected each feature once in a row, found '5:2' again"},
        {"1 5:1 3:1 7:2 05:1 3:2\n", "memory:1:15: expected each feature once in a row, found '05:1' again"},
        {"1 5:0 5:1\n", "memory:1:7: expected each feature once in a row, found '5:1' again"},
        {"1 5:1 5:1 x\n", "memory:1:7: expected each feature once in a row, found '5:1' again"},
        {"1 5:1 x 5:1\n", "memory:1:7: expected feature:value, found 'x'"},
        // values
        {"1 12:\n", "memory:1:6: expected a number after ':', found the end of the line"},
        {"1 12: 13:1\n", "memory:1:6: expected a number after ':', found a blank"},
        {"1 12:x\n", "memory:1:6: expected a number after ':', found 'x'"},
        {"1 12:--1\n", "memory:1:6: expected a number after ':', found '--1'"},
        {"1 12:1,5\n", "memory:1:7: expected a blank after the value, found ',5'"},
        {"1 12:0x10\n", "memory:1:7: expected a blank after the value, found 'x10'"},
        {"1 12:1:2\n", "memory:1:7: expected a blank after the value, found ':2'"},
        {"1 12:nan\n", "memory:1:6: expected a finite number, found 'nan'"},
        {"1 12:-NaN\n", "memory:1:6: expected a finite number, found '-NaN'"},
        {"1 12:inf\n", "memory:1:6: expected a finite number, found 'inf'"},
        {"1 12:-Infinity\n", "memory:1:6: expected a finite number, found '-Infinity'"},
        {"1 12:1e400\n", "memory:1:6: expected a number within the range of float (3.4e38), found '1e400'"},
        {"1 12:-3.5e38\n", "memory:1:6: expected a number within the range of float (3.4e38), found '-3.5e38'"},
        // bytes that have no place in a text
        {"1 1:1\r2 2:2\n", "memory:1:6: expected a blank after the value, found byte 0x0d"},
        {"1 1:1\n1 2:1 \0 3:1\n"s, "memory:2:7: expected feature:value, found byte 0x00"},
        {"1 1:1\n1 2:1 \xc3\xa9\n", "memory:2:7: expected feature:value, found byte 0xc3"},
        {"1 1:1 # note\n", "memory:1:7: expected feature:value, found '#'"},
        {"# note\n1 1:1\n", "memory:1:1: expected a label, a whole number >= 0, found '#'"},
        {"1 qid:3 1:1\n", "memory:1:3: expected feature:value, found 'qid:3'"},
        {"1 aaaaaaaaaabbbbbbbbbbccccccccccddddddddddd\n",
         "memory:1:3: expected feature:value, found 'aaaaaaaaaabbbbbbbbbbccccccccccdd...'"},
    });
}

static void test_text__svmlight_defects_are_told_with_their_place(void **) {
    ASSERT_CASES(
        {
            {"-1 3:1\n", "memory:1:1: expected a label, a whole number >= 0, found '-1'"},
            {"+-1 3:1\n", "memory:1:1: expected a label, a whole number >= 0, found '+-1'"},
            {"3.7 3:1\n", "memory:1:1: expected a label, a whole number >= 0, found '3.7'"},
            {"3.0e1 3:1\n", "memory:1:4: expected ',' or a blank after the label, found 'e1'"},
            {"1 qid: 3:1\n", "memory:1:7: expected a number after 'qid:', found a blank"},
            {"1 qid:a 3:1\n", "memory:1:7: expected a number after 'qid:', found 'a'"},
            {"1 qid:1 qid:2 3:1\n", "memory:1:9: expected feature:value, found 'qid:2'"},
            {"1 3:1 qid:1\n", "memory:1:7: expected feature:value, found 'qid:1'"},
            {"1 sid:1 3:1\n", "memory:1:3: expected feature:value, found 'sid:1'"},
            {"1 3: # none\n", "memory:1:5: expected a number after ':', found a blank"},
            {"5 3 2\n1 1:1\n", "memory:1:3: expected feature:value, found '3'"},
            {"# 1\n\n#2\n",
             "memory:4:1: expected at least one row, found the end of the file (1 blank lines are not rows) "
             "(2 comment lines are not rows)"},
        },
        svmlight);
    const auto info = info_of("#a\n1,1,2,2,2 qid:1 1:1 # b\n\n2 qid:1 2:0\n", svmlight);
    assert_int_equal(info.comment_lines, 1); // the line that is nothing else
    assert_int_equal(info.blank_lines, 1);
    assert_int_equal(info.ignored_qids, 2);
    assert_int_equal(info.repeated_labels, 3);
    assert_int_equal(info.n_label_values, 3);
    assert_int_equal(info.n_feature_values, 1);
}

static void test_text__first_defect_in_file_order_is_told(void **) {
    std::string text, place;
    std::string failure;
    for (int first = 0; first < 60; first += 7) {
        text.clear();
        for (int row = 0; row < 60; ++row) text += row >= first && row % 3 != 1 ? "1 x\n" : "1 1:1 2:2\n";
        place = "memory:" + std::to_string(first % 3 == 1 ? first + 2 : first + 1) +
                ":3: expected feature:value, found 'x'";
        const std::string got = read(text);
        if (got != place) failure += got + " INSTEAD OF " + place + '\n';
    }
    char shown[1000];
    std::snprintf(shown, sizeof shown, "%s", failure.c_str());
    failure = std::string();
    assert_string_equal(shown, "");
}

static void test_text__header_is_kept_to(void **) {
    ASSERT_CASES({
        {"2 5 3\n1 1:1\n", "memory:3:1: expected 2 rows, as the header says, found 1"},
        {"2 5 3\n1 1:1\n\n", "memory:4:1: expected 2 rows, as the header says, found 1 (1 blank lines are not rows)"},
        {"1 5 3\n1 1:1\n\n2 2:1\n", "memory:4:1: expected the end of the file after 1 rows, as the header says, found "
                                    "another row"},
        {"1 5 3\n1 1:1\n\n2 2:1\n2 x\n", "memory:4:1: expected the end of the file after 1 rows, as the header says, "
                                         "found another row"},
        {"1 5 3\n1 1:1\n2 x\n", "memory:3:3: expected feature:value, found 'x'"},
        {"0 5 3\n", "memory:2:1: expected at least one row, found the end of the file"},
        {"0 5 3\n1 1:1\n",
         "memory:2:1: expected the end of the file after 0 rows, as the header says, found another row"},
        {"1 5 3\n1 5:1\n", "memory:2:3: expected a feature of at most 4, found '5:1'"},
        {"1 5 3\n3 4:1\n", "memory:2:1: expected a label of at most 2, found '3'"},
        {"1 0 3\n1 1:1\n", "memory:1:1: expected a header with 1 to 2147483647 features, found 0"},
        {"1 5 0\n 1:1\n", "memory:1:1: expected a header with 1 to 2147483647 labels, found 0"},
        {"1 2147483648 3\n1 1:1\n", "memory:1:1: expected a header with 1 to 2147483647 features, found 2147483648"},
        {"1 2147483647 3\n1 2147483646:1\n", "1|2147483646:1"},
        {"99999999999999999999 5 3\n1 1:1\n",
         "memory:3:1: expected 9223372036854775807 rows, as the header says, found 1"},
        // Two or four numbers are no header, hence a row.
        {"5 3\n", "memory:1:3: expected feature:value, found '3'"},
        {"5 3 2 1\n", "memory:1:3: expected feature:value, found '3'"},
        {"5 3 -2\n", "memory:1:3: expected feature:value, found '3'"},
        {"\n1 5 3\n1 1:1\n", "memory:2:3: expected feature:value, found '5'"},
    });
    const auto info = info_of("1 5 3\n1 1:1\n");
    assert_int_equal(info.n_features, 5);
    assert_int_equal(info.n_labels, 3);
    assert_int_equal(info.n_rows, 1);
}

static void test_text__options_override_the_header(void **) {
    const auto sizes = xmc.with([](Options &o) { o.n_features = 8, o.n_labels = 4; });
    ASSERT_CASES(
        {
            {"1 5 3\n3 7:1\n", "3|7:1"},   // wider than the header says
            {"1 50 30\n3 7:1\n", "3|7:1"}, // narrower
            {"1 0 0\n3 7:1\n", "3|7:1"},
            {"1 50 30\n3 8:1\n", "memory:2:3: expected a feature of at most 7, found '8:1'"},
            {"4 7:1\n", "memory:1:1: expected a label of at most 3, found '4'"},
        },
        sizes);
    const auto info = info_of("1 50 30\n1 1:1\n", sizes);
    assert_int_equal(info.n_features, 8);
    assert_int_equal(info.n_labels, 4);
}

static void test_text__wide_entries_are_dropped_and_counted(void **) {
    const auto drop = xmc.with([](Options &o) { o.n_features = 3, o.n_labels = 2, o.wide = DSLIDE_WIDE_DROP; });
    ASSERT_CASES(
        {
            {"0,2,1,9 2:1 3:1 1:5 4294967297:1\n2 3:1\n", "0,1|1:5 2:1;|"},
            {"0 3:1 3:1\n", "0|"},
            {"0 3:x\n", "memory:1:5: expected a number after ':', found 'x'"},
            {"0 9223372036854775807:1\n", "memory:1:3: expected a feature of at most 2, found '9223372036854775807:1'"},
            {"0 -1:1\n", "memory:1:3: expected a feature of at least 0, found '-1:1'"},
        },
        drop);
    const auto info = info_of("0,2,1,9 2:1 3:1 1:5 4294967297:1\n2 3:1\n", drop);
    assert_int_equal(info.dropped_features, 3);
    assert_int_equal(info.dropped_labels, 3);
    assert_int_equal(info.rows_without_label, 1);
    assert_int_equal(info.rows_without_feature, 1);
    // With nothing declared there is nothing to be above.
    ASSERT_CASES({{"0 2147483647:1\n", "memory:1:3: expected a feature of at most 2147483646, found '2147483647:1'"}},
                 xmc.with([](Options &o) { o.wide = DSLIDE_WIDE_DROP; }));
}

static void test_text__values_are_read_exactly(void **) {
    ASSERT_CASES({
        {"1 0:1e-45 1:3.4028235e38 2:0.1 3:16777217 4:-0.00001\n",
         "1|0:1.40129846e-45 1:3.40282347e+38 2:0.100000001 3:16777216 4:-9.99999975e-06"},
        {"1 0:1e-400 1:1\n", "1|1:1"}, // below the smallest float: a zero
    });
    assert_int_equal(info_of("1 0:1e-400 1:1\n").zero_features, 1);
}

static void test_text__normalizes_rows(void **) {
    const auto normalize = xmc.with([](Options &o) { o.normalize = 1; });
    ASSERT_CASES(
        {
            {"1 0:3 5:4\n1\n1 2:-7\n", "1|0:0.600000024 5:0.800000012;1|;1|2:-1"},
            {"1 0:1 1:1 2:1 3:1\n", "1|0:0.5 1:0.5 2:0.5 3:0.5"},
            {"1 0:3e38 1:4e37 2:0\n", "1|0:0.991227925 1:0.132163718"},
            {"1 0:3e-45 1:1.4e-45\n", "1|0:0.89442718 1:0.44721359"},
        },
        normalize);
}

static void test_text__permuted_rows_are_bit_equal(void **) {
    bool equal = true;
    std::string ordered = "1,2,3 ", permuted = "3,1,2 ";
    const auto value = [](int i) { return number(std::sqrt(i + 0.3)); };
    for (int i = 0; i < 100; ++i) {
        ordered += std::to_string(i) + ':' + value(i) + ' ';
        const int j = (i * 37 + 11) % 100;
        permuted += std::to_string(j) + ':' + value(j) + ' ';
    }
    for (const int normalize : {0, 1}) {
        const auto options = xmc.with([&](Options &o) { o.normalize = normalize; });
        equal &= read(ordered, options) == read(permuted, options);
    }
    assert_true(equal);
}

static void test_text__empty_and_rowless_files_are_refused(void **) {
    ASSERT_CASES({
        {"", "memory:1:1: expected at least one row, found the end of the file"},
        {"\xef\xbb\xbf", "memory:1:1: expected at least one row, found the end of the file"},
        {"\n\n", "memory:3:1: expected at least one row, found the end of the file (2 blank lines are not rows)"},
        {" \n", "|"}, // no labels and no features
        {gzip(""), "memory:1:1: expected at least one row, found the end of the file"},
    });
}

static void test_text__cut_after_every_byte_never_reads_half_a_feature(void **) {
    const std::string text = "2 20 9\n1,2 3:0.5 14:1e2\n 7:-2\n";
    std::string failure;
    for (std::size_t size = 0; size < text.size(); ++size) {
        const std::string got = read(text.substr(0, size));
        if (size == 1 || size == 2) { // of the header is left what a row with label 2 looks like
            if (got != "2|") failure += got + '\n';
        } else if (size >= 2 && text[size - 1] == ' ' &&
                   text[size - 2] == '\n') { // a row without labels and, so far, features
            if (got != "1,2|3:0.5 14:100;|") failure += got + '\n';
        } else if (size == text.size() - 1) { // the last line needs no line end
            if (got != "1,2|3:0.5 14:100;|7:-2") failure += got + '\n';
        } else if (!got.starts_with("memory:")) {
            failure += std::to_string(size) + ": " + got + '\n';
        }
    }
    char shown[1000];
    std::snprintf(shown, sizeof shown, "%s", failure.c_str());
    failure = std::string();
    assert_string_equal(shown, "");
}

static void test_text__binary_files_are_named(void **) {
    ASSERT_CASES({
        {"\x40\0\0\0\0\0\0\0{\"weight\":{\"dtype\":\"F32\"}}"s, "memory:1:1: expected text, found a safetensors file"},
        {"PK\x03\x04 npz", "memory:1:1: expected text, found a zip archive (npz, PyTorch)"},
        {"\x93NUMPY\x01", "memory:1:1: expected text, found a NumPy array"},
        {"\x7f"
         "ELF\x02",
         "memory:1:1: expected text, found a program"},
        {"BZh91AY", "memory:1:1: expected text, found bzip2 data (gzip, xz and zstd are read)"},
        {"\xff\xfe"
         "1\0"s,
         "memory:1:1: expected text, found UTF-16 text (UTF-8 is read)"},
        {"{\"rows\": 3}", "memory:1:1: expected text, found JSON"},
        {gzip(gzip("1 1:1\n")), "memory:1:1: expected text, found gzip data inside compressed data"},
        {"\x01\x02\x03", "memory:1:1: expected a label, a whole number >= 0, found byte 0x01"},
    });
}

static void test_text__very_long_lines(void **) {
    constexpr int features = 200000;
    std::string line = "7 ", text;
    for (int i = 0; i < features; ++i) line += std::to_string(i) + ":1 ";
    text = "1 1:2\n" + line + "\n2 2:2\n";
    std::int64_t values = 0, rows = 0, longest = 0;
    {
        const auto data = open(text, xmc, 2);
        values = data->info().n_feature_values;
        rows = data->info().n_rows;
        for (Batch batch = data->next(1); batch.size(); batch = data->next(1))
            longest = std::max(longest, batch.features.nnz());
    }
    std::string endless = "1 1:1\n1 2:", refused, comment = "#" + std::string(std::size_t{65} << 20, 'x') + "\n1 1:1\n";
    endless.append(std::size_t{65} << 20, '1');
    refused = read_once(endless, xmc, 2, TextReader::default_block_bytes);
    std::string refused_comment = read_once(comment, svmlight, 2, TextReader::default_block_bytes);
    const bool as_expected = refused == "memory:2:67108865: expected a line end within 67108864 bytes, found none";
    const bool comment_as_expected =
        refused_comment == "memory:1:67108865: expected a line end within 67108864 bytes, found none";
    endless = refused = comment = refused_comment = line = text = std::string();
    assert_int_equal(values, features + 2);
    assert_int_equal(rows, 3);
    assert_int_equal(longest, features);
    assert_true(as_expected);
    assert_true(comment_as_expected);
}

static void test_compressed__members_and_padding(void **) {
    const std::string one = "2 5 3\n1 1:0.5\n", two = "2 4:1\n", rows = "1|1:0.5;2|4:1";
    const std::string skippable = "\x52\x2a\x4d\x18\x03\0\0\0abc"s;
    ASSERT_CASES({
        {gzip(one + two), rows},
        {xz(one + two), rows},
        {zstd(one + two), rows},
        {gzip(one) + gzip("") + gzip(two), rows},
        {xz(one) + xz(two), rows},
        {zstd(one) + zstd(two), rows},
        {skippable + zstd(one) + skippable + zstd(two), rows},
        {gzip(one + "2 4") + gzip(":1"), rows}, // a member may end anywhere in a line
        {gzip(one + two) + std::string(512, '\0'), rows},
        {xz(one + two) + std::string(8, '\0'), rows},
        {gzip(one + two) + "tail",
         "memory:4:1: expected intact gzip data, found damage (other bytes after the last member)"},
        {xz(one + two) + "more than a tail",
         "memory:4:1: expected intact xz data, found damage (in a block, or other bytes after the last stream)"},
        {zstd(one + two) + "tail", "memory:4:1: expected intact zstd data, found damage (Unknown frame descriptor)"},
    });
}

static void test_compressed__cut_anywhere_is_refused(void **) {
    const std::string text = "1 1:0.5\n2 4:1\n3 5:1\n";
    std::string failure;
    for (const auto &compress : {gzip, xz, zstd}) {
        const std::string whole = compress(text);
        for (std::size_t size = 6; size < whole.size(); ++size) {
            const std::string got = read_once(whole.substr(0, size), xmc, 2, 8);
            if (got.find("data, found the end of the file") == std::string::npos)
                failure += std::to_string(size) + got + '\n';
        }
    }
    char shown[1000];
    std::snprintf(shown, sizeof shown, "%s", failure.c_str());
    failure = std::string();
    assert_string_equal(shown, "");
}

static void test_compressed__damage_is_refused(void **) {
    std::string text = "100 1000 10\n";
    for (int row = 0; row < 100; ++row)
        text += std::to_string(row % 10) + ' ' + std::to_string(row * 7) + ':' + std::to_string(row * row + 1) + '\n';
    int accepted = 0, tried = 0;
    for (const auto &compress : {gzip, xz}) { // zstd's one-call form writes no checksum
        const std::string whole = compress(text);
        const std::string expected = read_once(text, xmc, 1, TextReader::default_block_bytes);
        for (std::size_t i = 12; i < whole.size(); i += 5, ++tried) {
            std::string damaged = whole;
            damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
            const std::string got = read_once(damaged, xmc, 1, TextReader::default_block_bytes);
            accepted += got != expected && !got.starts_with("memory:"); // some bits are padding
        }
    }
    assert_true(tried > 100);
    assert_int_equal(accepted, 0);
}

static void test_compressed__asks_for_no_huge_window(void **) {
    // zstd frame header: single segment off, window descriptor 0xA8 = 2^31 bytes.
    ASSERT_CASES(
        {{"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00"s,
          "memory:1:1: expected intact zstd data, found damage (Frame requires too much memory for decoding)"}});
}

static void test_order__every_row_once_whatever_the_batch_size(void **) {
    bool once = true;
    for (const std::int32_t mode : {DSLIDE_DATASET_RESIDENT, DSLIDE_DATASET_STREAMING})
        for (const std::int32_t shuffle : {0, 1})
            for (std::int64_t n = 1; n <= 24; ++n) {
                const std::string text = numbered_rows(n);
                const auto options =
                    xmc.with([&](Options &o) { o.mode = mode, o.shuffle = shuffle, o.shuffle_rows = 7; });
                const auto data = open(text, options, 2, 20);
                for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
                    data->rewind(epoch);
                    once &= is_permutation(epoch_ids(*data, 5), n);
                    once &= data->next(5).size() == 0; // the end stays the end
                }
            }
    assert_true(once);
}

static void test_order__depends_on_seed_and_epoch_alone(void **) {
    const std::string text = numbered_rows(500);
    std::set<std::vector<std::int64_t>> orders;
    bool equal = true, evaluation = true;
    for (const std::int32_t mode : {DSLIDE_DATASET_RESIDENT, DSLIDE_DATASET_STREAMING})
        for (const std::uint64_t seed : {0, 5})
            for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
                const auto options =
                    xmc.with([&](Options &o) { o.mode = mode, o.seed = seed, o.shuffle = 1, o.shuffle_rows = 64; });
                const auto first = open(text, options, 1, 4096), second = open(text, options, 3, 33);
                first->rewind(epoch);
                second->rewind(epoch);
                const auto ids = epoch_ids(*first, 10);
                equal &= ids == epoch_ids(*second, 77);
                orders.insert(ids);
                first->rewind(epoch, true);
                const auto unshuffled = epoch_ids(*first, 10);
                evaluation &= std::is_sorted(unshuffled.begin(), unshuffled.end()) && unshuffled.size() == 500;
            }
    const std::size_t different = orders.size();
    orders.clear();
    assert_true(equal);
    assert_true(evaluation);
    assert_int_equal(different, 12);
}

static void test_order__streaming_shuffles_within_blocks(void **) {
    bool within = true, moved = false;
    {
        const std::string text = numbered_rows(1000);
        const auto options =
            xmc.with([](Options &o) { o.mode = DSLIDE_DATASET_STREAMING, o.shuffle = 1, o.shuffle_rows = 100; });
        const auto data = open(text, options, 2, 512);
        const auto ids = epoch_ids(*data, 64);
        for (std::size_t i = 0; i < ids.size(); ++i) {
            within &= ids[i] / 100 == static_cast<std::int64_t>(i) / 100;
            moved |= ids[i] != static_cast<std::int64_t>(i);
        }
    }
    assert_true(within);
    assert_true(moved);
}

static void test_order__skip_goes_on_where_a_run_stopped(void **) {
    bool same = true;
    const std::string text = numbered_rows(100);
    for (const std::int32_t mode : {DSLIDE_DATASET_RESIDENT, DSLIDE_DATASET_STREAMING})
        for (const std::int64_t done : {0, 1, 33, 64, 99, 100}) {
            const auto options = xmc.with([&](Options &o) { o.mode = mode, o.shuffle = 1, o.shuffle_rows = 16; });
            const auto data = open(text, options, 1, 100);
            data->rewind(4);
            auto ids = epoch_ids(*data, 8);
            ids.erase(ids.begin(), ids.begin() + done);
            data->rewind(4);
            data->skip(done);
            same &= epoch_ids(*data, 8) == ids;
        }
    assert_true(same);
}

// Writes the text into a pipe on a thread, a few bytes at a time, while body(read end) runs.
template <class Body>
static void with_pipe(const std::string &text, Body &&body) {
    int ends[2];
    if (pipe(ends) != 0) return;
    std::thread writer([&] {
        for (std::size_t i = 0; i < text.size();) {
            const ssize_t count = write(ends[1], text.data() + i, std::min<std::size_t>(text.size() - i, 4099));
            if (count <= 0) break;
            i += static_cast<std::size_t>(count);
        }
        close(ends[1]);
    });
    body(ends[0]);
    char rest[4096];
    while (read(ends[0], rest, sizeof rest) > 0) {
    }
    writer.join();
    close(ends[0]);
}

static void test_pipe__is_read_once(void **) {
    std::string resident, streamed, again, headless;
    bool second_resident_epoch = false;
    const auto options = xmc.with([](Options &o) { o.mode = DSLIDE_DATASET_STREAMING; });
    const auto arena = std::make_shared<Arena>(2);
    const std::string text = "3 5 3\n1 1:0.5\n2 4:1\n 0:1\n";
    with_pipe(gzip(text), [&](int fd) {
        const auto data = open_text(arena, Input::descriptor(fd, "pipe"), xmc);
        resident = rows_text(*data);
        data->rewind(1);
        second_resident_epoch = rows_text(*data) == resident;
    });
    with_pipe(text, [&](int fd) {
        const auto data = open_text(arena, Input::descriptor(fd, "pipe"), options);
        data->rewind(0); // nothing was taken yet
        streamed = rows_text(*data);
        try {
            data->rewind(1);
        } catch (const Error &error) {
            again = error_text(error);
        }
    });
    with_pipe("1 1:0.5\n", [&](int fd) {
        try {
            open_text(arena, Input::descriptor(fd, "pipe"), options);
        } catch (const Error &error) {
            headless = error_text(error);
        }
    });
    const bool rows = resident == "1|1:0.5;2|4:1;|0:1" && streamed == resident;
    const bool state = again == "status -5: pipe is a pipe and was read already";
    const bool argument =
        headless == "status -1: pipe is a pipe without a header: streaming needs n_features and n_labels";
    resident = streamed = again = headless = std::string();
    assert_true(rows);
    assert_true(second_resident_epoch);
    assert_true(state);
    assert_true(argument);
}

static void test_pipe__by_name(void **) {
    bool equal = false, state = false;
    char folder[] = "/tmp/dslide-test-XXXXXX";
    if (mkdtemp(folder)) {
        const std::string path = folder + "/fifo"s, text = "2 5 3\n1 1:0.5\n2 4:1\n";
        if (mkfifo(path.c_str(), 0600) == 0) {
            std::thread writer([&] {
                const int fd = ::open(path.c_str(), O_WRONLY); // waits for the reader
                if (fd < 0) return;
                static_cast<void>(!write(fd, text.data(), text.size()));
                close(fd);
            });
            const auto options = xmc.with([](Options &o) { o.mode = DSLIDE_DATASET_STREAMING; });
            const auto data = open_text(std::make_shared<Arena>(2), Input::file(path), options);
            equal = rows_text(*data) == "1|1:0.5;2|4:1";
            writer.join();
            try {
                data->rewind(1);
            } catch (const Error &error) {
                state = error.status() == DSLIDE_E_STATE;
            }
            unlink(path.c_str());
        }
        rmdir(folder);
    }
    assert_true(equal);
    assert_true(state);
}

static void test_streaming__memory_is_bounded(void **) {
    std::string text;
    for (int i = 0; i < 400000; ++i) text += "1 1:0.5 2:0.25 3:0.125 4:1 5:2\n"; // 12 MB
    std::int64_t most = 0, rows = 0, before = 0, after = 0;
    with_pipe(text, [&](int fd) {
        const auto options = xmc.with([](Options &o) {
            o.mode = DSLIDE_DATASET_STREAMING, o.n_features = 6, o.n_labels = 2, o.shuffle = 1, o.shuffle_rows = 1000;
        });
        const auto data = open_text(std::make_shared<Arena>(2), Input::descriptor(fd, "pipe"), options, 16384);
        before = data->info().n_rows;
        for (Batch batch = data->next(300); batch.size(); batch = data->next(300)) {
            rows += batch.size();
            most = std::max(most, data->info().resident_bytes);
        }
        after = data->info().n_rows;
    });
    text = std::string();
    assert_int_equal(rows, 400000);
    assert_int_equal(before, -1);
    assert_int_equal(after, 400000);
    // 1,000 rows and a wave of 4 blocks of about 530 rows at 60 bytes, 300 rows of a batch: well below this.
    assert_in_range(most, 1, 1 << 20);
}

static void test_streaming__defect_ends_the_epoch_until_rewound(void **) {
    std::string first, second, third;
    {
        const std::string text = "1 1:1\n2 2:2\n3 x\n";
        const auto options =
            xmc.with([](Options &o) { o.mode = DSLIDE_DATASET_STREAMING, o.n_features = 9, o.n_labels = 9; });
        const auto data = open(text, options, 1, 1); // a block a line
        const auto next = [&] {
            try {
                return rows_text(*data, 1);
            } catch (const Error &error) {
                return error_text(error);
            }
        };
        first = next();
        second = next();
        data->rewind(1);
        third = next();
    }
    const bool all = first == "memory:3:3: expected feature:value, found 'x'" && second == first && third == first;
    first = second = third = std::string();
    assert_true(all);
}

static void test_resident__takes_the_memory_of_its_rows(void **) {
    // 8 bytes a value and 4 a label, 8 a row and matrix; binary sets drop the values.
    std::string text, binary;
    constexpr std::int64_t rows = 20000, values = 10;
    for (std::int64_t row = 0; row < rows; ++row) {
        text += "1,2";
        binary += "1,2";
        for (std::int64_t i = 0; i < values; ++i) {
            text += ' ' + std::to_string(i) + ":0.5";
            binary += ' ' + std::to_string(i) + ":1";
        }
        text += '\n';
        binary += '\n';
    }
    const std::int64_t real_bytes = open(text)->info().resident_bytes,
                       binary_bytes = open(binary)->info().resident_bytes;
    const bool ones = open(binary)->next(10).features.val == nullptr,
               reals = open(text)->next(10).features.val != nullptr;
    text = binary = std::string();
    assert_in_range(real_bytes, rows * (values * 8 + 2 * 4 + 2 * 8), rows * (values * 8 + 2 * 4 + 2 * 8) + 10000);
    assert_in_range(binary_bytes, rows * (values * 4 + 2 * 4 + 2 * 8), rows * (values * 4 + 2 * 4 + 2 * 8) + 10000);
    assert_true(ones);
    assert_true(reals);
}

static void test_resident__binary_and_real_chunks_mix(void **) {
    // Blocks of one line: some chunks have values, some do not.
    ASSERT_CASES({{"1 1:1\n2 2:1\n3 3:0.5\n4 4:1\n5 5:2\n", "1|1:1;2|2:1;3|3:0.5;4|4:1;5|5:2"}});
}

static void test_options__out_of_range_are_refused(void **) {
    const std::vector<std::pair<std::string, std::function<void(Options &)>>> faults = {
        {"format 2 is outside 0..1", [](Options &o) { o.format = 2; }},
        {"index_base -1 is outside 0..1", [](Options &o) { o.index_base = -1; }},
        {"label_base 2 is outside 0..1", [](Options &o) { o.label_base = 2; }},
        {"mode 2 is outside 0..1", [](Options &o) { o.mode = 2; }},
        {"wide 7 is outside 0..1", [](Options &o) { o.wide = 7; }},
        {"shuffle 2 is outside 0..1", [](Options &o) { o.shuffle = 2; }},
        {"normalize 2 is outside 0..1", [](Options &o) { o.normalize = 2; }},
        {"n_features -1 is outside 0..2147483647", [](Options &o) { o.n_features = -1; }},
        {"n_labels 2147483648 is outside 0..2147483647", [](Options &o) { o.n_labels = 2147483648; }},
        {"shuffle_rows -5 is outside 0..2147483647", [](Options &o) { o.shuffle_rows = -5; }},
    };
    int wrong = 0;
    for (const auto &[text, change] : faults)
        wrong += read_once("1 1:1\n", xmc.with(change), 1, 100) != "status -1: " + text;
    assert_int_equal(wrong, 0);
}

static void test_file__io_errors_name_path_and_reason(void **) {
    const auto error_of = [](const std::string &path) {
        try {
            open_text(std::make_shared<Arena>(1), Input::file(path), xmc);
            return "opened"s;
        } catch (const Error &error) {
            return error_text(error);
        }
    };
    const bool missing = error_of("/nonexistent/train.txt") ==
                         "status -3: cannot open /nonexistent/train.txt: No such file or directory";
    const bool directory = error_of("/") == "status -3: cannot read /: Is a directory";
    assert_true(missing);
    assert_true(directory);
}

// Counted with awk from the decompressed text.
static void test_file__real_data(void **) {
    const std::string path = DSLIDE_SOURCE_ROOT "/examples/data/wordnet-plant-train.txt.gz";
    dslide_dataset_info info{};
    std::string first;
    bool streamed_equal = false;
    {
        const auto arena = std::make_shared<Arena>(2);
        const auto data = open_text(arena, Input::file(path), xmc);
        info = data->info();
        const std::string rows = rows_text(*data, 256);
        first = rows.substr(0, rows.find(';'));
        const auto stream =
            open_text(arena, Input::file(path), xmc.with([](Options &o) { o.mode = DSLIDE_DATASET_STREAMING; }), 10000);
        streamed_equal = rows_text(*stream, 100) == rows;
    }
    const bool first_row = first ==
                           "355|308:0.270700008 607:0.252099991 967:0.302599996 1443:0.324200004 1537:0.315800011 "
                           "3105:0.620199978 3694:0.181299999 4823:0.122400001 5514:0.366299987";
    first = std::string();
    assert_int_equal(info.n_rows, 5777);
    assert_int_equal(info.n_features, 5845);
    assert_int_equal(info.n_labels, 704);
    assert_int_equal(info.n_feature_values, 67898);
    assert_int_equal(info.n_label_values, 13291);
    assert_true(first_row);
    assert_true(streamed_equal);
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_text__layouts_give_equal_rows),
        cmocka_unit_test(test_text__svmlight_layouts_give_equal_rows),
        cmocka_unit_test(test_text__rows_may_lack_labels_or_features),
        cmocka_unit_test(test_text__bases_are_explicit),
        cmocka_unit_test(test_text__defects_are_told_with_their_place),
        cmocka_unit_test(test_text__svmlight_defects_are_told_with_their_place),
        cmocka_unit_test(test_text__first_defect_in_file_order_is_told),
        cmocka_unit_test(test_text__header_is_kept_to),
        cmocka_unit_test(test_text__options_override_the_header),
        cmocka_unit_test(test_text__wide_entries_are_dropped_and_counted),
        cmocka_unit_test(test_text__values_are_read_exactly),
        cmocka_unit_test(test_text__normalizes_rows),
        cmocka_unit_test(test_text__permuted_rows_are_bit_equal),
        cmocka_unit_test(test_text__empty_and_rowless_files_are_refused),
        cmocka_unit_test(test_text__cut_after_every_byte_never_reads_half_a_feature),
        cmocka_unit_test(test_text__binary_files_are_named),
        cmocka_unit_test(test_text__very_long_lines),
        cmocka_unit_test(test_compressed__members_and_padding),
        cmocka_unit_test(test_compressed__cut_anywhere_is_refused),
        cmocka_unit_test(test_compressed__damage_is_refused),
        cmocka_unit_test(test_compressed__asks_for_no_huge_window),
        cmocka_unit_test(test_order__every_row_once_whatever_the_batch_size),
        cmocka_unit_test(test_order__depends_on_seed_and_epoch_alone),
        cmocka_unit_test(test_order__streaming_shuffles_within_blocks),
        cmocka_unit_test(test_order__skip_goes_on_where_a_run_stopped),
        cmocka_unit_test(test_pipe__is_read_once),
        cmocka_unit_test(test_pipe__by_name),
        cmocka_unit_test(test_streaming__memory_is_bounded),
        cmocka_unit_test(test_streaming__defect_ends_the_epoch_until_rewound),
        cmocka_unit_test(test_resident__takes_the_memory_of_its_rows),
        cmocka_unit_test(test_resident__binary_and_real_chunks_mix),
        cmocka_unit_test(test_options__out_of_range_are_refused),
        cmocka_unit_test(test_file__io_errors_name_path_and_reason),
        cmocka_unit_test(test_file__real_data),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
