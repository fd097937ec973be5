// SPDX-License-Identifier: Apache-2.0
// Which processes and threads compute together, and how they share the work.
#pragma once

#include "core/arena.hpp"
#include "exchange/exchange.hpp"

#include <atomic>
#include <memory>
#include <vector>

namespace dslide {

class Cluster {
public:
    static constexpr int max_threads = 1024;

    struct Settings {
        int threads = 0;           ///< 0: what affinity and cgroup quota allow
        double share = 1;          ///< of the work, relative to other ranks'
        bool bf16_payload = false; ///< activations and their gradients travel as bfloat16
        Exchange::Settings exchange;
    };

    /// A rank alone. No thread starts before the arena's first use.
    explicit Cluster(const Settings &settings);
    explicit Cluster(int threads) : Cluster(Settings{threads, 1, false, {}}) {}
    /// One rank of several; collective: they agree on versions and shares.
    Cluster(const Settings &settings, std::unique_ptr<Transport> transport);

    int rank() const { return exchange_.rank(); }
    int size() const { return exchange_.size(); }
    int threads() const { return arena_.threads(); }
    Arena &arena() { return arena_; }
    Exchange &exchange() { return exchange_; }
    /// Every rank's share; their sum is the size.
    const std::vector<double> &shares() const { return shares_; }
    bool bf16_payload() const { return bf16_payload_; }

    /// Collective. From here on collective calls of models and trainers made with this cluster fail with E_STATE.
    void close();
    /// Throws E_STATE once the cluster is closed, and the reason if an earlier failure left it unusable.
    void need_open() const;

private:
    void greet(const Settings &settings);

    Arena arena_;
    Exchange exchange_;
    std::vector<double> shares_{1.0};
    bool bf16_payload_ = false;
    std::atomic<bool> closed_ = false; // a collector may free handles on another thread than the one that looks
};

/// Clusters of one process, whose ranks are threads. They meet here, on threads of their own.
std::vector<std::shared_ptr<Cluster>> open_thread_clusters(const Cluster::Settings &settings, int ranks);

/// The arena alone, for code that has no business with ranks; it keeps the cluster alive.
inline std::shared_ptr<Arena> arena_of(const std::shared_ptr<Cluster> &cluster) { return {cluster, &cluster->arena()}; }

} // namespace dslide
