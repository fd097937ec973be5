// SPDX-License-Identifier: Apache-2.0
// How well ranked predictions meet the true labels; formulas and rules in docs/metrics.md.
#pragma once

#include <dslide/model.h>

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace dslide {

/// How often each class is a label among so many training samples.
struct LabelFrequencies {
    std::vector<std::int64_t> counts; ///< one a class; empty: unknown
    std::int64_t samples = 0;
};

/// Sums the metrics of judged rows. Rows are added one after another, on one thread, so that sums have one order.
class MetricAccumulator {
public:
    /// @param cutoffs          each >= 1, at most DSLIDE_MAX_CUTOFFS; empty: 1 3 5
    /// @param frequencies      kept by address; null or without counts: PSP@k is 0
    /// @param a, b             of the propensities; 0: 0.55 and 1.5
    /// @param skip_unlabelled  rows without labels are left out instead of counting as misses
    MetricAccumulator(std::span<const std::int32_t> cutoffs, std::int64_t n_outputs,
                      const LabelFrequencies *frequencies, float a, float b, bool skip_unlabelled);

    /// How many predictions a row needs: the deepest cut-off, but at most n_outputs.
    std::int32_t depth() const { return depth_; }

    /// @param ranked  the row's predictions, best first, distinct, at most depth()
    /// @param labels  the row's true labels, ascending and unique; those >= n_outputs cannot be found
    void add(std::span<const std::int64_t> ranked, std::span<const std::int32_t> labels);

    /// The means so far; all 0 before the first row. `seconds` is left 0.
    dslide_metrics result() const;

private:
    struct Sums {
        double precision = 0, recall = 0, ndcg = 0, psp = 0, best_psp = 0;
    };

    double inverse_propensity(std::int32_t label) const;
    void count_found(std::span<const std::int64_t> ranked, std::span<const std::int32_t> labels);
    void count_attainable(std::span<const std::int32_t> labels);
    double ideal_dcg(std::size_t places);

    std::vector<std::int32_t> cutoffs_;
    std::int64_t n_outputs_;
    std::int32_t depth_;
    const LabelFrequencies *frequencies_; ///< null: unknown
    double a_, b_, c_;
    bool skip_unlabelled_;

    std::vector<Sums> sums_; ///< one a cut-off
    std::int64_t rows_ = 0;
    std::int64_t rows_without_label_ = 0;
    std::int64_t labels_out_of_range_ = 0;
    std::unordered_map<std::int32_t, std::int32_t> best_place_; ///< of each label seen, from 0; depth(): never found

    // Of the row being added; entry i tells about its first i places.
    std::vector<std::int64_t> hits_;
    std::vector<double> dcg_, weight_; ///< weight: of inverse propensities
    std::vector<double> attainable_;   ///< the weight that a perfect ranking has in its first i places
    std::vector<double> ideal_dcg_{0}; ///< kept and grown between rows
};

} // namespace dslide
