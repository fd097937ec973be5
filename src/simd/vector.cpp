// SPDX-License-Identifier: Apache-2.0
// The kernels over vectors of any width. Highway compiles this file once for each instruction set by including it again
// and again with another HWY_TARGET; the part below HWY_ONCE is compiled last and lists the tables.
#include "simd/tables.hpp"

// Wide enough is enough: the sets above AVX-512F/BW/DQ/VL add nothing these kernels use, and vectors of unknown length
// (SVE) cannot be held in arrays.
#if defined(__aarch64__)
#define HWY_COMPILE_ONLY_STATIC
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#else
#define HWY_DISABLED_TARGETS ((HWY_AVX3 - 1) | HWY_SSSE3)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/vector.cpp"
#include <hwy/foreach_target.h> // before highway.h
#include <hwy/highway.h>

#include <bit>
#include <cstring>
#include <limits>
#include <vector>

// The base instruction set of x86-64 and of unknown CPUs has the plain twin.
#undef DSLIDE_SIMD_TARGET
#if (HWY_TARGET & (HWY_SSE4 | HWY_AVX2 | HWY_AVX3)) || (HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_SCALAR)
#define DSLIDE_SIMD_TARGET 1
#else
#define DSLIDE_SIMD_TARGET 0
#endif

// Before each loop over an array of vectors: g++ keeps the array in registers only if it unrolls the loop early.
#undef DSLIDE_UNROLL
#define DSLIDE_UNROLL _Pragma("GCC unroll 16")

#if DSLIDE_SIMD_TARGET
HWY_BEFORE_NAMESPACE();
namespace dslide::simd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using BitsTag = hn::RebindToUnsigned<D>;
using IntTag = hn::RebindToSigned<D>;
using Bits = hn::Vec<BitsTag>;
using QuadTag = hn::FixedTag<float, 4>;

constexpr D d;
constexpr BitsTag bits_tag;
constexpr IntTag int_tag;
constexpr std::int64_t lanes = hn::MaxLanes(D());
constexpr int vectors_per_line = static_cast<int>(row_lanes / lanes);

// x86 has 32 vector registers from AVX-512 on; arm64 always.
constexpr int registers = HWY_ARCH_ARM_A64 || lanes == 16 ? 32 : 16;

// Into the second level only: it has twice the misses under way of the first on today's CPUs, and rows that are
// gathered come from memory. Measured on Zen 4 for rows of 512 bytes: 45 ns a row into the first level, 29 ns into the
// second.
HWY_INLINE void prefetch(const void *line) { __builtin_prefetch(line, 0, 2); }

/// The first `count` < lanes floats from p, then `fill`. Reads nothing past them.
HWY_INLINE V load_first(const float *p, std::int64_t count, float fill) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    const auto first = hn::FirstN(d, static_cast<std::size_t>(count));
    return hn::IfThenElse(first, hn::MaskedLoad(first, d, p), hn::Set(d, fill));
#else
    float padded_copy[lanes];
    hn::StoreU(hn::Set(d, fill), d, padded_copy);
    std::memcpy(padded_copy, p, static_cast<std::size_t>(count) * sizeof(float));
    return hn::LoadU(d, padded_copy);
#endif
}

HWY_INLINE void store_first(V x, float *p, std::int64_t count) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    hn::BlendedStore(x, hn::FirstN(d, static_cast<std::size_t>(count)), d, p);
#else
    float copy[lanes];
    hn::StoreU(x, d, copy);
    std::memcpy(p, copy, static_cast<std::size_t>(count) * sizeof(float));
#endif
}

/// Adds up the 128-bit blocks of x.
template <class Tag>
HWY_INLINE hn::Vec<QuadTag> sum_blocks(hn::Vec<Tag> x) {
    if constexpr (hn::MaxLanes(Tag()) == 4) {
        return x;
    } else {
        const hn::Half<Tag> half;
        return sum_blocks<hn::Half<Tag>>(hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)));
    }
}

/// Lane r of the result is the sum of the lanes of x[r]: a transpose that adds on its way.
HWY_INLINE hn::Vec<QuadTag> sums_of_lanes(const V (&x)[4]) {
    const V even = hn::Add(hn::InterleaveLower(d, x[0], x[2]), hn::InterleaveUpper(d, x[0], x[2]));
    const V odd = hn::Add(hn::InterleaveLower(d, x[1], x[3]), hn::InterleaveUpper(d, x[1], x[3]));
    return sum_blocks<D>(hn::Add(hn::InterleaveLower(d, even, odd), hn::InterleaveUpper(d, even, odd)));
}

HWY_INLINE float sum_of_lanes(V x) {
    const V zero = hn::Zero(d);
    return hn::GetLane(sums_of_lanes({x, zero, zero, zero}));
}

/// Sums under way for some samples, in groups of four that are reduced together; lanes past the last stay 0.
template <int samples>
struct Sums {
    static constexpr int groups = (samples + 3) / 4;
    V group[groups][4];

    HWY_INLINE Sums() {
        DSLIDE_UNROLL
        for (auto &four : group) {
            DSLIDE_UNROLL
            for (V &sum : four) sum = hn::Zero(d);
        }
    }
    HWY_INLINE V &operator[](int r) { return group[r / 4][r % 4]; }

    HWY_INLINE void store(float bias, float *z) const {
        const QuadTag quad;
        DSLIDE_UNROLL
        for (int i = 0; i < groups; ++i) {
            const auto score = hn::Add(sums_of_lanes(group[i]), hn::Set(quad, bias));
            if constexpr (samples % 4 == 0) {
                hn::StoreU(score, quad, z + 4 * i);
            } else {
                float four[4];
                hn::StoreU(score, quad, four);
                std::memcpy(z, four, samples * sizeof(float));
            }
        }
    }
};

// Hidden rows are not prefetched: they sit in the second level, whose bandwidth sets the pace; prefetching cost 10 %.
// Each weight loaded serves all samples, and their sums are independent, which hides the latency of an addition. A
// score adds the same products in the same order whatever its place in the list, so that neither the groups nor how a
// caller splits a list among threads shows in the result.
template <int samples>
HWY_INLINE void score_samples(const float *w, float bias, const float *h, std::int64_t stride, std::int64_t n,
                              const std::int32_t *sample, float *z) {
    const float *row[samples];
    DSLIDE_UNROLL
    for (int r = 0; r < samples; ++r) row[r] = h + sample[r] * stride;
    Sums<samples> sum;
    for (std::int64_t j = 0; j < n; j += lanes) {
        const V weight = hn::LoadU(d, w + j);
        DSLIDE_UNROLL
        for (int r = 0; r < samples; ++r) sum[r] = hn::MulAdd(weight, hn::LoadU(d, row[r] + j), sum[r]);
    }
    sum.store(bias, z);
}

// Two bfloat16 in 32 bits: the one at the lower address in the lower half.
HWY_INLINE V low_bf16(Bits pair) { return hn::BitCast(d, hn::ShiftLeft<16>(pair)); }
HWY_INLINE V high_bf16(Bits pair) { return hn::BitCast(d, hn::And(pair, hn::Set(bits_tag, 0xffff0000u))); }
HWY_INLINE Bits load_pairs(const std::uint16_t *p) {
    const hn::Repartition<std::uint16_t, D> halves;
    return hn::BitCast(bits_tag, hn::LoadU(halves, p));
}
HWY_INLINE V load_bf16(const std::uint16_t *p) {
    const hn::Rebind<std::uint16_t, D> narrow;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits_tag, hn::LoadU(narrow, p))));
}

template <int samples>
HWY_INLINE void score_samples(const std::uint16_t *w, float bias, const std::uint16_t *h, std::int64_t stride,
                              std::int64_t n, const std::int32_t *sample, float *z) {
    const std::uint16_t *row[samples];
    DSLIDE_UNROLL
    for (int r = 0; r < samples; ++r) row[r] = h + sample[r] * stride;
    Sums<samples> sum;
    std::int64_t j = 0;
    for (; j + 2 * lanes <= n; j += 2 * lanes) {
        const Bits weights = load_pairs(w + j);
        const V low = low_bf16(weights), high = high_bf16(weights);
        DSLIDE_UNROLL
        for (int r = 0; r < samples; ++r) {
            const Bits pairs = load_pairs(row[r] + j);
            sum[r] = hn::MulAdd(high, high_bf16(pairs), hn::MulAdd(low, low_bf16(pairs), sum[r]));
        }
    }
    if (j < n) { // n is an odd number of the widest vectors
        const V weight = load_bf16(w + j);
        DSLIDE_UNROLL
        for (int r = 0; r < samples; ++r) sum[r] = hn::MulAdd(weight, load_bf16(row[r] + j), sum[r]);
    }
    sum.store(bias, z);
}

template <class T>
HWY_INLINE void score_in_groups(const T *w, float bias, const T *h, std::int64_t stride, std::int64_t n,
                                const std::int32_t *sample, std::int64_t count, float *z) {
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8) score_samples<8>(w, bias, h, stride, n, sample + i, z + i);
    for (; i + 4 <= count; i += 4) score_samples<4>(w, bias, h, stride, n, sample + i, z + i);
    switch (count - i) {
    case 1:
        return score_samples<1>(w, bias, h, stride, n, sample + i, z + i);
    case 2:
        return score_samples<2>(w, bias, h, stride, n, sample + i, z + i);
    case 3:
        return score_samples<3>(w, bias, h, stride, n, sample + i, z + i);
    default:
        return;
    }
}

void score_row(const float *w, float bias, const float *h, std::int64_t stride, std::int64_t n,
               const std::int32_t *sample, std::int64_t count, float *z) {
    score_in_groups(w, bias, h, stride, n, sample, count, z);
}

void score_row_bf16(const std::uint16_t *w, float bias, const std::uint16_t *h, std::int64_t stride, std::int64_t n,
                    const std::int32_t *sample, std::int64_t count, float *z) {
    score_in_groups(w, bias, h, stride, n, sample, count, z);
}

/// A block of columns, as many vectors as fit twice into the registers: weights and gradient stay there while the
/// samples pass by.
template <int vectors>
void backprop_columns(const float *w, const float *h, float *dh, std::int64_t stride, const std::int32_t *sample,
                      const float *g, std::int64_t count, float *grad) {
    V weight[vectors], sum[vectors];
    DSLIDE_UNROLL
    for (int k = 0; k < vectors; ++k) {
        weight[k] = hn::LoadU(d, w + k * lanes);
        sum[k] = hn::Zero(d);
    }
    for (std::int64_t i = 0; i < count; ++i) {
        if (g[i] == 0) continue;
        const V scale = hn::Set(d, g[i]);
        const float *h_row = h + sample[i] * stride;
        float *dh_row = dh + sample[i] * stride;
        DSLIDE_UNROLL
        for (int k = 0; k < vectors; ++k) {
            sum[k] = hn::MulAdd(scale, hn::LoadU(d, h_row + k * lanes), sum[k]);
            hn::StoreU(hn::MulAdd(scale, weight[k], hn::LoadU(d, dh_row + k * lanes)), d, dh_row + k * lanes);
        }
    }
    DSLIDE_UNROLL
    for (int k = 0; k < vectors; ++k) hn::StoreU(sum[k], d, grad + k * lanes);
}

void backprop_row(const float *w, const float *h, float *dh, std::int64_t stride, std::int64_t n,
                  const std::int32_t *sample, const float *g, std::int64_t count, float *grad) {
    constexpr int most = registers / 4;
    std::int64_t j = 0;
    for (; j + most * lanes <= n; j += most * lanes)
        backprop_columns<most>(w + j, h + j, dh + j, stride, sample, g, count, grad + j);
    for (; j + 4 * lanes <= n; j += 4 * lanes)
        backprop_columns<4>(w + j, h + j, dh + j, stride, sample, g, count, grad + j);
    for (; j + 2 * lanes <= n; j += 2 * lanes)
        backprop_columns<2>(w + j, h + j, dh + j, stride, sample, g, count, grad + j);
    if (j < n) backprop_columns<1>(w + j, h + j, dh + j, stride, sample, g, count, grad + j);
}

constexpr std::int64_t rows_ahead = 16; ///< rows between their prefetch and their use

/// out (+)= the weighted sum of `rows` rows, each read once from end to end, while the rows used later are prefetched.
template <int rows>
HWY_INLINE void add_rows(const float *const *row, const float *const *later, const float *weight, std::int64_t n,
                         bool overwrite, float *out) {
    V scale[rows];
    DSLIDE_UNROLL
    for (int r = 0; r < rows; ++r) scale[r] = hn::Set(d, weight[r]);
    for (std::int64_t line = 0; line < n; line += row_lanes) {
        DSLIDE_UNROLL
        for (int r = 0; r < rows; ++r) prefetch(later[r] + line);
        for (std::int64_t j = line; j < line + row_lanes; j += lanes) {
            V sum = overwrite ? hn::Zero(d) : hn::LoadU(d, out + j);
            DSLIDE_UNROLL
            for (int r = 0; r < rows; ++r) sum = hn::MulAdd(scale[r], hn::LoadU(d, row[r] + j), sum);
            hn::StoreU(sum, d, out + j);
        }
    }
}

void gather_sum(const float *rows, std::int64_t stride, std::int64_t n, const std::int32_t *index, const float *val,
                std::int64_t count, float *out) {
    constexpr int group = 4;
    if (count == 0) std::memset(out, 0, static_cast<std::size_t>(n) * sizeof(float));
    for (std::int64_t i = 0; i < count && i < rows_ahead; ++i)
        for (std::int64_t line = 0; line < n; line += row_lanes) prefetch(rows + index[i] * stride + line);
    std::int64_t i = 0;
    while (i < count) {
        const float *row[group], *later[group];
        float weight[group];
        const std::int64_t left = count - i;
        DSLIDE_UNROLL
        for (int r = 0; r < group; ++r) {
            const std::int64_t at = r < left ? i + r : i;
            row[r] = rows + index[at] * stride;
            later[r] = rows + index[at + rows_ahead < count ? at + rows_ahead : at] * stride;
            weight[r] = val ? val[at] : 1.0f;
        }
        if (left >= group) {
            add_rows<group>(row, later, weight, n, i == 0, out);
            i += group;
        } else if (left >= 2) {
            add_rows<2>(row, later, weight, n, i == 0, out);
            i += 2;
        } else {
            add_rows<1>(row, later, weight, n, i == 0, out);
            i += 1;
        }
    }
}

void adam_row(float *w, float *m, float *v, const float *grad, std::int64_t n, const AdamStep &step) {
    const V l2 = hn::Set(d, step.l2), beta1 = hn::Set(d, step.beta1), beta2 = hn::Set(d, step.beta2);
    const V rest1 = hn::Set(d, 1 - step.beta1), rest2 = hn::Set(d, 1 - step.beta2);
    const V root_bc2 = hn::Set(d, step.root_bc2), epsilon = hn::Set(d, step.epsilon);
    const V shrink = hn::Set(d, step.shrink), rate = hn::Set(d, step.rate);
    for (std::int64_t j = 0; j < n; j += lanes) {
        const V weight = hn::LoadU(d, w + j);
        const V g = hn::MulAdd(l2, weight, hn::LoadU(d, grad + j));
        const V mean = hn::MulAdd(beta1, hn::LoadU(d, m + j), hn::Mul(rest1, g));
        const V square = hn::MulAdd(beta2, hn::LoadU(d, v + j), hn::Mul(hn::Mul(rest2, g), g));
        const V denominator = hn::MulAdd(hn::Sqrt(square), root_bc2, epsilon);
        hn::StoreU(mean, d, m + j);
        hn::StoreU(square, d, v + j);
        hn::StoreU(hn::MulSub(shrink, weight, hn::Div(hn::Mul(rate, mean), denominator)), d, w + j);
    }
}

void sgd_row(float *w, float *momentum, const float *grad, std::int64_t n, const SgdStep &step) {
    const V l2 = hn::Set(d, step.l2), decay = hn::Set(d, step.momentum);
    const V shrink = hn::Set(d, step.shrink), rate = hn::Set(d, step.rate);
    for (std::int64_t j = 0; j < n; j += lanes) {
        const V weight = hn::LoadU(d, w + j);
        const V g = hn::MulAdd(l2, weight, hn::LoadU(d, grad + j));
        const V mean = hn::MulAdd(decay, hn::LoadU(d, momentum + j), g);
        hn::StoreU(mean, d, momentum + j);
        hn::StoreU(hn::NegMulAdd(rate, mean, hn::Mul(shrink, weight)), d, w + j);
    }
}

void adagrad_row(float *w, float *sum, const float *grad, std::int64_t n, const AdagradStep &step) {
    const V l2 = hn::Set(d, step.l2), epsilon = hn::Set(d, step.epsilon);
    const V shrink = hn::Set(d, step.shrink), rate = hn::Set(d, step.rate);
    for (std::int64_t j = 0; j < n; j += lanes) {
        const V weight = hn::LoadU(d, w + j);
        const V g = hn::MulAdd(l2, weight, hn::LoadU(d, grad + j));
        const V square = hn::MulAdd(g, g, hn::LoadU(d, sum + j));
        hn::StoreU(square, d, sum + j);
        hn::StoreU(hn::MulSub(shrink, weight, hn::Div(hn::Mul(rate, g), hn::Add(hn::Sqrt(square), epsilon))), d, w + j);
    }
}

void axpy(float a, const float *x, float *y, std::int64_t n) {
    const V scale = hn::Set(d, a);
    for (std::int64_t j = 0; j < n; j += lanes)
        hn::StoreU(hn::MulAdd(scale, hn::LoadU(d, x + j), hn::LoadU(d, y + j)), d, y + j);
}

float dot(const float *x, const float *y, std::int64_t n) {
    V sum[4];
    DSLIDE_UNROLL
    for (V &s : sum) s = hn::Zero(d);
    std::int64_t j = 0;
    for (; j + 4 * lanes <= n; j += 4 * lanes) {
        DSLIDE_UNROLL
        for (int k = 0; k < 4; ++k)
            sum[k] = hn::MulAdd(hn::LoadU(d, x + j + k * lanes), hn::LoadU(d, y + j + k * lanes), sum[k]);
    }
    for (; j < n; j += lanes) sum[0] = hn::MulAdd(hn::LoadU(d, x + j), hn::LoadU(d, y + j), sum[0]);
    return sum_of_lanes(hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])));
}

void bias_relu(float *x, const float *bias, std::int64_t n) {
    for (std::int64_t j = 0; j < n; j += lanes) {
        const V sum = hn::Add(hn::LoadU(d, x + j), hn::LoadU(d, bias + j));
        hn::StoreU(hn::IfThenZeroElse(hn::Lt(sum, hn::Zero(d)), sum), d, x + j);
    }
}

void relu_mask(float *x, const float *activation, std::int64_t n) {
    for (std::int64_t j = 0; j < n; j += lanes) {
        const auto active = hn::Gt(hn::LoadU(d, activation + j), hn::Zero(d));
        hn::StoreU(hn::IfThenElseZero(active, hn::LoadU(d, x + j)), d, x + j);
    }
}

// Not hn::Max: what it makes of a NaN differs from CPU to CPU; here a NaN never wins.
HWY_INLINE V larger(V x, V largest) { return hn::IfThenElse(hn::Gt(x, largest), x, largest); }

float max(const float *z, std::int64_t count) {
    constexpr float lowest = -std::numeric_limits<float>::infinity();
    V largest = hn::Set(d, lowest), largest_odd = largest;
    std::int64_t i = 0;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
        largest = larger(hn::LoadU(d, z + i), largest);
        largest_odd = larger(hn::LoadU(d, z + i + lanes), largest_odd);
    }
    for (; i + lanes <= count; i += lanes) largest = larger(hn::LoadU(d, z + i), largest);
    if (i < count) largest_odd = larger(load_first(z + i, count - i, lowest), largest_odd);
    return hn::GetLane(hn::MaxOfLanes(d, larger(largest, largest_odd)));
}

HWY_INLINE V power_of_two(hn::Vec<IntTag> exponent) {
    constexpr int mantissa_bits = 23, bias = 127;
    return hn::BitCast(d, hn::ShiftLeft<mantissa_bits>(hn::Add(exponent, hn::Set(int_tag, bias))));
}

// exp(x) = 2^k exp(r) with k = round(x / ln 2), |r| <= ln(2) / 2, where the Taylor series up to r^7 / 7! leaves out
// less than 6e-9. ln 2 is taken off in two parts, the first with so few bits that k times it is exact.
HWY_INLINE V exp(V x) {
    constexpr float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    constexpr float smallest = -87.0f, overflows = 89.0f;
    const V bounded = hn::IfThenElse(hn::Lt(x, hn::Set(d, overflows)), x, hn::Set(d, overflows));
    const V k = hn::Round(hn::Mul(bounded, hn::Set(d, log2_e)));
    const V r = hn::NegMulAdd(k, hn::Set(d, ln2_low), hn::NegMulAdd(k, hn::Set(d, ln2_high), x));
    V series = hn::Set(d, 1.0f / 5040);
    DSLIDE_UNROLL
    for (const float coefficient : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
        series = hn::MulAdd(series, r, hn::Set(d, coefficient));
    // 2^k in two factors, for 2^128 is not a float though exp(x) may be.
    const auto exponent = hn::ConvertTo(int_tag, k);
    const auto first = hn::ShiftRight<1>(exponent), second = hn::Sub(exponent, first);
    const V value = hn::Mul(hn::Mul(series, power_of_two(first)), power_of_two(second));
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, smallest)), value);
}

float exp_sum(float *z, float shift, std::int64_t count) {
    const V offset = hn::Set(d, shift);
    V sum = hn::Zero(d);
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
        const V value = exp(hn::Sub(hn::LoadU(d, z + i), offset));
        hn::StoreU(value, d, z + i);
        sum = hn::Add(sum, value);
    }
    if (i < count) {
        constexpr float lowest = -std::numeric_limits<float>::infinity();
        // The lanes past the end are exp(-inf) = 0, unless the shift is not finite.
        const V value = exp(hn::Sub(load_first(z + i, count - i, lowest), offset));
        store_first(value, z + i, count - i);
        sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count - i)), value));
    }
    return sum_of_lanes(sum);
}

void scale(float *z, float factor, std::int64_t count) {
    const V by = hn::Set(d, factor);
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, z + i), by), d, z + i);
    if (i < count) store_first(hn::Mul(load_first(z + i, count - i, 0), by), z + i, count - i);
}

/// Bit i: lane i of the mask.
HWY_INLINE unsigned bits_of(hn::Mask<D> mask) {
    std::uint8_t bytes[8] = {};
    hn::StoreMaskBits(d, mask, bytes);
    return bytes[0] | static_cast<unsigned>(bytes[1]) << 8;
}

std::int64_t find_above(const float *z, std::int64_t count, float threshold, std::int32_t *index) {
    const V limit = hn::Set(d, threshold);
    std::int64_t found = 0, i = 0;
#if HWY_TARGET == HWY_AVX3
    const auto step = hn::Set(int_tag, static_cast<std::int32_t>(lanes));
    auto position = hn::Iota(int_tag, 0);
    for (; i + lanes <= count; i += lanes, position = hn::Add(position, step)) {
        const auto above = hn::RebindMask(int_tag, hn::Gt(hn::LoadU(d, z + i), limit));
        if (hn::AllFalse(int_tag, above)) continue;
        // A whole vector is stored: found <= i, so it ends within the `count` entries of index. Compressing straight
        // into memory is microcoded on Zen 4.
        hn::StoreU(hn::Compress(position, above), int_tag, index + found);
        found += static_cast<std::int64_t>(hn::CountTrue(int_tag, above));
    }
#else
    // Not hn::Compress: g++ copies its table to the stack in every round.
    for (; i + lanes <= count; i += lanes)
        for (unsigned above = bits_of(hn::Gt(hn::LoadU(d, z + i), limit)); above != 0; above &= above - 1)
            index[found++] = static_cast<std::int32_t>(i + std::countr_zero(above));
#endif
    for (; i < count; ++i)
        if (z[i] > threshold) index[found++] = static_cast<std::int32_t>(i);
    return found;
}

std::int64_t count_above(const float *z, std::int64_t count, float threshold) {
    const V limit = hn::Set(d, threshold);
    std::int64_t above = 0, i = 0;
    for (; i + lanes <= count; i += lanes)
        above += static_cast<std::int64_t>(hn::CountTrue(d, hn::Gt(hn::LoadU(d, z + i), limit)));
    for (; i < count; ++i) above += z[i] > threshold;
    return above;
}

using ByteTag = hn::ScalableTag<std::uint8_t>;
constexpr ByteTag byte_tag;
constexpr std::int64_t byte_lanes = hn::MaxLanes(ByteTag());

HWY_INLINE hn::Mask<ByteTag> bytes_from(const std::uint8_t *c, hn::Vec<ByteTag> level) {
    const auto value = hn::LoadU(byte_tag, c);
    return hn::Eq(hn::Max(value, level), value);
}

std::int64_t count_bytes_from(const std::uint8_t *c, std::int64_t count, std::uint8_t level) {
    const auto limit = hn::Set(byte_tag, level);
    std::int64_t found = 0, i = 0;
    for (; i + byte_lanes <= count; i += byte_lanes)
        found += static_cast<std::int64_t>(hn::CountTrue(byte_tag, bytes_from(c + i, limit)));
    for (; i < count; ++i) found += c[i] >= level;
    return found;
}

std::int64_t find_bytes_from(const std::uint8_t *c, std::int64_t count, std::uint8_t level, std::int32_t *index) {
    const auto limit = hn::Set(byte_tag, level);
    std::int64_t found = 0, i = 0;
    for (; i + byte_lanes <= count; i += byte_lanes) {
        std::uint64_t bits = 0;
        hn::StoreMaskBits(byte_tag, bytes_from(c + i, limit), reinterpret_cast<std::uint8_t *>(&bits));
        for (; bits != 0; bits &= bits - 1) index[found++] = static_cast<std::int32_t>(i + std::countr_zero(bits));
    }
    for (; i < count; ++i)
        if (c[i] >= level) index[found++] = static_cast<std::int32_t>(i);
    return found;
}

void to_bf16(const float *x, std::uint16_t *y, std::int64_t n) {
    const hn::Rebind<std::uint16_t, D> narrow;
    const Bits one = hn::Set(bits_tag, 1), half = hn::Set(bits_tag, 0x7fff), quiet = hn::Set(bits_tag, 0x400000);
    for (std::int64_t j = 0; j < n; j += lanes) {
        const V value = hn::LoadU(d, x + j);
        const Bits bits = hn::BitCast(bits_tag, value);
        const Bits rounded = hn::Add(bits, hn::Add(half, hn::And(hn::ShiftRight<16>(bits), one)));
        const auto is_number = hn::RebindMask(bits_tag, hn::Eq(value, value));
        const Bits result = hn::IfThenElse(is_number, rounded, hn::Or(bits, quiet));
        hn::StoreU(hn::TruncateTo(narrow, hn::ShiftRight<16>(result)), narrow, y + j);
    }
}

/// Lanes i and i ^ half of x, swapped.
template <int half>
HWY_INLINE V swap_lanes(V x) {
    if constexpr (half == 1)
        return hn::Shuffle2301(x);
    else if constexpr (half == 2)
        return hn::Shuffle1032(x);
    else if constexpr (half * 2 == lanes)
        return hn::ConcatLowerUpper(d, x, x);
    else
        return hn::SwapAdjacentBlocks(x);
}

template <int half>
HWY_INLINE V butterfly_lanes(V x) {
    if constexpr (half < lanes) {
        // a + b in the lower lane, a - b in the upper; a product with 1 or -1 is exact.
        const auto is_upper = hn::TestBit(hn::Iota(int_tag, 0), hn::Set(int_tag, half));
        const V sign = hn::IfThenElse(hn::RebindMask(d, is_upper), hn::Set(d, -1.0f), hn::Set(d, 1.0f));
        return butterfly_lanes<2 * half>(hn::MulAdd(x, sign, swap_lanes<half>(x)));
    } else {
        return x;
    }
}

HWY_INLINE void butterfly(V &a, V &b) {
    const V sum = hn::Add(a, b);
    b = hn::Sub(a, b);
    a = sum;
}

// The first stages of `vectors` neighbouring vectors, all in registers.
template <int vectors>
HWY_INLINE void hadamard_block(float *x) {
    V value[vectors];
    DSLIDE_UNROLL
    for (int k = 0; k < vectors; ++k) value[k] = butterfly_lanes<1>(hn::LoadU(d, x + k * lanes));
    DSLIDE_UNROLL
    for (int half = 1; half < vectors; half *= 2) {
        DSLIDE_UNROLL
        for (int k = 0; k < vectors; ++k)
            if ((k & half) == 0) butterfly(value[k], value[k + half]);
    }
    DSLIDE_UNROLL
    for (int k = 0; k < vectors; ++k) hn::StoreU(value[k], d, x + k * lanes);
}

template <int vectors>
HWY_INLINE void hadamard_blocks(float *x, std::int64_t size) {
    for (std::int64_t i = 0; i < size; i += vectors * lanes) hadamard_block<vectors>(x + i);
}

// Two stages in one pass over memory.
HWY_INLINE void two_stages(float *x, std::int64_t half, std::int64_t size) {
    for (std::int64_t i = 0; i < size; i += 4 * half)
        for (std::int64_t j = i; j < i + half; j += lanes) {
            V a = hn::LoadU(d, x + j), b = hn::LoadU(d, x + j + half);
            V c = hn::LoadU(d, x + j + 2 * half), e = hn::LoadU(d, x + j + 3 * half);
            butterfly(a, b);
            butterfly(c, e);
            butterfly(a, c);
            butterfly(b, e);
            hn::StoreU(a, d, x + j);
            hn::StoreU(b, d, x + j + half);
            hn::StoreU(c, d, x + j + 2 * half);
            hn::StoreU(e, d, x + j + 3 * half);
        }
}

HWY_INLINE void one_stage(float *x, std::int64_t half, std::int64_t size) {
    for (std::int64_t i = 0; i < size; i += 2 * half)
        for (std::int64_t j = i; j < i + half; j += lanes) {
            V a = hn::LoadU(d, x + j), b = hn::LoadU(d, x + j + half);
            butterfly(a, b);
            hn::StoreU(a, d, x + j);
            hn::StoreU(b, d, x + j + half);
        }
}

void hadamard(float *x, std::int64_t size) {
    const std::int64_t vectors = size / lanes < 8 ? size / lanes : 8;
    if (vectors == 8)
        hadamard_blocks<8>(x, size);
    else if (vectors == 4)
        hadamard_blocks<4>(x, size);
    else if (vectors == 2)
        hadamard_blocks<2>(x, size);
    else
        hadamard_blocks<1>(x, size);
    std::int64_t half = vectors * lanes;
    for (; 4 * half <= size; half *= 4) two_stages(x, half, size);
    if (2 * half <= size) one_stage(x, half, size);
}

void sign_bits(const float *x, std::int64_t count, std::uint16_t *bits) {
    for (std::int64_t i = 0; i < count; i += row_lanes) {
        unsigned word = 0;
        DSLIDE_UNROLL
        for (int k = 0; k < vectors_per_line; ++k) {
            const auto positive = hn::Gt(hn::LoadU(d, x + i + k * lanes), hn::Zero(d));
            word |= bits_of(positive) << (k * static_cast<int>(lanes));
        }
        bits[i / row_lanes] = static_cast<std::uint16_t>(word);
    }
}

constexpr Kernels table(const char *name) {
    return {name,
            score_row,
            score_row_bf16,
            backprop_row,
            gather_sum,
            adam_row,
            sgd_row,
            adagrad_row,
            axpy,
            dot,
            bias_relu,
            relu_mask,
            max,
            exp_sum,
            scale,
            find_above,
            count_above,
            count_bytes_from,
            find_bytes_from,
            to_bf16,
            hadamard,
            sign_bits};
}

} // namespace

} // namespace dslide::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif // DSLIDE_SIMD_TARGET

#if HWY_ONCE
namespace dslide::simd {

void add_vector_tables([[maybe_unused]] std::vector<Kernels> &tables) {
#if HWY_ARCH_X86
    [[maybe_unused]] const auto supported = hwy::SupportedTargets();
#endif
#if HWY_TARGETS & HWY_SSE4
    if (supported & HWY_SSE4) tables.push_back(N_SSE4::table("sse4"));
#endif
#if HWY_TARGETS & HWY_AVX2
    if (supported & HWY_AVX2) tables.push_back(N_AVX2::table("avx2"));
#endif
#if HWY_TARGETS & HWY_AVX3
    if (supported & HWY_AVX3) tables.push_back(N_AVX3::table("avx512"));
#endif
#if HWY_ARCH_ARM_A64 && HWY_STATIC_TARGET != HWY_SCALAR
    tables.push_back(HWY_NAMESPACE::table("neon"));
#endif
}

} // namespace dslide::simd
#endif // HWY_ONCE
