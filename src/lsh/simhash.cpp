// SPDX-License-Identifier: Apache-2.0
#include "lsh/simhash.hpp"

#include "core/memory.hpp"
#include "core/random.hpp"
#include "simd/kernels.hpp"

#include <bit>
#include <cmath>

namespace dslide {
namespace {

constexpr std::int64_t vectors_a_task = 64;

/// `count` bits of a bit string, from bit `at` on; count <= 24.
std::uint32_t bits_at(const std::uint16_t *words, std::int64_t at, int count) {
    const std::int64_t w = at / 16;
    const std::uint64_t window = static_cast<std::uint64_t>(words[w]) | static_cast<std::uint64_t>(words[w + 1]) << 16 |
                                 static_cast<std::uint64_t>(words[w + 2]) << 32;
    return static_cast<std::uint32_t>(window >> (at % 16)) & ((1u << count) - 1);
}

} // namespace

SimHash::SimHash(std::int64_t dim, int tables, int bits, std::uint64_t seed)
    : HashFamily(tables, bits), dim_(dim),
      size_(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(dim, 32))))),
      tables_a_group_(static_cast<int>(size_ / bits)) {
    signs_.resize(static_cast<std::size_t>(groups() * 2 * size_));
    last_coef_.resize(static_cast<std::size_t>(groups() * size_));
    RandomStream stream(seed, Purpose::hash_functions);
    for (float &s : signs_) s = stream.bits() & 1 ? 1.0f : -1.0f;
    // An entry of H D2 H D1 is a sum of `size` random signs.
    for (float &c : last_coef_) c = static_cast<float>(std::sqrt(static_cast<double>(size_)) * stream.normal());
}

void SimHash::hash(Arena &arena, int group, const VectorRows &x, std::uint32_t *codes) const {
    const simd::Kernels &k = simd::kernels();
    const int n_tables = first_table(group + 1) - first_table(group);
    const float *first_signs = signs_.data() + group * 2 * size_, *second_signs = first_signs + size_;
    const float *last_coef = last_coef_.data() + group * size_;
    arena.blocks(x.count, vectors_a_task, [&](std::int64_t begin, std::int64_t end) {
        Array<float> y(static_cast<std::size_t>(size_));
        std::vector<std::uint16_t> words(static_cast<std::size_t>(size_ / 16 + 2));
        for (std::int64_t i = begin; i < end; ++i) {
            const float *row = x.data + i * x.stride;
            std::copy_n(row, dim_, y.data());
            if (x.origin)
                for (std::int64_t j = 0; j < dim_; ++j) y[static_cast<std::size_t>(j)] -= x.origin[j];
            for (std::int64_t j = 0; j < dim_; ++j) y[static_cast<std::size_t>(j)] *= first_signs[j];
            for (std::int64_t j = dim_; j < size_; ++j) y[static_cast<std::size_t>(j)] = 0;
            k.hadamard(y.data(), size_);
            for (std::int64_t j = 0; j < size_; ++j) y[static_cast<std::size_t>(j)] *= second_signs[j];
            k.hadamard(y.data(), size_);
            if (x.last) k.axpy(x.last[i], last_coef, y.data(), size_);
            k.sign_bits(y.data(), size_, words.data());
            for (int t = 0; t < n_tables; ++t)
                codes[t * x.count + i] = bits_at(words.data(), static_cast<std::int64_t>(t) * bits(), bits());
        }
    });
}

} // namespace dslide
