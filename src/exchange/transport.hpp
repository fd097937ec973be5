// SPDX-License-Identifier: Apache-2.0
// What carries bytes between ranks. A transport knows nothing of what it carries and never waits: `exchange` polls it.
//
// Pairs of messages instead of the collectives of a library: they tell who is missing, and a rank that failed can send
// a short message where a long one was expected. The last words of a rank that leaves travel apart from them: they must
// arrive also where a long message is half way.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dslide {

/// What goes to one rank and what is expected from it. Buffers belong to the caller, who keeps them until test() is
/// true or, after abandon(), for good.
struct Parcel {
    const void *out = nullptr;
    std::size_t out_bytes = 0;
    void *in = nullptr;
    std::size_t in_capacity = 0; ///< a message may be shorter
};

class Transport {
public:
    static constexpr std::size_t most_last_words = 480; ///< in bytes; longer texts are cut

    virtual ~Transport() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    /// Starts one message to and one from every other rank; parcels[rank()] is not looked at. The n-th start() of each
    /// rank meets the n-th of every other; a rank has one under way at a time.
    virtual void start(const std::vector<Parcel> &parcels) = 0;
    /// Makes progress. True once every message of the last start() has gone out and come in.
    virtual bool test() = 0;
    /// Bytes that came from this rank, or -1: nothing yet.
    virtual std::ptrdiff_t received(int from) const = 0;
    /// True while a message to or from that rank is under way.
    virtual bool is_pending(int peer) = 0;
    /// True if that rank will certainly neither send nor take anything more.
    virtual bool is_gone(int peer) const = 0;
    /// Sends a text to every rank that will take it without waiting, whatever is under way. Nothing follows but
    /// abandon().
    virtual void send_last_words(std::string_view words) noexcept = 0;
    /// What that rank said before it left, as far as the last test() knows; "": nothing.
    virtual std::string last_words(int from) = 0;
    /// Gives up what is under way; no message is sent or received after it.
    virtual void abandon() noexcept = 0;
    /// Whether the buffers of what was given up may still be written: the caller then keeps them for good.
    virtual bool writes_after_abandon() const = 0;
    /// Leaves in good order, after the last exchange.
    virtual void close() = 0;
};

} // namespace dslide
