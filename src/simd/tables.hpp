// SPDX-License-Identifier: Apache-2.0
// The tables that dispatch.cpp chooses from.
#pragma once

#include "simd/kernels.hpp"

namespace dslide::simd {

extern const Kernels plain_kernels;

} // namespace dslide::simd
