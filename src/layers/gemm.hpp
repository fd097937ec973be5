// SPDX-License-Identifier: Apache-2.0
// Dense matrix products; the only door to oneDNN.
#pragma once

#include <cstdint>

namespace dslide {

enum class Transpose : char { no = 'N', yes = 'T' };

/// c = a b, or c += a b with `accumulate`; row-major; op(a) is m x k, op(b) is k x n. One thread: callers cut the work
/// into blocks that do not depend on the thread count and run them as tasks.
void gemm(Transpose ta, Transpose tb, std::int64_t m, std::int64_t n, std::int64_t k, const float *a, std::int64_t lda,
          const float *b, std::int64_t ldb, float *c, std::int64_t ldc, bool accumulate = false);

} // namespace dslide
