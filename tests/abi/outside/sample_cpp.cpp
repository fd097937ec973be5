// SPDX-License-Identifier: Apache-2.0
// The same question from C++; noexcept is part of the functions' types there.
#include <dslide/dslide.h>
#include <string>

static_assert(noexcept(dslide_version()), "no call throws");

int main() {
    const std::string release = std::to_string(DSLIDE_VERSION_MAJOR) + "." + std::to_string(DSLIDE_VERSION_MINOR) +
                                "." + std::to_string(DSLIDE_VERSION_PATCH);
    return release == dslide_version() && dslide_abi_version() == DSLIDE_ABI_VERSION ? 0 : 1;
}
