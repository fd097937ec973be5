// SPDX-License-Identifier: Apache-2.0
// Small trainings whose result must not depend on the number of ranks.
#pragma once

#include "core/random.hpp"
#include "train/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace dslide {

inline constexpr std::int64_t n_features = 60, n_classes = 203, n_samples = 96;

/// Random rows, each with 5 features and 1 to 3 labels.
struct Rows {
    std::vector<std::int64_t> feature_ptr{0}, label_ptr{0};
    std::vector<std::int32_t> feature, label;
    std::vector<float> value;

    explicit Rows(std::uint64_t seed, std::int64_t classes = n_classes) {
        for (std::int64_t i = 0; i < n_samples; ++i) {
            RandomStream random(seed, Purpose::shuffle, static_cast<std::uint64_t>(i));
            const auto draw = [&](std::vector<std::int32_t> &to, std::vector<std::int64_t> &ptr, std::int64_t n,
                                  std::int64_t below) {
                std::vector<std::int32_t> row;
                for (std::int64_t j = 0; j < n; ++j)
                    row.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(below))));
                std::sort(row.begin(), row.end());
                row.erase(std::unique(row.begin(), row.end()), row.end());
                to.insert(to.end(), row.begin(), row.end());
                ptr.push_back(static_cast<std::int64_t>(to.size()));
            };
            draw(feature, feature_ptr, 5, n_features);
            draw(label, label_ptr, 1 + i % 3, classes);
        }
        for (std::size_t e = 0; e < feature.size(); ++e) value.push_back(0.25f * static_cast<float>(1 + e % 5));
    }
    Batch batch(std::int64_t begin, std::int64_t n, std::int64_t classes = n_classes) const {
        Batch b;
        b.features = {n, n_features, feature_ptr.data() + begin, feature.data(), value.data()};
        b.labels = {n, classes, label_ptr.data() + begin, label.data(), nullptr};
        return b;
    }
};

inline dslide_model_options shape_of(const std::vector<std::int32_t> &hidden, std::int64_t classes = n_classes) {
    dslide_model_options o{};
    o.struct_size = sizeof o;
    o.n_inputs = n_features;
    o.n_outputs = classes;
    o.n_hidden = static_cast<std::int32_t>(hidden.size());
    std::copy(hidden.begin(), hidden.end(), o.hidden);
    o.output_scale = 0.1f;
    return o;
}

struct Result {
    std::vector<float> weights;
    std::vector<double> losses;
    std::vector<std::int32_t> top;
    std::int64_t rows_touched = 0;
    double active_share = 0;
};

/// Trains on this rank of a cluster and gathers what came out.
inline Result train_on(const std::shared_ptr<Cluster> &cluster, const dslide_model_options &shape,
                       const dslide_trainer_options &options, int steps = 100) {
    const Rows rows(7, shape.n_outputs);
    const auto model = std::make_shared<Model>(cluster, shape);
    Trainer trainer(model, options);
    Result mine;
    for (int s = 0; s < steps; ++s) {
        const dslide_step_stats stats =
            trainer.step(rows.batch(static_cast<std::int64_t>(s % 3) * 32, 32, shape.n_outputs));
        mine.losses.push_back(stats.loss);
        mine.rows_touched += stats.rows_touched;
        mine.active_share += stats.active_share;
    }
    std::vector<std::string> names{"input.weight", "input.bias", "output.weight", "output.bias"};
    for (int i = 1; i < shape.n_hidden; ++i)
        for (const char *part : {".weight", ".bias"}) names.push_back("hidden." + std::to_string(i) + part);
    for (const std::string &name : names) {
        const TensorPart t = model->tensor(name);
        const std::size_t before = mine.weights.size();
        mine.weights.resize(before + static_cast<std::size_t>(t.rows * t.cols));
        model->get_rows(name, 0, t.rows, mine.weights.data() + before);
    }
    const std::int64_t k = std::min<std::int64_t>(5, shape.n_outputs);
    mine.top.resize(static_cast<std::size_t>(n_samples * k));
    model->predict(rows.batch(0, n_samples, shape.n_outputs).features, k, mine.top.data(), nullptr);
    return mine;
}

/// Largest difference, as a part of the largest change that training made.
inline double difference(const Result &a, const Result &b, const Result &start) {
    double most = 0, moved = 0;
    if (a.weights.size() != b.weights.size()) return 1e9;
    for (std::size_t i = 0; i < a.weights.size(); ++i) {
        most = std::max(most, std::abs(static_cast<double>(a.weights[i]) - b.weights[i]));
        moved = std::max(moved, std::abs(static_cast<double>(a.weights[i]) - start.weights[i]));
    }
    return most / moved;
}

inline dslide_trainer_options forced(std::int32_t kind) {
    dslide_trainer_options o{};
    o.struct_size = sizeof o;
    o.learning_rate = 0.01f;
    o.optimizer = DSLIDE_SGD;
    o.momentum = 0.5f;
    o.learning_rate = 0.2f;
    if (kind == 0) { // every row, by GEMM
        o.select = DSLIDE_SELECT_ALL;
    } else if (kind == 1) { // every row, drawn
        o.select = DSLIDE_SELECT_RANDOM;
        o.active_share = 1;
    } else { // shared by the batch, and random ones a sample
        o.select = DSLIDE_SELECT_RANDOM;
        o.active_share = 0.1f;
        o.shared_negatives = 30;
        o.random_fill = 10;
        o.hard_from = 1000000;
        o.flags = DSLIDE_TRAINER_CORRECTION;
        o.loss = kind == 3 ? DSLIDE_BCE : DSLIDE_SOFTMAX;
    }
    return o;
}

} // namespace dslide
