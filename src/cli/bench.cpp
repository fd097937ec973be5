// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/flags.hpp"
#include "cli/format.hpp"
#include "cli/host.hpp"
#include "cli/json_lines.hpp"
#include "cli/memory.hpp"
#include "cli/ranks.hpp"
#include "cli/synthetic_rows.hpp"
#include "cli/train_setup.hpp"

#include <algorithm>
#include <sys/resource.h>

namespace dslide::cli {

namespace {

double cpu_seconds() {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval &time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::int64_t peak_rss_bytes() {
    constexpr std::int64_t bytes_per_kib = 1024;
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * bytes_per_kib;
}

/// Sums over the timed steps.
struct Totals {
    std::int64_t steps = 0, samples = 0, rows_touched = 0, features_touched = 0, rebuilds = 0, bytes_sent = 0;
    double seconds = 0, cpu_seconds = 0, active_share = 0, loss = 0;
    double forward = 0, select = 0, output = 0, backward = 0, rebuild = 0;

    void add(const dslide_step_stats &stats, double cpu) {
        ++steps;
        samples += stats.samples;
        rows_touched += stats.rows_touched;
        features_touched += stats.features_touched;
        rebuilds += stats.rebuilt;
        bytes_sent += stats.bytes_sent;
        seconds += stats.seconds;
        cpu_seconds += cpu;
        active_share += stats.active_share;
        loss = stats.loss;
        forward += stats.seconds_forward;
        select += stats.seconds_select;
        output += stats.seconds_output;
        backward += stats.seconds_backward;
        rebuild += stats.seconds_rebuild;
    }
    std::vector<std::pair<const char *, double>> phases() const {
        const double rest = seconds - forward - select - output - backward - rebuild;
        return {{"forward", forward},   {"select", select},   {"output", output},
                {"backward", backward}, {"rebuild", rebuild}, {"rest", rest}};
    }
};

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0.0; }

/// Bytes read and written when one output row is updated: the weights and the optimizer's moments, both ways.
std::int64_t bytes_per_row(const dslide_model_info &model, const dslide_trainer_options &options) {
    const bool has_moment = options.optimizer == DSLIDE_ADAGRAD || options.momentum > 0;
    const std::int64_t arrays = options.optimizer == DSLIDE_ADAM ? 3 : has_moment ? 2 : 1;
    return 2 * arrays * model.hidden[model.n_hidden - 1] * static_cast<std::int64_t>(sizeof(float));
}

Totals run_steps(const BenchFlags &flags, const Trainer &trainer) {
    const SyntheticShape shape{flags.trainer.seed, flags.batch,           flags.model.n_inputs,
                               flags.nnz,          flags.model.n_outputs, flags.labels};
    SyntheticRows rows(shape);
    Totals totals;
    for (std::int64_t step = 0; step < std::int64_t{flags.warm_up} + flags.steps; ++step) {
        rows.draw(step);
        const dslide_csr_view features = rows.features(), labels = rows.labels();
        dslide_step_stats stats = {};
        stats.struct_size = sizeof stats;
        const double cpu_before = cpu_seconds();
        check(dslide_trainer_step(trainer.get(), &features, &labels, nullptr, &stats));
        if (step >= flags.warm_up) totals.add(stats, cpu_seconds() - cpu_before);
    }
    return totals;
}

JsonObject result_json(const BenchFlags &flags, const dslide_model_info &model, const Trainer &trainer,
                       std::int32_t threads, const Totals &totals) {
    const dslide_trainer_info info = trainer_info(trainer);
    const auto steps = static_cast<double>(totals.steps), samples = static_cast<double>(totals.samples);
    JsonObject json("bench");
    json.set("version", dslide_version()).set("cpu", cpu_info()).set("threads", threads);
    json.set("inputs", model.n_inputs).set("outputs", model.n_outputs);
    json.set("hidden", std::vector<std::int32_t>(model.hidden, model.hidden + model.n_hidden));
    json.set("batch", flags.batch).set("nnz", flags.nnz).set("labels", flags.labels).set("steps", flags.steps);
    json.set("warm_up", flags.warm_up)
        .set("select", info.select == DSLIDE_SELECT_ALL ? "all" : choice_name(select_choices, info.select));
    json.set("tables", info.tables)
        .set("bits", info.bits)
        .set("hard_rows", info.hard_rows)
        .set("candidates", info.candidates);
    json.set("shared_negatives", info.shared_negatives).set("loss", totals.loss);
    json.set("seconds", totals.seconds).set("cpu_seconds", totals.cpu_seconds);
    json.set("samples_per_second", ratio(samples, totals.seconds));
    json.set("samples_per_cpu_second", ratio(samples, totals.cpu_seconds));
    json.set("active_share", ratio(totals.active_share, steps));
    json.set("rows_touched_per_batch", ratio(static_cast<double>(totals.rows_touched), steps));
    json.set("features_touched_per_batch", ratio(static_cast<double>(totals.features_touched), steps));
    json.set("bytes_sent", totals.bytes_sent);
    json.set("bytes_per_row_moved", bytes_per_row(model, trainer_options(trainer))).set("rebuilds", totals.rebuilds);
    for (const auto &[phase, seconds] : totals.phases())
        json.set((std::string("share_") + phase).c_str(), ratio(seconds, totals.seconds));
    json.set("peak_rss_bytes", peak_rss_bytes());
    return json;
}

std::string result_text(const dslide_model_info &model, const Trainer &trainer, std::int32_t threads,
                        const Totals &totals) {
    const auto steps = static_cast<double>(totals.steps), samples = static_cast<double>(totals.samples);
    std::string text = line_text("%.1f samples per CPU second, %.1f samples per second, %d threads\n",
                                 ratio(samples, totals.cpu_seconds), ratio(samples, totals.seconds), threads);
    text += with_commas(totals.steps) + " steps of " +
            with_commas(totals.samples / std::max<std::int64_t>(totals.steps, 1)) +
            line_text(" rows in %.2f s, %.2f CPU s, loss %.4f\n", totals.seconds, totals.cpu_seconds, totals.loss);
    text += "phases:";
    for (const auto &[phase, seconds] : totals.phases())
        text += line_text(" %s %.1f%%", phase, 100.0 * ratio(seconds, totals.seconds));
    text += line_text("\nactive share %.4g%%, ", 100.0 * ratio(totals.active_share, steps));
    text += line_text("%.0f output rows and %.0f feature rows touched a batch, ",
                      ratio(static_cast<double>(totals.rows_touched), steps),
                      ratio(static_cast<double>(totals.features_touched), steps));
    text += with_commas(bytes_per_row(model, trainer_options(trainer))) + " bytes moved a row\npeak memory " +
            bytes_text(peak_rss_bytes());
    return text + "\n";
}

void need_memory(const BenchFlags &flags) {
    dslide_memory_estimate estimate = {};
    estimate.struct_size = sizeof estimate;
    check(dslide_model_estimate_memory(&flags.model, &flags.trainer, flags.batch, 0, &estimate));
    const std::int64_t available = available_memory();
    if (available >= 0 && estimate.total_bytes > available)
        throw Failure("this shape needs " + bytes_text(estimate.total_bytes) + " of memory, " + bytes_text(available) +
                      " are available (" + breakdown(estimate) + ")");
}

int bench_on(const BenchFlags &flags, const Cluster &cluster, bool speaks) {
    JsonLines json(speaks ? flags.json : "");
    dslide_model *made_model = nullptr;
    check(dslide_model_create(cluster.get(), &flags.model, &made_model));
    const Model model(made_model);
    dslide_trainer *made_trainer = nullptr;
    check(dslide_trainer_create(model.get(), &flags.trainer, &made_trainer));
    const Trainer trainer(made_trainer);

    const Totals totals = run_steps(flags, trainer);
    json.write(result_json(flags, model_info(model), trainer, thread_count(cluster), totals));
    json.finish();
    if (speaks && flags.json != "-") print(result_text(model_info(model), trainer, thread_count(cluster), totals));
    return exit_ok;
}

} // namespace

int run_bench(BenchFlags &flags) {
    settle_selection(flags.trainer, flags.dense, flags.given);
    if (flags.active > 0 && flags.given.count("active-share") > 0)
        throw UsageError("--active contradicts --active-share");
    if (flags.active > 0 && flags.dense) throw UsageError("--dense contradicts --active");
    if (flags.active > flags.model.n_outputs) throw UsageError("--active is above --outputs");
    if (flags.nnz > flags.model.n_inputs) throw UsageError("--nnz is above --inputs");
    if (flags.labels > flags.model.n_outputs) throw UsageError("--labels is above --outputs");
    if (flags.active > 0)
        flags.trainer.active_share =
            static_cast<float>(static_cast<double>(flags.active) / static_cast<double>(flags.model.n_outputs));
    need_memory(flags);
    return on_ranks(flags.ranks, flags.threads,
                    [&](const Cluster &cluster, bool speaks) { return bench_on(flags, cluster, speaks); });
}

} // namespace dslide::cli
