// SPDX-License-Identifier: Apache-2.0
// A small set of rows, to keep a sample's rows distinct: open addressing over a power of two.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace dslide {

class RowSet {
public:
    /// Empties the set and makes room for `most` rows.
    void reset(std::int64_t most) {
        const std::size_t size = std::bit_ceil(static_cast<std::size_t>(2 * most + 2));
        slots_.assign(size, -1);
    }
    /// False if the row is in already.
    bool insert(std::int32_t row) {
        const std::size_t mask = slots_.size() - 1;
        for (std::size_t at = static_cast<std::uint32_t>(row) * std::size_t{0x9e3779b1} >> 7 & mask;;
             at = (at + 1) & mask) {
            if (slots_[at] == row) return false;
            if (slots_[at] != -1) continue;
            slots_[at] = row;
            return true;
        }
    }

private:
    std::vector<std::int32_t> slots_;
};

} // namespace dslide
