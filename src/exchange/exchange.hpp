// SPDX-License-Identifier: Apache-2.0
// What ranks send each other: the collectives of a step, on top of a transport.
//
// The rules, each from somebody's hang. Every wait polls, backs off, and looks at a deadline and at the cancel flag.
// Every message carries the sender's state, so that a failure on one rank is an error on all ranks, in the same
// exchange. A collective call begins with an agreement that every rank is in the same call. After a time-out the
// exchange is spent: each later call gives the same error.
//
// A rank alone has the same interface and sends nothing.
#pragma once

#include "exchange/transport.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace dslide {

/// What an exchange is for; traffic is counted by it.
enum class Phase { agree, feed, activations, loss, gradients, tables, predict, weights, checkpoint };
constexpr int phase_count = 9;

/// The public call a rank is in.
enum class Call : std::uint32_t {
    cluster_open = 1,
    cluster_close,
    model_create,
    model_load,
    model_save,
    model_predict,
    model_embed,
    model_get_rows,
    model_set_rows,
    model_evaluate,
    trainer_create,
    trainer_load,
    trainer_save,
    trainer_step,
    trainer_run,
    checkpoint, ///< within a call that saves
};

struct Traffic {
    std::int64_t bytes_sent = 0; ///< payload and headers, without what the network adds
    std::int64_t bytes_received = 0;
    std::int64_t messages_sent = 0;
    double wait_seconds = 0;
};

class Exchange {
public:
    struct Settings {
        double timeout_seconds = 60;
        std::size_t most_message_bytes = std::size_t{1} << 30; ///< longer ones are cut
    };

    /// A rank alone.
    Exchange() = default;
    Exchange(std::unique_ptr<Transport> transport, const Settings &settings);
    ~Exchange();
    Exchange(const Exchange &) = delete;
    Exchange &operator=(const Exchange &) = delete;

    int rank() const { return rank_; }
    int size() const { return size_; }
    bool alone() const { return size_ == 1; }

    /// Work of this rank between two exchanges. What it throws is kept and told to all ranks by the next exchange,
    /// which then throws on all; work in between is left out. On a rank alone it is thrown at once.
    template <class Work>
    void local(Work &&work) {
        if (alone()) return work();
        if (failure_) return;
        try {
            work();
        } catch (...) {
            failure_ = std::current_exception();
        }
    }

    /// A collective call, also one within another. If it ends by an error that the other ranks do not know of, they are
    /// told, and the exchange is spent. On a rank alone any number of threads may be in one.
    template <class Body>
    void collective(Body &&body) {
        if (alone()) return body();
        const bool outer = std::exchange(known_failure_, false);
        try {
            body();
        } catch (const std::exception &e) {
            if (!known_failure_) give_up(e.what());
            known_failure_ = outer;
            throw;
        }
        known_failure_ = outer;
    }
    /// Work that fails on all ranks or on none, for they do the same with the same numbers.
    template <class Work>
    void alike(Work &&work) {
        if (alone()) return work();
        try {
            work();
        } catch (...) {
            known_failure_ = true;
            throw;
        }
    }

    /// Every rank gives a block to every rank; bytes[r] is the size of rank r's, known to all. block(r) is then rank
    /// r's.
    void all_gather(Phase phase, const std::vector<std::size_t> &bytes, const std::function<void(std::byte *)> &fill);
    /// Every rank gives each rank a block of its own; all know all sizes. block(r) is then what rank r gave this one.
    void all_to_all(Phase phase, const std::function<std::size_t(int from, int to)> &bytes,
                    const std::function<void(int to, std::byte *)> &fill);
    /// Valid until the next exchange.
    const std::byte *block(int from) const { return in_[static_cast<std::size_t>(from)].payload; }

    /// Throws E_STATE on every rank unless all are in the same call; returns what each of them says to it.
    template <class T>
    std::vector<T> agree(Call call, const T &mine) {
        static_assert(sizeof(T) <= agreement_bytes && std::is_trivially_copyable_v<T>);
        if (alone()) return {mine};
        std::vector<T> all(static_cast<std::size_t>(size_));
        std::array<std::byte, agreement_bytes> bytes{};
        std::memcpy(bytes.data(), &mine, sizeof(T));
        agree_bytes(call, bytes);
        for (int r = 0; r < size_; ++r)
            std::memcpy(&all[static_cast<std::size_t>(r)], agreed_[static_cast<std::size_t>(r)].data(), sizeof(T));
        return all;
    }
    /// As above; throws E_ARGUMENT on every rank unless all say the same. T has no padding.
    template <class T>
    void agree(Call call, const T &mine, const char *what) {
        static_assert(std::has_unique_object_representations_v<T>);
        const std::vector<T> all = agree(call, mine);
        for (int r = 1; r < size_; ++r)
            if (std::memcmp(&all[0], &all[static_cast<std::size_t>(r)], sizeof(T)) != 0) fail_difference(what, r);
    }

    /// Tells the other ranks that this one left a collective call by an error that they cannot know of, and is spent.
    void give_up(const char *text) noexcept;
    /// From any thread: the exchange under way, or the next one, fails.
    void cancel() { cancelled_ = true; }
    /// Throws if an earlier failure left the exchange unusable.
    void need_usable() const;
    /// Takes leave of the other ranks.
    void close();
    /// Ends the transport, where all ranks know that they do.
    void end();

    const Traffic &traffic(Phase phase) const { return traffic_[static_cast<std::size_t>(phase)]; }
    Traffic total_traffic() const;

private:
    static constexpr std::size_t agreement_bytes = 48;
    struct Buffer {
        std::vector<std::byte> bytes;
        std::byte *payload = nullptr;
    };
    void trade(Phase phase, const std::function<std::size_t(int from, int to)> &bytes, bool same_to_all,
               const std::function<void(int to, std::byte *)> &fill);
    void swap_messages(Phase phase, const std::vector<Parcel> &parcels);
    /// Throws what a rank said before it left, if any did.
    void listen_for_last_words();
    [[noreturn]] void fail_difference(const char *what, int rank);
    void agree_bytes(Call call, const std::array<std::byte, agreement_bytes> &mine);
    void check_headers(Phase phase);
    [[noreturn]] void give_up_waiting(Phase phase, const char *why, const std::vector<int> &guilty);
    void spend(const char *text) noexcept;

    std::unique_ptr<Transport> transport_;
    Settings settings_;
    int rank_ = 0, size_ = 1;
    std::uint64_t sequence_ = 0;
    std::exception_ptr failure_; ///< of local work, not told yet
    bool known_failure_ = false; ///< the error on its way is one on every rank
    bool is_spent_ = false;
    std::array<char, 512> spent_{}; ///< why the exchange cannot be used any more
    std::atomic<bool> cancelled_ = false;
    std::vector<Buffer> out_{1}, in_{1};
    std::vector<std::array<std::byte, agreement_bytes>> agreed_;
    std::array<Traffic, phase_count> traffic_;
};

} // namespace dslide
