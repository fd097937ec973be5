// SPDX-License-Identifier: Apache-2.0
#include "data/resident.hpp"

#include "data/shuffle.hpp"

#include <algorithm>

namespace dslide {

ResidentDataset::ResidentDataset(RowStore rows, const dslide_dataset_info &info, const dslide_dataset_options &options)
    : rows_(std::move(rows)), info_(info), shuffle_(options.shuffle == 1), seed_(shuffle_seed(options.seed)) {
    ResidentDataset::rewind(0, false);
}

dslide_dataset_info ResidentDataset::info() const {
    dslide_dataset_info info = info_;
    info.resident_bytes =
        rows_.bytes() + static_cast<std::int64_t>(order_.capacity() * sizeof order_[0]) + batch_.bytes();
    return info;
}

void ResidentDataset::rewind(std::int64_t epoch, bool in_file_order) {
    position_ = 0;
    if (shuffle_ && !in_file_order)
        shuffled_order(rows_.end(), seed_, epoch, whole_set, order_);
    else
        order_.clear();
}

void ResidentDataset::skip(std::int64_t rows) { position_ += std::min(rows, rows_.end() - position_); }

Batch ResidentDataset::next(std::int64_t max_rows) {
    batch_.clear();
    for (const std::int64_t end = position_ + std::min(max_rows, rows_.end() - position_); position_ < end;
         ++position_) {
        const std::int64_t row = order_.empty() ? position_ : order_[static_cast<std::size_t>(position_)];
        batch_.append(rows_.at(row), row);
    }
    return batch_.batch(info_.n_features, info_.n_labels);
}

} // namespace dslide
