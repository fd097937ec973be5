// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of one process: messages are copied from the sender's memory by the receiver.
#pragma once

#include "exchange/transport.hpp"

#include <memory>
#include <vector>

namespace dslide {

/// One transport a rank, joined with each other. Each is used by one thread at a time.
std::vector<std::unique_ptr<Transport>> make_thread_transports(int ranks);

} // namespace dslide
