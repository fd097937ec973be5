// SPDX-License-Identifier: Apache-2.0
// Scores from bfloat16 rows with vdpbf16ps, which Highway 1.0 does not have: 32 products an instruction.
#include "simd/tables.hpp"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>

#ifndef __clang__ // g++ 12 takes the _mm512_undefined_ps() in its own header for a mistake of ours
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// As in vector.cpp: g++ keeps an array of vectors in registers only if it unrolls the loops over it early.
#define DSLIDE_UNROLL _Pragma("GCC unroll 16")
#define DSLIDE_BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace dslide::simd {
namespace {

constexpr std::int64_t bf16_lanes = 32;

DSLIDE_BF16 inline __m512bh load(const std::uint16_t *p) {
    __m512bh value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

/// 16 values, and zeros above them.
DSLIDE_BF16 inline __m512bh load_half(const std::uint16_t *p) {
    const __m512i wide = _mm512_maskz_loadu_epi16(0xffff, p);
    __m512bh value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

/// Lane r of the result is the sum of the lanes of x[r].
DSLIDE_BF16 inline __m128 sums_of_lanes(const __m512 (&x)[4]) {
    const __m512 even = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[2]), _mm512_unpackhi_ps(x[0], x[2]));
    const __m512 odd = _mm512_add_ps(_mm512_unpacklo_ps(x[1], x[3]), _mm512_unpackhi_ps(x[1], x[3]));
    const __m512 blocks = _mm512_add_ps(_mm512_unpacklo_ps(even, odd), _mm512_unpackhi_ps(even, odd));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(blocks), _mm512_extractf32x8_ps(blocks, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

template <int samples>
DSLIDE_BF16 inline void score_samples(const std::uint16_t *w, float bias, const std::uint16_t *h, std::int64_t stride,
                                      std::int64_t n, const std::int32_t *sample, float *z) {
    const std::uint16_t *row[samples];
    DSLIDE_UNROLL
    for (int r = 0; r < samples; ++r) row[r] = h + sample[r] * stride;
    constexpr int groups = (samples + 3) / 4; // reduced by four; sums past the last sample stay 0
    __m512 sum[groups][4];
    DSLIDE_UNROLL
    for (auto &four : sum) {
        DSLIDE_UNROLL
        for (__m512 &s : four) s = _mm512_setzero_ps();
    }
    std::int64_t j = 0;
    for (; j + bf16_lanes <= n; j += bf16_lanes) {
        const __m512bh weights = load(w + j);
        DSLIDE_UNROLL
        for (int r = 0; r < samples; ++r)
            sum[r / 4][r % 4] = _mm512_dpbf16_ps(sum[r / 4][r % 4], weights, load(row[r] + j));
    }
    if (j < n) {
        const __m512bh weights = load_half(w + j);
        DSLIDE_UNROLL
        for (int r = 0; r < samples; ++r)
            sum[r / 4][r % 4] = _mm512_dpbf16_ps(sum[r / 4][r % 4], weights, load_half(row[r] + j));
    }
    DSLIDE_UNROLL
    for (int i = 0; i < groups; ++i) {
        const __m128 score = _mm_add_ps(sums_of_lanes(sum[i]), _mm_set1_ps(bias));
        std::memcpy(z + 4 * i, &score, (samples < 4 ? samples : 4) * sizeof(float));
    }
}

DSLIDE_BF16 void score_row_bf16(const std::uint16_t *w, float bias, const std::uint16_t *h, std::int64_t stride,
                                std::int64_t n, const std::int32_t *sample, std::int64_t count, float *z) {
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

} // namespace

void add_bf16_table(std::vector<Kernels> &tables) {
    if (std::strcmp(tables.back().name, "avx512") != 0 || !__builtin_cpu_supports("avx512bf16")) return;
    Kernels with_bf16 = tables.back();
    with_bf16.name = "avx512bf16";
    with_bf16.score_row_bf16 = score_row_bf16;
    tables.push_back(with_bf16);
}

} // namespace dslide::simd

#else

void dslide::simd::add_bf16_table(std::vector<Kernels> &) {}

#endif
