// SPDX-License-Identifier: Apache-2.0
#include "capi/boundary.hpp"
#include "capi/handles.hpp"
#include "capi/views.hpp"
#include "model/checkpoint_ranks.hpp"
#include "predict/evaluate.hpp"

#include <algorithm>
#include <array>
#include <optional>

using namespace dslide;

namespace {

constexpr std::int64_t rows_at_a_time = 4096; // bounds the memory of a prediction over many rows

std::int64_t count_of(const Model &model, std::int32_t kind) {
    if (kind != DSLIDE_NAMES_LABELS && kind != DSLIDE_NAMES_FEATURES)
        fail(DSLIDE_E_ARGUMENT, "kind ", kind, " is not a kind of name");
    return kind == DSLIDE_NAMES_LABELS ? model.n_outputs() : model.n_inputs();
}

CsrRows part_of(const CsrRows &rows, std::int64_t begin, std::int64_t end) {
    return {end - begin, rows.n_cols, rows.row_ptr + begin, rows.col, rows.val};
}

template <class Body>
void for_parts(const CsrRows &rows, Body &&body) {
    for (std::int64_t begin = 0; begin < rows.n_rows; begin += rows_at_a_time)
        body(begin, part_of(rows, begin, std::min(rows.n_rows, begin + rows_at_a_time)));
}

/// All ranks are in the same call with the same rows, or an error on each.
void agree_on_rows(Exchange &exchange, Call call, const std::optional<capi::CheckedRows> &x, std::int64_t k) {
    exchange.agree(call, std::array{x ? x->rows().n_rows : 0, x ? x->rows().nnz() : 0, k}, "rows");
}

} // namespace

void dslide_model_options_init(dslide_model_options *options, size_t size) noexcept {
    capi::init_options(options, size);
}

dslide_status dslide_model_create(dslide_cluster *cluster, const dslide_model_options *options,
                                  dslide_model **out) noexcept {
    return DSLIDE_BOUNDARY {
        Exchange &exchange = capi::need(cluster, "cluster")->impl->exchange();
        cluster->impl->need_open();
        exchange.collective([&] {
            dslide_model_options given{};
            std::unique_ptr<dslide_model> made;
            exchange.local([&] {
                given = capi::read_options(capi::need(options, "options"), dslide_model_options{}, "options");
                capi::need(out, "out");
            });
            exchange.agree(Call::model_create, capi::digest(given), "options of the model");
            exchange.local([&] { made.reset(new dslide_model{std::make_shared<Model>(cluster->impl, given)}); });
            exchange.agree(Call::model_create, 0);
            *out = made.release();
        });
    };
}

dslide_status dslide_model_load(dslide_cluster *cluster, const char *dir, dslide_model **out) noexcept {
    return DSLIDE_BOUNDARY {
        Exchange &exchange = capi::need(cluster, "cluster")->impl->exchange();
        cluster->impl->need_open();
        exchange.collective([&] {
            auto model = std::make_unique<dslide_model>();
            std::int64_t samples = 0;
            exchange.local([&] {
                capi::need(out, "out");
                model->impl = std::make_shared<Model>(cluster->impl, CheckpointReader(capi::need(dir, "dir")));
                samples = model->impl->samples_seen;
            });
            exchange.agree(Call::model_load, samples, "checkpoint");
            *out = model.release();
        });
    };
}

dslide_status dslide_model_save(dslide_model *model, const char *dir) noexcept {
    return DSLIDE_BOUNDARY {
        const Model &m = *capi::need(model, "model")->impl;
        Exchange &exchange = m.cluster().exchange();
        m.cluster().need_open();
        exchange.collective([&] {
            CheckpointContent content;
            exchange.local([&] {
                capi::need(dir, "dir");
                content = m.content();
            });
            exchange.agree(Call::model_save, m.samples_seen, "model to save");
            write_checkpoint(exchange, dir, content);
        });
    };
}

dslide_status dslide_model_get_info(const dslide_model *model, dslide_model_info *out) noexcept {
    return DSLIDE_BOUNDARY {
        const Model &m = *capi::need(model, "model")->impl;
        const dslide_model_options &o = m.options();
        dslide_model_info info{};
        info.n_hidden = o.n_hidden;
        info.n_inputs = o.n_inputs;
        info.n_outputs = o.n_outputs;
        std::copy(std::begin(o.hidden), std::end(o.hidden), info.hidden);
        info.n_parameters = m.n_parameters();
        info.n_feature_names = static_cast<std::int64_t>(m.names(DSLIDE_NAMES_FEATURES).size());
        info.n_label_names = static_cast<std::int64_t>(m.names(DSLIDE_NAMES_LABELS).size());
        info.samples_seen = m.samples_seen;
        info.resident_bytes = m.bytes();
        info.index_base = o.index_base;
        capi::write_result(info, out, "out");
    };
}

dslide_status dslide_model_read_names(dslide_model *model, int32_t kind, const char *path) noexcept {
    return DSLIDE_BOUNDARY {
        Model &m = *capi::need(model, "model")->impl;
        m.names(kind) = read_names(capi::need(path, "path"), count_of(m, kind));
    };
}

dslide_status dslide_model_set_names(dslide_model *model, int32_t kind, const char *const *names,
                                     int64_t count) noexcept {
    return DSLIDE_BOUNDARY {
        Model &m = *capi::need(model, "model")->impl;
        const std::int64_t expected = count_of(m, kind);
        if (count != 0 && count != expected)
            fail(DSLIDE_E_ARGUMENT, "count is ", count, ", expected ", expected, " or 0");
        std::vector<std::string> copy;
        for (std::int64_t i = 0; i < count; ++i) {
            copy.emplace_back(capi::need(capi::need(names, "names")[i], "a name"));
            if (copy.back().find_first_of("\r\n") != std::string::npos)
                fail(DSLIDE_E_ARGUMENT, "name ", i, " holds a line end");
        }
        m.names(kind) = std::move(copy);
    };
}

dslide_status dslide_model_name(const dslide_model *model, int32_t kind, int64_t id, char *buf, size_t cap,
                                size_t *out_len) noexcept {
    return DSLIDE_BOUNDARY {
        const Model &m = *capi::need(model, "model")->impl;
        const std::int64_t n = count_of(m, kind);
        if (id < 0 || id >= n) fail(DSLIDE_E_ARGUMENT, "id is ", id, ", expected 0 .. ", n - 1);
        if (m.names(kind).empty()) fail(DSLIDE_E_STATE, "the model has no names of this kind");
        capi::write_text(m.names(kind)[static_cast<std::size_t>(id)], buf, cap, out_len);
    };
}

dslide_status dslide_model_predict(const dslide_model *model, const dslide_csr_view *features, int32_t k,
                                   int64_t *out_labels, float *out_scores) noexcept {
    return DSLIDE_BOUNDARY {
        const Model &m = *capi::need(model, "model")->impl;
        Exchange &exchange = m.cluster().exchange();
        m.cluster().need_open();
        exchange.collective([&] {
            std::optional<capi::CheckedRows> x;
            // Into buffers of our own first: outputs are untouched if a later part fails.
            std::vector<std::int32_t> rows;
            std::vector<float> scores;
            exchange.local([&] {
                x.emplace(features, "features", m.n_inputs());
                if (k < 1 || k > m.n_outputs()) fail(DSLIDE_E_ARGUMENT, "k is ", k, ", expected 1 .. ", m.n_outputs());
                if (x->rows().n_rows > 0) capi::need(out_labels, "out_labels");
                rows.resize(checked_product(static_cast<std::size_t>(x->rows().n_rows), static_cast<std::size_t>(k)));
                scores.resize(rows.size());
            });
            agree_on_rows(exchange, Call::model_predict, x, k);
            for_parts(x->rows(), [&](std::int64_t begin, const CsrRows &part) {
                m.predict(part, k, rows.data() + begin * k, scores.data() + begin * k);
            });
            std::copy(rows.begin(), rows.end(), out_labels);
            if (out_scores) std::copy(scores.begin(), scores.end(), out_scores);
        });
    };
}

dslide_status dslide_model_embed(const dslide_model *model, const dslide_csr_view *features, float *out) noexcept {
    return DSLIDE_BOUNDARY {
        const Model &m = *capi::need(model, "model")->impl;
        Exchange &exchange = m.cluster().exchange();
        m.cluster().need_open();
        exchange.collective([&] {
            std::optional<capi::CheckedRows> x;
            std::vector<float> hidden; // as in dslide_model_predict(): all or nothing
            const std::int64_t width = m.width();
            exchange.local([&] {
                x.emplace(features, "features", m.n_inputs());
                if (x->rows().n_rows > 0) capi::need(out, "out");
                hidden.resize(
                    checked_product(static_cast<std::size_t>(x->rows().n_rows), static_cast<std::size_t>(width)));
            });
            agree_on_rows(exchange, Call::model_embed, x, 0);
            Activations activations;
            for_parts(x->rows(), [&](std::int64_t begin, const CsrRows &part) {
                m.forward(part, activations);
                const Matrix &h = activations.last();
                for (std::int64_t i = 0; i < h.rows; ++i)
                    std::copy_n(h.row(i), width, hidden.data() + (begin + i) * width);
            });
            std::copy(hidden.begin(), hidden.end(), out);
        });
    };
}

dslide_status dslide_model_tensor_shape(const dslide_model *model, const char *name, int64_t *out_rows,
                                        int64_t *out_cols) noexcept {
    return DSLIDE_BOUNDARY {
        const TensorPart t = capi::need(model, "model")->impl->tensor(capi::need(name, "name"));
        if (out_rows) *out_rows = t.rows;
        if (out_cols) *out_cols = t.cols;
    };
}

dslide_status dslide_model_get_rows(const dslide_model *model, const char *name, int64_t row_begin, int64_t n_rows,
                                    float *out) noexcept {
    return DSLIDE_BOUNDARY {
        const Model &m = *capi::need(model, "model")->impl;
        Exchange &exchange = m.cluster().exchange();
        m.cluster().need_open();
        exchange.collective([&] {
            exchange.local([&] {
                const TensorPart t = m.tensor(capi::need(name, "name"));
                if (row_begin < 0 || n_rows < 0 || row_begin > t.rows - n_rows)
                    fail(DSLIDE_E_ARGUMENT, n_rows, " rows from ", row_begin, " on of \"", name, "\", which has ",
                         t.rows);
                if (n_rows > 0) capi::need(out, "out");
            });
            exchange.agree(Call::model_get_rows, std::array{row_begin, n_rows}, "rows to copy");
            m.get_rows(name, row_begin, n_rows, out);
        });
    };
}

dslide_status dslide_model_set_rows(dslide_model *model, const char *name, int64_t row_begin, int64_t n_rows,
                                    const float *data) noexcept {
    return DSLIDE_BOUNDARY {
        Model &m = *capi::need(model, "model")->impl;
        Exchange &exchange = m.cluster().exchange();
        m.cluster().need_open();
        exchange.collective([&] {
            exchange.local([&] {
                if (n_rows > 0) capi::need(data, "data");
                m.check_rows(capi::need(name, "name"), row_begin, n_rows, data);
            });
            exchange.agree(Call::model_set_rows, std::array{row_begin, n_rows}, "rows to overwrite");
            m.set_rows(name, row_begin, n_rows, data);
        });
    };
}

void dslide_eval_options_init(dslide_eval_options *options, size_t size) noexcept { capi::init_options(options, size); }

dslide_status dslide_model_evaluate(const dslide_model *model, dslide_dataset *dataset,
                                    const dslide_eval_options *options, dslide_metrics *out) noexcept {
    return DSLIDE_BOUNDARY {
        const Model &m = *capi::need(model, "model")->impl;
        Exchange &exchange = m.cluster().exchange();
        m.cluster().need_open();
        exchange.collective([&] {
            dslide_eval_options given{};
            exchange.local([&] {
                capi::need(dataset, "dataset");
                capi::check_result(out, "out");
                given = resolved(capi::read_options(options, dslide_eval_options{}, "options"));
            });
            exchange.agree(Call::model_evaluate, capi::digest(given), "options of the evaluation");
            capi::write_result(evaluate(m, *dataset->impl, given), out, "out");
        });
    };
}

void dslide_model_free(dslide_model *model) noexcept { delete model; }
