// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_dirs.hpp"
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/flags.hpp"
#include "cli/format.hpp"
#include "cli/progress.hpp"
#include "cli/ranks.hpp"
#include "cli/signals.hpp"
#include "cli/train_report.hpp"

#include <optional>

namespace dslide::cli {

namespace {

/// What the library's callbacks see; they run on this thread, between steps.
struct Listener {
    ProgressDisplay display;
    JsonLines &json;
    RunRecord record;
    std::int32_t epochs = 0;
};

std::int32_t on_progress(void *listener, const dslide_progress *progress) noexcept {
    static_cast<Listener *>(listener)->display.show(*progress);
    return interrupt_signal();
}

std::int32_t on_epoch(void *user_data, const dslide_epoch_report *report) noexcept {
    Listener &listener = *static_cast<Listener *>(user_data);
    listener.display.finish_epoch(*report, listener.epochs);
    listener.json.write(epoch_json(*report));
    listener.record.add(*report);
    return interrupt_signal();
}

dslide_run_options run_options(const TrainFlags &flags, const TrainingSetup &setup, const dslide_eval_options &eval,
                               Listener &listener) {
    dslide_run_options options;
    dslide_run_options_init(&options, sizeof options);
    options.epochs = flags.epochs;
    options.batch_size = flags.batch;
    options.early_stop = flags.early_stop;
    options.eval_data = setup.test.get();
    options.eval = &eval;
    options.save_dir = flags.save.empty() ? nullptr : flags.save.c_str();
    options.save_every = flags.save_every;
    options.on_progress = on_progress;
    options.on_epoch = on_epoch;
    options.user_data = &listener;
    return options;
}

dslide_eval_options eval_options(const TrainFlags &flags) {
    dslide_eval_options options;
    dslide_eval_options_init(&options, sizeof options);
    options.max_rows = flags.eval_rows;
    return options;
}

std::string outcome_of(dslide_status status, const TrainFlags &flags, const RunRecord &record) {
    if (status == DSLIDE_E_STOPPED) return "interrupted";
    if (status != DSLIDE_OK) return "failed";
    return record.last && record.last->epoch < flags.epochs ? "early_stop" : "finished";
}

int train_and_report(const TrainFlags &flags, const TrainingSetup &setup, JsonLines &json, bool speaks) {
    Listener listener{ProgressDisplay(flags.quiet), json, {}, flags.epochs};
    const dslide_eval_options eval = eval_options(flags);
    const dslide_run_options options = run_options(flags, setup, eval, listener);
    dslide_status status = DSLIDE_OK;
    {
        std::optional<Interruptible> interruptible; // signals are the process's, not the rank's
        if (speaks) interruptible.emplace();
        status = dslide_trainer_run(setup.trainer.get(), setup.train.get(), &options, nullptr);
    }
    const std::string error = status == DSLIDE_OK || status == DSLIDE_E_STOPPED ? "" : dslide_last_error();
    listener.display.clear();
    const std::string outcome = outcome_of(status, flags, listener.record);
    json.write(result_json(flags, listener.record, outcome, error));
    if (!error.empty()) throw Failure(error);
    if (speaks && flags.json != "-") print(result_text(flags, listener.record, outcome));
    json.finish();
    constexpr int exit_by_signal = 128;
    return status == DSLIDE_E_STOPPED ? exit_by_signal + interrupt_signal() : exit_ok;
}

int train_on(const TrainFlags &flags, const Cluster &cluster, bool speaks) {
    JsonLines json(flags.dry_run ? "" : flags.json);
    const TrainingSetup setup = set_up_training(flags, cluster);
    if (flags.dry_run) {
        if (speaks) print(header_text(flags, setup));
        return exit_ok;
    }
    if (!flags.quiet) print_note(header_text(flags, setup));
    if (!flags.quiet && flags.resume.empty() && !flags.save.empty() && !link_target(flags.save, "latest").empty())
        print_note("save        checkpoints of an earlier run under " + flags.save + " are replaced\n");
    if (speaks && !flags.save.empty()) save_run_config(flags);
    json.write(settings_json(flags, setup));
    return train_and_report(flags, setup, json, speaks);
}

} // namespace

int run_train(TrainFlags &flags) {
    settle_selection(flags.trainer, flags.dense, flags.given);
    check_before_work(flags);
    ignore_broken_pipes(); // a reader of the output that leaves must not end hours of training
    return on_ranks(flags.ranks, flags.threads, [&](const Cluster &cluster, bool speaks) {
        TrainFlags own = flags;
        own.quiet |= !speaks;
        if (!speaks) own.json.clear();
        return train_on(own, cluster, speaks);
    });
}

} // namespace dslide::cli
