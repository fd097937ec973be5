// SPDX-License-Identifier: Apache-2.0
#include "capi/boundary.hpp"
#include "capi/handles.hpp"
#include "capi/views.hpp"
#include "data/open.hpp"

#include <dslide/dataset.h>

using namespace dslide;

namespace {

dslide_dataset_options read(const dslide_dataset_options *options) {
    return capi::read_options(options, dslide_dataset_options{}, "options");
}

void open(dslide_cluster *cluster, Input input, const dslide_dataset_options &options, dslide_dataset **out) {
    *out = new dslide_dataset{open_text(arena_of(cluster->impl), std::move(input), options)};
}

dslide_csr_view view_of(const CsrRows &rows) {
    constexpr std::int32_t index_bits = 32;
    return {sizeof(dslide_csr_view), index_bits, rows.n_rows, rows.n_cols, rows.row_ptr, rows.col, rows.val};
}

} // namespace

void dslide_dataset_options_init(dslide_dataset_options *options, size_t size) noexcept {
    capi::init_options(options, size);
}

dslide_status dslide_dataset_open(dslide_cluster *cluster, const char *path, const dslide_dataset_options *options,
                                  dslide_dataset **out) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(out, "out");
        capi::need(cluster, "cluster");
        open(cluster, Input::file(capi::need(path, "path")), read(options), out);
    };
}

dslide_status dslide_dataset_open_fd(dslide_cluster *cluster, int32_t fd, const char *name,
                                     const dslide_dataset_options *options, dslide_dataset **out) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(out, "out");
        capi::need(cluster, "cluster");
        if (fd < 0) fail(DSLIDE_E_ARGUMENT, "fd ", fd, " < 0");
        open(cluster, Input::descriptor(fd, capi::need(name, "name")), read(options), out);
    };
}

dslide_status dslide_dataset_open_memory(dslide_cluster *cluster, const void *data, size_t size,
                                         const dslide_dataset_options *options, dslide_dataset **out) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(out, "out");
        capi::need(cluster, "cluster");
        if (size) capi::need(data, "data");
        dslide_dataset_options resident = read(options);
        resident.mode = DSLIDE_DATASET_RESIDENT;
        open(cluster, Input::memory(data, size), resident, out);
    };
}

dslide_status dslide_dataset_from_views(dslide_cluster *cluster, const dslide_csr_view *features,
                                        const dslide_csr_view *labels, const float *weights,
                                        const dslide_dataset_options *options, dslide_dataset **out) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(out, "out");
        capi::need(cluster, "cluster");
        const dslide_dataset_options given = read(options);
        const capi::CheckedRows feature_rows(features, "features");
        const capi::CheckedRows label_rows(labels, "labels");
        capi::check_same_rows(feature_rows.rows(), label_rows.rows());
        capi::check_label_weights(label_rows.rows());
        capi::check_row_weights(weights, feature_rows.rows().n_rows);
        *out = new dslide_dataset{dataset_of_rows(feature_rows.rows(), label_rows.rows(), weights, given)};
    };
}

dslide_status dslide_dataset_get_info(const dslide_dataset *dataset, dslide_dataset_info *out) noexcept {
    return DSLIDE_BOUNDARY { capi::write_result(capi::need(dataset, "dataset")->impl->info(), out, "out"); };
}

dslide_status dslide_dataset_rewind(dslide_dataset *dataset, int64_t epoch) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(dataset, "dataset");
        if (epoch < 0) fail(DSLIDE_E_ARGUMENT, "epoch ", epoch, " < 0");
        dataset->impl->rewind(epoch);
    };
}

dslide_status dslide_dataset_next(dslide_dataset *dataset, int64_t max_rows, dslide_batch *out) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(dataset, "dataset");
        capi::check_result(out, "out"); // before rows are taken
        if (max_rows < 1 || max_rows > most_batch_rows)
            fail(DSLIDE_E_ARGUMENT, "max_rows ", max_rows, " is outside 1..", most_batch_rows);
        const Batch batch = dataset->impl->next(max_rows);
        const dslide_batch result{sizeof result, 0, view_of(batch.features), view_of(batch.labels), batch.weights,
                                  batch.row_ids};
        capi::write_result(result, out, "out");
    };
}

void dslide_dataset_free(dslide_dataset *dataset) noexcept { delete dataset; }
