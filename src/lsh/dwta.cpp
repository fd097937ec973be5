// SPDX-License-Identifier: Apache-2.0
#include "lsh/dwta.hpp"

#include "core/random.hpp"

#include <numeric>

namespace dslide {
namespace {

constexpr std::int64_t vectors_a_task = 64;
constexpr int tries = 16; ///< bins asked in turn; after that an empty bin's code is 0
constexpr std::int32_t empty = -1;

} // namespace

Dwta::Dwta(std::int64_t dim, int tables, int codes, std::uint64_t seed)
    : HashFamily(tables, codes * bits_a_code), dim_(dim), codes_(codes) {
    const std::int64_t bins = static_cast<std::int64_t>(tables) * codes;
    RandomStream stream(seed, Purpose::hash_functions);
    // Bins are cut from random permutations of all coordinates, so that each takes part about equally often.
    std::vector<std::int32_t> permutation(static_cast<std::size_t>(dim + 1));
    std::iota(permutation.begin(), permutation.end(), 0);
    // A table's bins, or at least a bin, come from one permutation where they fit: of two bins with two coordinates in
    // common some pairs of codes contradict each other, and a coordinate that stands twice in a bin wins only once.
    std::size_t together = static_cast<std::size_t>(codes) * bin_size;
    if (together > permutation.size()) together = bin_size;
    if (together > permutation.size()) together = 1;
    std::size_t used = permutation.size();
    for (std::int64_t b = 0; b < bins * bin_size; ++b) {
        if (static_cast<std::size_t>(b) % together == 0 && permutation.size() - used < together) {
            for (std::size_t i = permutation.size() - 1; i > 0; --i)
                std::swap(permutation[i], permutation[stream.below(i + 1)]);
            used = 0;
        }
        coordinate_.push_back(permutation[used++]);
    }
    for (std::int64_t b = 0; b < bins * tries; ++b)
        donor_.push_back(static_cast<std::int32_t>(stream.below(static_cast<std::uint64_t>(bins))));
}

void Dwta::hash(Arena &arena, int, const VectorRows &x, std::uint32_t *codes) const {
    arena.blocks(x.count, vectors_a_task, [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> vector(static_cast<std::size_t>(dim_ + 1));
        std::vector<std::int32_t> code(static_cast<std::size_t>(tables() * codes_));
        for (std::int64_t i = begin; i < end; ++i) {
            std::copy_n(x.data + i * x.stride, dim_, vector.begin());
            if (x.origin)
                for (std::int64_t j = 0; j < dim_; ++j) vector[static_cast<std::size_t>(j)] -= x.origin[j];
            vector[static_cast<std::size_t>(dim_)] = x.last ? x.last[i] : 0;
            for (std::size_t b = 0; b < code.size(); ++b) {
                const std::int32_t *bin = coordinate_.data() + b * bin_size;
                std::int32_t best = 0;
                bool all_zero = true;
                for (std::int32_t j = 0; j < bin_size; ++j) {
                    const float value = vector[static_cast<std::size_t>(bin[j])];
                    all_zero &= value == 0;
                    if (value > vector[static_cast<std::size_t>(bin[best])]) best = j;
                }
                code[b] = all_zero ? empty : best;
            }
            for (int t = 0; t < tables(); ++t) {
                std::uint32_t bucket = 0;
                for (int c = 0; c < codes_; ++c) {
                    const auto b = static_cast<std::size_t>(t * codes_ + c);
                    std::int32_t found = code[b];
                    for (int d = 0; found == empty && d < tries; ++d)
                        found = code[static_cast<std::size_t>(donor_[b * tries + static_cast<std::size_t>(d)])];
                    bucket = bucket << bits_a_code | static_cast<std::uint32_t>(found == empty ? 0 : found);
                }
                codes[t * x.count + i] = bucket;
            }
        }
    });
}

} // namespace dslide
