// SPDX-License-Identifier: Apache-2.0
// The tables that dispatch.cpp chooses from.
#pragma once

#include "simd/kernels.hpp"

#include <vector>

namespace dslide::simd {

extern const Kernels plain_kernels;

/// Appends the tables of vector.cpp that this CPU can run, best last.
void add_vector_tables(std::vector<Kernels> &tables);

/// Appends the last table with vdpbf16ps in it, if this CPU has that instruction.
void add_bf16_table(std::vector<Kernels> &tables);

} // namespace dslide::simd
