// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes of an MPI communicator, through a module that is loaded at run time.
#pragma once

#include "exchange/transport.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace dslide {

struct MpiSettings {
    std::string module;          ///< its file; "": looked for
    bool init = false;           ///< start MPI if nobody has; it is then finalised by close() of the last transport
    double timeout_seconds = 60; ///< for the other ranks to come
};

/// Collective over the communicator: a Fortran handle, or DSLIDE_COMM_WORLD.
std::unique_ptr<Transport> make_mpi_transport(std::int64_t communicator, const MpiSettings &settings);

} // namespace dslide
