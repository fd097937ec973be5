// SPDX-License-Identifier: Apache-2.0
// The active set of a batch as a union of sources: true labels, hard candidates, rows shared by the batch, random fill.
#pragma once

#include "core/csr.hpp"
#include "lsh/active_set.hpp"
#include "lsh/candidates.hpp"

namespace dslide {

struct SelectionInput {
    CsrRows labels;
    const Candidates *hard = nullptr; ///< null: none
    std::int64_t random_fill = 0;     ///< uniform rows a sample
    bool correction = false;          ///< keep the probability of random rows
    std::uint64_t seed = 0;
    std::int64_t step = 0;
    std::int64_t rows = 0; ///< of the output layer
};

class Selection {
public:
    /// active.shared and active.shared_log_inclusion must be set; fills in the rest.
    void build(Arena &arena, const SelectionInput &input, ActiveSet &active);

private:
    Array<std::int32_t> shared_index_; ///< row -> 1 + index in ActiveSet::shared; 0: not shared. Zero between calls
};

} // namespace dslide
