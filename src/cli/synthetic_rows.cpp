// SPDX-License-Identifier: Apache-2.0
#include "cli/synthetic_rows.hpp"

#include <algorithm>
#include <cmath>

namespace dslide::cli {

namespace {

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;

/// The finaliser of SplitMix64 (Steele et al., OOPSLA 2014): a value is a function of seed and counter alone.
std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

double uniform(std::uint64_t key, std::uint64_t counter) {
    return (static_cast<double>(mix(key + golden * counter) >> 11) + 0.5) * 0x1p-53;
}

/// An id in [0, n) with probability log((id + 2) / (id + 1)) / log(n + 1): close to 1 / id, Zipf's law.
std::int32_t zipf(double u, std::int64_t n) {
    const auto id = static_cast<std::int64_t>(std::exp(u * std::log(static_cast<double>(n) + 1.0))) - 1;
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(id, 0, n - 1));
}

} // namespace

SyntheticRows::SyntheticRows(const SyntheticShape &shape) : shape_(shape) {}

void SyntheticRows::draw_ids(std::uint64_t stream, std::int64_t n_ids, std::int64_t per_row, Matrix &matrix) const {
    const std::uint64_t key = mix(mix(shape_.seed + golden) ^ stream);
    const auto total = static_cast<std::size_t>(shape_.rows * per_row);
    matrix.row_ptr.resize(static_cast<std::size_t>(shape_.rows) + 1);
    for (std::size_t row = 0; row < matrix.row_ptr.size(); ++row)
        matrix.row_ptr[row] = static_cast<std::int64_t>(row) * per_row;
    matrix.col.resize(total);
    std::uint64_t counter = 0;
    for (auto row = matrix.col.begin(); row != matrix.col.end(); row += per_row) {
        const auto end = row + per_row;
        for (auto place = row; place != end;) {
            const std::int32_t drawn = zipf(uniform(key, ++counter), n_ids);
            // The next free id instead of a new draw: it ends also where a row takes nearly all ids.
            std::int32_t id = drawn;
            while (std::find(row, place, id) != place) id = static_cast<std::int32_t>((id + std::int64_t{1}) % n_ids);
            *place++ = id;
        }
        std::sort(row, end);
    }
}

void SyntheticRows::draw(std::int64_t step) {
    const auto stream = 2 * static_cast<std::uint64_t>(step);
    draw_ids(stream, shape_.n_features, shape_.features_per_row, features_);
    draw_ids(stream + 1, shape_.n_labels, shape_.labels_per_row, labels_);
    features_.val.assign(features_.col.size(), 1.0F / std::sqrt(static_cast<float>(shape_.features_per_row)));
}

dslide_csr_view SyntheticRows::features() const {
    return {sizeof(dslide_csr_view), 32, shape_.rows, shape_.n_features, features_.row_ptr.data(), features_.col.data(),
            features_.val.data()};
}

dslide_csr_view SyntheticRows::labels() const {
    return {sizeof(dslide_csr_view), 32,     shape_.rows, shape_.n_labels, labels_.row_ptr.data(),
            labels_.col.data(),      nullptr};
}

} // namespace dslide::cli
