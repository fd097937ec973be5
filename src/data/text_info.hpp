// SPDX-License-Identifier: Apache-2.0
// What a parsed text tells about itself.
#pragma once

#include "data/block_parser.hpp"

#include <algorithm>

namespace dslide {

/// Width of a set that declares none. A set without any feature or label has width 1, the narrowest there is.
inline std::int64_t inferred_width(std::int64_t seen) { return std::max<std::int64_t>(seen, 1); }

inline dslide_dataset_info text_info(const TextCounts &counts, std::int32_t format, std::int64_t n_features,
                                     std::int64_t n_labels) {
    dslide_dataset_info info{};
    info.struct_size = sizeof info;
    info.format = format;
    info.n_rows = counts.rows;
    info.n_features = n_features;
    info.n_labels = n_labels;
    info.n_feature_values = counts.feature_values;
    info.n_label_values = counts.label_values;
    info.rows_without_label = counts.rows_without_label;
    info.rows_without_feature = counts.rows_without_feature;
    info.blank_lines = counts.blank_lines;
    info.comment_lines = counts.comment_lines;
    info.dropped_features = counts.dropped_features;
    info.dropped_labels = counts.dropped_labels;
    info.zero_features = counts.zero_features;
    info.repeated_labels = counts.repeated_labels;
    info.ignored_qids = counts.ignored_qids;
    return info;
}

} // namespace dslide
