// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: a value is a function of (seed, purpose, a, b) alone, so results do not depend on
// threads, ranks or the order of calls. The mixer is the finaliser of SplitMix64 (Steele et al., OOPSLA 2014).
#pragma once

#include <cmath>
#include <cstdint>

namespace dslide {

__extension__ using Uint128 = unsigned __int128;

/// What a random number is for; keeps streams apart. Values are stored nowhere, but changing one changes results.
enum class Purpose : std::uint64_t {
    input_weights = 1,
    hidden_weights = 2,
    output_weights = 3,
    hash_functions = 4,
    shuffle = 5,
    shared_rows = 6,
    random_rows = 7,
    bucket_window = 8,
    random_fill = 9,
    placement = 10,
};

constexpr std::uint64_t default_seed = 0x64736c696465ULL; // "dslide"

constexpr std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/// Random numbers of one (seed, purpose, a, b), by counter.
class RandomStream {
public:
    RandomStream(std::uint64_t seed, Purpose purpose, std::uint64_t a = 0, std::uint64_t b = 0)
        : key_(mix(mix(mix(mix(seed + golden) ^ static_cast<std::uint64_t>(purpose)) + golden * (a + 1)) ^
                   mix(b + golden))) {}

    /// As if bits() had been called so often.
    void advance(std::int64_t n) { counter_ += static_cast<std::uint64_t>(n); }
    std::uint64_t bits() { return mix(key_ + golden * ++counter_); }
    /// Uniform in [0, n), n >= 1; the bias of the multiply-shift is below n / 2^64.
    std::uint64_t below(std::uint64_t n) {
        return static_cast<std::uint64_t>((static_cast<Uint128>(bits()) * n) >> 64);
    }
    /// Uniform in (0, 1]: the largest draw rounds to 1.
    double uniform() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; }
    /// Mean 0, variance 1, nearly normal, within +-3.47: the sum of four 16-bit uniforms (Irwin-Hall). Ten times as
    /// fast as normal(), for start weights.
    float quick_normal() {
        const std::uint64_t x = bits();
        const auto sum = static_cast<std::int32_t>((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48));
        return static_cast<float>(sum - 2 * 0xffff) * 2.6428e-5f; // sqrt(3) / 2^16: four times the variance 1/12 is 1/3
    }
    /// Standard normal, by Box and Muller's first half (no state between calls).
    double normal() {
        const double radius = std::sqrt(-2.0 * std::log(uniform()));
        return radius * std::cos(6.283185307179586477 * uniform());
    }

private:
    static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
    std::uint64_t key_;
    std::uint64_t counter_ = 0;
};

} // namespace dslide
