// SPDX-License-Identifier: Apache-2.0
// Run by mpirun: what the ranks send each other arrives, failures reach all, and training gives the weights of one
// rank. Rank 0 prints; the exit code tells.
#include "exchange/mpi_transport.hpp"
#include "rank_cases.hpp"

#include <dslide/cluster.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>

using namespace dslide;

namespace {

int failures = 0;

void expect(bool ok, const char *what) {
    if (ok) return;
    ++failures;
    std::fprintf(stderr, "failed: %s\n", what);
}

dslide_status status_of(const std::function<void()> &body, std::string &text) {
    try {
        body();
        return DSLIDE_OK;
    } catch (const Error &e) {
        text = e.what();
        return e.status();
    }
}

std::byte value(int from, int to, std::size_t i) {
    return static_cast<std::byte>((from * 31 + to * 7 + static_cast<int>(i % 251)) & 0xff);
}

void blocks_of_any_size_arrive(Exchange &exchange) {
    const int me = exchange.rank();
    bool ok = true;
    for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{333}, std::size_t{300000}}) {
        const auto size = [&](int from, int to) { return unit * static_cast<std::size_t>((from + 2 * to) % 4); };
        exchange.all_to_all(Phase::loss, size, [&](int to, std::byte *block) {
            for (std::size_t i = 0; i < size(me, to); ++i) block[i] = value(me, to, i);
        });
        for (int r = 0; r < exchange.size(); ++r)
            for (std::size_t i = 0; i < size(r, me); ++i) ok &= exchange.block(r)[i] == value(r, me, i);
    }
    expect(ok, "blocks of any size arrive");
}

void a_failure_is_told_to_all(Exchange &exchange) {
    const std::vector<std::size_t> bytes(static_cast<std::size_t>(exchange.size()), 100000);
    std::string text;
    exchange.local([&] {
        if (exchange.rank() == exchange.size() - 1) fail(DSLIDE_E_FORMAT, "bad luck");
    });
    const dslide_status status = status_of([&] { exchange.all_gather(Phase::feed, bytes, [](std::byte *) {}); }, text);
    const bool own = exchange.rank() == exchange.size() - 1;
    expect(status == (own ? DSLIDE_E_FORMAT : DSLIDE_E_PEER) && text.find("bad luck") != std::string::npos,
           "a failure is told to all");
    exchange.all_gather(Phase::feed, bytes, [](std::byte *to) { std::memset(to, 9, 100000); });
    expect(exchange.block(exchange.size() - 1)[99999] == std::byte{9}, "the exchange goes on after a failure");
}

void ranks_in_different_calls_are_told(Exchange &exchange) {
    std::string text;
    const dslide_status status =
        status_of([&] { exchange.agree(exchange.rank() == 0 ? Call::model_save : Call::trainer_step, 0); }, text);
    expect(status == DSLIDE_E_STATE && text.find("dslide_model_save()") != std::string::npos,
           "ranks in different calls are told");
}

void training_gives_the_weights_of_one_rank(const std::shared_ptr<Cluster> &cluster) {
    for (int kind = 0; kind < 4; ++kind) {
        const auto shape = shape_of({40, 24});
        const auto alone = std::make_shared<Cluster>(1);
        const Result start = train_on(alone, shape, forced(kind), 0), one = train_on(alone, shape, forced(kind));
        const Result many = train_on(cluster, shape, forced(kind));
        expect(difference(one, many, start) < 2e-5 && one.top == many.top && one.rows_touched == many.rows_touched,
               "training gives the weights of one rank");
    }
}

/// What a host does that knows all ranks to be well: after a failure the cluster does not, for some may be gone.
void finalize_mpi(const char *module) {
    void *handle = dlopen(module, RTLD_NOW | RTLD_NOLOAD);
    const auto finalize = reinterpret_cast<int (*)()>(handle ? dlsym(handle, "MPI_Finalize") : nullptr);
    expect(finalize && finalize() == 0, "MPI can be finalised after a failure");
}

/// The last rank leaves; the others learn it before the deadline. The cluster is spent.
void a_rank_that_leaves_is_named(Exchange &exchange) {
    std::string text;
    const dslide_status status = status_of(
        [&] {
            exchange.collective([&] {
                if (exchange.rank() == exchange.size() - 1) fail(DSLIDE_E_IO, "no disk");
                // Long messages are half way: the words must pass them by.
                const std::vector<std::size_t> bytes(static_cast<std::size_t>(exchange.size()), 3000000);
                exchange.all_gather(Phase::feed, bytes, [](std::byte *to) { std::memset(to, 9, 3000000); });
            });
        },
        text);
    expect(status == (exchange.rank() == exchange.size() - 1 ? DSLIDE_E_IO : DSLIDE_E_PEER) &&
               text.find("no disk") != std::string::npos,
           "a rank that leaves is named");
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 4) return 2; // module, ranks expected, how to end: close or leave
    const bool leaves = std::strcmp(argv[3], "leave") == 0 && std::strcmp(argv[2], "1") != 0;
    try {
        Cluster::Settings settings;
        settings.threads = 1;
        settings.exchange.timeout_seconds = 50;
        settings.exchange.most_message_bytes = leaves ? 1000000 : 100000;
        const auto cluster =
            std::make_shared<Cluster>(settings, make_mpi_transport(DSLIDE_COMM_WORLD, {argv[1], true, 50}));
        expect(cluster->size() == std::atoi(argv[2]), "the cluster has all ranks");
        if (cluster->size() > 1) {
            blocks_of_any_size_arrive(cluster->exchange());
            a_failure_is_told_to_all(cluster->exchange());
            ranks_in_different_calls_are_told(cluster->exchange());
        }
        if (!leaves) training_gives_the_weights_of_one_rank(cluster);
        if (leaves) a_rank_that_leaves_is_named(cluster->exchange());
        cluster->close();
        if (leaves) finalize_mpi(argv[1]);
        if (cluster->rank() == 0) std::printf("%s\n", failures ? "failed" : "passed");
    } catch (const std::exception &e) {
        std::fprintf(stderr, "failed: %s\n", e.what());
        ++failures;
    }
    std::fflush(nullptr);
    return failures > 0;
}
