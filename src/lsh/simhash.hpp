// SPDX-License-Identifier: Apache-2.0
// SimHash (Charikar, STOC 2002): a bit is the sign of a random projection; two vectors at angle a agree on it with
// probability 1 - a / pi.
//
// The projections are rows of H D2 H D1, with H a Walsh-Hadamard matrix and D1, D2 random signs (fast
// Johnson-Lindenstrauss transform, Ailon and Chazelle, STOC 2006): n log n additions for n projections instead of n^2
// multiplications.
#pragma once

#include "lsh/hash_family.hpp"

#include <vector>

namespace dslide {

class SimHash : public HashFamily {
public:
    SimHash(std::int64_t dim, int tables, int bits, std::uint64_t seed);
    int groups() const override { return static_cast<int>((tables() + tables_a_group_ - 1) / tables_a_group_); }
    int first_table(int group) const override { return std::min(group * tables_a_group_, tables()); }
    void hash(Arena &arena, int group, const VectorRows &x, std::uint32_t *codes) const override;

private:
    std::int64_t dim_, size_; ///< of a vector; of the transform, a power of two
    int tables_a_group_;
    std::vector<float> signs_;     ///< group x {D1, D2} x size
    std::vector<float> last_coef_; ///< group x size: the last coordinate's coefficient in each projection
};

} // namespace dslide
