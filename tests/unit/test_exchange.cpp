// SPDX-License-Identifier: Apache-2.0
#include "cmocka.hpp"
#include "rank_threads.hpp"

#include "exchange/placement.hpp"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>

using namespace dslide;

namespace {

using Settings = Exchange::Settings;

/// body(exchange) on each of `ranks` ranks.
std::vector<RankOutcome> on_exchanges(int ranks, const std::function<void(Exchange &)> &body,
                                      const Settings &settings = {}) {
    return on_transports(ranks, [&](int, std::unique_ptr<Transport> transport) {
        Exchange exchange(std::move(transport), settings);
        try {
            body(exchange);
        } catch (const std::exception &e) {
            exchange.give_up(e.what());
            throw;
        }
    });
}

std::string texts(const std::vector<RankOutcome> &outcomes) {
    std::string all;
    for (const RankOutcome &o : outcomes) all += std::to_string(o.status) + " " + o.text + "\n";
    return all;
}

std::uint8_t value(int from, int to, std::size_t i) {
    return static_cast<std::uint8_t>(from * 31 + to * 7 + static_cast<int>(i % 251));
}

} // namespace

static void test_exchange__blocks_of_any_size_arrive(void **) {
    std::string failing;
    {
        for (const int ranks : {1, 2, 3, 5, 8})
            for (const std::size_t most : {std::size_t{1} << 30, std::size_t{100}}) {
                Settings settings;
                settings.most_message_bytes = most;
                std::atomic<int> wrong = 0;
                const auto outcomes = on_exchanges(
                    ranks,
                    [&](Exchange &exchange) {
                        for (const std::size_t unit : {0, 1, 333}) {
                            std::vector<std::size_t> bytes;
                            for (int r = 0; r < ranks; ++r) bytes.push_back(unit * static_cast<std::size_t>(r % 3));
                            exchange.all_gather(Phase::predict, bytes, [&](std::byte *to) {
                                for (std::size_t i = 0; i < bytes[static_cast<std::size_t>(exchange.rank())]; ++i)
                                    to[i] = std::byte{value(exchange.rank(), 0, i)};
                            });
                            for (int r = 0; r < ranks; ++r)
                                for (std::size_t i = 0; i < bytes[static_cast<std::size_t>(r)]; ++i)
                                    wrong += exchange.block(r)[i] != std::byte{value(r, 0, i)};
                            const auto size = [&](int from, int to) {
                                return unit * static_cast<std::size_t>((from + 2 * to) % 4);
                            };
                            exchange.all_to_all(Phase::loss, size, [&](int to, std::byte *block) {
                                for (std::size_t i = 0; i < size(exchange.rank(), to); ++i)
                                    block[i] = std::byte{value(exchange.rank(), to, i)};
                            });
                            for (int r = 0; r < ranks; ++r)
                                for (std::size_t i = 0; i < size(r, exchange.rank()); ++i)
                                    wrong += exchange.block(r)[i] != std::byte{value(r, exchange.rank(), i)};
                        }
                    },
                    settings);
                for (const RankOutcome &o : outcomes)
                    if (o.status != DSLIDE_OK || wrong) failing += std::to_string(ranks) + " ranks: " + o.text + "; ";
            }
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_exchange__a_failure_is_told_to_all_and_the_exchange_goes_on(void **) {
    std::string failing;
    {
        for (int failing_rank = 0; failing_rank < 3; ++failing_rank) {
            std::atomic<int> told = 0, later = 0;
            const auto outcomes = on_exchanges(3, [&](Exchange &exchange) {
                const std::vector<std::size_t> bytes(3, 10);
                exchange.local([&] {
                    if (exchange.rank() == failing_rank) fail(DSLIDE_E_FORMAT, "bad luck");
                });
                try {
                    exchange.all_gather(Phase::feed, bytes, [](std::byte *) {});
                } catch (const Error &e) {
                    const bool own = exchange.rank() == failing_rank;
                    const std::string expected =
                        own ? "bad luck" : "rank " + std::to_string(failing_rank) + ": bad luck";
                    told += e.status() == (own ? DSLIDE_E_FORMAT : DSLIDE_E_PEER) && expected == e.what();
                }
                exchange.all_gather(Phase::feed, bytes, [](std::byte *to) { std::memset(to, 7, 10); });
                later += exchange.block((exchange.rank() + 1) % 3)[9] == std::byte{7};
            });
            if (told != 3 || later != 3) failing += std::to_string(failing_rank) + ": " + texts(outcomes);
        }
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_exchange__a_rank_that_leaves_is_named_at_once(void **) {
    std::string failing;
    double seconds = 0;
    {
        const auto start = std::chrono::steady_clock::now();
        for (const bool last_words : {true, false}) {
            const auto outcomes = on_exchanges(4, [&](Exchange &exchange) {
                if (exchange.rank() == 2) {
                    if (last_words) fail(DSLIDE_E_IO, "no disk");
                    return;
                }
                exchange.all_gather(Phase::loss, std::vector<std::size_t>(4, 1000), [](std::byte *) {});
            });
            for (int r = 0; r < 4; ++r) {
                const RankOutcome &o = outcomes[static_cast<std::size_t>(r)];
                if (r != 2 &&
                    (o.status != DSLIDE_E_PEER || o.text.find(last_words ? "no disk" : "rank 2") == std::string::npos))
                    failing += texts(outcomes);
            }
        }
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    assert_string_equal(failing.c_str(), "");
    assert_true(seconds < 30); // far below the deadline of 60 s
}

static void test_exchange__a_silent_rank_is_named_when_time_is_out(void **) {
    std::string failing;
    {
        Settings settings;
        settings.timeout_seconds = 0.2;
        std::atomic<int> done = 0;
        const auto outcomes = on_exchanges(
            3,
            [&](Exchange &exchange) {
                if (exchange.rank() == 1)
                    while (done < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                else
                    try {
                        exchange.all_gather(Phase::gradients, std::vector<std::size_t>(3, 8), [](std::byte *) {});
                    } catch (...) {
                        ++done;
                        throw;
                    }
            },
            settings);
        for (const int r : {0, 2}) {
            const RankOutcome &o = outcomes[static_cast<std::size_t>(r)];
            if (o.status != DSLIDE_E_PEER || o.text.find("rank 1") == std::string::npos) failing += texts(outcomes);
        }
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_exchange__a_rank_that_comes_too_late_is_told_why_the_others_left(void **) {
    std::string failing;
    double seconds = 0;
    {
        std::atomic<int> done = 0;
        const auto outcomes = on_transports(3, [&](int rank, std::unique_ptr<Transport> transport) {
            Settings settings;
            settings.timeout_seconds = rank == 1 ? 60 : 0.2;
            Exchange exchange(std::move(transport), settings);
            const auto gather = [&] {
                exchange.all_gather(Phase::gradients, std::vector<std::size_t>(3, 8), [](std::byte *) {});
            };
            if (rank != 1) try {
                    gather();
                } catch (...) {
                    ++done;
                    throw;
                }
            while (done < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            const auto start = std::chrono::steady_clock::now();
            try {
                gather();
            } catch (...) {
                seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
                throw;
            }
        });
        const RankOutcome &late = outcomes[1];
        if (late.status != DSLIDE_E_PEER || late.text.find("time-out in gradients: rank 1") == std::string::npos)
            failing = texts(outcomes);
    }
    assert_string_equal(failing.c_str(), "");
    assert_true(seconds < 30); // not by its own deadline
}

static void test_exchange__after_a_time_out_every_call_says_why(void **) {
    std::string failing;
    {
        Settings settings;
        settings.timeout_seconds = 0.1;
        std::atomic<bool> done = false;
        on_exchanges(
            2,
            [&](Exchange &exchange) {
                if (exchange.rank() == 1) {
                    while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    return;
                }
                std::string first, second;
                for (std::string *text : {&first, &second}) try {
                        exchange.agree(Call::trainer_step, 1);
                    } catch (const Error &e) {
                        *text = e.what();
                    }
                if (first.empty() || first != second) failing = "first: " + first + ", second: " + second;
                done = true;
            },
            settings);
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_exchange__ranks_in_different_calls_are_told(void **) {
    std::string failing;
    {
        const auto outcomes = on_exchanges(3, [](Exchange &exchange) {
            exchange.agree(exchange.rank() == 1 ? Call::model_save : Call::trainer_step, 0);
        });
        for (const RankOutcome &o : outcomes)
            if (o.status != DSLIDE_E_STATE || o.text.find("dslide_model_save()") == std::string::npos ||
                o.text.find("dslide_trainer_step()") == std::string::npos)
                failing += texts(outcomes);
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_exchange__cancel_ends_a_wait_on_every_rank(void **) {
    std::string failing;
    {
        std::atomic<Exchange *> waiting = nullptr;
        const auto outcomes = on_exchanges(3, [&](Exchange &exchange) {
            if (exchange.rank() == 0) waiting = &exchange;
            if (exchange.rank() == 1) { // cancels rank 0 from another thread, then comes late
                while (!waiting) std::this_thread::yield();
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                waiting.load()->cancel();
                std::this_thread::sleep_for(std::chrono::milliseconds(200));
            }
            exchange.agree(Call::trainer_run, 0);
        });
        if (outcomes[0].status != DSLIDE_E_STOPPED) failing += texts(outcomes);
        for (const int r : {1, 2})
            if (outcomes[static_cast<std::size_t>(r)].status == DSLIDE_OK) failing += texts(outcomes);
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_exchange__traffic_is_counted(void **) {
    std::int64_t sent = 0, received = 0, messages = 0;
    {
        on_exchanges(4, [&](Exchange &exchange) {
            exchange.all_gather(Phase::activations, {100, 200, 300, 400}, [](std::byte *) {});
            if (exchange.rank() != 1) return;
            sent = exchange.traffic(Phase::activations).bytes_sent;
            received = exchange.traffic(Phase::activations).bytes_received;
            messages = exchange.traffic(Phase::activations).messages_sent;
        });
    }
    assert_int_equal(messages, 3);
    assert_int_equal(sent, 3 * (200 + 32)); // a header of 32 bytes a message
    assert_int_equal(received, 100 + 300 + 400 + 3 * 32);
}

static void test_placement__each_class_has_one_place(void **) {
    std::string failing;
    {
        std::vector<std::int64_t> counts;
        for (std::int64_t c = 0; c < 1000; ++c) counts.push_back(100000 / (1 + c)); // Zipf
        for (const bool known : {true, false})
            for (const std::vector<double> &shares :
                 {std::vector<double>(1, 1.0), std::vector<double>(3, 1.0), std::vector<double>{1.6, 0.8, 0.6}}) {
                std::vector<int> owners(1000);
                const auto ranks = static_cast<int>(shares.size());
                double most = 0, sum = 0;
                for (int r = 0; r < ranks; ++r) {
                    const Placement p(1000,
                                      known ? std::span<const std::int64_t>(counts) : std::span<const std::int64_t>(),
                                      shares, r, 5);
                    double load = 0;
                    for (std::int64_t row = 0; row < p.rows(r); ++row) {
                        const std::int32_t c = p.class_of(row);
                        ++owners[static_cast<std::size_t>(c)];
                        if (p.row_of(c) != row) failing += "row ";
                        if (row > 0 && c <= p.class_of(row - 1)) failing += "order ";
                        // expected touches in a batch of 100 samples
                        load +=
                            1 - std::pow(1 - static_cast<double>(counts[static_cast<std::size_t>(c)]) / 748500.0, 100);
                    }
                    load /= shares[static_cast<std::size_t>(r)];
                    most = std::max(most, load);
                    sum += load;
                    const double expected = 1000 * shares[static_cast<std::size_t>(r)] / static_cast<double>(ranks);
                    if (std::abs(static_cast<double>(p.rows(r)) - expected) > 1.01) failing += "size ";
                }
                for (const int n : owners)
                    if (n != 1) failing += "owner ";
                if (most / (sum / ranks) > (known ? 1.10 : 1.5))
                    failing += "balance " + std::to_string(most / (sum / ranks)) + " ";
            }
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_placement__neurons_are_cut_in_order(void **) {
    std::vector<std::int64_t> even, odd, few, shares;
    {
        even = cut_neurons(128, std::vector<double>(4, 1.0)).begin;
        odd = cut_neurons(100, std::vector<double>(3, 1.0)).begin;
        few = cut_neurons(2, std::vector<double>(3, 1.0)).begin;
        shares = cut_neurons(128, std::vector<double>{1.5, 0.5}).begin;
    }
    assert_true((even == std::vector<std::int64_t>{0, 32, 64, 96, 128}));
    assert_true((odd == std::vector<std::int64_t>{0, 33, 67, 100}));
    assert_true((few == std::vector<std::int64_t>{0, 1, 1, 2}));
    assert_true((shares == std::vector<std::int64_t>{0, 96, 128}));
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange__blocks_of_any_size_arrive),
        cmocka_unit_test(test_exchange__a_failure_is_told_to_all_and_the_exchange_goes_on),
        cmocka_unit_test(test_exchange__a_rank_that_leaves_is_named_at_once),
        cmocka_unit_test(test_exchange__a_silent_rank_is_named_when_time_is_out),
        cmocka_unit_test(test_exchange__a_rank_that_comes_too_late_is_told_why_the_others_left),
        cmocka_unit_test(test_exchange__after_a_time_out_every_call_says_why),
        cmocka_unit_test(test_exchange__ranks_in_different_calls_are_told),
        cmocka_unit_test(test_exchange__cancel_ends_a_wait_on_every_rank),
        cmocka_unit_test(test_exchange__traffic_is_counted),
        cmocka_unit_test(test_placement__each_class_has_one_place),
        cmocka_unit_test(test_placement__neurons_are_cut_in_order),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
