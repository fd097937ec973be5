// SPDX-License-Identifier: Apache-2.0
// Densified winner-take-all hashing (Chen and Shrivastava, UAI 2018): a code is the place of the largest of 8 randomly
// chosen coordinates, three bits; a bin whose coordinates are all 0 borrows the code of another bin.
#pragma once

#include "lsh/hash_family.hpp"

#include <vector>

namespace dslide {

class Dwta : public HashFamily {
public:
    Dwta(std::int64_t dim, int tables, int codes, std::uint64_t seed);
    int groups() const override { return 1; }
    int first_table(int group) const override { return group == 0 ? 0 : tables(); }
    void hash(Arena &arena, int group, const VectorRows &x, std::uint32_t *codes) const override;

    static constexpr int bin_size = 8;
    static constexpr int bits_a_code = 3;

private:
    std::int64_t dim_;
    int codes_;                            ///< a table
    std::vector<std::int32_t> coordinate_; ///< table x code x bin_size; dim stands for the last coordinate
    std::vector<std::int32_t> donor_;      ///< table x code x tries: bins to borrow from
};

} // namespace dslide
