// SPDX-License-Identifier: Apache-2.0
#include "loss/metrics.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>

namespace dslide {

namespace {

constexpr double default_a = 0.55, default_b = 1.5; // Jain et al., KDD 2016, section 4
constexpr std::int32_t default_cutoffs[] = {1, 3, 5};

std::vector<std::int32_t> checked_cutoffs(std::span<const std::int32_t> cutoffs) {
    if (cutoffs.empty()) cutoffs = default_cutoffs;
    if (cutoffs.size() > DSLIDE_MAX_CUTOFFS)
        fail(DSLIDE_E_ARGUMENT, cutoffs.size(), " cut-offs, at most ", DSLIDE_MAX_CUTOFFS, " are possible");
    for (const std::int32_t k : cutoffs)
        if (k < 1) fail(DSLIDE_E_ARGUMENT, "cut-off ", k, " < 1");
    return {cutoffs.begin(), cutoffs.end()};
}

double checked_propensity(const char *name, float value, double otherwise) {
    if (!(value >= 0) || !std::isfinite(value))
        fail(DSLIDE_E_ARGUMENT, name, " ", value, " is not a finite value >= 0");
    return value > 0 ? static_cast<double>(value) : otherwise;
}

double discount(std::size_t place) { return 1 / std::log2(static_cast<double>(place) + 2); }

} // namespace

MetricAccumulator::MetricAccumulator(std::span<const std::int32_t> cutoffs, std::int64_t n_outputs,
                                     const LabelFrequencies *frequencies, float a, float b, bool skip_unlabelled)
    : cutoffs_(checked_cutoffs(cutoffs)), n_outputs_(n_outputs),
      depth_(static_cast<std::int32_t>(
          std::min<std::int64_t>(n_outputs, *std::max_element(cutoffs_.begin(), cutoffs_.end())))),
      frequencies_(frequencies && !frequencies->counts.empty() ? frequencies : nullptr),
      a_(checked_propensity("propensity_a", a, default_a)), b_(checked_propensity("propensity_b", b, default_b)), c_(0),
      skip_unlabelled_(skip_unlabelled), sums_(cutoffs_.size()) {
    if (!frequencies_) return;
    assert(static_cast<std::int64_t>(frequencies_->counts.size()) == n_outputs && frequencies_->samples >= 1);
    // Below e samples C would be negative and a propensity above 1; such a set gives every label the propensity 1.
    c_ = std::max(0.0, std::log(static_cast<double>(frequencies_->samples)) - 1) * std::pow(b_ + 1, a_);
}

double MetricAccumulator::inverse_propensity(std::int32_t label) const {
    const std::int64_t count = label < n_outputs_ ? frequencies_->counts[static_cast<std::size_t>(label)] : 0;
    return 1 + c_ * std::pow(static_cast<double>(count) + b_, -a_);
}

/// Prefix sums over the predictions, and the best place of each true label.
void MetricAccumulator::count_found(std::span<const std::int64_t> ranked, std::span<const std::int32_t> labels) {
    hits_.assign(1, 0);
    dcg_.assign(1, 0);
    weight_.assign(1, 0);
    for (const std::int32_t label : labels) best_place_.try_emplace(label, depth_);
    for (std::size_t place = 0; place < ranked.size(); ++place) {
        assert(ranked[place] >= 0 && ranked[place] < n_outputs_);
        const auto label = static_cast<std::int32_t>(ranked[place]);
        const bool hit = std::binary_search(labels.begin(), labels.end(), label);
        hits_.push_back(hits_.back() + hit);
        dcg_.push_back(dcg_.back() + (hit ? discount(place) : 0));
        weight_.push_back(weight_.back() + (hit && frequencies_ ? inverse_propensity(label) : 0));
        if (hit) {
            std::int32_t &best = best_place_[label];
            best = std::min(best, static_cast<std::int32_t>(place));
        }
    }
}

/// The labels in the order that PSP@k would want: rare ones first.
void MetricAccumulator::count_attainable(std::span<const std::int32_t> labels) {
    attainable_.assign(1, 0);
    if (!frequencies_) return;
    for (const std::int32_t label : labels) attainable_.push_back(inverse_propensity(label));
    std::sort(attainable_.begin() + 1, attainable_.end(), std::greater<>());
    for (std::size_t i = 1; i < attainable_.size(); ++i) attainable_[i] += attainable_[i - 1];
}

double MetricAccumulator::ideal_dcg(std::size_t places) {
    while (ideal_dcg_.size() <= places) ideal_dcg_.push_back(ideal_dcg_.back() + discount(ideal_dcg_.size() - 1));
    return ideal_dcg_[places];
}

void MetricAccumulator::add(std::span<const std::int64_t> ranked, std::span<const std::int32_t> labels) {
    assert(ranked.size() <= static_cast<std::size_t>(depth_));
    if (labels.empty()) {
        ++rows_without_label_;
        rows_ += !skip_unlabelled_;
        return;
    }
    ++rows_;
    labels_out_of_range_ += std::count_if(labels.begin(), labels.end(), [&](auto l) { return l >= n_outputs_; });
    count_found(ranked, labels);
    count_attainable(labels);
    for (std::size_t i = 0; i < cutoffs_.size(); ++i) {
        const auto k = static_cast<std::size_t>(cutoffs_[i]);
        const std::size_t found_in = std::min(k, ranked.size()), wanted = std::min(k, labels.size());
        const auto hits = static_cast<double>(hits_[found_in]);
        sums_[i].precision += hits / static_cast<double>(k);
        sums_[i].recall += hits / static_cast<double>(labels.size());
        sums_[i].ndcg += dcg_[found_in] / ideal_dcg(wanted);
        if (!frequencies_) continue;
        sums_[i].psp += weight_[found_in];
        sums_[i].best_psp += attainable_[wanted];
    }
}

dslide_metrics MetricAccumulator::result() const {
    dslide_metrics out{};
    out.struct_size = sizeof out;
    out.n_cutoffs = static_cast<std::int32_t>(cutoffs_.size());
    out.rows = rows_;
    out.rows_without_label = rows_without_label_;
    out.labels_out_of_range = labels_out_of_range_;
    const auto ratio = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
    const auto rows = static_cast<double>(rows_), labels = static_cast<double>(best_place_.size());
    for (std::size_t i = 0; i < cutoffs_.size(); ++i) {
        const std::int32_t reach = std::min(cutoffs_[i], depth_);
        const auto found = std::count_if(best_place_.begin(), best_place_.end(),
                                         [reach](const auto &label) { return label.second < reach; });
        out.k[i] = cutoffs_[i];
        out.precision[i] = ratio(sums_[i].precision, rows);
        out.recall[i] = ratio(sums_[i].recall, rows);
        out.ndcg[i] = ratio(sums_[i].ndcg, rows);
        out.psp[i] = ratio(sums_[i].psp, sums_[i].best_psp);
        out.coverage[i] = ratio(static_cast<double>(found), labels);
    }
    return out;
}

} // namespace dslide
