// SPDX-License-Identifier: Apache-2.0
// The threads of a cluster handle: one TBB arena, started at its first use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tbb/blocked_range.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

namespace dslide {

/// Threads this process may use: the smaller of its affinity mask and its cgroup CPU quota (v1 and v2), at least 1.
int available_threads();

class Arena {
public:
    // No more slots than CPUs: oneTBB would not fill them, and would say so on the host's stderr.
    explicit Arena(int threads) : arena_(std::min(threads, tbb::info::default_concurrency())), threads_(threads) {}
    int threads() const { return threads_; }

    /// Runs body() inside the arena, on the calling thread; parallel loops within it use the arena's threads.
    template <class Body>
    auto run(Body &&body) {
        return arena_.execute(std::forward<Body>(body));
    }

    /// body(i) for i in [0, n), each a task. Which thread takes which i is open: results must not depend on it.
    template <class Body>
    void each(std::int64_t n, Body &&body) {
        if (n == 1 || threads_ == 1) {
            for (std::int64_t i = 0; i < n; ++i) body(i);
            return;
        }
        arena_.execute([&] {
            tbb::parallel_for(
                tbb::blocked_range<std::int64_t>(0, n, 1),
                [&](const tbb::blocked_range<std::int64_t> &range) {
                    for (std::int64_t i = range.begin(); i != range.end(); ++i) body(i);
                },
                tbb::simple_partitioner());
        });
    }

    /// body(begin, end) over [0, n) in blocks of `block`; the cut does not depend on the thread count.
    template <class Body>
    void blocks(std::int64_t n, std::int64_t block, Body &&body) {
        each((n + block - 1) / block, [&](std::int64_t i) { body(i * block, std::min(n, (i + 1) * block)); });
    }

private:
    tbb::task_arena arena_;
    int threads_;
};

} // namespace dslide
