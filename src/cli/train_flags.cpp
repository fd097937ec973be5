// SPDX-License-Identifier: Apache-2.0
#include "cli/errors.hpp"
#include "cli/flags.hpp"

#include <algorithm>
#include <limits>

namespace dslide::cli {

namespace {

constexpr std::int64_t int32_max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t most_samples = 1000000000000000000, most_steps = 1000000000000; // the library's limits
constexpr double tiny = 1e-20, huge = 1e20;

void set_bit(std::uint32_t &flags, std::uint32_t bit, bool on) { flags = on ? flags | bit : flags & ~bit; }

void add_data_flags(FlagSet &set, TrainFlags &flags) {
    set.group("Data");
    set.text("--train", "FILE", flags.train, "Training rows; - is standard input. Plain, gzip, xz or zstd");
    set.text("--test", "FILE", flags.test, "Rows to judge the model on after each epoch");
    set.choice("--format", flags.data.format, format_choices, "Text format of both files (xmc)");
    set.whole("--index-base", flags.data.index_base, 0, 1, "Number of the first feature in the files (0)");
    set.whole("--label-base", flags.data.label_base, 0, 1, "Number of the first label in the files (0)");
    set.whole("--n-features", flags.data.n_features, 1, int32_max, "Width of the rows (header, or highest seen + 1)");
    set.whole("--n-labels", flags.data.n_labels, 1, int32_max, "Number of labels (header, or highest seen + 1)");
    set.toggle("--drop-wide", flags.data.drop_wide,
               "Leave out and count features and labels beyond these; else an error");
    set.toggle("--stream", flags.data.stream, "Read the training file again each epoch, in bounded memory");
    set.toggle("--no-shuffle", flags.data.no_shuffle, "Train in file order");
    set.toggle("--normalize", flags.data.normalize, "Scale each row's features to Euclidean length 1");
    set.text("--names-labels", "FILE", flags.names_labels, "Names of labels, one a line, kept in the model");
    set.text("--names-features", "FILE", flags.names_features, "Names of features, one a line, kept in the model");
}

void add_model_flags(FlagSet &set, dslide_model_options &options) {
    set.group("Model");
    set.value("--hidden", "N[,N...]", "Widths of the hidden layers (128)", [&options](const std::string &text) {
        const auto widths = whole_numbers("--hidden", text, 1, 65536, DSLIDE_MAX_HIDDEN);
        options.n_hidden = static_cast<std::int32_t>(widths.size());
        std::copy(widths.begin(), widths.end(), options.hidden);
    });
    set.real("--input-scale", options.input_scale, tiny, huge,
             "Standard deviation of first-layer weights (hidden^-1/2)");
    set.real("--output-scale", options.output_scale, tiny, huge, "Standard deviation of output weights (0.01)");
}

void add_run_flags(FlagSet &set, TrainFlags &flags) {
    set.group("Run");
    set.whole("--epochs", flags.epochs, 1, int32_max, "Passes over the data, from the start of training (5)");
    set.whole("--batch", flags.batch, 1, 1 << 20, "Rows a step (256)");
    set.value(
        "--seed", "N", "Of weights, hashing and order; 0: the fixed default (0)",
        [&flags](const std::string &text) { flags.trainer.seed = flags.model.seed = seed_number("--seed", text); });
    add_threads_flag(set, flags.threads);
    set.whole("--early-stop", flags.early_stop, 1, int32_max, "Stop after N epochs without a better P@1");
    set.whole("--eval-rows", flags.eval_rows, 1, int64_max, "Judge on the first N rows of --test only");
    set.toggle("--dry-run", flags.dry_run, "Read the data, print memory needs and choices, and stop");
    set.toggle("--force", flags.force, "Train even if memory seems too small");
    add_rank_flags(set, flags.ranks);
    set.group("Saving");
    set.text("--save", "DIR", flags.save, "Write a checkpoint after each epoch under DIR, with 'latest' and 'best'");
    set.whole("--save-every", flags.save_every, 1, int64_max, "Also every N steps");
    set.text("--resume", "DIR", flags.resume, "Go on from the latest checkpoint under DIR; its settings hold");
    set.group("Output");
    set.text("--json", "FILE", flags.json,
             "Write one JSON object a line: settings, epochs, result; - is standard output");
    set.toggle("--quiet", flags.quiet, "No header, no progress, no epoch lines");
}

void add_schedule_flags(FlagSet &set, dslide_trainer_options &options) {
    set.group("Schedule");
    set.choice("--schedule", options.schedule, schedule_choices, "Course of the learning rate (constant)");
    set.whole("--warmup", options.warmup_samples, 1, most_samples, "The rate rises linearly over the first N samples");
    set.real("--final-rate", options.final_rate, 0, 1, "linear, cosine: share of --lr at the end (0)");
    set.whole("--total-samples", options.total_samples, 1, most_samples,
              "linear, cosine: where the fall ends (epochs x rows)");
    set.whole("--step-samples", options.step_samples, 1, most_samples, "step: samples between two falls");
    set.real("--step-factor", options.step_factor, tiny, 1, "step: factor of each fall (0.5)");
}

} // namespace

void add_threads_flag(FlagSet &set, std::int32_t &threads) {
    set.whole("--threads", threads, 1, 1024, "Computing threads (what affinity and cgroup allow)");
}

void add_rank_flags(FlagSet &set, RankFlags &flags) {
    set.group("Ranks");
    set.whole("--ranks", flags.ranks, 1, 256,
              "Ranks that are threads of this process, each with its part of the model");
    set.choice("--transport", flags.transport, transport_choices,
               "What joins ranks (threads with --ranks, mpi under mpirun, else self)");
    set.choice("--payload", flags.payload, payload_choices, "How activations and gradients travel (fp32)");
    set.real("--timeout", flags.timeout, 0.1, 1e6, "Seconds that a rank waits for the others (60)");
}

void add_optimizer_flags(FlagSet &set, dslide_trainer_options &options) {
    set.group("Optimizer");
    set.choice("--optimizer", options.optimizer, optimizer_choices, "Update rule (adam)");
    set.choice("--loss", options.loss, loss_choices,
               "Cross-entropy over the active rows, or a logistic loss each (softmax)");
    set.real("--lr", options.learning_rate, tiny, huge, "Learning rate (0.001)");
    // In the options struct 0 is the default and a negative number is 0.
    set.value("--beta1", "X", "adam: decay of the first moment (0.9)", [&options](const std::string &text) {
        const float beta = number("--beta1", text, 0, 0.999999);
        options.beta1 = beta == 0 ? -1 : beta;
    });
    set.real("--beta2", options.beta2, tiny, 0.9999999, "adam: decay of the second moment (0.999)");
    set.real("--epsilon", options.epsilon, tiny, 1, "adam, adagrad: added to the denominator (1e-8)");
    set.real("--momentum", options.momentum, 0, 0.999999, "sgd: momentum (0)");
    set.real("--weight-decay", options.weight_decay, 0, huge, "Weight decay of touched rows (0)");
    set.choice("--decay", options.decay_mode, decay_choices, "Where weight decay acts: gradient or weight (l2)");
    set.real("--clip-value", options.clip_value, tiny, huge, "Keep each element of a gradient in [-X, X]");
    set.real("--clip-row-norm", options.clip_row_norm, tiny, huge, "Keep the norm of each row's gradient within X");
    set.toggle("--dense-updates", "Move every row in every step, touched or not: slow",
               [&options](bool on) { set_bit(options.flags, DSLIDE_TRAINER_DENSE_UPDATES, on); });
}

void add_selection_flags(FlagSet &set, dslide_trainer_options &options, bool &dense) {
    set.group("Active set");
    set.choice("--hash", options.select, select_choices, "How active rows are found (chosen from the shape)");
    set.toggle("--dense", dense, "Every row is active: the dense network");
    set.real("--active-share", options.active_share, 1e-9, 1, "Share of the rows a sample updates (chosen)");
    set.whole("--tables", options.tables, 1, 255, "Hash tables (chosen)");
    set.whole("--bits", options.bits, 1, 24, "Bits of a bucket number (chosen)");
    set.value("--shared-negatives", "N", "Rows a batch drawn by label frequency; 0: none (chosen)",
              [&options](const std::string &text) {
                  const auto rows = static_cast<std::int32_t>(whole_number("--shared-negatives", text, 0, int32_max));
                  options.shared_negatives = rows == 0 ? -1 : rows;
              });
    set.whole("--random-fill", options.random_fill, 0, int32_max, "Uniformly drawn rows a sample (0)");
    set.real("--candidate-factor", options.candidate_factor, 1, 1e6, "Rows scored for each row kept (chosen)");
    set.value("--frequency-power", "X", "Shared rows are drawn by frequency^X (1)",
              [&options](const std::string &text) {
                  const float power = number("--frequency-power", text, 0, 10);
                  options.frequency_power = power == 0 ? -1 : power;
              });
    set.whole("--hard-from", options.hard_from, 0, most_samples,
              "Samples before rows are selected; until then as many more are shared (0)");
    set.whole("--rebuild-first", options.rebuild_first, 1, most_steps,
              "Steps before the first rebuild of the tables (50)");
    set.real("--rebuild-growth", options.rebuild_growth, 1, 1000, "Each gap is X times the last (1.1)");
    set.whole("--rebuild-max", options.rebuild_max, 1, most_steps, "Longest gap in steps (1000)");
    set.toggle("--no-centring", "Hash activations themselves, not minus their running mean",
               [&options](bool on) { set_bit(options.flags, DSLIDE_TRAINER_NO_CENTRING, on); });
    set.toggle("--bf16-scores", "Score candidates from a bfloat16 copy of the rows",
               [&options](bool on) { set_bit(options.flags, DSLIDE_TRAINER_BF16_SCORES, on); });
    set.toggle("--correction", "Divide sampled rows' exp(logit) by their inclusion probability",
               [&options](bool on) { set_bit(options.flags, DSLIDE_TRAINER_CORRECTION, on); });
}

void settle_selection(dslide_trainer_options &options, bool dense, const std::set<std::string> &given) {
    if (!dense) return;
    // --dense of an earlier run, from its run.conf, is not the user's word: resuming compares with the checkpoint.
    const bool own_word = given.count("dense") > 0;
    if (!own_word && given.count("hash") > 0) return;
    for (const char *contrary : {"hash", "active-share", "tables", "bits"})
        if (own_word && given.count(contrary) > 0) throw UsageError(std::string("--dense contradicts --") + contrary);
    options.select = DSLIDE_SELECT_ALL;
}

void add_train_flags(FlagSet &set, TrainFlags &flags) {
    dslide_model_options_init(&flags.model, sizeof flags.model);
    dslide_trainer_options_init(&flags.trainer, sizeof flags.trainer);
    add_data_flags(set, flags);
    add_model_flags(set, flags.model);
    add_run_flags(set, flags);
    add_selection_flags(set, flags.trainer, flags.dense);
    add_optimizer_flags(set, flags.trainer);
    add_schedule_flags(set, flags.trainer);
}

} // namespace dslide::cli
