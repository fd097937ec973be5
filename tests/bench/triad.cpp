// SPDX-License-Identifier: Apache-2.0
// The machine's memory bandwidth: a[i] = b[i] + s c[i] over arrays far larger than the caches (McCalpin's STREAM
// triad), bytes counted as three streams. Best of many short windows, so that other load mostly drops out. Prints GB/s.
#include "core/arena.hpp"
#include "core/clock.hpp"
#include "core/memory.hpp"

#include <cstdio>
#include <cstdlib>

int main(int argc, char **argv) {
    const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
    constexpr std::int64_t n = std::int64_t{48} << 20, block = std::int64_t{1} << 16;
    constexpr int windows = 20;
    dslide::Arena arena(threads > 0 ? threads : 1);
    dslide::Array<float> a(n), b(n), c(n);
    const auto pass = [&](float s) {
        arena.blocks(n, block, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                const auto at = static_cast<std::size_t>(i);
                a[at] = b[at] + s * c[at];
            }
        });
    };
    pass(1); // claims the pages
    double best = 0;
    for (int w = 0; w < windows; ++w) {
        const dslide::Stopwatch watch;
        pass(static_cast<float>(w));
        best = std::max(best, 3.0 * n * sizeof(float) / watch.seconds());
    }
    std::printf("%.2f\n", best / 1e9);
    return a[n / 2] == 0 ? 0 : 1;
}
