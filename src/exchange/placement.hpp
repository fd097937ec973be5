// SPDX-License-Identifier: Apache-2.0
// Which rank has which part of a layer. No rank has a whole one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dslide {

/// Neurons of a hidden layer: rank r has [begin[r], begin[r + 1]).
struct Slices {
    std::vector<std::int64_t> begin{0, 0};
    std::int64_t first(int rank) const { return begin[static_cast<std::size_t>(rank)]; }
    std::int64_t width(int rank) const { return begin[static_cast<std::size_t>(rank) + 1] - first(rank); }
};

/// Cut by the ranks' shares, at multiples of the SIMD width if there is enough for all. Ranks may get none.
Slices cut_neurons(std::int64_t width, std::span<const double> shares);

/// Classes of the output layer. A rank's rows are its classes, ascending.
class Placement {
public:
    Placement() = default;
    /// One rank has them all: row = class, and nothing is stored.
    explicit Placement(std::int64_t classes) : classes_(classes), starts_{0, classes} {}
    /// Dealt out by shares. With counts (one a class), frequent and rare classes evenly, so that ranks finish together;
    /// without, in an order by hash.
    Placement(std::int64_t classes, std::span<const std::int64_t> counts, std::span<const double> shares, int rank,
              std::uint64_t seed);

    std::int64_t classes() const { return classes_; }
    /// Of rank r.
    std::int64_t rows(int r) const { return start(r + 1) - start(r); }
    /// Rows of all ranks before r.
    std::int64_t start(int r) const { return starts_[static_cast<std::size_t>(r)]; }
    bool is_identity() const { return row_of_.empty(); }
    /// This rank's row of a class; -1: another rank has it.
    std::int32_t row_of(std::int32_t c) const { return row_of_.empty() ? c : row_of_[static_cast<std::size_t>(c)]; }
    std::int32_t class_of(std::int64_t row) const {
        return class_of_.empty() ? static_cast<std::int32_t>(row) : class_of_[static_cast<std::size_t>(row)];
    }
    /// As row_of() for all classes; null if is_identity().
    const std::int32_t *row_map() const { return row_of_.empty() ? nullptr : row_of_.data(); }
    /// The classes of this rank's rows; empty if is_identity().
    std::span<const std::int32_t> class_list() const { return class_of_; }
    std::size_t bytes() const { return (row_of_.size() + class_of_.size()) * sizeof(std::int32_t); }

private:
    std::int64_t classes_ = 0;
    std::vector<std::int64_t> starts_{0, 0};
    std::vector<std::int32_t> row_of_, class_of_;
};

} // namespace dslide
