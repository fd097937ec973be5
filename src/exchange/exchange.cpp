// SPDX-License-Identifier: Apache-2.0
#include "exchange/exchange.hpp"

#include "core/clock.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <thread>

namespace dslide {
namespace {

constexpr std::array<const char *, phase_count> phase_names{"an agreement", "the feeding of rows", "activations",
                                                            "the loss",     "gradients",           "hash tables",
                                                            "a prediction", "the copy of weights", "a checkpoint"};

constexpr std::array<const char *, 17> call_names{"no call",
                                                  "the opening of a cluster",
                                                  "dslide_cluster_close()",
                                                  "dslide_model_create()",
                                                  "dslide_model_load()",
                                                  "dslide_model_save()",
                                                  "dslide_model_predict()",
                                                  "dslide_model_embed()",
                                                  "dslide_model_get_rows()",
                                                  "dslide_model_set_rows()",
                                                  "dslide_model_evaluate()",
                                                  "dslide_trainer_create()",
                                                  "dslide_trainer_load()",
                                                  "dslide_trainer_save()",
                                                  "dslide_trainer_step()",
                                                  "dslide_trainer_run()",
                                                  "the writing of a checkpoint"};

/// Before the payload of each message; alone, followed by a text, where the sender failed.
struct Header {
    std::uint64_t magic = 0;
    std::uint64_t sequence = 0; ///< of the exchange, from 1
    std::int32_t status = 0;    ///< of the sender; not 0: the payload is a text
    std::uint32_t phase = 0;
    std::uint64_t reserved = 0;
};
static_assert(sizeof(Header) == 32);

constexpr std::uint64_t header_magic = 0x6473'6c69'6465'0001ULL; // "dslide", layout 1
constexpr std::size_t most_text_bytes = 480;

const char *name_of(std::uint32_t call) { return call < call_names.size() ? call_names[call] : "an unknown call"; }

/// Status and text of a kept failure.
Error described(const std::exception_ptr &failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const Error &e) {
        return e;
    } catch (const std::bad_alloc &) {
        return {DSLIDE_E_MEMORY, "out of memory"};
    } catch (const std::exception &e) {
        return {DSLIDE_E_INTERNAL, e.what()};
    } catch (...) {
        return {DSLIDE_E_INTERNAL, "unknown exception"};
    }
}

std::size_t write_failure(std::byte *to, Header header, dslide_status status, const char *text) noexcept {
    header.status = status;
    const std::size_t length = std::min(std::strlen(text), most_text_bytes);
    std::memcpy(to, &header, sizeof header);
    std::memcpy(to + sizeof header, text, length);
    return sizeof header + length;
}

/// Waits longer from one call to the next: first not at all, then as long as other threads like, then asleep.
class BackOff {
public:
    void wait() {
        ++turns_;
        if (turns_ < 200) return;
        if (turns_ < 400) return std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::microseconds(std::min(20 * (turns_ - 399), 1000)));
    }

private:
    int turns_ = 0;
};

} // namespace

Exchange::Exchange(std::unique_ptr<Transport> transport, const Settings &settings)
    : transport_(std::move(transport)), settings_(settings), rank_(transport_->rank()), size_(transport_->size()),
      out_(static_cast<std::size_t>(size_)), in_(static_cast<std::size_t>(size_)),
      agreed_(static_cast<std::size_t>(size_)) {}

// Buffers that messages may still be written into are left to the process.
Exchange::~Exchange() {
    if (!transport_ || !is_spent_ || !transport_->writes_after_abandon()) return;
    for (std::vector<Buffer> *side : {&out_, &in_})
        for (Buffer &buffer : *side) new std::vector<std::byte>(std::move(buffer.bytes));
}

void Exchange::need_usable() const {
    if (is_spent_) fail(cancelled_ ? DSLIDE_E_STOPPED : DSLIDE_E_PEER, spent_.data());
}

void Exchange::spend(const char *text) noexcept {
    if (is_spent_) return;
    is_spent_ = true;
    std::strncpy(spent_.data(), text, spent_.size() - 1);
    transport_->abandon();
}

void Exchange::give_up(const char *text) noexcept {
    if (alone() || is_spent_) return;
    transport_->send_last_words(text);
    spend(text);
}

void Exchange::give_up_waiting(Phase phase, const char *why, const std::vector<int> &guilty) {
    constexpr std::size_t most_named = 8;
    std::string text = std::string(why) + " in " + phase_names[static_cast<std::size_t>(phase)];
    for (std::size_t i = 0; i < std::min(guilty.size(), most_named); ++i)
        text += (i == 0 ? ": rank " : ", rank ") + std::to_string(guilty[i]);
    if (guilty.size() > most_named) text += ", ...";
    give_up(text.c_str());
    throw Error(cancelled_ ? DSLIDE_E_STOPPED : DSLIDE_E_PEER, text);
}

void Exchange::listen_for_last_words() {
    for (int r = 0; r < size_; ++r) {
        // A rank that has done its part of this exchange may have left after it: the next one is the first to fail.
        if (r == rank_ || !transport_->is_pending(r)) continue;
        std::string text = transport_->last_words(r);
        if (text.empty()) continue;
        // What it had sent before may have come with the words.
        if (transport_->test()) return;
        if (!transport_->is_pending(r)) continue;
        text = "rank " + std::to_string(r) + ": " + text;
        give_up(text.c_str()); // passed on: others may have missed these words
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
        throw Error(DSLIDE_E_PEER, text);
    }
}

void Exchange::swap_messages(Phase phase, const std::vector<Parcel> &parcels) {
    Traffic &traffic = traffic_[static_cast<std::size_t>(phase)];
    const Stopwatch watch;
    const auto those = [&](const std::function<bool(int)> &is_guilty) {
        std::vector<int> ranks;
        for (int r = 0; r < size_; ++r)
            if (r != rank_ && is_guilty(r)) ranks.push_back(r);
        return ranks;
    };
    try {
        if (cancelled_) give_up_waiting(phase, "cancelled", {}); // before the others have what they wait for
        transport_->start(parcels);
        for (BackOff back_off; !transport_->test(); back_off.wait()) {
            if (cancelled_) give_up_waiting(phase, "cancelled", {});
            // Gone, then tested, then pending: a rank may leave in good order once it has sent and taken all.
            const std::vector<int> gone = those([&](int r) { return transport_->is_gone(r); });
            if (!gone.empty() && transport_->test()) break;
            listen_for_last_words();
            for (const int r : gone)
                if (transport_->is_pending(r)) give_up_waiting(phase, "a rank left", {r});
            if (watch.seconds() > settings_.timeout_seconds) {
                std::vector<int> late = those([&](int r) { return transport_->received(r) < 0; });
                if (late.empty()) late = those([&](int r) { return transport_->is_pending(r); });
                give_up_waiting(phase, "time-out", late);
            }
        }
    } catch (const Error &e) {
        give_up(e.what());
        throw;
    }
    for (int r = 0; r < size_; ++r) {
        if (r == rank_) continue;
        traffic.bytes_sent += static_cast<std::int64_t>(parcels[static_cast<std::size_t>(r)].out_bytes);
        traffic.bytes_received += std::max<std::ptrdiff_t>(0, transport_->received(r));
        ++traffic.messages_sent;
    }
    traffic.wait_seconds += watch.seconds();
}

void Exchange::trade(Phase phase, const std::function<std::size_t(int from, int to)> &bytes, bool same_to_all,
                     const std::function<void(int to, std::byte *)> &fill) {
    if (alone()) {
        Buffer &own = in_.front();
        own.bytes.resize(std::max(own.bytes.size(), bytes(0, 0)));
        own.payload = own.bytes.data();
        return fill(0, own.payload);
    }
    need_usable();
    std::size_t longest = 0;
    for (int from = 0; from < size_; ++from)
        for (int to = 0; to < size_; ++to)
            if (from != to) longest = std::max(longest, bytes(from, to));
    const auto room = [](Buffer &buffer, std::size_t payload) {
        const std::size_t needed = sizeof(Header) + std::max(payload, most_text_bytes);
        if (buffer.bytes.size() < needed) buffer.bytes.resize(needed);
        buffer.payload = buffer.bytes.data() + sizeof(Header);
    };
    ++sequence_;
    Header header;
    header.magic = header_magic;
    header.sequence = sequence_;
    header.phase = static_cast<std::uint32_t>(phase);
    for (int r = 0; r < size_; ++r) {
        room(in_[static_cast<std::size_t>(r)], bytes(r, rank_));
        if (!same_to_all || r == rank_) room(out_[static_cast<std::size_t>(r)], bytes(rank_, r));
    }
    local([&] {
        for (int r = 0; r < size_; ++r) {
            if (same_to_all && r != rank_) continue;
            Buffer &out = out_[static_cast<std::size_t>(r)];
            std::memcpy(out.bytes.data(), &header, sizeof header);
            fill(r, out.payload);
            if (r == rank_ && bytes(r, r) > 0)
                std::memcpy(in_[static_cast<std::size_t>(r)].payload, out.payload, bytes(r, r));
        }
    });
    std::size_t failure_bytes = 0;
    if (failure_) {
        const Error error = described(failure_);
        for (Buffer &out : out_)
            if (!out.bytes.empty())
                failure_bytes = write_failure(out.bytes.data(), header, error.status(), error.what());
    }
    std::vector<Parcel> parcels(static_cast<std::size_t>(size_));
    const std::size_t piece = settings_.most_message_bytes;
    const auto piece_of = [&](std::size_t all, std::size_t begin) {
        return std::min(piece, all > begin ? all - begin : 0);
    };
    for (std::size_t begin = 0; begin == 0 || begin < longest; begin += piece) {
        for (int r = 0; r < size_; ++r) {
            if (r == rank_) continue;
            Buffer &out = out_[static_cast<std::size_t>(same_to_all ? rank_ : r)];
            Buffer &in = in_[static_cast<std::size_t>(r)];
            // The first piece has the header before it, and room for a text.
            const std::size_t before = begin == 0 ? sizeof(Header) : 0;
            Parcel &parcel = parcels[static_cast<std::size_t>(r)];
            parcel.out = out.payload + begin - before;
            parcel.out_bytes = failure_ ? failure_bytes : before + piece_of(bytes(rank_, r), begin);
            parcel.in = in.payload + begin - before;
            parcel.in_capacity =
                std::max(before + piece_of(bytes(r, rank_), begin), begin == 0 ? before + most_text_bytes : 0);
        }
        swap_messages(phase, parcels);
        if (begin == 0) check_headers(phase);
        for (int r = 0; r < size_; ++r)
            if (r != rank_ && transport_->received(r) != static_cast<std::ptrdiff_t>((begin == 0 ? sizeof(Header) : 0) +
                                                                                     piece_of(bytes(r, rank_), begin)))
                give_up_waiting(phase, "a message of another length than expected", {r});
    }
}

void Exchange::check_headers(Phase phase) {
    int failed = -1;
    dslide_status status = DSLIDE_OK;
    std::string text;
    for (int r = 0; r < size_; ++r) {
        if (r == rank_) continue;
        const auto received = static_cast<std::size_t>(transport_->received(r));
        Header header;
        if (received >= sizeof header)
            std::memcpy(&header, in_[static_cast<std::size_t>(r)].bytes.data(), sizeof header);
        if (header.magic != header_magic || header.sequence != sequence_ ||
            header.phase != static_cast<std::uint32_t>(phase)) {
            text = "rank " + std::to_string(r) +
                   " and this one are not in the same exchange: another version of the library, or calls in another "
                   "order";
            give_up(text.c_str());
            throw Error(DSLIDE_E_PEER, text);
        }
        if (header.status == DSLIDE_OK || failed >= 0) continue;
        failed = r;
        status =
            header.status == DSLIDE_E_DIVERGED || header.status == DSLIDE_E_STOPPED ? header.status : DSLIDE_E_PEER;
        text.assign(reinterpret_cast<const char *>(in_[static_cast<std::size_t>(r)].payload), received - sizeof header);
    }
    known_failure_ |= failure_ != nullptr || failed >= 0;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (failed >= 0) throw Error(status, "rank " + std::to_string(failed) + ": " + text);
}

void Exchange::all_gather(Phase phase, const std::vector<std::size_t> &bytes,
                          const std::function<void(std::byte *)> &fill) {
    trade(
        phase, [&](int from, int) { return bytes[static_cast<std::size_t>(from)]; }, true,
        [&](int, std::byte *to) { fill(to); });
}

void Exchange::all_to_all(Phase phase, const std::function<std::size_t(int from, int to)> &bytes,
                          const std::function<void(int to, std::byte *)> &fill) {
    trade(phase, bytes, false, fill);
}

void Exchange::agree_bytes(Call call, const std::array<std::byte, agreement_bytes> &mine) {
    const std::vector<std::size_t> bytes(static_cast<std::size_t>(size_), sizeof call + mine.size());
    all_gather(Phase::agree, bytes, [&](std::byte *to) {
        std::memcpy(to, &call, sizeof call);
        std::memcpy(to + sizeof call, mine.data(), mine.size());
    });
    for (int r = 0; r < size_; ++r) {
        Call theirs;
        std::memcpy(&theirs, block(r), sizeof theirs);
        if (theirs == call) {
            std::memcpy(agreed_[static_cast<std::size_t>(r)].data(), block(r) + sizeof call, mine.size());
            continue;
        }
        known_failure_ = true; // every rank sees a difference
        fail(DSLIDE_E_STATE, "this rank is in ", name_of(static_cast<std::uint32_t>(call)), ", rank ", r, " in ",
             name_of(static_cast<std::uint32_t>(theirs)));
    }
}

void Exchange::fail_difference(const char *what, int rank) {
    known_failure_ = true;
    fail(DSLIDE_E_ARGUMENT, "ranks 0 and ", rank, " do not have the same ", what);
}

void Exchange::close() {
    if (!transport_ || is_spent_) return;
    agree(Call::cluster_close, 0);
    end();
}

void Exchange::end() {
    if (!transport_ || is_spent_) return;
    transport_->close();
    is_spent_ = true;
    std::strncpy(spent_.data(), "the cluster is closed", spent_.size() - 1);
}

Traffic Exchange::total_traffic() const {
    Traffic total;
    for (const Traffic &t : traffic_) {
        total.bytes_sent += t.bytes_sent;
        total.bytes_received += t.bytes_received;
        total.messages_sent += t.messages_sent;
        total.wait_seconds += t.wait_seconds;
    }
    return total;
}

} // namespace dslide
