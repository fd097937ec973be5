// SPDX-License-Identifier: Apache-2.0
// Runs a test's body on several ranks that are threads of this process.
#pragma once

#include "core/error.hpp"
#include "exchange/cluster.hpp"
#include "exchange/thread_transport.hpp"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace dslide {

/// How each rank's body ended.
struct RankOutcome {
    dslide_status status = DSLIDE_OK;
    std::string text;
};

/// body(rank, transport) on a thread a rank. A rank's transport is destroyed when its body ends.
inline std::vector<RankOutcome> on_transports(int ranks,
                                              const std::function<void(int, std::unique_ptr<Transport>)> &body) {
    std::vector<std::unique_ptr<Transport>> transports = make_thread_transports(ranks);
    std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            RankOutcome &outcome = outcomes[static_cast<std::size_t>(r)];
            try {
                body(r, std::move(transports[static_cast<std::size_t>(r)]));
            } catch (const Error &e) {
                outcome = {e.status(), e.what()};
            } catch (const std::exception &e) {
                outcome = {DSLIDE_E_INTERNAL, e.what()};
            }
        });
    for (std::thread &thread : threads) thread.join();
    return outcomes;
}

/// body(cluster) on a thread a rank; one rank: a rank alone.
inline std::vector<RankOutcome> on_ranks(int ranks, const std::function<void(std::shared_ptr<Cluster>)> &body,
                                         Cluster::Settings settings = {}) {
    if (settings.threads == 0) settings.threads = 1;
    return on_transports(ranks, [&](int, std::unique_ptr<Transport> transport) {
        body(ranks == 1 ? std::make_shared<Cluster>(settings)
                        : std::make_shared<Cluster>(settings, std::move(transport)));
    });
}

} // namespace dslide
