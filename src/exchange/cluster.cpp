// SPDX-License-Identifier: Apache-2.0
#include "exchange/cluster.hpp"

#include "core/error.hpp"

namespace dslide {
namespace {

int checked_threads(int threads) {
    if (threads < 0 || threads > Cluster::max_threads)
        fail(DSLIDE_E_ARGUMENT, "threads ", threads, " is outside 0..", Cluster::max_threads);
    return threads ? threads : std::min(available_threads(), Cluster::max_threads);
}

} // namespace

Cluster::Cluster(int threads) : arena_(checked_threads(threads)) {}

void Cluster::need_open() const {
    if (closed_) fail(DSLIDE_E_STATE, "the cluster is closed");
}

} // namespace dslide
