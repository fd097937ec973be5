// SPDX-License-Identifier: Apache-2.0
// Where hard candidates come from: rows that the current activations are likely to score high.
#pragma once

#include "core/arena.hpp"
#include "core/memory.hpp"
#include "simd/matrix.hpp"

#include <cstdint>

namespace dslide {

/// Sample i's candidates: row[i * stride .. + count[i]), each once. Best first, as far as the source ranks them: tables
/// by collisions, with the head behind.
struct Candidates {
    std::int64_t stride = 0;
    Array<std::int32_t> row, count;

    void reshape(std::int64_t samples, std::int64_t most) {
        stride = most;
        row.ensure(checked_product(static_cast<std::size_t>(samples), static_cast<std::size_t>(most)));
        count.ensure(static_cast<std::size_t>(samples));
    }
};

/// A source of hard rows. To add one: a class here or above, and its case in the trainer.
class CandidateSource {
public:
    virtual ~CandidateSource() = default;
    /// At most `want` rows for each row of h.
    virtual void find(Arena &arena, const Matrix &h, std::int64_t step, std::int64_t want, Candidates &out) = 0;
};

/// Uniform rows: the reference that hashing has to beat. Classes are drawn, the same on each rank, and those at hand
/// kept: `want` counts the classes drawn.
class RandomSource : public CandidateSource {
public:
    /// row_of: the row of a class, or -1; null: row = class.
    RandomSource(std::int64_t classes, std::uint64_t seed, const std::int32_t *row_of = nullptr)
        : classes_(classes), seed_(seed), row_of_(row_of) {}
    void find(Arena &arena, const Matrix &h, std::int64_t step, std::int64_t want, Candidates &out) override;

private:
    std::int64_t classes_;
    std::uint64_t seed_;
    const std::int32_t *row_of_;
};

} // namespace dslide
