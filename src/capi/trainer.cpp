// SPDX-License-Identifier: Apache-2.0
#include "capi/boundary.hpp"
#include "capi/handles.hpp"
#include "capi/views.hpp"
#include "model/checkpoint_ranks.hpp"
#include "model/meta.hpp"
#include "predict/evaluate.hpp"
#include "train/run.hpp"

#include <array>
#include <cmath>
#include <optional>

using namespace dslide;

namespace {

constexpr std::int64_t most_data_bytes = std::int64_t{1} << 60; // sums of estimates stay below 2^63

dslide_trainer_options read(const dslide_trainer_options *options) {
    return capi::read_options(options, dslide_trainer_options{}, "options");
}

RunOptions read(const dslide_run_options *given) {
    const auto o = capi::read_options(given, dslide_run_options{}, "options");
    RunOptions run;
    run.epochs = o.epochs == 0 ? 1 : o.epochs;
    run.batch_size = o.batch_size == 0 ? 256 : o.batch_size;
    if (run.epochs < 1) fail(DSLIDE_E_ARGUMENT, "epochs is ", run.epochs, ", expected >= 1");
    if (run.batch_size < 1 || run.batch_size > most_batch_rows)
        fail(DSLIDE_E_ARGUMENT, "batch_size is ", run.batch_size, ", expected 1 .. ", most_batch_rows);
    if (o.early_stop < 0) fail(DSLIDE_E_ARGUMENT, "early_stop is ", o.early_stop, ", expected >= 0");
    if (o.early_stop > 0 && !o.eval_data) fail(DSLIDE_E_ARGUMENT, "early_stop needs eval_data");
    if (o.save_every < 0) fail(DSLIDE_E_ARGUMENT, "save_every is ", o.save_every, ", expected >= 0");
    run.early_stop = o.early_stop;
    run.eval_data = o.eval_data ? o.eval_data->impl.get() : nullptr;
    run.eval = resolved(capi::read_options(o.eval, dslide_eval_options{}, "eval")); // now, not after an epoch
    run.save_dir = o.save_dir ? o.save_dir : "";
    run.save_every = o.save_every;
    run.on_progress = o.on_progress;
    run.on_epoch = o.on_epoch;
    run.user_data = o.user_data;
    return run;
}

} // namespace

void dslide_trainer_options_init(dslide_trainer_options *options, size_t size) noexcept {
    capi::init_options(options, size);
}

void dslide_run_options_init(dslide_run_options *options, size_t size) noexcept { capi::init_options(options, size); }

dslide_status dslide_model_estimate_memory(const dslide_model_options *model, const dslide_trainer_options *trainer,
                                           int64_t batch_size, int64_t data_bytes,
                                           dslide_memory_estimate *out) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(model, "model");
        capi::check_result(out, "out");
        if (batch_size < 1 || batch_size > most_batch_rows)
            fail(DSLIDE_E_ARGUMENT, "batch_size is ", batch_size, ", expected 1 .. ", most_batch_rows);
        if (data_bytes < 0 || data_bytes > most_data_bytes)
            fail(DSLIDE_E_ARGUMENT, "data_bytes is ", data_bytes, ", expected 0 .. ", most_data_bytes);
        const dslide_model_options shape = resolved(capi::read_options(model, dslide_model_options{}, "model"));
        const dslide_trainer_options options =
            resolved(capi::read_options(trainer, dslide_trainer_options{}, "trainer"), shape);
        capi::write_result(estimate_memory(shape, options, batch_size, data_bytes), out, "out");
    };
}

dslide_status dslide_trainer_create(dslide_model *model, const dslide_trainer_options *options,
                                    dslide_trainer **out) noexcept {
    return DSLIDE_BOUNDARY {
        Cluster &cluster = capi::need(model, "model")->impl->cluster();
        cluster.need_open();
        cluster.exchange().collective([&] {
            dslide_trainer_options given{};
            std::unique_ptr<dslide_trainer> made;
            cluster.exchange().local([&] {
                capi::need(out, "out");
                given = read(options);
            });
            cluster.exchange().agree(Call::trainer_create, capi::digest(given), "options of the trainer");
            cluster.exchange().local([&] {
                made = std::make_unique<dslide_trainer>();
                made->impl = std::make_unique<Trainer>(model->impl, given);
            });
            cluster.exchange().agree(Call::trainer_create, 0);
            *out = made.release();
        });
    };
}

dslide_status dslide_trainer_load(dslide_cluster *cluster, const char *dir, dslide_model **out_model,
                                  dslide_trainer **out) noexcept {
    return DSLIDE_BOUNDARY {
        Exchange &exchange = capi::need(cluster, "cluster")->impl->exchange();
        cluster->impl->need_open();
        exchange.collective([&] {
            auto model = std::make_unique<dslide_model>();
            auto trainer = std::make_unique<dslide_trainer>();
            std::int64_t step = 0;
            exchange.local([&] {
                capi::need(out_model, "out_model");
                capi::need(out, "out");
                const CheckpointReader checkpoint(capi::need(dir, "dir"), true);
                model->impl = std::make_shared<Model>(cluster->impl, checkpoint);
                trainer->impl = std::make_unique<Trainer>(model->impl, checkpoint);
                step = trainer->impl->steps();
            });
            exchange.agree(Call::trainer_load, step, "checkpoint");
            *out = trainer.release();
            *out_model = model.release();
        });
    };
}

dslide_status dslide_trainer_save(dslide_trainer *trainer, const char *dir) noexcept {
    return DSLIDE_BOUNDARY {
        Trainer &t = *capi::need(trainer, "trainer")->impl;
        Exchange &exchange = t.model().cluster().exchange();
        t.model().cluster().need_open();
        exchange.collective([&] {
            std::vector<Array<std::int32_t>> scratch;
            CheckpointContent content;
            exchange.local([&] {
                capi::need(dir, "dir");
                content = t.content(scratch);
            });
            exchange.agree(Call::trainer_save, t.steps(), "step to save");
            write_checkpoint(exchange, dir, content);
        });
    };
}

dslide_status dslide_trainer_get_info(const dslide_trainer *trainer, dslide_trainer_info *out) noexcept {
    return DSLIDE_BOUNDARY { capi::write_result(capi::need(trainer, "trainer")->impl->info(), out, "out"); };
}

dslide_status dslide_trainer_get_options(const dslide_trainer *trainer, dslide_trainer_options *out) noexcept {
    return DSLIDE_BOUNDARY { capi::write_result(capi::need(trainer, "trainer")->impl->options(), out, "out"); };
}

dslide_status dslide_trainer_set_learning_rate(dslide_trainer *trainer, float rate) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(trainer, "trainer");
        if (!(rate > 0 && std::isfinite(rate))) fail(DSLIDE_E_ARGUMENT, "rate is ", rate, ", expected > 0 and finite");
        trainer->impl->set_learning_rate(rate);
    };
}

dslide_status dslide_trainer_set_label_counts(dslide_trainer *trainer, const int64_t *counts, int64_t count,
                                              int64_t samples) noexcept {
    return DSLIDE_BOUNDARY {
        Trainer &t = *capi::need(trainer, "trainer")->impl;
        capi::need(counts, "counts");
        if (count != t.model().n_outputs())
            fail(DSLIDE_E_ARGUMENT, "count is ", count, ", expected ", t.model().n_outputs());
        if (samples < 1 || samples > most_count)
            fail(DSLIDE_E_ARGUMENT, "samples is ", samples, ", expected 1 .. ", most_count);
        for (std::int64_t c = 0; c < count; ++c)
            if (counts[c] < 0 || counts[c] > most_count)
                fail(DSLIDE_E_ARGUMENT, "counts[", c, "] is ", counts[c], ", expected 0 .. ", most_count);
        t.set_label_counts({counts, counts + count}, samples);
    };
}

dslide_status dslide_trainer_step(dslide_trainer *trainer, const dslide_csr_view *features,
                                  const dslide_csr_view *labels, const float *weights,
                                  dslide_step_stats *stats) noexcept {
    return DSLIDE_BOUNDARY {
        Trainer &t = *capi::need(trainer, "trainer")->impl;
        Exchange &exchange = t.model().cluster().exchange();
        t.model().cluster().need_open();
        exchange.collective([&] {
            std::optional<capi::CheckedRows> x, y;
            Batch batch;
            exchange.local([&] {
                if (stats) capi::check_result(stats, "stats"); // before the step is applied
                x.emplace(features, "features", t.model().n_inputs());
                y.emplace(labels, "labels", t.model().n_outputs());
                capi::check_same_rows(x->rows(), y->rows());
                capi::check_label_weights(y->rows());
                capi::check_row_weights(weights, x->rows().n_rows);
                batch = {x->rows(), y->rows(), weights, nullptr};
            });
            const dslide_step_stats done = t.step(batch);
            if (stats) capi::write_result(done, stats, "stats");
        });
    };
}

dslide_status dslide_trainer_run(dslide_trainer *trainer, dslide_dataset *data, const dslide_run_options *options,
                                 dslide_epoch_report *last) noexcept {
    return DSLIDE_BOUNDARY {
        Cluster &cluster = capi::need(trainer, "trainer")->impl->model().cluster();
        cluster.need_open();
        bool stopped = false;
        cluster.exchange().collective([&] {
            RunOptions given;
            cluster.exchange().local([&] {
                capi::need(data, "data");
                if (last) capi::check_result(last, "last");
                given = read(options);
            });
            const auto all = [](auto... numbers) { return std::array{static_cast<std::int64_t>(numbers)...}; };
            cluster.exchange().agree(Call::trainer_run,
                                     all(given.epochs, given.batch_size, given.early_stop, given.save_every,
                                         given.eval_data != nullptr, !given.save_dir.empty()),
                                     "options of the run");
            dslide_epoch_report report{};
            stopped = run(*trainer->impl, *data->impl, given, report);
            if (last && report.epoch > 0) capi::write_result(report, last, "last");
        });
        if (stopped) fail(DSLIDE_E_STOPPED, "a callback asked to stop");
    };
}

void dslide_trainer_free(dslide_trainer *trainer) noexcept { delete trainer; }
