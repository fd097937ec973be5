// SPDX-License-Identifier: Apache-2.0
// The twin: each kernel as its definition reads. Also what runs on a CPU that no other table fits.
#include "simd/tables.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace dslide::simd {
namespace {

float from_bf16(std::uint16_t x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16); }

float dot(const float *x, const float *y, std::int64_t n) {
    float sum = 0;
    for (std::int64_t j = 0; j < n; ++j) sum += x[j] * y[j];
    return sum;
}

void axpy(float a, const float *x, float *y, std::int64_t n) {
    for (std::int64_t j = 0; j < n; ++j) y[j] += a * x[j];
}

void score_row(const float *w, float bias, const float *h, std::int64_t stride, std::int64_t n,
               const std::int32_t *sample, std::int64_t count, float *z) {
    for (std::int64_t i = 0; i < count; ++i) z[i] = dot(w, h + sample[i] * stride, n) + bias;
}

void score_row_bf16(const std::uint16_t *w, float bias, const std::uint16_t *h, std::int64_t stride, std::int64_t n,
                    const std::int32_t *sample, std::int64_t count, float *z) {
    for (std::int64_t i = 0; i < count; ++i) {
        const std::uint16_t *row = h + sample[i] * stride;
        float sum = 0;
        for (std::int64_t j = 0; j < n; ++j) sum += from_bf16(w[j]) * from_bf16(row[j]);
        z[i] = sum + bias;
    }
}

void backprop_row(const float *w, const float *h, float *dh, std::int64_t stride, std::int64_t n,
                  const std::int32_t *sample, const float *g, std::int64_t count, float *grad) {
    for (std::int64_t j = 0; j < n; ++j) grad[j] = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        if (g[i] == 0) continue;
        axpy(g[i], h + sample[i] * stride, grad, n);
        axpy(g[i], w, dh + sample[i] * stride, n);
    }
}

void gather_sum(const float *rows, std::int64_t stride, std::int64_t n, const std::int32_t *index, const float *val,
                std::int64_t count, float *out) {
    for (std::int64_t j = 0; j < n; ++j) out[j] = 0;
    for (std::int64_t i = 0; i < count; ++i) axpy(val ? val[i] : 1.0f, rows + index[i] * stride, out, n);
}

void adam_row(float *w, float *m, float *v, const float *grad, std::int64_t n, const AdamStep &step) {
    for (std::int64_t j = 0; j < n; ++j) {
        const float g = grad[j] + step.l2 * w[j];
        m[j] = step.beta1 * m[j] + (1 - step.beta1) * g;
        v[j] = step.beta2 * v[j] + (1 - step.beta2) * g * g;
        w[j] = step.shrink * w[j] - step.rate * m[j] / (std::sqrt(v[j]) * step.root_bc2 + step.epsilon);
    }
}

void sgd_row(float *w, float *momentum, const float *grad, std::int64_t n, const SgdStep &step) {
    for (std::int64_t j = 0; j < n; ++j) {
        momentum[j] = step.momentum * momentum[j] + grad[j] + step.l2 * w[j];
        w[j] = step.shrink * w[j] - step.rate * momentum[j];
    }
}

void adagrad_row(float *w, float *sum, const float *grad, std::int64_t n, const AdagradStep &step) {
    for (std::int64_t j = 0; j < n; ++j) {
        const float g = grad[j] + step.l2 * w[j];
        sum[j] += g * g;
        w[j] = step.shrink * w[j] - step.rate * g / (std::sqrt(sum[j]) + step.epsilon);
    }
}

void bias_relu(float *x, const float *bias, std::int64_t n) {
    for (std::int64_t j = 0; j < n; ++j) {
        const float sum = x[j] + bias[j];
        x[j] = sum < 0 ? 0.0f : sum;
    }
}

void relu_mask(float *x, const float *activation, std::int64_t n) {
    for (std::int64_t j = 0; j < n; ++j)
        if (!(activation[j] > 0)) x[j] = 0;
}

float max(const float *z, std::int64_t count) {
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = 0; i < count; ++i) largest = z[i] > largest ? z[i] : largest;
    return largest;
}

float exp_sum(float *z, float shift, std::int64_t count) {
    float sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const float x = z[i] - shift;
        z[i] = x < -87 ? 0.0f : std::exp(x);
        sum += z[i];
    }
    return sum;
}

void scale(float *z, float factor, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) z[i] *= factor;
}

std::int64_t find_above(const float *z, std::int64_t count, float threshold, std::int32_t *index) {
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < count; ++i)
        if (z[i] > threshold) index[found++] = static_cast<std::int32_t>(i);
    return found;
}

std::int64_t count_above(const float *z, std::int64_t count, float threshold) {
    std::int64_t above = 0;
    for (std::int64_t i = 0; i < count; ++i) above += z[i] > threshold;
    return above;
}

std::int64_t count_bytes_from(const std::uint8_t *c, std::int64_t count, std::uint8_t level) {
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < count; ++i) found += c[i] >= level;
    return found;
}

std::int64_t find_bytes_from(const std::uint8_t *c, std::int64_t count, std::uint8_t level, std::int32_t *index) {
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < count; ++i)
        if (c[i] >= level) index[found++] = static_cast<std::int32_t>(i);
    return found;
}

void to_bf16(const float *x, std::uint16_t *y, std::int64_t n) {
    for (std::int64_t j = 0; j < n; ++j) {
        const auto bits = std::bit_cast<std::uint32_t>(x[j]);
        const bool is_nan = (bits & 0x7fffffff) > 0x7f800000; // rounding could carry a NaN over to -0
        y[j] = static_cast<std::uint16_t>((is_nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

void hadamard(float *x, std::int64_t size) {
    for (std::int64_t half = 1; half < size; half *= 2)
        for (std::int64_t i = 0; i < size; i += 2 * half)
            for (std::int64_t j = i; j < i + half; ++j) {
                const float a = x[j], b = x[j + half];
                x[j] = a + b;
                x[j + half] = a - b;
            }
}

void sign_bits(const float *x, std::int64_t count, std::uint16_t *bits) {
    for (std::int64_t i = 0; i < count; i += 16) {
        unsigned word = 0;
        for (std::int64_t j = 0; j < 16; ++j) word |= static_cast<unsigned>(x[i + j] > 0) << j;
        bits[i / 16] = static_cast<std::uint16_t>(word);
    }
}

} // namespace

const Kernels plain_kernels = {"plain",
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

} // namespace dslide::simd
