// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes of an MPI communicator, through a module that is loaded at run time.
#pragma once

#include "exchange/transport.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace dslide {

/// Collective over the communicator: a Fortran handle, or DSLIDE_COMM_WORLD. module: its file, or "" to look for one.
/// init: start MPI if nobody has; it is then finalised by close().
std::unique_ptr<Transport> make_mpi_transport(std::int64_t communicator, const std::string &module, bool init);

} // namespace dslide
