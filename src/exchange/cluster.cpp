// SPDX-License-Identifier: Apache-2.0
#include "exchange/cluster.hpp"

#include "core/error.hpp"
#include "exchange/thread_transport.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <system_error>
#include <thread>

namespace dslide {
namespace {

int checked_threads(int threads) {
    if (threads < 0 || threads > Cluster::max_threads)
        fail(DSLIDE_E_ARGUMENT, "threads ", threads, " is outside 0..", Cluster::max_threads);
    return threads ? threads : std::min(available_threads(), Cluster::max_threads);
}

/// What ranks tell each other when they meet. Two that differ in the first fields would misread each other.
struct Greeting {
    std::uint32_t byte_order = std::endian::native == std::endian::little ? 0x01020304u : 0x04030201u;
    std::uint32_t version = DSLIDE_VERSION_MAJOR * 1000000 + DSLIDE_VERSION_MINOR * 1000 + DSLIDE_VERSION_PATCH;
    std::uint32_t bf16_payload = 0;
    std::uint32_t reserved = 0;
    double share = 1;
};

} // namespace

Cluster::Cluster(const Settings &settings) : arena_(checked_threads(settings.threads)) {}

Cluster::Cluster(const Settings &settings, std::unique_ptr<Transport> transport)
    : arena_(checked_threads(settings.threads)), exchange_(std::move(transport), settings.exchange),
      bf16_payload_(settings.bf16_payload) {
    try {
        exchange_.collective([&] { greet(settings); });
    } catch (...) {
        exchange_.end();
        throw;
    }
}

void Cluster::greet(const Settings &settings) {
    Greeting mine;
    mine.share = settings.share;
    mine.bf16_payload = settings.bf16_payload;
    exchange_.local([&] {
        if (!(settings.share > 0 && std::isfinite(settings.share)))
            fail(DSLIDE_E_ARGUMENT, "share is ", settings.share, ", expected > 0 and finite");
    });
    const std::vector<Greeting> all = exchange_.agree(Call::cluster_open, mine);
    exchange_.alike([&] {
        for (std::size_t r = 0; r < all.size(); ++r) {
            if (all[r].byte_order != all[0].byte_order || all[r].version != all[0].version)
                fail(DSLIDE_E_PEER, "rank ", r,
                     " runs another version of the library or has another byte order than rank 0");
            if (all[r].bf16_payload != all[0].bf16_payload)
                fail(DSLIDE_E_ARGUMENT, "ranks 0 and ", r, " ask for different payloads");
        }
    });
    double greatest = 0;
    for (const Greeting &greeting : all) greatest = std::max(greatest, greeting.share);
    shares_.clear();
    double sum = 0; // relative to the greatest: the sum of the shares themselves may overflow
    for (const Greeting &greeting : all) {
        shares_.push_back(greeting.share / greatest);
        sum += shares_.back();
    }
    for (double &share : shares_) share *= static_cast<double>(all.size()) / sum;
}

std::vector<std::shared_ptr<Cluster>> open_thread_clusters(const Cluster::Settings &settings, int ranks) {
    std::vector<std::shared_ptr<Cluster>> clusters(static_cast<std::size_t>(ranks));
    if (ranks == 1) {
        clusters[0] = std::make_shared<Cluster>(settings);
        return clusters;
    }
    std::vector<std::unique_ptr<Transport>> transports = make_thread_transports(ranks);
    std::vector<std::exception_ptr> failures(clusters.size());
    {
        std::vector<std::jthread> threads;
        const auto meet = [&](std::size_t r) {
            try {
                clusters[r] = std::make_shared<Cluster>(settings, std::move(transports[r]));
            } catch (...) {
                failures[r] = std::current_exception();
            }
        };
        try {
            for (std::size_t r = 0; r < clusters.size(); ++r) threads.emplace_back(meet, r);
        } catch (const std::system_error &e) {
            const std::size_t begun = threads.size();
            for (std::size_t r = begun; r < clusters.size(); ++r) transports[r].reset(); // nobody waits for it
            fail(DSLIDE_E_MEMORY, "cannot start a thread for rank ", begun, " of ", ranks, ": ", e.code().message());
        }
    }
    for (const std::exception_ptr &failure : failures)
        if (failure) std::rethrow_exception(failure);
    return clusters;
}

void Cluster::close() {
    if (!closed_.exchange(true)) exchange_.close();
}

void Cluster::need_open() const {
    if (closed_) fail(DSLIDE_E_STATE, "the cluster is closed");
    exchange_.need_usable();
}

} // namespace dslide
