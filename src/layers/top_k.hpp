// SPDX-License-Identifier: Apache-2.0
// The output rows with the highest logits, exactly: blocks of classes with a running top k, never samples x classes.
#pragma once

#include "core/arena.hpp"
#include "optim/optimizer.hpp"
#include "simd/matrix.hpp"

namespace dslide {

/// For each row of h its k best classes, best first; lower class first among equals. rows: h.rows x k; scores may be
/// null. k <= weight.rows.
void exact_top_k(Arena &arena, const Matrix &h, const Parameters &weight, const Parameters &bias, std::int64_t k,
                 std::int32_t *rows, float *scores);

} // namespace dslide
