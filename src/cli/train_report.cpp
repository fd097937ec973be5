// SPDX-License-Identifier: Apache-2.0
#include "cli/train_report.hpp"

#include "cli/format.hpp"
#include "cli/memory.hpp"
#include "cli/values.hpp"

namespace dslide::cli {

namespace {

std::string widths_text(const dslide_model_info &model) {
    std::string text = with_commas(model.n_inputs);
    for (std::int32_t i = 0; i < model.n_hidden; ++i) text += " - " + std::to_string(model.hidden[i]);
    return text + " - " + with_commas(model.n_outputs);
}

std::string select_name(std::int32_t select) {
    return select == DSLIDE_SELECT_ALL ? "all" : choice_name(select_choices, select);
}

std::string data_text(const char *title, const std::string &path, const dslide_dataset_info &info) {
    const std::string rows = info.n_rows < 0 ? "rows not counted yet" : with_commas(info.n_rows) + " rows";
    std::string text = std::string(title) + path + ": " + rows + ", " + with_commas(info.n_features) + " features, " +
                       with_commas(info.n_labels) + " labels";
    const std::pair<std::int64_t, const char *> skipped[] = {
        {info.rows_without_label, "rows without label"}, {info.rows_without_feature, "rows without feature"},
        {info.blank_lines, "blank lines skipped"},       {info.comment_lines, "comment lines skipped"},
        {info.zero_features, "zeros skipped"},           {info.dropped_features, "features dropped"},
        {info.dropped_labels, "labels dropped"}};
    for (const auto &[count, what] : skipped)
        if (count > 0) text += ", " + with_commas(count) + " " + what;
    return text + "\n";
}

std::string choices_text(const dslide_trainer_options &options, const dslide_trainer_info &info, std::int64_t outputs) {
    std::string text = "active set  " + select_name(info.select);
    if (info.select == DSLIDE_SELECT_ALL) return text + ": every row\n";
    if (info.tables > 0)
        text += ", " + std::to_string(info.tables) + " tables of " + std::to_string(info.bits) + " bits";
    const double share = 100.0 * info.hard_rows / static_cast<double>(outputs);
    text += ", " + with_commas(info.hard_rows) + " rows a sample (" + significant(share, 3) + "%) of " +
            with_commas(info.candidates) + " candidates, " + with_commas(info.shared_negatives) + " shared a batch";
    if (info.random_fill > 0) text += ", " + with_commas(info.random_fill) + " random";
    if ((options.flags & DSLIDE_TRAINER_CORRECTION) != 0) text += ", corrected";
    return text + "\n";
}

void set_data(JsonObject &json, const std::string &prefix, const dslide_dataset_info &info) {
    const auto set = [&](const char *key, std::int64_t value) { json.set((prefix + key).c_str(), value); };
    set("rows", info.n_rows);
    set("features", info.n_features);
    set("labels", info.n_labels);
    set("rows_without_label", info.rows_without_label);
    set("rows_without_feature", info.rows_without_feature);
    set("blank_lines", info.blank_lines);
    set("comment_lines", info.comment_lines);
    set("zero_features", info.zero_features);
    set("dropped_features", info.dropped_features);
    set("dropped_labels", info.dropped_labels);
    json.set((prefix + "read_seconds").c_str(), info.read_seconds);
}

void set_options(JsonObject &json, const dslide_trainer_options &options) {
    json.set("optimizer", choice_name(optimizer_choices, options.optimizer))
        .set("loss_function", choice_name(loss_choices, options.loss))
        .set("learning_rate", static_cast<double>(options.learning_rate))
        .set("beta1", static_cast<double>(options.beta1))
        .set("beta2", static_cast<double>(options.beta2))
        .set("epsilon", static_cast<double>(options.epsilon))
        .set("momentum", static_cast<double>(options.momentum))
        .set("weight_decay", static_cast<double>(options.weight_decay))
        .set("decay", choice_name(decay_choices, options.decay_mode))
        .set("clip_value", static_cast<double>(options.clip_value))
        .set("clip_row_norm", static_cast<double>(options.clip_row_norm))
        .set("schedule", choice_name(schedule_choices, options.schedule))
        .set("warmup_samples", options.warmup_samples)
        .set("final_rate", static_cast<double>(options.final_rate))
        .set("total_samples", options.total_samples)
        .set("step_samples", options.step_samples)
        .set("step_factor", static_cast<double>(options.step_factor))
        .set("seed", options.seed)
        .set("frequency_power", static_cast<double>(options.frequency_power))
        .set("rebuild_first", options.rebuild_first)
        .set("rebuild_growth", static_cast<double>(options.rebuild_growth))
        .set("rebuild_max", options.rebuild_max)
        .set("dense_updates", (options.flags & DSLIDE_TRAINER_DENSE_UPDATES) != 0)
        .set("centring", (options.flags & DSLIDE_TRAINER_NO_CENTRING) == 0)
        .set("hard_from", options.hard_from)
        .set("bf16_scores", (options.flags & DSLIDE_TRAINER_BF16_SCORES) != 0)
        .set("correction", (options.flags & DSLIDE_TRAINER_CORRECTION) != 0);
}

void set_precision(JsonObject &json, const dslide_epoch_report &report) {
    for (const std::int32_t k : {1, 3, 5}) {
        const std::string key = "p_at_" + std::to_string(k);
        json.set_null(key.c_str());
        for (std::int32_t i = 0; report.has_metrics != 0 && i < report.metrics.n_cutoffs; ++i)
            if (report.metrics.k[i] == k) json.set(key.c_str(), report.metrics.precision[i]);
    }
}

} // namespace

void RunRecord::add(const dslide_epoch_report &report) {
    last = report;
    if (report.is_best != 0) best = report;
    samples += report.samples;
    seconds += report.seconds;
    cpu_seconds += report.cpu_seconds;
}

std::string header_text(const TrainFlags &flags, const TrainingSetup &setup) {
    const dslide_model_info model = model_info(setup.model);
    const dslide_trainer_options options = trainer_options(setup.trainer);
    const dslide_trainer_info info = trainer_info(setup.trainer);
    std::string text = data_text("train       ", flags.train, dataset_info(setup.train));
    if (setup.test) text += data_text("test        ", flags.test, dataset_info(setup.test));
    text += "model       " + widths_text(model) + ", " + with_commas(model.n_parameters) + " parameters\n";
    text += std::string("optimizer   ") + choice_name(optimizer_choices, options.optimizer) + ", rate " +
            significant(options.learning_rate, 4) + " " + choice_name(schedule_choices, options.schedule) + ", " +
            choice_name(loss_choices, options.loss) + ", batch " + std::to_string(flags.batch) + ", " +
            std::to_string(flags.epochs) + (flags.epochs == 1 ? " epoch, " : " epochs, ") +
            std::to_string(thread_count(setup.cluster)) + " threads\n";
    text += choices_text(options, info, model.n_outputs);
    text += "memory      " + bytes_text(setup.memory.total_bytes) + " (" + breakdown(setup.memory) + ")";
    if (setup.available_bytes >= 0) text += ", available " + bytes_text(setup.available_bytes);
    text += "\n";
    if (!flags.resume.empty())
        text += "resumed     " + flags.resume + ": " + with_commas(info.epochs_done) + " epochs, " +
                with_commas(info.step) + " steps, " + with_commas(info.samples_seen) + " samples done\n";
    return text;
}

JsonObject settings_json(const TrainFlags &flags, const TrainingSetup &setup) {
    const dslide_model_info model = model_info(setup.model);
    const dslide_trainer_info info = trainer_info(setup.trainer);
    JsonObject json("settings");
    json.set("version", dslide_version()).set("cpu", cpu_info()).set("threads", thread_count(setup.cluster));
    json.set("train", flags.train).set("test", flags.test).set("save", flags.save).set("save_every", flags.save_every);
    json.set("resume", flags.resume)
        .set("epochs", flags.epochs)
        .set("batch", flags.batch)
        .set("early_stop", flags.early_stop);
    json.set("format", choice_name(format_choices, flags.data.format)).set("index_base", model.index_base);
    json.set("label_base", flags.data.label_base)
        .set("normalize", flags.data.normalize)
        .set("stream", flags.data.stream);
    json.set("shuffle", !flags.data.no_shuffle)
        .set("drop_wide", flags.data.drop_wide)
        .set("eval_rows", flags.eval_rows);
    set_data(json, "train_", dataset_info(setup.train));
    if (setup.test) set_data(json, "test_", dataset_info(setup.test));
    json.set("hidden", std::vector<std::int32_t>(model.hidden, model.hidden + model.n_hidden));
    json.set("n_parameters", model.n_parameters);
    set_options(json, trainer_options(setup.trainer));
    json.set("select", select_name(info.select)).set("tables", info.tables).set("bits", info.bits);
    json.set("hard_rows", info.hard_rows)
        .set("candidates", info.candidates)
        .set("shared_negatives", info.shared_negatives);
    json.set("random_fill", info.random_fill)
        .set("epochs_done", info.epochs_done)
        .set("samples_seen", info.samples_seen);
    json.set("memory_weight_bytes", setup.memory.weight_bytes)
        .set("memory_optimizer_bytes", setup.memory.optimizer_bytes);
    json.set("memory_table_bytes", setup.memory.table_bytes).set("memory_buffer_bytes", setup.memory.buffer_bytes);
    json.set("memory_data_bytes", setup.memory.data_bytes).set("memory_total_bytes", setup.memory.total_bytes);
    json.set("memory_available_bytes", setup.available_bytes);
    return json;
}

JsonObject epoch_json(const dslide_epoch_report &report) {
    JsonObject json("epoch");
    json.set("epoch", report.epoch).set("step", report.step).set("samples", report.samples);
    json.set("seconds", report.seconds).set("cpu_seconds", report.cpu_seconds);
    json.set("samples_per_second", report.seconds > 0 ? static_cast<double>(report.samples) / report.seconds : 0.0);
    json.set("loss", report.loss);
    set_precision(json, report);
    json.set("is_best", report.is_best != 0).set("learning_rate", report.learning_rate);
    json.set("active_share", report.active_share).set("rows_touched_per_batch", report.rows_touched);
    json.set("bytes_sent", report.bytes_sent).set("peak_rss_bytes", report.peak_rss_bytes);
    json.set("read_seconds", report.read_seconds).set("eval_seconds", report.eval_seconds);
    json.set("save_seconds", report.save_seconds).set("rebuild_seconds", report.rebuild_seconds);
    json.set("bytes_sent_all", report.bytes_sent_all).set("bytes_dense_allreduce", report.bytes_dense_allreduce);
    const auto dense = static_cast<double>(report.bytes_dense_allreduce);
    json.set("traffic_reduction", dense > 0 ? 1 - static_cast<double>(report.bytes_sent) / dense : 0.0);
    json.set("wait_seconds", report.wait_seconds).set("wait_seconds_all", report.wait_seconds_all);
    json.set("imbalance_seconds", report.imbalance_seconds).set("imbalance_rows", report.imbalance_rows);
    return json;
}

JsonObject result_json(const TrainFlags &flags, const RunRecord &record, const std::string &outcome,
                       const std::string &error) {
    JsonObject json("result");
    json.set("outcome", outcome);
    if (!error.empty()) json.set("error", error);
    json.set("epoch", record.last ? record.last->epoch : 0).set("samples", record.samples);
    json.set("seconds", record.seconds).set("cpu_seconds", record.cpu_seconds);
    const dslide_epoch_report none = {};
    set_precision(json, record.last ? *record.last : none);
    json.set_null("best_epoch").set_null("best_p_at_1");
    if (record.best && record.best->has_metrics != 0)
        json.set("best_epoch", record.best->epoch).set("best_p_at_1", record.best->metrics.precision[0]);
    json.set("peak_rss_bytes", record.last ? record.last->peak_rss_bytes : 0).set("save", flags.save);
    return json;
}

std::string result_text(const TrainFlags &flags, const RunRecord &record, const std::string &outcome) {
    std::string text = outcome + ": ";
    if (record.last) {
        text += line_text("epoch %d, ", record.last->epoch) + with_commas(record.samples) + " samples in " +
                decimals(record.seconds, 2) + " s, loss " + loss_text(record.last->loss);
        for (std::int32_t i = 0; record.last->has_metrics != 0 && i < record.last->metrics.n_cutoffs; ++i)
            text += line_text(", P@%d %.4f", record.last->metrics.k[i], record.last->metrics.precision[i]);
        if (record.best && record.best->has_metrics != 0 && record.best->epoch != record.last->epoch)
            text += line_text("; best P@1 %.4f in epoch %d", record.best->metrics.precision[0], record.best->epoch);
    } else {
        text += "no whole epoch";
    }
    return text + (flags.save.empty() ? "; not saved, for want of --save\n" : "; saved in " + flags.save + "\n");
}

} // namespace dslide::cli
