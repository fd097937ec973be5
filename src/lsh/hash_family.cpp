// SPDX-License-Identifier: Apache-2.0
#include "lsh/hash_family.hpp"

#include "core/error.hpp"
#include "lsh/dwta.hpp"
#include "lsh/simhash.hpp"

#include <dslide/hashtable.h>

namespace dslide {

int possible_bits(std::int32_t family, int bits) {
    return family == DSLIDE_HASH_DWTA ? std::max(1, bits / Dwta::bits_a_code) * Dwta::bits_a_code : bits;
}

std::unique_ptr<HashFamily> make_hash_family(std::int32_t family, std::int64_t dim, int tables, int bits,
                                             std::uint64_t seed) {
    bits = possible_bits(family, bits);
    switch (family) {
    case DSLIDE_HASH_SIMHASH:
        return std::make_unique<SimHash>(dim, tables, bits, seed);
    case DSLIDE_HASH_DWTA:
        return std::make_unique<Dwta>(dim, tables, bits / Dwta::bits_a_code, seed);
    default:
        fail(DSLIDE_E_ARGUMENT, "hash family ", family, " is unknown");
    }
}

} // namespace dslide
