// SPDX-License-Identifier: Apache-2.0
#include "layers/gemm.hpp"

#include "core/error.hpp"

#include <oneapi/dnnl/dnnl.h>

// Debian builds oneDNN for OpenMP. Its team would compete with the arena's threads (a 1x128 by 128x8192 product took 11
// ms with two threads on loaded cores, 0.2 ms with one), so each call asks for one thread and gives the setting back.
// Weak: a oneDNN built for another runtime brings no OpenMP.
extern "C" {
__attribute__((weak)) void omp_set_num_threads(int);
__attribute__((weak)) int omp_get_max_threads();
}

namespace dslide {
namespace {

class OneThread {
public:
    OneThread() : before_(omp_get_max_threads ? omp_get_max_threads() : 1) {
        if (before_ != 1 && omp_set_num_threads) omp_set_num_threads(1);
    }
    ~OneThread() {
        if (before_ != 1 && omp_set_num_threads) omp_set_num_threads(before_);
    }
    OneThread(const OneThread &) = delete;
    OneThread &operator=(const OneThread &) = delete;

private:
    int before_;
};

} // namespace

void gemm(Transpose ta, Transpose tb, std::int64_t m, std::int64_t n, std::int64_t k, const float *a, std::int64_t lda,
          const float *b, std::int64_t ldb, float *c, std::int64_t ldc, bool accumulate) {
    if (m == 0 || n == 0) return;
    const OneThread guard;
    const dnnl_status_t status = dnnl_sgemm(static_cast<char>(ta), static_cast<char>(tb), m, n, k, 1.0f, a, lda, b, ldb,
                                            accumulate ? 1.0f : 0.0f, c, ldc);
    if (status == dnnl_out_of_memory) throw std::bad_alloc();
    if (status != dnnl_success) fail(DSLIDE_E_INTERNAL, "oneDNN sgemm returned ", status);
}

} // namespace dslide
