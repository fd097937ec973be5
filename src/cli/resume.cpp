// SPDX-License-Identifier: Apache-2.0
#include "cli/resume.hpp"

#include "cli/errors.hpp"
#include "cli/format.hpp"
#include "cli/values.hpp"

#include <algorithm>
#include <cmath>

namespace dslide::cli {

namespace {

/// Compares the flags that the user gave with what the checkpoint holds.
class Contradictions {
public:
    Contradictions(const TrainFlags &flags, const dslide_trainer_options &saved) : flags_(flags), saved_(saved) {}

    void number(const char *flag, float dslide_trainer_options::*field) const {
        constexpr float rounding = 1e-6F; // a share is kept as a count of rows
        const float asked = flags_.trainer.*field, kept = saved_.*field;
        if (std::fabs(asked - kept) > rounding * std::fabs(kept)) refuse(flag, significant(kept, 6));
    }
    template <class Whole>
    void whole(const char *flag, Whole dslide_trainer_options::*field) const {
        if (flags_.trainer.*field != saved_.*field) refuse(flag, std::to_string(saved_.*field));
    }
    void choice(const char *flag, std::int32_t dslide_trainer_options::*field,
                const std::vector<Choice> &choices) const {
        if (flags_.trainer.*field != saved_.*field) refuse(flag, choice_name(choices, saved_.*field));
    }
    void bit(const char *flag, std::uint32_t mask) const {
        if (((flags_.trainer.flags ^ saved_.flags) & mask) != 0)
            refuse(flag, (saved_.flags & mask) != 0 ? "on" : "off");
    }
    void refuse(const char *flag, const std::string &kept) const {
        if (flags_.given.count(flag) > 0)
            throw UsageError(std::string("--") + flag + " contradicts the checkpoint, which has " + kept);
    }

private:
    const TrainFlags &flags_;
    const dslide_trainer_options &saved_;
};

void check_shape(const Contradictions &found, const TrainFlags &flags, const dslide_model_info &model) {
    const bool same_hidden = flags.model.n_hidden == model.n_hidden &&
                             std::equal(model.hidden, model.hidden + model.n_hidden, flags.model.hidden);
    std::string widths;
    for (std::int32_t i = 0; i < model.n_hidden; ++i)
        widths.append(i > 0 ? "," : "").append(std::to_string(model.hidden[i]));
    if (!same_hidden) found.refuse("hidden", widths);
    if (flags.data.n_features != model.n_inputs) found.refuse("n-features", std::to_string(model.n_inputs));
    if (flags.data.n_labels != model.n_outputs) found.refuse("n-labels", std::to_string(model.n_outputs));
    if (flags.data.index_base != model.index_base) found.refuse("index-base", std::to_string(model.index_base));
    found.refuse("input-scale", "its weights");
    found.refuse("output-scale", "its weights");
}

void check_training(const Contradictions &found, const TrainFlags &flags, const dslide_trainer_options &saved) {
    using Options = dslide_trainer_options;
    found.choice("optimizer", &Options::optimizer, optimizer_choices);
    found.choice("loss", &Options::loss, loss_choices);
    if (saved.select == DSLIDE_SELECT_ALL) {
        for (const char *flag : {"hash", "active-share", "tables", "bits"}) found.refuse(flag, "every row active");
    } else {
        found.choice("hash", &Options::select, select_choices);
        found.refuse("dense", choice_name(select_choices, saved.select));
    }
    found.choice("schedule", &Options::schedule, schedule_choices);
    found.choice("decay", &Options::decay_mode, decay_choices);
    if (flags.trainer.seed != 0) found.whole("seed", &Options::seed);
    found.whole("tables", &Options::tables);
    found.whole("bits", &Options::bits);
    found.whole("shared-negatives", &Options::shared_negatives);
    found.whole("random-fill", &Options::random_fill);
    found.whole("rebuild-first", &Options::rebuild_first);
    found.whole("rebuild-max", &Options::rebuild_max);
    found.whole("hard-from", &Options::hard_from);
    found.whole("warmup", &Options::warmup_samples);
    found.whole("total-samples", &Options::total_samples);
    found.whole("step-samples", &Options::step_samples);
    for (const auto &[flag, field] : std::initializer_list<std::pair<const char *, float Options::*>>{
             {"active-share", &Options::active_share},
             {"candidate-factor", &Options::candidate_factor},
             {"rebuild-growth", &Options::rebuild_growth},
             {"frequency-power", &Options::frequency_power},
             {"momentum", &Options::momentum},
             {"beta1", &Options::beta1},
             {"beta2", &Options::beta2},
             {"epsilon", &Options::epsilon},
             {"weight-decay", &Options::weight_decay},
             {"clip-value", &Options::clip_value},
             {"clip-row-norm", &Options::clip_row_norm},
             {"step-factor", &Options::step_factor},
             {"final-rate", &Options::final_rate}})
        found.number(flag, field);
    found.bit("dense-updates", DSLIDE_TRAINER_DENSE_UPDATES);
    found.bit("no-centring", DSLIDE_TRAINER_NO_CENTRING);
    found.bit("correction", DSLIDE_TRAINER_CORRECTION);
    found.bit("bf16-scores", DSLIDE_TRAINER_BF16_SCORES);
}

} // namespace

void load_for_resume(const TrainFlags &flags, TrainingSetup &setup) {
    dslide_model *model = nullptr;
    dslide_trainer *trainer = nullptr;
    check(dslide_trainer_load(setup.cluster.get(), flags.resume.c_str(), &model, &trainer));
    setup.model.reset(model);
    setup.trainer.reset(trainer);

    const dslide_trainer_options saved = trainer_options(setup.trainer);
    const Contradictions found(flags, saved);
    check_shape(found, flags, model_info(setup.model));
    check_training(found, flags, saved);
    if (flags.given.count("lr") > 0) check(dslide_trainer_set_learning_rate(trainer, flags.trainer.learning_rate));

    const dslide_trainer_info info = trainer_info(setup.trainer);
    if (info.epochs_done >= flags.epochs)
        throw UsageError("--epochs " + std::to_string(flags.epochs) +
                         " counts from the start of training, and the checkpoint has " +
                         std::to_string(info.epochs_done) + " done");
}

} // namespace dslide::cli
