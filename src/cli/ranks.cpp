// SPDX-License-Identifier: Apache-2.0
#include "cli/ranks.hpp"

#include "cli/errors.hpp"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

namespace dslide::cli {

namespace {

/// The first of the variables that launchers set, or null. Open MPI, MPICH and their kin.
const char *launcher_variable(std::initializer_list<const char *> names) {
    for (const char *name : names)
        if (const char *value = std::getenv(name)) return value;
    return nullptr;
}

std::int32_t resolved_transport(const RankFlags &flags) {
    if (flags.transport != transport_auto) return flags.transport;
    if (flags.ranks > 1) return transport_threads;
    const char *size = launcher_variable({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"});
    return size && std::strcmp(size, "1") != 0 ? transport_mpi : transport_self;
}

dslide_cluster_options cluster_options(const RankFlags &flags, std::int32_t threads) {
    dslide_cluster_options options;
    dslide_cluster_options_init(&options, sizeof options);
    options.threads = threads;
    options.timeout_seconds = flags.timeout;
    options.payload = flags.payload;
    options.init_mpi = 1;
    return options;
}

/// Where body fails, the handle is freed: the others learn that this rank is gone.
int run_and_close(Cluster cluster, bool speaks, const RankBody &body) {
    const int code = body(cluster, speaks);
    check(dslide_cluster_close(cluster.release()));
    return code;
}

int on_threads(const RankFlags &flags, std::int32_t threads, const RankBody &body) {
    const auto n = static_cast<std::size_t>(flags.ranks);
    std::vector<dslide_cluster *> handles(n);
    const dslide_cluster_options options = cluster_options(flags, threads);
    check(dslide_cluster_open_threads(&options, flags.ranks, handles.data()));
    std::vector<std::exception_ptr> failures(n);
    std::vector<int> codes(n);
    {
        std::vector<std::jthread> ranks;
        for (std::size_t r = 0; r < n; ++r)
            ranks.emplace_back([&, r, cluster = Cluster(handles[r])]() mutable {
                try {
                    codes[r] = run_and_close(std::move(cluster), r == 0, body);
                } catch (...) {
                    failures[r] = std::current_exception();
                }
            });
    }
    for (const std::exception_ptr &failure : failures)
        if (failure) std::rethrow_exception(failure);
    return codes.front();
}

} // namespace

bool is_first_process() {
    const char *rank = launcher_variable({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"});
    return !rank || std::strcmp(rank, "0") == 0;
}

int on_ranks(const RankFlags &flags, std::int32_t threads, const RankBody &body) {
    const std::int32_t transport = resolved_transport(flags);
    if (transport == transport_threads) return on_threads(flags, threads, body);
    const dslide_cluster_options options = cluster_options(flags, threads);
    dslide_cluster *handle = nullptr;
    std::int32_t rank = 0;
    if (transport == transport_mpi) {
        if (flags.ranks > 0) throw UsageError("--ranks contradicts --transport mpi: mpirun -n says how many");
        check(dslide_cluster_open_f(&options, DSLIDE_COMM_WORLD, &handle));
    } else {
        check(dslide_cluster_open_self(&options, &handle));
    }
    Cluster cluster(handle);
    check(dslide_cluster_rank(handle, &rank));
    return run_and_close(std::move(cluster), rank == 0, body);
}

} // namespace dslide::cli
