// SPDX-License-Identifier: Apache-2.0
#include "capi/boundary.hpp"
#include "capi/handles.hpp"

#include "exchange/mpi_transport.hpp"

#include <dslide/cluster.h>

#include <cmath>
#include <memory>
#include <vector>

using namespace dslide;

void dslide_cluster_options_init(dslide_cluster_options *options, size_t size) noexcept {
    capi::init_options(options, size);
}

namespace {

Cluster::Settings checked(const dslide_cluster_options &o, int default_threads) {
    Cluster::Settings settings;
    settings.threads = o.threads ? o.threads : default_threads;
    const auto positive = [](double value, double standard, const char *name) {
        if (value == 0) return standard;
        if (!(value > 0 && std::isfinite(value)))
            fail(DSLIDE_E_ARGUMENT, name, " is ", value, ", expected > 0 and finite");
        return value;
    };
    settings.exchange.timeout_seconds = positive(o.timeout_seconds, 60, "timeout_seconds");
    settings.share = positive(o.share, 1, "share");
    constexpr std::int64_t most = std::int64_t{1} << 30;
    if (o.most_message_bytes < 0 || o.most_message_bytes > most)
        fail(DSLIDE_E_ARGUMENT, "most_message_bytes is ", o.most_message_bytes, ", expected 1 .. ", most);
    settings.exchange.most_message_bytes = static_cast<std::size_t>(o.most_message_bytes ? o.most_message_bytes : most);
    if (o.payload != DSLIDE_PAYLOAD_FP32 && o.payload != DSLIDE_PAYLOAD_BF16)
        fail(DSLIDE_E_ARGUMENT, "payload ", o.payload, " is not a kind of payload");
    settings.bf16_payload = o.payload == DSLIDE_PAYLOAD_BF16;
    if (o.init_mpi != 0 && o.init_mpi != 1) fail(DSLIDE_E_ARGUMENT, "init_mpi is ", o.init_mpi, ", expected 0 or 1");
    return settings;
}

dslide_cluster_options read(const dslide_cluster_options *options) {
    return capi::read_options(options, dslide_cluster_options{}, "options");
}

} // namespace

dslide_status dslide_cluster_open_self(const dslide_cluster_options *options, dslide_cluster **out) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(out, "out");
        *out = new dslide_cluster{std::make_shared<Cluster>(checked(read(options), 0))};
    };
}

dslide_status dslide_cluster_open_threads(const dslide_cluster_options *options, int32_t ranks,
                                          dslide_cluster **out) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(out, "out");
        constexpr int most_ranks = 256;
        if (ranks < 1 || ranks > most_ranks)
            fail(DSLIDE_E_ARGUMENT, "ranks is ", ranks, ", expected 1 .. ", most_ranks);
        std::vector<std::unique_ptr<dslide_cluster>> made;
        for (std::shared_ptr<Cluster> &cluster : open_thread_clusters(checked(read(options), 1), ranks))
            made.push_back(std::make_unique<dslide_cluster>(dslide_cluster{std::move(cluster)}));
        for (int r = 0; r < ranks; ++r) out[r] = made[static_cast<std::size_t>(r)].release();
    };
}

dslide_status dslide_cluster_open_f(const dslide_cluster_options *options, int64_t communicator,
                                    dslide_cluster **out) noexcept {
    return DSLIDE_BOUNDARY {
        capi::need(out, "out");
        const dslide_cluster_options o = read(options);
        const Cluster::Settings settings = checked(o, 0);
        const MpiSettings mpi{o.mpi_module ? o.mpi_module : "", o.init_mpi != 0, settings.exchange.timeout_seconds};
        std::unique_ptr<Transport> transport = make_mpi_transport(communicator, mpi);
        *out = new dslide_cluster{std::make_shared<Cluster>(settings, std::move(transport))};
    };
}

dslide_status dslide_cluster_cancel(dslide_cluster *cluster) noexcept {
    return DSLIDE_BOUNDARY { capi::need(cluster, "cluster")->impl->exchange().cancel(); };
}

dslide_status dslide_cluster_traffic(const dslide_cluster *cluster, dslide_traffic *out) noexcept {
    return DSLIDE_BOUNDARY {
        const Exchange &exchange = capi::need(cluster, "cluster")->impl->exchange();
        dslide_traffic result{};
        result.n_phases = phase_count;
        for (int p = 0; p < phase_count; ++p) {
            const Traffic &traffic = exchange.traffic(static_cast<Phase>(p));
            result.bytes_sent[p] = traffic.bytes_sent;
            result.bytes_received[p] = traffic.bytes_received;
            result.messages_sent[p] = traffic.messages_sent;
            result.wait_seconds[p] = traffic.wait_seconds;
        }
        capi::write_result(result, out, "out");
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
        const std::unique_ptr<dslide_cluster> handle(cluster);
        if (cluster) cluster->impl->close();
    };
}

void dslide_cluster_free(dslide_cluster *cluster) noexcept { delete cluster; }
