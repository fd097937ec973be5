// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as text: whatever they are, the reader gives well-formed rows or one E_FORMAT with its place, and
// both are the same for any cut into blocks, resident and streaming. Two bytes of options come first.
#include "core/error.hpp"
#include "data/open.hpp"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

using namespace dslide;

namespace {

void demand(bool holds) {
    if (!holds) std::abort();
}

dslide_dataset_options options_of(std::uint8_t switches, std::uint8_t sizes) {
    dslide_dataset_options options{};
    options.struct_size = sizeof options;
    options.format = switches & 1 ? DSLIDE_FORMAT_SVMLIGHT : DSLIDE_FORMAT_XMC;
    options.index_base = switches >> 1 & 1;
    options.label_base = switches >> 2 & 1;
    options.wide = switches & 8 ? DSLIDE_WIDE_DROP : DSLIDE_WIDE_REFUSE;
    options.normalize = switches >> 4 & 1;
    options.n_features = sizes & 15;
    options.n_labels = sizes >> 4;
    return options;
}

// Data that unpack to more than this are left to the unit tests.
bool is_small(const std::uint8_t *data, std::size_t size) {
    constexpr std::size_t most = std::size_t{64} << 10;
    std::string bytes(most + 1, '\0');
    std::size_t total = 0;
    try {
        const auto source = Input::memory(data, size).open();
        while (total <= most) {
            const std::size_t count = source->read(bytes.data() + total, bytes.size() - total);
            if (count == 0) return true;
            total += count;
        }
    } catch (const DamagedInput &) {
        return true;
    }
    return false;
}

void check_rows(const CsrRows &rows, std::int64_t row) {
    std::int64_t last = -1;
    for (const std::int32_t column : rows.cols(row)) {
        demand(column > last && column < rows.n_cols);
        last = column;
    }
    if (const float *vals = rows.vals(row))
        for (std::int64_t i = 0; i < rows.nnz(row); ++i) demand(std::isfinite(vals[i]));
}

template <class T>
void append_bytes(std::string &text, const T *values, std::int64_t count) {
    if (count) text.append(reinterpret_cast<const char *>(values), static_cast<std::size_t>(count) * sizeof(T));
}

void append_row(std::string &text, const CsrRows &rows, std::int64_t row) {
    check_rows(rows, row);
    append_bytes(text, rows.cols(row).data(), rows.nnz(row));
    for (std::int64_t i = 0; i < rows.nnz(row); ++i) {
        const float value = rows.val ? rows.vals(row)[i] : 1.0F; // whether ones are stored depends on the cut
        append_bytes(text, &value, 1);
    }
    text += ';';
}

// Bytes of all rows, or the error.
std::string outcome(const std::uint8_t *data, std::size_t size, const dslide_dataset_options &options,
                    std::size_t block_bytes) {
    static const auto arena = std::make_shared<Arena>(1);
    try {
        const auto set = open_text(arena, Input::memory(data, size), options, block_bytes);
        std::string text;
        std::int64_t rows = 0, features = 0, labels = 0;
        for (Batch batch = set->next(5); batch.size(); batch = set->next(5)) {
            for (std::int64_t row = 0; row < batch.size(); ++row) {
                demand(batch.row_ids[row] == rows + row);
                append_row(text, batch.features, row);
                append_row(text, batch.labels, row);
            }
            rows += batch.size();
            features += batch.features.nnz();
            labels += batch.labels.nnz();
        }
        const dslide_dataset_info info = set->info();
        demand(rows > 0 && info.n_rows == rows && info.n_feature_values == features && info.n_label_values == labels);
        return text + std::to_string(info.n_features) + ' ' + std::to_string(info.n_labels);
    } catch (const Error &error) {
        demand(error.status() == DSLIDE_E_FORMAT);
        demand(std::strncmp(error.what(), "memory:", 7) == 0 && std::strstr(error.what(), ": expected "));
        for (const char *c = error.what(); *c; ++c) demand(*c >= ' ' && *c <= '~');
        return error.what();
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);
int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    if (size < 2 || !is_small(data + 2, size - 2)) return 0;
    dslide_dataset_options options = options_of(data[0], data[1]);
    const std::string expected = outcome(data + 2, size - 2, options, 8192);
    demand(outcome(data + 2, size - 2, options, 3) == expected);
    options.mode = DSLIDE_DATASET_STREAMING;
    demand(outcome(data + 2, size - 2, options, 40) == expected);
    return 0;
}
