// SPDX-License-Identifier: Apache-2.0
#include "capi/boundary.hpp"
#include "capi/handles.hpp"

#include <dslide/cluster.h>

using namespace dslide;

void dslide_cluster_options_init(dslide_cluster_options *options, size_t size) noexcept {
    capi::init_options(options, size);
}

dslide_status dslide_cluster_open_self(const dslide_cluster_options *options, dslide_cluster **out) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(out, "out");
        const dslide_cluster_options given = capi::read_options(options, dslide_cluster_options{}, "options");
        *out = new dslide_cluster{std::make_shared<Cluster>(given.threads)};
    };
}

dslide_status dslide_cluster_rank(const dslide_cluster *cluster, int32_t *out_rank) noexcept {
    return DSLIDE_BOUNDARY { *capi::need(out_rank, "out_rank") = capi::need(cluster, "cluster")->impl->rank(); };
}

dslide_status dslide_cluster_size(const dslide_cluster *cluster, int32_t *out_size) noexcept {
    return DSLIDE_BOUNDARY { *capi::need(out_size, "out_size") = capi::need(cluster, "cluster")->impl->size(); };
}

dslide_status dslide_cluster_threads(const dslide_cluster *cluster, int32_t *out_threads) noexcept {
    return DSLIDE_BOUNDARY {
        *capi::need(out_threads, "out_threads") = capi::need(cluster, "cluster")->impl->threads();
    };
}

dslide_status dslide_cluster_close(dslide_cluster *cluster) noexcept {
    return DSLIDE_BOUNDARY {
        if (cluster) cluster->impl->close();
        delete cluster;
    };
}

void dslide_cluster_free(dslide_cluster *cluster) noexcept { delete cluster; }
