// SPDX-License-Identifier: Apache-2.0
#include "cli/flags.hpp"

#include <algorithm>
#include <limits>

namespace dslide::cli {

namespace {

constexpr std::int64_t int32_max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();

void add_format_flags(FlagSet &set, DataFlags &data, const std::string &base_default) {
    set.choice("--format", data.format, format_choices, "Text format (that of the training data, or xmc)");
    set.whole("--index-base", data.index_base, 0, 1, "Number of the first feature in the file " + base_default);
    set.whole("--label-base", data.label_base, 0, 1,
              "Number of the first label in the file (that of the training data, or 0)");
}

void add_reading_flags(FlagSet &set, DataFlags &data) {
    add_format_flags(set, data, "(that of the model)");
    set.toggle("--drop-wide", data.drop_wide, "Leave out and count features the model does not have; else an error");
    set.toggle("--normalize", data.normalize, "Scale each row's features to length 1 (as for the training data)");
}

constexpr const char *model_help = "A checkpoint, or a directory of checkpoints: its best";
constexpr const char *json_help = "Write the result as JSON, one object a line; - is standard output";

} // namespace

void add_eval_flags(FlagSet &set, EvalFlags &flags) {
    dslide_eval_options_init(&flags.eval, sizeof flags.eval);
    set.group("Data");
    set.text("--model", "DIR", flags.model, model_help);
    set.text("--test", "FILE", flags.test, "Labelled rows; - is standard input");
    add_reading_flags(set, flags.data);
    set.group("Evaluation");
    set.value("--k", "N[,N...]", "Cut-offs (1,3,5)", [&flags](const std::string &text) {
        const auto cutoffs =
            whole_numbers("--k", text, 1, std::numeric_limits<std::int32_t>::max(), DSLIDE_MAX_CUTOFFS);
        flags.eval.n_cutoffs = static_cast<std::int32_t>(cutoffs.size());
        std::copy(cutoffs.begin(), cutoffs.end(), flags.eval.k);
    });
    set.whole("--eval-rows", flags.eval.max_rows, 1, int64_max, "Judge on the first N rows only");
    set.whole("--batch", flags.eval.batch_size, 1, 1 << 20, "Rows at a time (256)");
    set.choice("--unlabelled", flags.eval.unlabelled, unlabelled_choices,
               "Rows without labels count as a miss or are skipped (miss)");
    set.real("--propensity-a", flags.eval.propensity_a, 1e-6, 100, "A of PSP@k (0.55)");
    set.real("--propensity-b", flags.eval.propensity_b, 1e-6, 100, "B of PSP@k (1.5)");
    set.group("Run");
    add_threads_flag(set, flags.threads);
    set.text("--json", "FILE", flags.json, json_help);
    add_rank_flags(set, flags.ranks);
}

void add_predict_flags(FlagSet &set, PredictFlags &flags) {
    set.group("Data");
    set.text("--model", "DIR", flags.model, model_help);
    set.text("--input", "FILE", flags.input, "Rows, with or without labels; - is standard input");
    add_reading_flags(set, flags.data);
    set.group("Output");
    set.whole("--top", flags.top, 1, int32_max, "Labels a row (5)");
    set.toggle("--names", flags.names, "Print names where the model knows them, and the row's features");
    set.text("--json", "FILE", flags.json, "Write a JSON object a row to FILE instead; - is standard output");
    set.group("Run");
    set.whole("--batch", flags.batch, 1, 1 << 20, "Rows at a time (256)");
    add_threads_flag(set, flags.threads);
}

void add_info_flags(FlagSet &set, InfoFlags &flags) {
    set.positional("path", "A data file, a checkpoint or a directory of checkpoints", flags.path);
    set.group("Data");
    add_format_flags(set, flags.data, "(0)");
    set.group("Run");
    add_threads_flag(set, flags.threads);
    set.text("--json", "FILE", flags.json, json_help);
}

void add_verify_flags(FlagSet &set, VerifyFlags &flags) {
    set.positional("dir", "A checkpoint, or a directory of checkpoints: all of them", flags.dir);
}

void add_export_flags(FlagSet &set, ExportFlags &flags) {
    set.group("What");
    set.text("--model", "DIR", flags.model, model_help);
    set.text("--tensor", "NAME", flags.tensor,
             "input.weight, input.bias, hidden.I.weight, hidden.I.bias, output.weight or output.bias");
    set.text("--out", "FILE", flags.out, "Where the tensor goes");
    set.choice("--as", flags.as, export_choices, "Form of the file: NumPy array, or names and numbers by tabs (npy)");
    set.text("--slim", "OUTDIR", flags.slim, "Write weights and names alone as a checkpoint, to serve predictions");
}

void add_bench_flags(FlagSet &set, BenchFlags &flags) {
    dslide_model_options_init(&flags.model, sizeof flags.model);
    dslide_trainer_options_init(&flags.trainer, sizeof flags.trainer);
    flags.model.n_inputs = 135909;
    flags.model.n_outputs = 670091;
    set.group("Shape");
    set.whole("--outputs", flags.model.n_outputs, 2, int32_max, "Labels (670091)");
    set.whole("--inputs", flags.model.n_inputs, 2, int32_max, "Features (135909)");
    set.value("--hidden", "N[,N...]", "Widths of the hidden layers (128)", [&flags](const std::string &text) {
        const auto widths = whole_numbers("--hidden", text, 1, 65536, DSLIDE_MAX_HIDDEN);
        flags.model.n_hidden = static_cast<std::int32_t>(widths.size());
        std::copy(widths.begin(), widths.end(), flags.model.hidden);
    });
    set.whole("--batch", flags.batch, 1, 1 << 20, "Rows a step (1024)");
    set.whole("--nnz", flags.nnz, 1, 100000, "Features a row (75)");
    set.whole("--labels", flags.labels, 1, 10000, "Labels a row (5)");
    set.whole("--active", flags.active, 1, int32_max, "Rows a sample updates; the same as --active-share N/outputs");
    set.group("Run");
    set.whole("--steps", flags.steps, 1, int32_max, "Steps that are timed (10)");
    set.whole("--warm-up", flags.warm_up, 0, int32_max, "Steps before them (2)");
    set.value("--seed", "N", "Of weights, hashing and rows (0)", [&flags](const std::string &text) {
        flags.trainer.seed = flags.model.seed = seed_number("--seed", text);
    });
    add_threads_flag(set, flags.threads);
    set.text("--json", "FILE", flags.json, json_help);
    add_rank_flags(set, flags.ranks);
    add_selection_flags(set, flags.trainer, flags.dense);
    add_optimizer_flags(set, flags.trainer);
}

} // namespace dslide::cli
