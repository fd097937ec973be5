// SPDX-License-Identifier: Apache-2.0
#include "exchange/thread_transport.hpp"

#include "core/error.hpp"

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

namespace dslide {
namespace {

/// What one rank has laid out for another. A rank is never more than one message ahead.
struct Mailbox {
    std::mutex mutex;
    const void *data = nullptr; ///< null: empty
    std::size_t bytes = 0;
    std::string last_words;
};

struct Hub {
    explicit Hub(int n)
        : ranks(n), boxes(static_cast<std::size_t>(n) * static_cast<std::size_t>(n)), gone(boxes.size()) {}
    Mailbox &box(int from, int to) { return boxes[static_cast<std::size_t>(from * ranks + to)]; }

    const int ranks;
    std::vector<Mailbox> boxes;
    std::vector<std::atomic<bool>> gone; ///< a flag a rank
};

class ThreadTransport final : public Transport {
public:
    ThreadTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
    ~ThreadTransport() override { abandon(); }

    int rank() const override { return rank_; }
    int size() const override { return hub_->ranks; }

    void start(const std::vector<Parcel> &parcels) override {
        parcels_ = parcels;
        received_.assign(parcels.size(), -1);
        received_[static_cast<std::size_t>(rank_)] = 0;
        for (int to = 0; to < size(); ++to) {
            if (to == rank_) continue;
            const Parcel &parcel = parcels[static_cast<std::size_t>(to)];
            Mailbox &box = hub_->box(rank_, to);
            const std::lock_guard lock(box.mutex);
            box.data = parcel.out ? parcel.out : this; // an empty message is one too
            box.bytes = parcel.out_bytes;
        }
    }

    bool test() override {
        bool done = true;
        for (int peer = 0; peer < size(); ++peer) {
            if (peer == rank_) continue;
            if (received(peer) < 0) take(peer);
            done &= !is_pending(peer);
        }
        return done;
    }

    std::ptrdiff_t received(int from) const override { return received_[static_cast<std::size_t>(from)]; }
    bool is_pending(int peer) override { return received(peer) < 0 || !is_taken(peer); }
    bool is_gone(int peer) const override { return hub_->gone[static_cast<std::size_t>(peer)]; }

    void send_last_words(std::string_view words) noexcept override {
        try {
            for (int to = 0; to < size(); ++to) {
                Mailbox &box = hub_->box(rank_, to);
                const std::lock_guard lock(box.mutex);
                box.last_words = words.substr(0, most_last_words);
            }
        } catch (...) { // without them the others learn that this rank is gone
        }
    }

    std::string last_words(int from) override {
        Mailbox &box = hub_->box(from, rank_);
        const std::lock_guard lock(box.mutex);
        return box.last_words;
    }

    void abandon() noexcept override {
        for (int to = 0; to < size(); ++to) {
            Mailbox &box = hub_->box(rank_, to);
            const std::lock_guard lock(box.mutex);
            box.data = nullptr;
        }
        hub_->gone[static_cast<std::size_t>(rank_)] = true;
    }

    bool writes_after_abandon() const override { return false; } // this rank itself copies what it receives

    void close() override { abandon(); }

private:
    void take(int from) {
        const Parcel &parcel = parcels_[static_cast<std::size_t>(from)];
        Mailbox &box = hub_->box(from, rank_);
        const std::lock_guard lock(box.mutex);
        const void *data = box.data;
        const std::size_t bytes = box.bytes;
        if (!data) return;
        if (bytes > parcel.in_capacity)
            fail(DSLIDE_E_INTERNAL, "rank ", from, " sent ", bytes, " bytes, expected at most ", parcel.in_capacity);
        if (bytes > 0) std::memcpy(parcel.in, data, bytes);
        box.data = nullptr;
        received_[static_cast<std::size_t>(from)] = static_cast<std::ptrdiff_t>(bytes);
    }

    bool is_taken(int by) {
        Mailbox &box = hub_->box(rank_, by);
        const std::lock_guard lock(box.mutex);
        return box.data == nullptr;
    }

    std::shared_ptr<Hub> hub_;
    int rank_;
    std::vector<Parcel> parcels_;
    std::vector<std::ptrdiff_t> received_;
};

} // namespace

std::vector<std::unique_ptr<Transport>> make_thread_transports(int ranks) {
    const auto hub = std::make_shared<Hub>(ranks);
    std::vector<std::unique_ptr<Transport>> transports;
    for (int r = 0; r < ranks; ++r) transports.push_back(std::make_unique<ThreadTransport>(hub, r));
    return transports;
}

} // namespace dslide
