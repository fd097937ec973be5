// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/format.hpp"
#include "cli/host.hpp"
#include "cli/json_lines.hpp"
#include "cli/ranks.hpp"

namespace dslide::cli {

namespace {

std::string metrics_table(const dslide_metrics &metrics) {
    std::string text = "   k       P@k       R@k    nDCG@k     PSP@k  coverage\n";
    for (std::int32_t i = 0; i < metrics.n_cutoffs; ++i)
        text += line_text("%4d  %8.4f  %8.4f  %8.4f  %8.4f  %8.4f\n", metrics.k[i], metrics.precision[i],
                          metrics.recall[i], metrics.ndcg[i], metrics.psp[i], metrics.coverage[i]);
    text += with_commas(metrics.rows) + " rows in " + decimals(metrics.seconds, 2) + " s";
    if (metrics.rows_without_label > 0) text += ", " + with_commas(metrics.rows_without_label) + " without label";
    if (metrics.labels_out_of_range > 0)
        text += ", " + with_commas(metrics.labels_out_of_range) + " labels the model does not know";
    return text + "\n";
}

JsonObject metrics_json(const EvalFlags &flags, const dslide_metrics &metrics) {
    JsonObject json("eval");
    json.set("model", flags.model).set("test", flags.test);
    const std::pair<const char *, const double *> columns[] = {{"p_at_", metrics.precision},
                                                               {"r_at_", metrics.recall},
                                                               {"ndcg_at_", metrics.ndcg},
                                                               {"psp_at_", metrics.psp},
                                                               {"coverage_at_", metrics.coverage}};
    for (const auto &[prefix, values] : columns)
        for (std::int32_t i = 0; i < metrics.n_cutoffs; ++i)
            json.set((prefix + std::to_string(metrics.k[i])).c_str(), values[i]);
    return std::move(json.set("rows", metrics.rows)
                         .set("rows_without_label", metrics.rows_without_label)
                         .set("labels_out_of_range", metrics.labels_out_of_range)
                         .set("seconds", metrics.seconds));
}

int eval_on(const EvalFlags &flags, const Cluster &cluster, bool speaks) {
    JsonLines json(speaks ? flags.json : "");
    const Model model = load_model(cluster, flags.model);
    const Dataset test =
        open_dataset(cluster, flags.test, dataset_options_for(model, flags.data, flags.index_base_given));

    dslide_metrics metrics = {};
    metrics.struct_size = sizeof metrics;
    check(dslide_model_evaluate(model.get(), test.get(), &flags.eval, &metrics));
    json.write(metrics_json(flags, metrics));
    json.finish();
    if (speaks && flags.json != "-") print(metrics_table(metrics));
    return exit_ok;
}

} // namespace

int run_eval(const EvalFlags &flags) {
    if (flags.model.empty()) throw UsageError("--model DIR is missing");
    if (flags.test.empty()) throw UsageError("--test FILE is missing");
    need_model_dir(flags.model);
    need_readable_by(flags.ranks, flags.test);
    return on_ranks(flags.ranks, flags.threads,
                    [&](const Cluster &cluster, bool speaks) { return eval_on(flags, cluster, speaks); });
}

} // namespace dslide::cli
