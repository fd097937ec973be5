// SPDX-License-Identifier: Apache-2.0
#include "data/open.hpp"

#include "core/clock.hpp"
#include "core/error.hpp"
#include "data/resident.hpp"
#include "data/streaming.hpp"
#include "data/text_info.hpp"

#include <algorithm>
#include <cmath>

namespace dslide {
namespace {

void check_range(const char *name, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value < low || value > high) fail(DSLIDE_E_ARGUMENT, name, ' ', value, " is outside ", low, "..", high);
}

void check_order(const dslide_dataset_options &options) {
    check_range("shuffle", options.shuffle, 0, 1);
    check_range("normalize", options.normalize, 0, 1);
    check_range("shuffle_rows", options.shuffle_rows, 0, max_width);
}

TextRules checked_rules(const dslide_dataset_options &options) {
    check_order(options);
    check_range("format", options.format, DSLIDE_FORMAT_XMC, DSLIDE_FORMAT_SVMLIGHT);
    check_range("mode", options.mode, DSLIDE_DATASET_RESIDENT, DSLIDE_DATASET_STREAMING);
    check_range("index_base", options.index_base, 0, 1);
    check_range("label_base", options.label_base, 0, 1);
    check_range("wide", options.wide, DSLIDE_WIDE_REFUSE, DSLIDE_WIDE_DROP);
    check_range("n_features", options.n_features, 0, max_width);
    check_range("n_labels", options.n_labels, 0, max_width);
    TextRules rules;
    rules.format = options.format;
    rules.index_base = options.index_base;
    rules.label_base = options.label_base;
    rules.n_features = options.n_features;
    rules.n_labels = options.n_labels;
    rules.drop_wide = options.wide == DSLIDE_WIDE_DROP;
    rules.normalize = options.normalize == 1;
    return rules;
}

std::unique_ptr<Dataset> read_resident(std::shared_ptr<Arena> arena, Input input, const dslide_dataset_options &options,
                                       const TextRules &rules, std::size_t block_bytes) {
    const Stopwatch watch;
    TextReader reader(std::move(arena), input.open(), input.name(), rules, block_bytes);
    RowStore rows;
    for (;;) {
        std::vector<RowChunk> chunks = reader.next();
        if (chunks.empty()) break;
        for (RowChunk &chunk : chunks) rows.append(std::move(chunk));
    }
    const TextCounts &counts = reader.counts();
    const std::int64_t features = reader.rules().n_features, labels = reader.rules().n_labels;
    dslide_dataset_info info =
        text_info(counts, rules.format, features ? features : inferred_width(counts.feature_width),
                  labels ? labels : inferred_width(counts.label_width));
    info.read_seconds = watch.seconds();
    return std::make_unique<ResidentDataset>(std::move(rows), info, options);
}

// A row's features without explicit zeros, as the text reader leaves them out.
void copy_features(const CsrRows &features, std::int64_t row, RowChunk &chunk, dslide_dataset_info &info) {
    const auto cols = features.cols(row);
    const float *vals = features.vals(row);
    for (std::size_t i = 0; i < cols.size(); ++i) {
        if (vals && vals[i] == 0) {
            ++info.zero_features;
            continue;
        }
        chunk.feature.push_back(cols[i]);
        if (vals) chunk.value.push_back(vals[i]);
    }
    info.rows_without_feature += static_cast<std::int64_t>(chunk.feature.size()) == chunk.feature_ptr.back();
    chunk.feature_ptr.push_back(static_cast<std::int64_t>(chunk.feature.size()));
}

void normalize_rows(RowChunk &chunk) {
    if (chunk.value.empty()) chunk.value.assign(chunk.feature.size(), 1.0F);
    for (std::size_t row = 0; row + 1 < chunk.feature_ptr.size(); ++row) {
        const auto begin = chunk.value.begin() + chunk.feature_ptr[row],
                   end = chunk.value.begin() + chunk.feature_ptr[row + 1];
        double square = 0;
        for (auto v = begin; v != end; ++v) square += static_cast<double>(*v) * static_cast<double>(*v);
        const double scale = 1 / std::sqrt(square);
        for (auto v = begin; v != end; ++v) *v = static_cast<float>(static_cast<double>(*v) * scale);
    }
}

RowChunk copy_rows(const CsrRows &features, const CsrRows &labels, const float *weights, dslide_dataset_info &info) {
    RowChunk chunk;
    const auto rows = static_cast<std::size_t>(features.n_rows);
    chunk.feature_ptr.reserve(rows + 1);
    chunk.label_ptr.reserve(rows + 1);
    chunk.feature.reserve(static_cast<std::size_t>(features.nnz()));
    if (features.val) chunk.value.reserve(static_cast<std::size_t>(features.nnz()));
    for (std::int64_t row = 0; row < features.n_rows; ++row) {
        copy_features(features, row, chunk, info);
        info.rows_without_label += labels.nnz(row) == 0;
        chunk.label_ptr.push_back(labels.row_ptr[row + 1] - labels.row_ptr[0]);
    }
    const std::int64_t first = labels.row_ptr[0], last = labels.row_ptr[labels.n_rows];
    chunk.label.assign(labels.col + first, labels.col + last);
    if (labels.val) chunk.label_weight.assign(labels.val + first, labels.val + last);
    if (weights) chunk.row_weight.assign(weights, weights + rows);
    return chunk;
}

} // namespace

std::unique_ptr<Dataset> open_text(std::shared_ptr<Arena> arena, Input input, const dslide_dataset_options &options,
                                   std::size_t block_bytes) {
    const TextRules rules = checked_rules(options);
    if (options.mode == DSLIDE_DATASET_STREAMING)
        return std::make_unique<StreamingDataset>(std::move(arena), std::move(input), options, rules, block_bytes);
    return read_resident(std::move(arena), std::move(input), options, rules, block_bytes);
}

std::unique_ptr<Dataset> dataset_of_rows(const CsrRows &features, const CsrRows &labels, const float *weights,
                                         const dslide_dataset_options &options) {
    check_order(options);
    if (features.n_rows == 0) fail(DSLIDE_E_ARGUMENT, "features have no rows");
    dslide_dataset_info info{};
    info.struct_size = sizeof info;
    RowChunk chunk = copy_rows(features, labels, weights, info);
    const bool all_one = std::all_of(chunk.value.begin(), chunk.value.end(), [](float v) { return v == 1.0F; });
    if (all_one) std::vector<float>().swap(chunk.value);
    if (options.normalize) normalize_rows(chunk);
    info.n_rows = features.n_rows;
    info.n_features = features.n_cols;
    info.n_labels = labels.n_cols;
    info.n_feature_values = static_cast<std::int64_t>(chunk.feature.size());
    info.n_label_values = static_cast<std::int64_t>(chunk.label.size());
    RowStore rows;
    rows.append(std::move(chunk));
    return std::make_unique<ResidentDataset>(std::move(rows), info, options);
}

} // namespace dslide
