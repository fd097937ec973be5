// SPDX-License-Identifier: Apache-2.0
// Which output rows take part in a batch: private rows of each sample and rows that all its samples share.
#pragma once

#include "core/csr.hpp"
#include "core/memory.hpp"

#include <vector>

namespace dslide {

struct ActiveSet {
    std::int64_t n_samples = 0;
    /// Sample i's private rows: row[begin[i] .. end[i]), each once: its labels that are not shared (n_labels[i] of
    /// them, in ascending order), hard candidates (n_hard[i]), random rows. None of them is shared.
    Array<std::int64_t> begin, end;
    Array<std::int32_t> n_labels, n_hard;
    Array<std::int32_t> row;
    /// Rows shared by the batch, ascending, and the log of the probability with which each came in (0 without
    /// correction).
    std::vector<std::int32_t> shared;
    std::vector<float> shared_log_inclusion;
    /// Log-probability of a random row; 0 without correction.
    float random_log_inclusion = 0;
    /// For label e of the batch's CSR: its place in `row`, or ~index in `shared`.
    Array<std::int64_t> label_place;

    SampleLists lists() const { return {n_samples, begin.data(), end.data(), row.data()}; }
    std::size_t bytes() const {
        return begin.bytes() + end.bytes() + n_labels.bytes() + n_hard.bytes() + row.bytes() + label_place.bytes();
    }
};

} // namespace dslide
