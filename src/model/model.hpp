// SPDX-License-Identifier: Apache-2.0
// The weights of a network, as much of them as this rank has; their names, and what prediction needs to know of
// training. Input and hidden layers are cut by neurons, the output layer by classes.
#pragma once

#include "core/csr.hpp"
#include "exchange/cluster.hpp"
#include "exchange/placement.hpp"
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

class Meta;

/// Options with their defaults filled in; throws Error(DSLIDE_E_ARGUMENT) for a value out of range.
dslide_model_options resolved(dslide_model_options options);

/// A weight matrix and its bias, this rank's part of both; a row of `weight` is a feature (input layer) or a neuron.
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

/// What the hidden layers give for a batch: of all neurons and, on one rank of several, of its own.
struct Activations {
    std::vector<Matrix> full, own;
    const Matrix &last() const { return full.back(); }
    std::size_t bytes() const;
};

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

    /// Neurons of hidden layer i (from 0), and classes, on each rank.
    const Slices &slices(std::size_t i) const { return slices_[i]; }
    const Placement &placement() const { return placement_; }

    /// Activations of every hidden layer; the last is what the output layer sees. Collective.
    void forward(const CsrRows &x, Activations &activations) const;
    /// Top k; classes: x.n_rows x k. Collective.
    void predict(const CsrRows &x, std::int64_t k, std::int32_t *classes, float *scores) const;

    /// This rank's part of a tensor, by its name in model.h; bias tensors are one row. Classes stand in the order of
    /// the placement. Throws Error(DSLIDE_E_ARGUMENT).
    TensorPart tensor(const std::string &name) const;
    /// Collective: rows of the whole tensor, classes in their own order.
    void get_rows(const std::string &name, std::int64_t row_begin, std::int64_t n_rows, float *out) const;
    /// Throws Error(DSLIDE_E_ARGUMENT) for rows that set_rows() does not take.
    void check_rows(const std::string &name, std::int64_t row_begin, std::int64_t n_rows, const float *data) const;
    /// Each rank takes its part of the same data.
    void set_rows(const std::string &name, std::int64_t row_begin, std::int64_t n_rows, const float *data);
    /// Grows with each set_rows(): the trainer's tables are stale then.
    std::int64_t edits() const { return edits_; }

    std::vector<std::string> &names(std::int32_t kind) { return names_[static_cast<std::size_t>(kind)]; }
    const std::vector<std::string> &names(std::int32_t kind) const { return names_[static_cast<std::size_t>(kind)]; }
    LabelFrequencies &label_frequencies() { return label_frequencies_; }
    const LabelFrequencies &label_frequencies() const { return label_frequencies_; }
    std::int64_t samples_seen = 0;
    std::atomic<bool> has_trainer = false;

    /// Everything a slim checkpoint holds, this rank's part of the tensors. Throws Error(DSLIDE_E_DIVERGED) if a weight
    /// is not finite.
    CheckpointContent content() const;
    /// Reads this rank's part of a tensor that is cut as `part`, whatever number of ranks wrote it.
    void read_part(const CheckpointReader &checkpoint, const TensorPart &part) const;

private:
    void allocate();
    void read_label_counts(const CheckpointReader &checkpoint, const Meta &meta);
    void place_classes(const CheckpointReader &checkpoint);
    void start_weights();
    void check_finite() const;
    std::vector<std::string> tensor_names() const;
    /// visit(row, first column, count, address of the values) for each run of values that this rank has in rows
    /// [begin, end) of a tensor.
    template <class Visit>
    void visit_own(const std::string &name, std::int64_t begin, std::int64_t end, Visit &&visit) const;

    std::shared_ptr<Cluster> cluster_;
    dslide_model_options options_;
    std::vector<Slices> slices_;
    Placement placement_;
    std::vector<std::int64_t> stored_rows_; ///< where this rank's classes stand in the checkpoint it was loaded from
    Layer input_, output_;
    std::vector<Layer> hidden_;
    std::array<std::vector<std::string>, 2> names_;
    LabelFrequencies label_frequencies_;
    std::int64_t edits_ = 0;
};

/// Names, one a line, from a text file, plain or compressed. Exactly `count` of them.
std::vector<std::string> read_names(const std::string &path, std::int64_t count);

} // namespace dslide
