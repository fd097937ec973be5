// SPDX-License-Identifier: Apache-2.0
#include "train/loss_totals.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace dslide {
namespace {

/// A PartialLoss on its way: the sum within fp32 rounding is enough.
struct Packed {
    float max, sum;
};
struct Sums {
    double target_score, active_pairs;
};

// Up to so many ranks every rank sends all its parts to all: one exchange. Beyond, each merges a slice of the samples
// and sends the result: two, but of a size that does not grow with the ranks.
constexpr int most_ranks_for_one_exchange = 4;

PartialLoss unpacked(const std::byte *block, std::int64_t i) {
    Packed packed;
    std::memcpy(&packed, block + static_cast<std::size_t>(i) * sizeof packed, sizeof packed);
    return {packed.max, packed.sum};
}

void put(std::byte *block, std::int64_t i, const PartialLoss &part) {
    const Packed packed{part.max, static_cast<float>(part.sum)};
    std::memcpy(block + static_cast<std::size_t>(i) * sizeof packed, &packed, sizeof packed);
}

} // namespace

void merge_loss(Exchange &exchange, std::int32_t loss, std::int64_t samples, LossParts &parts) {
    if (exchange.alone()) return;
    const int ranks = exchange.size();
    const auto slice_begin = [&](int r) { return samples * r / ranks; };
    const auto slice_size = [&](int r) { return slice_begin(r + 1) - slice_begin(r); };
    const auto bytes_of = [](std::int64_t n) { return static_cast<std::size_t>(n) * sizeof(Packed); };
    const bool by_slices = ranks > most_ranks_for_one_exchange;
    if (by_slices) {
        exchange.all_to_all(
            Phase::loss, [&](int, int to) { return bytes_of(slice_size(to)); },
            [&](int to, std::byte *block) {
                for (std::int64_t i = 0; i < slice_size(to); ++i)
                    put(block, i, parts.of_sample[static_cast<std::size_t>(slice_begin(to) + i)]);
            });
        const std::int64_t first = slice_begin(exchange.rank());
        for (std::int64_t i = 0; i < slice_size(exchange.rank()); ++i) {
            PartialLoss total = unpacked(exchange.block(0), i);
            for (int r = 1; r < ranks; ++r) total = merge(loss, total, unpacked(exchange.block(r), i));
            parts.of_sample[static_cast<std::size_t>(first + i)] = total;
        }
    }
    std::vector<std::size_t> bytes;
    for (int r = 0; r < ranks; ++r) bytes.push_back(sizeof(Sums) + bytes_of(by_slices ? slice_size(r) : samples));
    exchange.all_gather(Phase::loss, bytes, [&](std::byte *block) {
        const Sums sums{parts.target_score, parts.active_pairs};
        std::memcpy(block, &sums, sizeof sums);
        const std::int64_t first = by_slices ? slice_begin(exchange.rank()) : 0;
        for (std::int64_t i = 0; i < (by_slices ? slice_size(exchange.rank()) : samples); ++i)
            put(block + sizeof sums, i, parts.of_sample[static_cast<std::size_t>(first + i)]);
    });
    parts.target_score = parts.active_pairs = 0;
    for (int r = 0; r < ranks; ++r) {
        Sums sums;
        std::memcpy(&sums, exchange.block(r), sizeof sums);
        parts.target_score += sums.target_score;
        parts.active_pairs += sums.active_pairs;
        const std::byte *block = exchange.block(r) + sizeof sums;
        if (by_slices)
            for (std::int64_t i = 0; i < slice_size(r); ++i)
                parts.of_sample[static_cast<std::size_t>(slice_begin(r) + i)] = unpacked(block, i);
        else
            for (std::int64_t i = 0; i < samples; ++i) {
                PartialLoss &total = parts.of_sample[static_cast<std::size_t>(i)];
                total = r == 0 ? unpacked(block, i) : merge(loss, total, unpacked(block, i));
            }
    }
}

} // namespace dslide
