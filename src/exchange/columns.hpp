// SPDX-License-Identifier: Apache-2.0
// The two large messages of a layer that is cut by neurons: activations forward, their gradients backward.
#pragma once

#include "exchange/cluster.hpp"
#include "exchange/placement.hpp"
#include "simd/matrix.hpp"

namespace dslide {

/// own: samples x this rank's neurons; full: samples x all neurons. Alone: full = own (moved).
void gather_columns(Cluster &cluster, const Slices &slices, std::int64_t samples, const Matrix &own, Matrix &full);

/// partial: samples x all neurons, this rank's part of a sum; own: samples x this rank's neurons of the whole sum,
/// added up in the order of ranks. `count` of each rank is added up beside it.
void sum_columns(Cluster &cluster, const Slices &slices, std::int64_t samples, const Matrix &partial, Matrix &own,
                 double &count);

} // namespace dslide
