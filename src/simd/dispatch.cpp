// SPDX-License-Identifier: Apache-2.0
#include "simd/tables.hpp"

#include <cstdlib>
#include <cstring>
#include <string>

namespace dslide::simd {
namespace {

struct Choice {
    std::vector<Kernels> tables; ///< what this CPU can run, best last
    std::vector<const char *> names;
    const Kernels *used = nullptr;
    std::string how;

    Choice() {
        tables.push_back(plain_kernels);
        add_vector_tables(tables);
        add_bf16_table(tables);
        for (const Kernels &table : tables) names.push_back(table.name);
        names.push_back(nullptr);
        choose(std::getenv("DSLIDE_ISA"));
    }

    const Kernels *find(const char *name) const {
        for (const Kernels &table : tables)
            if (std::strcmp(table.name, name) == 0) return &table;
        return nullptr;
    }

    void choose(const char *wish) {
        used = wish ? find(wish) : nullptr;
        if (used) {
            how = "named by DSLIDE_ISA";
            return;
        }
        used = &tables.back();
        how = "best of this CPU";
        if (wish && *wish) how += std::string("; DSLIDE_ISA=") + wish + " is unknown or unavailable here";
    }
};

const Choice &choice() {
    static const Choice made;
    return made;
}

} // namespace

const Kernels &kernels() { return *choice().used; }
const Kernels *find_kernels(const char *name) { return choice().find(name); }
const char *const *kernel_names() { return choice().names.data(); }
const char *kernel_choice() { return choice().how.c_str(); }

} // namespace dslide::simd
