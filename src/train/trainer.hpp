// SPDX-License-Identifier: Apache-2.0
// One training step: forward, select, score, loss, backward and update, in this order.
#pragma once

#include "core/csr.hpp"
#include "layers/dense_output.hpp"
#include "layers/sampled_output.hpp"
#include "layers/sparse_input.hpp"
#include "lsh/selection.hpp"
#include "lsh/shared_rows.hpp"
#include "lsh/table_source.hpp"
#include "model/model.hpp"
#include "train/own_labels.hpp"
#include "train/plan.hpp"

#include <dslide/trainer.h>

#include <memory>
#include <vector>

namespace dslide {

/// Where a run stands, kept in checkpoints.
struct RunPosition {
    std::int64_t epochs_done = 0;
    std::int64_t rows_in_epoch = 0; ///< of the epoch under way
    double best_precision = -1;
    std::int64_t epochs_since_best = 0;
};

/// What a rank in a run asks of the others.
struct RunWishes {
    bool stop = false;
    bool report = false; ///< progress after the next step, on all ranks: callbacks may make collective calls
};

class Trainer {
public:
    Trainer(std::shared_ptr<Model> model, const dslide_trainer_options &options);
    /// Goes on from a full checkpoint, whose weights `model` holds already.
    Trainer(std::shared_ptr<Model> model, const CheckpointReader &checkpoint);
    ~Trainer();
    Trainer(const Trainer &) = delete;
    Trainer &operator=(const Trainer &) = delete;

    /// Rows and labels must lie within the model's shape. Collective.
    dslide_step_stats step(const Batch &batch);
    /// The two halves of it: all ranks have the same batch and are at the same step, or an error on each; then the
    /// step. Returns whether any rank wants to stop (the batches are not compared then), and whether rank 0 wants to
    /// report.
    RunWishes agree(Call call, const Batch &batch, RunWishes wishes);
    dslide_step_stats agreed_step(const Batch &batch);

    const dslide_trainer_options &options() const { return options_; }
    dslide_trainer_info info() const;
    Model &model() { return *model_; }
    void set_learning_rate(float rate) { options_.learning_rate = rate; }
    void set_total_samples(std::int64_t samples) { options_.total_samples = samples; }
    void set_label_counts(std::vector<std::int64_t> counts, std::int64_t samples);
    bool knows_label_counts() const { return counts_known_; }
    /// Every row of the training set has been counted by now: later epochs are not counted again.
    void finish_label_counts() { counts_known_ = !model_->label_frequencies().counts.empty(); }
    std::int64_t steps() const { return step_; }
    /// Output rows that this rank updated so far.
    std::int64_t own_rows_touched() const { return own_rows_touched_; }
    RunPosition &position() { return position_; }

    /// Everything a full checkpoint holds; views into this trainer and its model, valid until the next step. `scratch`
    /// keeps what has to be put together first.
    CheckpointContent content(std::vector<Array<std::int32_t>> &scratch) const;

private:
    /// A layer's optimizer state.
    struct LayerState {
        std::vector<Array<float>> weight, bias; ///< a plane each
    };
    struct Passes {
        Parameters weight, bias;
    };

    void claim_model();
    void make_state();
    void make_source();
    static LayerState state_for(const Layer &layer, int planes);
    Passes passes(Layer &layer, LayerState &state) const;
    void refresh_bf16();
    void weigh_shared_rows();
    void count_labels(const CsrRows &labels, std::int64_t times);
    class Undo;
    void select(const Matrix &h, dslide_step_stats &stats);
    void refresh_tables(TableSource &source, const Matrix &h, dslide_step_stats &stats);
    void backward_hidden(const Batch &batch, const Optimizer &optimizer, dslide_step_stats &stats);
    std::int64_t samples_trained() const { return model_->samples_seen - first_sample_; }
    bool has_flag(std::uint32_t flag) const { return (options_.flags & flag) != 0; }
    bool every_row() const { return has_flag(DSLIDE_TRAINER_DENSE_UPDATES); }
    TableSource *tables() const { return dynamic_cast<TableSource *>(source_.get()); }
    std::int64_t optimizer_bytes() const;

    // Checkpoint, in trainer_checkpoint.cpp.
    template <class Visit>
    void visit_state(Visit &&visit) const;
    void restore_tables(const CheckpointReader &checkpoint);

    std::shared_ptr<Model> model_;
    dslide_trainer_options options_;
    Plan plan_; ///< of the whole cluster
    Plan own_plan_;
    std::int64_t step_ = 0;
    std::int64_t first_sample_ = 0; ///< Model::samples_seen when this training began: schedules count from there
    RunPosition position_;
    std::int64_t own_rows_touched_ = 0;
    bool counts_known_ = false;   ///< steps need not count the labels they see
    bool broken_ = false;         ///< an update was cut off: weights are half old, half new
    std::int64_t edits_seen_ = 0; ///< see Model::edits()
    bool tables_stale_ = false;   ///< weights were overwritten since the last rebuild

    LayerState input_state_, output_state_;
    std::vector<LayerState> hidden_states_;

    std::unique_ptr<CandidateSource> source_; ///< null: no hard rows, or all rows
    Array<std::uint16_t> output_bf16_;        ///< copy of output.weight, or empty
    SharedRows shared_rows_;
    Selection selection_;
    Candidates candidates_;
    ActiveSet active_;
    Targets targets_;
    OwnLabels own_labels_;
    LossParts loss_parts_;
    Activations activations_;
    std::vector<Matrix> gradients_;     ///< of each hidden layer, this rank's part of the sum over all classes
    std::vector<Matrix> own_gradients_; ///< of this rank's neurons, the whole sum; unused on a rank alone
    SampledOutput sampled_;
    DenseOutput dense_;
    SparseInputBackward input_backward_;
};

} // namespace dslide
