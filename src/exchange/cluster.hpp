// SPDX-License-Identifier: Apache-2.0
// Which processes and threads compute together. So far: this process alone.
#pragma once

#include "core/arena.hpp"

#include <atomic>
#include <memory>

namespace dslide {

class Cluster {
public:
    static constexpr int max_threads = 1024;

    /// threads 0: what affinity and cgroup quota allow. No thread starts before the arena's first use.
    explicit Cluster(int threads);

    int rank() const { return 0; }
    int size() const { return 1; }
    int threads() const { return arena_.threads(); }
    Arena &arena() { return arena_; }

    /// From here on collective calls of models and trainers made with this cluster fail with E_STATE.
    void close() { closed_ = true; }
    /// Throws E_STATE once the cluster is closed.
    void need_open() const;

private:
    Arena arena_;
    std::atomic<bool> closed_ = false; // a collector may free handles on another thread than the one that looks
};

/// The arena alone, for code that has no business with ranks; it keeps the cluster alive.
inline std::shared_ptr<Arena> arena_of(const std::shared_ptr<Cluster> &cluster) { return {cluster, &cluster->arena()}; }

} // namespace dslide
