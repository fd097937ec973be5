// SPDX-License-Identifier: Apache-2.0
#include "simd/tables.hpp"

#include <cstring>

namespace dslide::simd {

const Kernels &kernels() { return plain_kernels; }

const Kernels *find_kernels(const char *name) { return std::strcmp(name, "plain") == 0 ? &plain_kernels : nullptr; }

const char *const *kernel_names() {
    static const char *const names[] = {"plain", nullptr};
    return names;
}

const char *kernel_choice() { return "best of this CPU"; }

} // namespace dslide::simd
