// SPDX-License-Identifier: Apache-2.0
// How much memory a run may take, and how much it will.
#pragma once

#include <dslide/dslide.h>

#include <cstdint>
#include <string>

namespace dslide::cli {

/// Bytes this process can still take: free and reclaimable memory, and what cgroup limits leave. -1: unknown.
std::int64_t available_memory();

/// "weights 1.2 GB, optimizer 2.4 GB, ...".
std::string breakdown(const dslide_memory_estimate &estimate);

} // namespace dslide::cli
