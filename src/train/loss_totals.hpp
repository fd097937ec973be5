// SPDX-License-Identifier: Apache-2.0
// From each rank's part of the loss to the whole: two numbers a sample travel.
#pragma once

#include "exchange/exchange.hpp"
#include "layers/loss_parts.hpp"

namespace dslide {

/// `parts` of this rank become those of all ranks, merged in the order of ranks. Collective.
void merge_loss(Exchange &exchange, std::int32_t loss, std::int64_t samples, LossParts &parts);

} // namespace dslide
