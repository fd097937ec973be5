// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.hpp"

#include "core/clock.hpp"
#include "core/error.hpp"
#include "exchange/columns.hpp"
#include "layers/dense.hpp"
#include "optim/learning_rate.hpp"
#include "train/exact_source.hpp"
#include "train/loss_totals.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

namespace dslide {
namespace {

// Beyond it squares of gradients, and with them the second moments, leave the range of fp32: such a row would stand
// still for ever.
constexpr float largest_activation = 1e18f;

/// What ranks tell each other before a step.
struct StepFacts {
    std::int64_t step, samples;
    std::uint64_t fingerprint;
    double learning_rate;
    std::int64_t stop, report;
};

/// Of all that a batch consists of: enough to tell one from another.
std::uint64_t fingerprint(const Batch &batch) {
    std::uint64_t hash = 0;
    const auto add = [&](std::uint64_t bits) {
        hash = (hash ^ bits) * 0x9e3779b97f4a7c15ULL;
        hash ^= hash >> 32;
    };
    const auto bits = [](const float *value) { return value ? std::bit_cast<std::uint32_t>(*value) : 0; };
    for (const CsrRows *rows : {&batch.features, &batch.labels})
        for (std::int64_t i = 0; i < rows->n_rows; ++i) {
            add(static_cast<std::uint64_t>(rows->nnz(i)));
            for (std::int64_t e = rows->row_ptr[i]; e < rows->row_ptr[i + 1]; ++e)
                add(std::uint64_t{static_cast<std::uint32_t>(rows->col[e])} << 32 |
                    bits(rows->val ? rows->val + e : nullptr));
        }
    for (std::int64_t i = 0; i < batch.size(); ++i) add(bits(batch.weights ? batch.weights + i : nullptr));
    return hash;
}

void compare(const StepFacts &mine, const StepFacts &theirs) {
    if (mine.step != theirs.step)
        fail(DSLIDE_E_STATE, "one rank is at step ", mine.step, ", another at step ", theirs.step);
    if (mine.samples != theirs.samples || mine.fingerprint != theirs.fingerprint)
        fail(DSLIDE_E_ARGUMENT, "ranks do not have the same batch: ", mine.samples, " rows here, ", theirs.samples,
             " on another rank", mine.samples == theirs.samples ? ", with other features, labels or weights" : "");
    if (mine.learning_rate != theirs.learning_rate)
        fail(DSLIDE_E_ARGUMENT, "ranks do not have the same learning rate: ", mine.learning_rate, " here, ",
             theirs.learning_rate, " on another rank");
}

/// Rows with a weight above 0 that have something to teach.
std::int64_t counted_samples(const Batch &batch, std::int32_t loss) {
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < batch.size(); ++i)
        n += (loss == DSLIDE_BCE || batch.labels.nnz(i) > 0) && (!batch.weights || batch.weights[i] > 0);
    return n;
}

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
    own_gradients_.resize(gradients_.size());
    own_plan_ = part_of(plan_, model_->output().weight.rows, model_->n_outputs());
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
        source_ = std::make_unique<RandomSource>(rows, options_.seed, model_->placement().row_map());
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

void Trainer::count_labels(const CsrRows &labels, std::int64_t times) {
    LabelFrequencies &f = model_->label_frequencies();
    f.counts.resize(static_cast<std::size_t>(model_->n_outputs()));
    for (std::int64_t e = labels.row_ptr[0]; e < labels.row_ptr[labels.n_rows]; ++e)
        f.counts[static_cast<std::size_t>(labels.col[e])] += times;
    f.samples += times * labels.n_rows;
    weigh_shared_rows();
}

void Trainer::refresh_tables(TableSource &source, const Matrix &h, dslide_step_stats &stats) {
    const Stopwatch watch;
    Arena &arena = model_->cluster().arena();
    Exchange &exchange = model_->cluster().exchange();
    Layer &output = model_->output();
    const Placement &placement = model_->placement();
    const TableSource::Rows rows{output.weight.data.data(),
                                 output.weight.stride,
                                 output.weight.rows,
                                 output.bias.data(),
                                 placement.is_identity() ? nullptr : placement.class_list().data(),
                                 placement.row_map()};
    bool due = false;
    exchange.local([&] { due = source.observe(h, step_); });
    if (!due && !tables_stale_) return;
    RowStatistics all;
    exchange.local([&] { all = source.measure(arena, rows); });
    if (!exchange.alone()) {
        const std::vector<std::size_t> bytes(static_cast<std::size_t>(exchange.size()),
                                             RowStatistics::packed_bytes(model_->width(), source.head_rows()));
        exchange.all_gather(Phase::tables, bytes, [&](std::byte *block) { all.pack(block, source.head_rows()); });
        for (int r = 0; r < exchange.size(); ++r) {
            RowStatistics part;
            part.unpack(exchange.block(r), model_->width());
            if (r == 0)
                all = std::move(part);
            else
                all.merge(part, source.head_rows());
        }
    }
    exchange.local([&] { source.rebuild(arena, rows, all, step_); });
    stats.rebuilt = 1;
    tables_stale_ = false;
    stats.seconds_rebuild = watch.seconds();
}

void Trainer::select(const Matrix &h, dslide_step_stats &stats) {
    Arena &arena = model_->cluster().arena();
    Exchange &exchange = model_->cluster().exchange();
    // Early on retrieval is no better than chance; frequent labels teach more (options.hard_from).
    const bool hard = source_ && samples_trained() >= options_.hard_from;
    if (TableSource *source = tables(); source && hard) refresh_tables(*source, h, stats);
    exchange.local([&] {
        const std::int32_t *row_of = model_->placement().row_map();
        const std::int64_t draws = plan_.shared + (hard ? 0 : plan_.hard_rows);
        active_.shared.clear();
        if (draws > 0) {
            shared_rows_.draw(draws, options_.seed, step_, active_.shared, active_.shared_log_inclusion, row_of);
            if (!has_flag(DSLIDE_TRAINER_CORRECTION))
                std::fill(active_.shared_log_inclusion.begin(), active_.shared_log_inclusion.end(), 0.0f);
        }
        // Random candidates are drawn on all ranks alike.
        const bool drawn = dynamic_cast<RandomSource *>(source_.get()) != nullptr;
        if (hard) source_->find(arena, h, step_, drawn ? plan_.candidates : own_plan_.candidates, candidates_);
        selection_.build(arena,
                         {own_labels_.labels(), hard ? &candidates_ : nullptr, plan_.random_fill,
                          has_flag(DSLIDE_TRAINER_CORRECTION), options_.seed, step_, model_->output().weight.rows,
                          model_->n_outputs(), row_of},
                         active_);
    });
}

/// A step that fails before the update leaves nothing behind: neither counted labels nor a moved mean. Tables that it
/// rebuilt are rebuilt once more by the next step.
class Trainer::Undo {
public:
    Undo(Trainer &trainer, const CsrRows &labels)
        : trainer_(trainer), labels_(labels), counts_(!trainer.counts_known_), edits_seen_(trainer.edits_seen_),
          stale_(trainer.tables_stale_) {
        if (TableSource *source = trainer.tables()) {
            state_ = source->state();
            mean_ = source->running_mean();
        }
        if (counts_) trainer_.count_labels(labels_, 1);
    }
    ~Undo() {
        if (kept_) return;
        if (counts_) trainer_.count_labels(labels_, -1);
        trainer_.edits_seen_ = edits_seen_;
        if (TableSource *source = trainer_.tables()) {
            trainer_.tables_stale_ = stale_ || source->state().rebuilds != state_.rebuilds;
            source->state() = state_;
            source->running_mean().swap(mean_);
        }
    }
    Undo(const Undo &) = delete;
    Undo &operator=(const Undo &) = delete;
    void keep() { kept_ = true; }

private:
    Trainer &trainer_;
    const CsrRows &labels_;
    bool counts_, kept_ = false;
    std::int64_t edits_seen_;
    bool stale_;
    TableSource::State state_;
    std::vector<float> mean_;
};

RunWishes Trainer::agree(Call call, const Batch &batch, RunWishes wishes) {
    Exchange &exchange = model_->cluster().exchange();
    exchange.local([&] {
        if (broken_) fail(DSLIDE_E_STATE, "an earlier update was cut off by an error; load a checkpoint");
    });
    const StepFacts mine{step_,       batch.size(), exchange.alone() ? 0 : fingerprint(batch), options_.learning_rate,
                         wishes.stop, wishes.report};
    const std::vector<StepFacts> all = exchange.agree(call, mine);
    if (std::any_of(all.begin(), all.end(), [](const StepFacts &theirs) { return theirs.stop != 0; }))
        return {true, false};
    for (const StepFacts &theirs : all) exchange.alike([&] { compare(mine, theirs); });
    return {false, all.front().report != 0};
}

dslide_step_stats Trainer::step(const Batch &batch) {
    model_->cluster().need_open();
    agree(Call::trainer_step, batch, {});
    return agreed_step(batch);
}

dslide_step_stats Trainer::agreed_step(const Batch &batch) {
    Arena &arena = model_->cluster().arena();
    Exchange &exchange = model_->cluster().exchange();
    dslide_step_stats stats{};
    stats.struct_size = sizeof stats;
    stats.step = step_;
    stats.samples_seen = model_->samples_seen;
    const Stopwatch whole;
    Stopwatch phase;
    const std::int64_t sent_before = exchange.total_traffic().bytes_sent;
    const std::int64_t samples_after = model_->samples_seen + batch.size();
    const std::int64_t counted = counted_samples(batch, options_.loss);
    if (counted == 0) { // nothing to learn from: as if the batch had not come, but its samples were seen
        if (!counts_known_) count_labels(batch.labels, 1);
        stats.samples_seen = model_->samples_seen = samples_after;
        stats.samples = batch.size();
        return stats;
    }
    exchange.local([&] {
        targets_.set(options_.loss, batch);
        own_labels_.set(batch.labels, targets_, model_->placement());
    });
    std::optional<Undo> undo;
    exchange.local([&] { undo.emplace(*this, batch.labels); });
    const double rate = learning_rate(options_, samples_trained());
    const Optimizer optimizer(options_, step_ + 1, rate);
    const bool all = options_.select == DSLIDE_SELECT_ALL;
    model_->forward(batch.features, activations_);
    exchange.alike([&] {
        for (const Matrix &activation : activations_.full) check_activations(activation, step_ + 1, rate);
    });
    const Matrix &h = activations_.last();
    stats.seconds_forward = phase.lap();

    if (edits_seen_ != model_->edits()) {
        edits_seen_ = model_->edits();
        tables_stale_ = true;
        exchange.local([&] { refresh_bf16(); });
    }
    Passes output = passes(model_->output(), output_state_);
    output.weight.bf16 = output_bf16_.data();
    Matrix &dh = gradients_.back();
    const CsrRows &labels = own_labels_.labels();
    const Targets &targets = own_labels_.targets();
    if (all) {
        exchange.local([&] {
            dense_.forward(arena, options_.loss, labels, targets, h, output.weight, output.bias, dh, loss_parts_);
        });
    } else {
        select(h, stats);
        stats.seconds_select = phase.lap() - stats.seconds_rebuild;
        exchange.local([&] {
            sampled_.score(arena, active_, h, output.weight, output.bias, own_plan_.hard_rows);
            sampled_.loss(arena, options_.loss, active_, labels, targets, loss_parts_);
            sampled_.reserve(arena, active_, h, dh);
        });
    }
    exchange.local([&] { input_backward_.prepare(arena, batch.features, model_->n_inputs()); });
    merge_loss(exchange, options_.loss, batch.size(), loss_parts_);
    stats.loss = loss_parts_.mean_loss(options_.loss, batch.labels, targets_);
    exchange.alike([&] {
        if (!std::isfinite(stats.loss))
            fail(DSLIDE_E_DIVERGED, "loss is ", stats.loss, " in step ", step_ + 1, " (learning rate ", rate,
                 "); no weight was changed");
    });

    undo->keep();
    broken_ = true;
    exchange.local([&] {
        if (all) {
            dense_.update(arena, options_.loss, labels, targets, h, output.weight, output.bias, optimizer, loss_parts_,
                          dh);
            stats.rows_touched = model_->output().weight.rows;
        } else {
            sampled_.gradients(arena, options_.loss, active_, labels, targets, loss_parts_);
            stats.rows_touched =
                sampled_.update(arena, active_, h, output.weight, output.bias, optimizer, every_row(), dh);
        }
    });
    own_rows_touched_ += stats.rows_touched;
    stats.seconds_output = phase.lap();
    backward_hidden(batch, optimizer, stats);
    broken_ = false;
    stats.seconds_backward = phase.lap();

    stats.step = ++step_;
    stats.samples = batch.size();
    stats.samples_seen = model_->samples_seen = samples_after;
    stats.learning_rate = rate;
    stats.active_share =
        loss_parts_.active_pairs / static_cast<double>(counted) / static_cast<double>(model_->n_outputs());
    stats.bytes_sent = exchange.total_traffic().bytes_sent - sent_before;
    stats.seconds = whole.seconds();
    return stats;
}

void Trainer::backward_hidden(const Batch &batch, const Optimizer &optimizer, dslide_step_stats &stats) {
    Arena &arena = model_->cluster().arena();
    Exchange &exchange = model_->cluster().exchange();
    // What reaches this rank's neurons of layer i, through relu.
    const auto own_gradient = [&](std::size_t i, double &count) -> Matrix & {
        Matrix &dz = exchange.alone() ? gradients_[i] : own_gradients_[i];
        if (!exchange.alone())
            sum_columns(model_->cluster(), model_->slices(i), batch.size(), gradients_[i], dz, count);
        const Matrix &activation = exchange.alone() ? activations_.full[i] : activations_.own[i];
        for (std::int64_t r = 0; r < dz.rows; ++r) simd::kernels().relu_mask(dz.row(r), activation.row(r), dz.stride);
        return dz;
    };
    auto rows_touched = static_cast<double>(stats.rows_touched), nothing = 0.0;
    Matrix *dz = &own_gradient(gradients_.size() - 1, rows_touched);
    stats.rows_touched = static_cast<std::int64_t>(rows_touched);
    for (std::size_t i = model_->hidden().size(); i-- > 0;) {
        exchange.local([&] {
            const Passes layer = passes(model_->hidden()[i], hidden_states_[i]);
            dense_backward_input(arena, *dz, layer.weight, gradients_[i]);
            dense_backward_update(arena, *dz, activations_.full[i], layer.weight, layer.bias, optimizer);
        });
        dz = &own_gradient(i, nothing);
    }
    const Passes input = passes(model_->input(), input_state_);
    stats.features_touched =
        input_backward_.apply(arena, batch.features, *dz, input.weight, input.bias, optimizer, every_row());
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
    buffers += activations_.bytes();
    for (const std::vector<Matrix> *list : {&gradients_, &own_gradients_})
        for (const Matrix &m : *list) buffers += m.data.bytes();
    info.buffer_bytes = static_cast<std::int64_t>(buffers);
    return info;
}

} // namespace dslide
