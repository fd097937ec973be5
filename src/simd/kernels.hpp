// SPDX-License-Identifier: Apache-2.0
// The inner loops, chosen once for the CPU: a table of functions for each instruction set, `plain` being the twin that
// the tests hold the others against.
//
// Lengths called `n` are row widths padded to a multiple of row_lanes with zeros in the pad, so no kernel over them has
// a tail. Lengths called `count` are free. Addresses need no alignment; rows on 64-byte boundaries are fastest.
#pragma once

#include <cstdint>

namespace dslide::simd {

constexpr std::int64_t row_lanes = 16; ///< floats in 64 bytes

constexpr std::int64_t padded(std::int64_t width) { return (width + row_lanes - 1) / row_lanes * row_lanes; }

/// One step of an update rule for one row, its coefficients already worked out for this step.
struct AdamStep {
    float beta1, beta2;
    float rate;     ///< learning rate / (1 - beta1^t)
    float root_bc2; ///< 1 / sqrt(1 - beta2^t): denominator is sqrt(v) * root_bc2 + epsilon
    float epsilon;
    float l2;     ///< added to the gradient as l2 * w
    float shrink; ///< decoupled decay: w *= shrink first; 1: none
};
struct SgdStep {
    float rate, momentum, l2, shrink;
};
struct AdagradStep {
    float rate, epsilon, l2, shrink;
};

struct Kernels {
    const char *name; ///< "plain", "sse4", "avx2", "avx512", "avx512bf16", "neon"

    /// z[i] = w . h[sample[i]] + bias. The same whatever place the sample has in the list.
    void (*score_row)(const float *w, float bias, const float *h, std::int64_t stride, std::int64_t n,
                      const std::int32_t *sample, std::int64_t count, float *z);
    /// As score_row, with w and h in bfloat16 (h rows at `stride` bfloat16); sums in fp32.
    void (*score_row_bf16)(const std::uint16_t *w, float bias, const std::uint16_t *h, std::int64_t stride,
                           std::int64_t n, const std::int32_t *sample, std::int64_t count, float *z);
    /// grad = sum_i g[i] h[sample[i]]; dh[sample[i]] += g[i] w. Entries with g[i] == 0 are skipped. Overwrites grad.
    void (*backprop_row)(const float *w, const float *h, float *dh, std::int64_t stride, std::int64_t n,
                         const std::int32_t *sample, const float *g, std::int64_t count, float *grad);
    /// out = sum_i val[i] rows[index[i]]  (val null: 1). Overwrites out.
    void (*gather_sum)(const float *rows, std::int64_t stride, std::int64_t n, const std::int32_t *index,
                       const float *val, std::int64_t count, float *out);

    void (*adam_row)(float *w, float *m, float *v, const float *grad, std::int64_t n, const AdamStep &step);
    void (*sgd_row)(float *w, float *momentum, const float *grad, std::int64_t n, const SgdStep &step);
    void (*adagrad_row)(float *w, float *sum, const float *grad, std::int64_t n, const AdagradStep &step);

    /// y += a x
    void (*axpy)(float a, const float *x, float *y, std::int64_t n);
    float (*dot)(const float *x, const float *y, std::int64_t n);
    /// x = max(x + bias, 0); a NaN stays one, so that it shows in the loss.
    void (*bias_relu)(float *x, const float *bias, std::int64_t n);
    /// x = activation > 0 ? x : 0
    void (*relu_mask)(float *x, const float *activation, std::int64_t n);

    /// max over z[0 .. count), -inf if count is 0
    float (*max)(const float *z, std::int64_t count);
    /// z = exp(z - shift); returns the sum. Relative error below 4e-7; exp below -87 gives 0.
    float (*exp_sum)(float *z, float shift, std::int64_t count);
    void (*scale)(float *z, float factor, std::int64_t count);
    /// Indices of z[i] > threshold, ascending; returns how many. All `count` entries of index may be written.
    std::int64_t (*find_above)(const float *z, std::int64_t count, float threshold, std::int32_t *index);

    /// How many z[i] > threshold.
    std::int64_t (*count_above)(const float *z, std::int64_t count, float threshold);
    /// How many c[i] >= level; level >= 1.
    std::int64_t (*count_bytes_from)(const std::uint8_t *c, std::int64_t count, std::uint8_t level);
    /// Indices of c[i] >= level, ascending; returns how many. level >= 1.
    std::int64_t (*find_bytes_from)(const std::uint8_t *c, std::int64_t count, std::uint8_t level, std::int32_t *index);

    /// Rounds to nearest even; a NaN stays one.
    void (*to_bf16)(const float *x, std::uint16_t *y, std::int64_t n);
    /// In-place Walsh-Hadamard transform, unnormalised; size a power of two >= 16.
    void (*hadamard)(float *x, std::int64_t size);
    /// Bit i of bits = x[i] > 0, for count values (count a multiple of 16), 16 bits a word.
    void (*sign_bits)(const float *x, std::int64_t count, std::uint16_t *bits);
};

/// The table in use: the best the CPU has, or the one DSLIDE_ISA names (read once). An unknown or unavailable name is
/// ignored; kernel_choice() tells.
const Kernels &kernels();
/// The table of that name, or null if this build or this CPU lacks it.
const Kernels *find_kernels(const char *name);
/// Names of the tables this CPU can run, best last, null-terminated.
const char *const *kernel_names();
/// How the table in use was chosen, for dslide_cpu_info().
const char *kernel_choice();

} // namespace dslide::simd
