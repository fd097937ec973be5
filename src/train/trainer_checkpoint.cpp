// SPDX-License-Identifier: Apache-2.0
// The trainer's part of a checkpoint: options, counters, optimizer state, tables. docs/checkpoint.md lists tensors and
// keys.
#include "core/error.hpp"
#include "model/meta.hpp"
#include "train/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <type_traits>

namespace dslide {
namespace {

constexpr const char *codes_tensor = "tables.codes";
constexpr const char *mean_tensor = "tables.mean";
constexpr const char *head_tensor = "tables.head";

// Every option by name; visit(name, field).
template <class Options, class Visit>
void visit_options(Options &o, Visit &&visit) {
    visit("flags", o.flags);
    visit("seed", o.seed);
    visit("optimizer", o.optimizer);
    visit("loss", o.loss);
    visit("learning_rate", o.learning_rate);
    visit("beta1", o.beta1);
    visit("beta2", o.beta2);
    visit("epsilon", o.epsilon);
    visit("momentum", o.momentum);
    visit("weight_decay", o.weight_decay);
    visit("decay_mode", o.decay_mode);
    visit("clip_value", o.clip_value);
    visit("clip_row_norm", o.clip_row_norm);
    visit("schedule", o.schedule);
    visit("warmup_samples", o.warmup_samples);
    visit("total_samples", o.total_samples);
    visit("step_samples", o.step_samples);
    visit("step_factor", o.step_factor);
    visit("final_rate", o.final_rate);
    visit("select", o.select);
    visit("active_share", o.active_share);
    visit("tables", o.tables);
    visit("bits", o.bits);
    visit("shared_negatives", o.shared_negatives);
    visit("random_fill", o.random_fill);
    visit("candidate_factor", o.candidate_factor);
    visit("rebuild_first", o.rebuild_first);
    visit("rebuild_growth", o.rebuild_growth);
    visit("rebuild_max", o.rebuild_max);
    visit("frequency_power", o.frequency_power);
    visit("hard_from", o.hard_from);
}

struct Write {
    Meta &meta;
    template <class T>
    void operator()(const std::string &name, const T &value) const {
        if constexpr (std::is_floating_point_v<T>)
            meta.set_number("trainer." + name, value);
        else if constexpr (std::is_unsigned_v<T>)
            meta.set_uint("trainer." + name, value);
        else
            meta.set_int("trainer." + name, value);
    }
};

struct Read {
    const Meta &meta;
    template <class T>
    void operator()(const std::string &name, T &value) const {
        const std::string key = "trainer." + name;
        if constexpr (std::is_floating_point_v<T>) {
            value = static_cast<T>(meta.get_number(key));
        } else if constexpr (std::is_unsigned_v<T>) {
            value = static_cast<T>(meta.get_uint(key));
        } else {
            const std::int64_t wide = meta.get_int(key);
            value = static_cast<T>(wide);
            if (value != wide) fail(DSLIDE_E_FORMAT, "checkpoint: ", key, " is ", wide, ", which is out of range");
        }
    }
};

dslide_trainer_options options_from(const Meta &meta) {
    if (!meta.get_bool("full"))
        fail(DSLIDE_E_STATE, "the checkpoint is slim: it holds weights alone, training cannot go on from it");
    dslide_trainer_options o{};
    o.struct_size = sizeof o;
    visit_options(o, Read{meta});
    return o;
}

} // namespace

// Every plane of optimizer state, this rank's part: visit(part).
template <class Visit>
void Trainer::visit_state(Visit &&visit) const {
    const auto layer = [&](const std::string &name, const LayerState &state) {
        for (std::size_t p = 0; p < state.weight.size(); ++p)
            for (const bool is_bias : {false, true}) {
                TensorPart part = model_->tensor(name + (is_bias ? ".bias" : ".weight"));
                part.name += ".state" + std::to_string(p);
                part.data = (is_bias ? state.bias : state.weight)[p].data();
                visit(part);
            }
    };
    layer("input", input_state_);
    layer("output", output_state_);
    for (std::size_t i = 0; i < hidden_states_.size(); ++i) layer("hidden." + std::to_string(i + 1), hidden_states_[i]);
}

CheckpointContent Trainer::content(std::vector<Array<std::int32_t>> &scratch) const {
    if (broken_) fail(DSLIDE_E_STATE, "an earlier update was cut off by an error; there is nothing sound to save");
    CheckpointContent content = model_->content();
    Meta meta(content.meta);
    meta.set_bool("full", true);
    visit_options(options_, Write{meta});
    meta.set_int("steps", step_);
    meta.set_int("first_sample", first_sample_);
    meta.set_bool("label_counts_known", counts_known_);
    meta.set_int("epochs_done", position_.epochs_done);
    meta.set_int("rows_in_epoch", position_.rows_in_epoch);
    meta.set_number("best_precision", position_.best_precision);
    meta.set_int("epochs_since_best", position_.epochs_since_best);
    visit_state([&](const TensorPart &part) { content.tensors.push_back(part); });
    TableSource *source = tables();
    if (source && source->tables().built()) {
        const TableSource::State &state = source->state();
        meta.set_int("tables.next_step", state.schedule.next_step);
        meta.set_number("tables.gap", state.schedule.gap);
        meta.set_number("tables.running_square", state.running_square);
        meta.set_number("tables.scale", state.scale);
        meta.set_int("tables.rebuilds", state.rebuilds);
        meta.set_int("tables.batches", state.batches);
        meta.set_bool("tables.stale", tables_stale_ || edits_seen_ != model_->edits());
        // Codes are kept row by row, not tables: a row range then says all about its rows, on any number of ranks.
        const TensorPart output = model_->tensor("output.weight");
        const std::int64_t rows = output.row_end - output.row_begin, n_tables = options_.tables;
        scratch.emplace_back(static_cast<std::size_t>(rows * n_tables));
        source->tables().write_codes(scratch.back().data());
        content.tensors.push_back({codes_tensor, DType::i32, output.rows, n_tables, output.row_begin, output.row_end,
                                   scratch.back().data(), n_tables});
        if (model_->cluster().rank() > 0) { // what follows all ranks have alike
            content.meta = meta.json();
            return content;
        }
        const auto width = static_cast<std::int64_t>(source->running_mean().size());
        scratch.emplace_back(static_cast<std::size_t>(2 * width));
        auto *means = reinterpret_cast<float *>(scratch.back().data());
        std::copy_n(source->running_mean().data(), width, means);
        std::copy_n(source->frozen_mean().data(), width, means + width);
        content.tensors.push_back({mean_tensor, DType::f32, 2, model_->width(), 0, 2, means, width});
        const auto n_head = static_cast<std::int64_t>(source->head_classes().size());
        if (n_head > 0)
            content.tensors.push_back(
                {head_tensor, DType::i32, 1, n_head, 0, 1, source->head_classes().data(), n_head});
    }
    content.meta = meta.json();
    return content;
}

Trainer::Trainer(std::shared_ptr<Model> model, const CheckpointReader &checkpoint) : model_(std::move(model)) {
    const Meta meta(checkpoint.meta());
    options_ = from_file(checkpoint, [&] { return resolved(options_from(meta), model_->options()); });
    plan_ = plan_of(options_, model_->options());
    step_ = meta.get_count("steps");
    first_sample_ = meta.get_count("first_sample");
    counts_known_ = meta.get_bool("label_counts_known");
    position_ = {meta.get_count("epochs_done"), meta.get_count("rows_in_epoch"), meta.get_number("best_precision"),
                 meta.get_count("epochs_since_best")};
    if (first_sample_ > model_->samples_seen) fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": a counter is out of range");
    if (counts_known_ && model_->label_frequencies().counts.empty())
        fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": label counts are said to be known, and are not there");
    make_state();
    make_source();
    refresh_bf16();
    weigh_shared_rows();
    visit_state([&](const TensorPart &part) {
        if (!checkpoint.has(part.name)) fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": tensor ", part.name, " is missing");
        const TensorShape s = checkpoint.shape(part.name);
        if (s.type != DType::f32 || s.rows != part.rows || s.cols != part.cols)
            fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": tensor ", part.name, " is ", s.rows, " x ", s.cols,
                 ", expected fp32 ", part.rows, " x ", part.cols);
        model_->read_part(checkpoint, part);
    });
    edits_seen_ = model_->edits();
    if (tables() && checkpoint.has(codes_tensor)) restore_tables(checkpoint);
    claim_model();
}

void Trainer::restore_tables(const CheckpointReader &checkpoint) {
    const Meta meta(checkpoint.meta());
    TableSource &source = *tables();
    TableSource::State &state = source.state();
    state.schedule.next_step = meta.get_int("tables.next_step");
    state.schedule.gap = meta.get_number("tables.gap");
    state.running_square = static_cast<float>(meta.get_number("tables.running_square"));
    state.scale = static_cast<float>(meta.get_number("tables.scale"));
    state.rebuilds = meta.get_count("tables.rebuilds");
    state.batches = meta.get_count("tables.batches");
    const auto longest = static_cast<double>(options_.rebuild_max);
    if (!(state.schedule.gap >= 0 && state.schedule.gap <= longest) || !(state.scale > 0 && std::isfinite(state.scale)))
        fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": settings of the hash tables are out of range");
    // Another number than the model's brings about the rebuild that the saving trainer was going to make.
    tables_stale_ = meta.get_bool("tables.stale");
    const TensorShape codes = checkpoint.shape(codes_tensor),
                      mean = checkpoint.has(mean_tensor) ? checkpoint.shape(mean_tensor) : TensorShape{};
    if (codes.type != DType::i32 || codes.rows != model_->n_outputs() || codes.cols != options_.tables ||
        mean.type != DType::f32 || mean.rows != 2 || mean.cols != model_->width())
        fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": tensors of the hash tables have another shape than the trainer's");
    const std::int64_t rows = model_->output().weight.rows;
    Array<std::int32_t> values(static_cast<std::size_t>(rows * codes.cols));
    model_->read_part(checkpoint,
                      {codes_tensor, DType::i32, codes.rows, codes.cols, 0, rows, values.data(), codes.cols});
    const std::int32_t limit = 1 << source.tables().family().bits();
    if (std::any_of(values.begin(), values.end(), [&](std::int32_t code) { return code < 0 || code >= limit; }))
        fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": a code in ", codes_tensor, " is not below ", limit);
    source.tables().restore(model_->cluster().arena(), values.data(), rows);
    std::vector<std::int32_t> head;
    if (checkpoint.has(head_tensor)) {
        const TensorShape shape = checkpoint.shape(head_tensor);
        if (shape.type != DType::i32 || shape.rows != 1 || shape.cols > codes.rows)
            fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": tensor ", head_tensor, " has another shape than the trainer's");
        head.resize(static_cast<std::size_t>(shape.cols));
        checkpoint.read_rows(head_tensor, 0, 1, head.data(), shape.cols);
        if (std::any_of(head.begin(), head.end(), [&](std::int32_t row) { return row < 0 || row >= codes.rows; }))
            fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": a row in ", head_tensor, " is not below ", codes.rows);
        if (std::set<std::int32_t>(head.begin(), head.end()).size() != head.size())
            fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": a row is in ", head_tensor, " twice");
    }
    source.set_head(std::move(head), model_->placement().row_map(), rows);
    checkpoint.read_rows(mean_tensor, 0, 1, source.running_mean().data(), mean.cols);
    checkpoint.read_rows(mean_tensor, 1, 2, source.frozen_mean().data(), mean.cols);
}

} // namespace dslide
