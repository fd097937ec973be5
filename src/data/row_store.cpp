// SPDX-License-Identifier: Apache-2.0
#include "data/row_store.hpp"

#include <algorithm>
#include <iterator>

namespace dslide {
namespace {

template <class T>
std::int64_t bytes_of(const std::vector<T> &vector) {
    return static_cast<std::int64_t>(vector.capacity() * sizeof(T));
}

} // namespace

std::int64_t RowChunk::bytes() const {
    return bytes_of(feature_ptr) + bytes_of(feature) + bytes_of(value) + bytes_of(label_ptr) + bytes_of(label) +
           bytes_of(label_weight) + bytes_of(row_weight);
}

void RowStore::append(RowChunk chunk) {
    const std::int64_t rows = chunk.rows();
    if (rows == 0) return;
    const std::int64_t bytes = chunk.bytes();
    chunks_.push_back({end_, std::move(chunk)});
    end_ += rows;
    bytes_ += bytes;
}

void RowStore::drop_before(std::int64_t row) {
    while (!chunks_.empty() && chunks_.front().first + chunks_.front().rows.rows() <= row) {
        bytes_ -= chunks_.front().rows.bytes();
        chunks_.pop_front();
    }
}

RowStore::Row RowStore::at(std::int64_t row) const {
    const auto after = std::upper_bound(chunks_.begin(), chunks_.end(), row,
                                        [](std::int64_t r, const Entry &entry) { return r < entry.first; });
    const Entry &entry = *std::prev(after);
    return {&entry.rows, static_cast<std::size_t>(row - entry.first)};
}

void BatchBuilder::Matrix::clear() {
    ptr.assign(1, 0);
    col.clear();
    val.clear();
}

void BatchBuilder::Matrix::append(const std::vector<std::int64_t> &from_ptr, const std::vector<std::int32_t> &from_col,
                                  const std::vector<float> &from_val, std::size_t row) {
    const std::int64_t begin = from_ptr[row], end = from_ptr[row + 1];
    if (!from_val.empty() && val.empty()) val.assign(col.size(), 1.0F);
    col.insert(col.end(), from_col.begin() + begin, from_col.begin() + end);
    if (!from_val.empty())
        val.insert(val.end(), from_val.begin() + begin, from_val.begin() + end);
    else if (!val.empty())
        val.resize(col.size(), 1.0F);
    ptr.push_back(static_cast<std::int64_t>(col.size()));
}

CsrRows BatchBuilder::Matrix::rows(std::int64_t n_cols) const {
    return {static_cast<std::int64_t>(ptr.size()) - 1, n_cols, ptr.data(), col.data(),
            val.empty() ? nullptr : val.data()};
}

std::int64_t BatchBuilder::Matrix::bytes() const { return bytes_of(ptr) + bytes_of(col) + bytes_of(val); }

void BatchBuilder::clear() {
    features_.clear();
    labels_.clear();
    weights_.clear();
    ids_.clear();
}

void BatchBuilder::append(RowStore::Row row, std::int64_t id) {
    const RowChunk &chunk = *row.chunk;
    features_.append(chunk.feature_ptr, chunk.feature, chunk.value, row.index);
    labels_.append(chunk.label_ptr, chunk.label, chunk.label_weight, row.index);
    if (!chunk.row_weight.empty()) weights_.push_back(chunk.row_weight[row.index]);
    ids_.push_back(id);
}

std::int64_t BatchBuilder::bytes() const {
    return features_.bytes() + labels_.bytes() + bytes_of(weights_) + bytes_of(ids_);
}

Batch BatchBuilder::batch(std::int64_t n_features, std::int64_t n_labels) const {
    return {features_.rows(n_features), labels_.rows(n_labels), weights_.empty() ? nullptr : weights_.data(),
            ids_.data()};
}

} // namespace dslide
