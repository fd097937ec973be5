// SPDX-License-Identifier: Apache-2.0
// The weights of a network, their names, and what prediction needs to know of training.
#pragma once

#include "core/csr.hpp"
#include "exchange/cluster.hpp"
#include "loss/metrics.hpp"
#include "model/checkpoint.hpp"
#include "optim/optimizer.hpp"
#include "simd/matrix.hpp"

#include <dslide/model.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace dslide {

/// Options with their defaults filled in; throws Error(DSLIDE_E_ARGUMENT) for a value out of range.
dslide_model_options resolved(dslide_model_options options);

/// A weight matrix and its bias; a row of `weight` is a feature (input layer) or a neuron.
struct Layer {
    Matrix weight;
    Array<float> bias; ///< padded to the SIMD width
    std::int64_t bias_size = 0;

    Layer() = default;
    Layer(std::int64_t rows, std::int64_t cols, std::int64_t n_bias)
        : weight(rows, cols), bias(static_cast<std::size_t>(simd::padded(n_bias))), bias_size(n_bias) {}
};

/// Views of a layer for the passes; optimizer state is added by the trainer.
Parameters parameters_of(Layer &layer);
Parameters bias_of(Layer &layer);

class Model {
public:
    /// Random weights that depend on the seed and the shape alone.
    Model(std::shared_ptr<Cluster> cluster, const dslide_model_options &options);
    /// Weights, names and counts of a checkpoint.
    Model(std::shared_ptr<Cluster> cluster, const CheckpointReader &checkpoint);

    const dslide_model_options &options() const { return options_; }
    Cluster &cluster() const { return *cluster_; }
    std::int64_t n_inputs() const { return options_.n_inputs; }
    std::int64_t n_outputs() const { return options_.n_outputs; }
    std::int64_t width() const { return output_.weight.cols; } ///< of the last hidden layer
    std::int64_t n_parameters() const;
    std::int64_t bytes() const;

    Layer &input() { return input_; }
    std::vector<Layer> &hidden() { return hidden_; } ///< hidden-to-hidden layers
    Layer &output() { return output_; }

    /// Activations of every hidden layer, one matrix each; the last is what the output layer sees.
    void forward(const CsrRows &x, std::vector<Matrix> &activations) const;
    /// Top k; rows: x.n_rows x k.
    void predict(const CsrRows &x, std::int64_t k, std::int32_t *rows, float *scores) const;

    /// A tensor by its name in model.h; bias tensors are one row. Throws Error(DSLIDE_E_ARGUMENT).
    TensorPart tensor(const std::string &name) const;
    void set_rows(const std::string &name, std::int64_t row_begin, std::int64_t n_rows, const float *data);
    /// Grows with each set_rows(): the trainer's tables are stale then.
    std::int64_t edits() const { return edits_; }

    std::vector<std::string> &names(std::int32_t kind) { return names_[static_cast<std::size_t>(kind)]; }
    const std::vector<std::string> &names(std::int32_t kind) const { return names_[static_cast<std::size_t>(kind)]; }
    LabelFrequencies &label_frequencies() { return label_frequencies_; }
    const LabelFrequencies &label_frequencies() const { return label_frequencies_; }
    std::int64_t samples_seen = 0;
    std::atomic<bool> has_trainer = false;

    /// Everything a slim checkpoint holds. Throws Error(DSLIDE_E_DIVERGED) if a weight is not finite.
    CheckpointContent content() const;

private:
    void allocate();
    void start_weights();
    void check_finite() const;
    std::vector<std::string> tensor_names() const;

    std::shared_ptr<Cluster> cluster_;
    dslide_model_options options_;
    Layer input_, output_;
    std::vector<Layer> hidden_;
    std::array<std::vector<std::string>, 2> names_;
    LabelFrequencies label_frequencies_;
    std::int64_t edits_ = 0;
};

/// Names, one a line, from a text file, plain or compressed. Exactly `count` of them.
std::vector<std::string> read_names(const std::string &path, std::int64_t count);

} // namespace dslide
