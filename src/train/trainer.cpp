// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.hpp"

#include "core/clock.hpp"
#include "core/error.hpp"
#include "layers/dense.hpp"
#include "optim/learning_rate.hpp"
#include "train/exact_source.hpp"

#include <algorithm>
#include <cmath>

namespace dslide {
namespace {

// Beyond it squares of gradients, and with them the second moments, leave the range of fp32: such a row would stand
// still for ever.
constexpr float largest_activation = 1e18f;

void check_activations(const Matrix &m, std::int64_t step, double rate) {
    const float *last = m.row(m.rows);
    const float *wrong = std::find_if_not(m.row(0), last, [](float x) { return x <= largest_activation; });
    if (wrong != last)
        fail(DSLIDE_E_DIVERGED, "an activation is ", *wrong, " in step ", step, " (learning rate ", rate,
             "); no weight was changed");
}

} // namespace

Trainer::Trainer(std::shared_ptr<Model> model, const dslide_trainer_options &options)
    : model_(std::move(model)), options_(resolved(options, model_->options())),
      plan_(plan_of(options_, model_->options())) {
    make_state();
    make_source();
    refresh_bf16();
    counts_known_ = !model_->label_frequencies().counts.empty();
    first_sample_ = model_->samples_seen;
    weigh_shared_rows();
    edits_seen_ = model_->edits();
    claim_model();
}

Trainer::~Trainer() { model_->has_trainer = false; }

void Trainer::claim_model() {
    if (model_->has_trainer.exchange(true))
        fail(DSLIDE_E_STATE, "the model has a trainer already; free that one first");
}

Trainer::LayerState Trainer::state_for(const Layer &layer, int planes) {
    LayerState state;
    for (int p = 0; p < planes; ++p) {
        state.weight.emplace_back(layer.weight.data.size());
        state.bias.emplace_back(layer.bias.size());
    }
    return state;
}

void Trainer::make_state() {
    const int planes = state_planes(options_);
    input_state_ = state_for(model_->input(), planes);
    output_state_ = state_for(model_->output(), planes);
    for (const Layer &layer : model_->hidden()) hidden_states_.push_back(state_for(layer, planes));
    gradients_.resize(model_->hidden().size() + 1);
}

void Trainer::make_source() {
    if (plan_.hard_rows == 0) return;
    const std::int64_t rows = model_->n_outputs();
    // Where every row takes part there is nothing to look for, and no table finds them all.
    const bool look = plan_.hard_rows < rows || options_.select == DSLIDE_SELECT_ALL;
    switch (look ? options_.select : static_cast<std::int32_t>(DSLIDE_SELECT_RANDOM)) {
    case DSLIDE_SELECT_ALL:
        return;
    case DSLIDE_SELECT_EXACT:
        source_ = std::make_unique<ExactSource>(parameters_of(model_->output()), bias_of(model_->output()));
        return;
    case DSLIDE_SELECT_RANDOM:
        source_ = std::make_unique<RandomSource>(rows, options_.seed);
        return;
    default:
        source_ = std::make_unique<TableSource>(
            make_hash_family(hash_family_of(options_.select), model_->width(), options_.tables, options_.bits,
                             options_.seed),
            model_->width(),
            TableSource::Settings{!has_flag(DSLIDE_TRAINER_NO_CENTRING), options_.rebuild_first, options_.rebuild_max,
                                  options_.rebuild_growth, plan_.candidates / 8, options_.seed});
    }
}

Trainer::Passes Trainer::passes(Layer &layer, LayerState &state) const {
    Passes p{parameters_of(layer), bias_of(layer)};
    for (std::size_t i = 0; i < state.weight.size(); ++i) {
        p.weight.state[i] = state.weight[i].data();
        p.bias.state[i] = state.bias[i].data();
    }
    return p;
}

void Trainer::refresh_bf16() {
    if (!has_flag(DSLIDE_TRAINER_BF16_SCORES) || options_.select == DSLIDE_SELECT_ALL) return;
    const Matrix &weight = model_->output().weight;
    if (output_bf16_.size() == 0) output_bf16_ = Array<std::uint16_t>(weight.data.size());
    model_->cluster().arena().blocks(weight.rows, 1024, [&](std::int64_t begin, std::int64_t end) {
        simd::kernels().to_bf16(weight.row(begin), output_bf16_.data() + begin * weight.stride,
                                (end - begin) * weight.stride);
    });
}

void Trainer::set_label_counts(std::vector<std::int64_t> counts, std::int64_t samples) {
    model_->label_frequencies() = {std::move(counts), samples};
    counts_known_ = true;
    weigh_shared_rows();
}

void Trainer::weigh_shared_rows() {
    const bool draws = plan_.shared > 0 || samples_trained() < options_.hard_from;
    const std::vector<std::int64_t> &counts = model_->label_frequencies().counts;
    if (draws && !counts.empty()) shared_rows_.set_counts(counts, std::max(0.0f, options_.frequency_power));
}

void Trainer::count_labels(const CsrRows &labels) {
    LabelFrequencies &f = model_->label_frequencies();
    f.counts.resize(static_cast<std::size_t>(model_->n_outputs()));
    for (std::int64_t e = labels.row_ptr[0]; e < labels.row_ptr[labels.n_rows]; ++e)
        ++f.counts[static_cast<std::size_t>(labels.col[e])];
    f.samples += labels.n_rows;
    weigh_shared_rows();
}

void Trainer::select(const Batch &batch, const Matrix &h, dslide_step_stats &stats) {
    Arena &arena = model_->cluster().arena();
    Layer &output = model_->output();
    // Early on retrieval is no better than chance; frequent labels teach more (options.hard_from).
    const bool hard = source_ && samples_trained() >= options_.hard_from;
    const std::int64_t draws = plan_.shared + (hard ? 0 : plan_.hard_rows);
    active_.shared.clear();
    if (draws > 0) {
        shared_rows_.draw(draws, options_.seed, step_, active_.shared, active_.shared_log_inclusion);
        if (!has_flag(DSLIDE_TRAINER_CORRECTION))
            std::fill(active_.shared_log_inclusion.begin(), active_.shared_log_inclusion.end(), 0.0f);
    }
    if (TableSource *source = tables(); source && hard) {
        const Stopwatch watch;
        stats.rebuilt = source->prepare(arena, h, step_, tables_stale_, output.weight.data.data(), output.weight.stride,
                                        output.weight.rows, output.bias.data());
        tables_stale_ = false;
        stats.seconds_rebuild = watch.seconds();
    }
    if (hard) source_->find(arena, h, step_, plan_.candidates, candidates_);
    selection_.build(arena,
                     {batch.labels, hard ? &candidates_ : nullptr, plan_.random_fill,
                      has_flag(DSLIDE_TRAINER_CORRECTION), options_.seed, step_, model_->n_outputs()},
                     active_);
}

dslide_step_stats Trainer::step(const Batch &batch) {
    model_->cluster().need_open();
    if (broken_) fail(DSLIDE_E_STATE, "an earlier update was cut off by an error; load a checkpoint");
    dslide_step_stats stats{};
    stats.struct_size = sizeof stats;
    stats.step = step_;
    stats.samples_seen = model_->samples_seen;
    const Stopwatch whole;
    Stopwatch phase;
    const std::int64_t samples_after = model_->samples_seen + batch.size();
    targets_.set(options_.loss, batch);
    double counted = 0;
    for (std::int64_t i = 0; i < batch.size(); ++i) counted += targets_.sample_weight[static_cast<std::size_t>(i)] > 0;
    if (counted == 0) { // nothing to learn from: as if the batch had not come, but its samples were seen
        if (!counts_known_) count_labels(batch.labels);
        stats.samples_seen = model_->samples_seen = samples_after;
        stats.samples = batch.size();
        return stats;
    }

    Arena &arena = model_->cluster().arena();
    const double rate = learning_rate(options_, samples_trained());
    const Optimizer optimizer(options_, step_ + 1, rate);
    const bool all = options_.select == DSLIDE_SELECT_ALL;
    model_->forward(batch.features, activations_);
    for (const Matrix &activation : activations_) check_activations(activation, step_ + 1, rate);
    if (!counts_known_) count_labels(batch.labels);
    const Matrix &h = activations_.back();
    stats.seconds_forward = phase.lap();

    if (edits_seen_ != model_->edits()) {
        edits_seen_ = model_->edits();
        tables_stale_ = true;
        refresh_bf16();
    }
    Passes output = passes(model_->output(), output_state_);
    output.weight.bf16 = output_bf16_.data();
    Matrix &dh = gradients_.back();
    OutputCounts counts;
    if (all) {
        counts = dense_.forward(arena, options_.loss, batch.labels, targets_, h, output.weight, output.bias, dh);
    } else {
        select(batch, h, stats);
        stats.seconds_select = phase.lap() - stats.seconds_rebuild;
        sampled_.score(arena, active_, h, output.weight, output.bias, plan_.hard_rows);
        counts = sampled_.gradients(arena, options_.loss, active_, batch.labels, targets_);
        sampled_.reserve(arena, active_, h, dh);
    }
    if (!std::isfinite(counts.loss_sum))
        fail(DSLIDE_E_DIVERGED, "loss is ", counts.loss_sum, " in step ", step_ + 1, " (learning rate ", rate,
             "); no weight was changed");
    input_backward_.prepare(arena, batch.features, model_->n_inputs());

    broken_ = true;
    if (all) {
        dense_.update(arena, options_.loss, batch.labels, targets_, h, output.weight, output.bias, optimizer, dh);
        stats.rows_touched = model_->n_outputs();
    } else {
        stats.rows_touched = sampled_.update(arena, active_, h, output.weight, output.bias, optimizer, every_row(), dh);
    }
    stats.seconds_output = phase.lap();
    backward_hidden(batch, optimizer, stats);
    broken_ = false;
    stats.seconds_backward = phase.lap();

    stats.step = ++step_;
    stats.samples = batch.size();
    stats.samples_seen = model_->samples_seen = samples_after;
    stats.loss = counts.loss_sum;
    stats.learning_rate = rate;
    stats.active_share = counts.active_pairs / counted / static_cast<double>(model_->n_outputs());
    stats.seconds = whole.seconds();
    return stats;
}

void Trainer::backward_hidden(const Batch &batch, const Optimizer &optimizer, dslide_step_stats &stats) {
    Arena &arena = model_->cluster().arena();
    const auto mask = [&](Matrix &dz, const Matrix &activation) {
        for (std::int64_t i = 0; i < dz.rows; ++i) simd::kernels().relu_mask(dz.row(i), activation.row(i), dz.stride);
    };
    mask(gradients_.back(), activations_.back());
    for (std::size_t i = model_->hidden().size(); i-- > 0;) {
        const Passes layer = passes(model_->hidden()[i], hidden_states_[i]);
        dense_backward_input(arena, gradients_[i + 1], layer.weight, gradients_[i]);
        dense_backward_update(arena, gradients_[i + 1], activations_[i], layer.weight, layer.bias, optimizer);
        mask(gradients_[i], activations_[i]);
    }
    const Passes input = passes(model_->input(), input_state_);
    stats.features_touched =
        input_backward_.apply(arena, batch.features, gradients_[0], input.weight, input.bias, optimizer, every_row());
}

std::int64_t Trainer::optimizer_bytes() const {
    std::size_t bytes = 0;
    const auto add = [&](const LayerState &state) {
        for (const auto &plane : state.weight) bytes += plane.bytes();
        for (const auto &plane : state.bias) bytes += plane.bytes();
    };
    add(input_state_);
    add(output_state_);
    for (const LayerState &state : hidden_states_) add(state);
    return static_cast<std::int64_t>(bytes);
}

dslide_trainer_info Trainer::info() const {
    dslide_trainer_info info{};
    info.struct_size = sizeof info;
    info.select = options_.select;
    if (TableSource *source = tables()) {
        info.tables = options_.tables;
        info.bits = options_.bits;
        info.table_bytes = static_cast<std::int64_t>(source->bytes());
        info.rebuilds = source->state().rebuilds;
    }
    info.hard_rows = static_cast<std::int32_t>(plan_.hard_rows);
    info.candidates = static_cast<std::int32_t>(plan_.candidates);
    info.shared_negatives = static_cast<std::int32_t>(plan_.shared);
    info.random_fill = static_cast<std::int32_t>(plan_.random_fill);
    info.step = step_;
    info.samples_seen = model_->samples_seen;
    info.epochs_done = position_.epochs_done;
    info.weight_bytes = model_->bytes() + static_cast<std::int64_t>(output_bf16_.bytes());
    info.optimizer_bytes = optimizer_bytes();
    std::size_t buffers =
        sampled_.bytes() + dense_.bytes() + input_backward_.bytes() + active_.bytes() + candidates_.row.bytes();
    for (const Matrix &m : activations_) buffers += m.data.bytes();
    for (const Matrix &m : gradients_) buffers += m.data.bytes();
    info.buffer_bytes = static_cast<std::int64_t>(buffers);
    return info;
}

} // namespace dslide
