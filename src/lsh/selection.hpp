// SPDX-License-Identifier: Apache-2.0
// The active set of a batch as a union of sources: true labels, hard candidates, rows shared by the batch, random fill.
#pragma once

#include "core/csr.hpp"
#include "lsh/active_set.hpp"
#include "lsh/candidates.hpp"

namespace dslide {

struct SelectionInput {
    CsrRows labels;                   ///< columns are rows at hand
    const Candidates *hard = nullptr; ///< null: none
    std::int64_t random_fill = 0;     ///< uniform classes a sample, of which those at hand are taken
    bool correction = false;          ///< keep the probability of random rows
    std::uint64_t seed = 0;
    std::int64_t step = 0;
    std::int64_t rows = 0;                ///< of the output layer, at hand
    std::int64_t classes = 0;             ///< of all ranks
    const std::int32_t *row_of = nullptr; ///< the row of a class, or -1; null: row = class
};

class Selection {
public:
    /// active.shared and active.shared_log_inclusion must be set; fills in the rest.
    void build(Arena &arena, const SelectionInput &input, ActiveSet &active);

private:
    Array<std::int32_t> shared_index_; ///< row -> 1 + index in ActiveSet::shared; 0: not shared. Zero between calls
};

} // namespace dslide
