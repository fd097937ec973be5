// SPDX-License-Identifier: Apache-2.0
#include "predict/evaluate.hpp"

#include "core/clock.hpp"
#include "core/error.hpp"
#include "layers/top_k.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace dslide {

dslide_eval_options resolved(dslide_eval_options o) {
    if (o.n_cutoffs == 0) {
        o.n_cutoffs = 3;
        o.k[0] = 1, o.k[1] = 3, o.k[2] = 5;
    }
    if (o.n_cutoffs < 0 || o.n_cutoffs > DSLIDE_MAX_CUTOFFS)
        fail(DSLIDE_E_ARGUMENT, "n_cutoffs is ", o.n_cutoffs, ", expected 1 .. ", DSLIDE_MAX_CUTOFFS);
    for (int i = 0; i < o.n_cutoffs; ++i)
        if (o.k[i] < 1) fail(DSLIDE_E_ARGUMENT, "k[", i, "] is ", o.k[i], ", expected >= 1");
    if (o.batch_size == 0) o.batch_size = 256;
    if (o.batch_size < 1 || o.batch_size > most_batch_rows)
        fail(DSLIDE_E_ARGUMENT, "batch_size is ", o.batch_size, ", expected 1 .. ", most_batch_rows);
    if (o.max_rows < 0) fail(DSLIDE_E_ARGUMENT, "max_rows is ", o.max_rows, ", expected >= 0");
    if (o.max_rows == 0) o.max_rows = std::numeric_limits<std::int64_t>::max();
    if (o.propensity_a == 0) o.propensity_a = 0.55f;
    if (o.propensity_b == 0) o.propensity_b = 1.5f;
    for (const float value : {o.propensity_a, o.propensity_b})
        if (!(value > 0) || !std::isfinite(value))
            fail(DSLIDE_E_ARGUMENT, "a propensity parameter is ", value, ", expected finite and >= 0");
    if (o.unlabelled != 0 && o.unlabelled != 1)
        fail(DSLIDE_E_ARGUMENT, "unlabelled is ", o.unlabelled, ", expected 0 or 1");
    return o;
}

dslide_metrics evaluate(const Model &model, Dataset &dataset, const dslide_eval_options &given) {
    const dslide_eval_options options = resolved(given);
    const Stopwatch watch;
    MetricAccumulator accumulator(std::span(options.k, static_cast<std::size_t>(options.n_cutoffs)), model.n_outputs(),
                                  &model.label_frequencies(), options.propensity_a, options.propensity_b,
                                  options.unlabelled == 1);
    const auto k = static_cast<std::size_t>(accumulator.depth());
    std::vector<std::int32_t> found;
    std::vector<std::int64_t> ranked;
    Exchange &exchange = model.cluster().exchange();
    exchange.local([&] { dataset.rewind(0, true); });
    std::int64_t read = 0;
    while (read < options.max_rows) {
        Batch batch;
        exchange.local([&] {
            batch = dataset.next(std::min<std::int64_t>(options.batch_size, options.max_rows - read));
            if (batch.features.n_cols > model.n_inputs())
                fail(DSLIDE_E_ARGUMENT, "the rows have ", batch.features.n_cols, " features, the model takes ",
                     model.n_inputs());
        });
        const std::array facts{batch.size(), batch.features.nnz(), batch.labels.nnz()};
        exchange.agree(Call::model_evaluate, facts, "rows to judge");
        if (batch.size() == 0) break;
        found.resize(static_cast<std::size_t>(batch.size()) * k);
        model.predict(batch.features, static_cast<std::int64_t>(k), found.data(), nullptr);
        for (std::int64_t i = 0; i < batch.size(); ++i) {
            const auto *first = found.data() + static_cast<std::size_t>(i) * k;
            ranked.assign(first, std::find(first, first + k, -1));
            accumulator.add(ranked, batch.labels.cols(i));
        }
        read += batch.size();
    }
    dslide_metrics metrics = accumulator.result();
    exchange.alike([&] {
        if (metrics.rows > 0) return;
        fail(DSLIDE_E_FORMAT, "no row to judge: ", read, " rows, ", metrics.rows_without_label, " without labels");
    });
    metrics.seconds = watch.seconds();
    return metrics;
}

} // namespace dslide
