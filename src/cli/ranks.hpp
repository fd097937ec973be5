// SPDX-License-Identifier: Apache-2.0
// Several ranks: threads of this process, or processes that mpirun started. Rank 0 alone speaks.
#pragma once

#include "cli/host.hpp"

#include <functional>

namespace dslide::cli {

/// What a rank does: with its cluster, and whether it is the one that prints and writes. Returns the exit code.
using RankBody = std::function<int(const Cluster &cluster, bool speaks)>;

/// Opens the cluster that the flags ask for, runs body on every rank of this process, and closes it. The first rank's
/// exit code; an exception of the lowest rank that failed on its own account.
int on_ranks(const RankFlags &flags, std::int32_t threads, const RankBody &body);

/// False in a process that mpirun started as another rank than 0: its errors are told by rank 0.
bool is_first_process();

} // namespace dslide::cli
