// SPDX-License-Identifier: Apache-2.0
#include "exchange/columns.hpp"

#include <algorithm>
#include <cstring>

namespace dslide {
namespace {

constexpr std::int64_t samples_a_task = 64;

/// `width` columns of some rows, packed: as fp32 or as bfloat16.
class Packed {
public:
    Packed(bool bf16, std::int64_t width) : bf16_(bf16), width_(width) {}
    std::size_t bytes(std::int64_t samples) const {
        return static_cast<std::size_t>(samples * width_) * (bf16_ ? sizeof(std::uint16_t) : sizeof(float));
    }
    void put(std::byte *block, std::int64_t sample, const float *from) const {
        if (width_ == 0) return;
        std::byte *to = block + bytes(sample);
        if (bf16_)
            for (std::int64_t j = 0; j < width_; j += simd::row_lanes) {
                const auto n = static_cast<std::size_t>(std::min(simd::row_lanes, width_ - j));
                float lanes[simd::row_lanes] = {};
                std::uint16_t halves[simd::row_lanes];
                std::memcpy(lanes, from + j, n * sizeof *lanes);
                simd::kernels().to_bf16(lanes, halves, simd::row_lanes);
                std::memcpy(to + static_cast<std::size_t>(j) * sizeof *halves, halves, n * sizeof *halves);
            }
        else
            std::memcpy(to, from, bytes(1));
    }
    void get(const std::byte *block, std::int64_t sample, float *to) const {
        if (width_ == 0) return;
        const std::byte *from = block + bytes(sample);
        if (!bf16_) {
            std::memcpy(to, from, bytes(1));
            return;
        }
        for (std::int64_t j = 0; j < width_; ++j) {
            std::uint16_t half;
            std::memcpy(&half, from + 2 * j, sizeof half);
            const std::uint32_t whole = std::uint32_t{half} << 16;
            std::memcpy(to + j, &whole, sizeof whole);
        }
    }

private:
    bool bf16_;
    std::int64_t width_;
};

} // namespace

void gather_columns(Cluster &cluster, const Slices &slices, std::int64_t samples, const Matrix &own, Matrix &full) {
    Exchange &exchange = cluster.exchange();
    Arena &arena = cluster.arena();
    const auto packed = [&](int r) { return Packed(cluster.bf16_payload(), slices.width(r)); };
    std::vector<std::size_t> bytes;
    for (int r = 0; r < exchange.size(); ++r) bytes.push_back(packed(r).bytes(samples));
    exchange.local([&] { full.reshape(samples, slices.begin.back()); });
    exchange.all_gather(Phase::activations, bytes, [&](std::byte *block) {
        const Packed mine = packed(exchange.rank());
        arena.blocks(samples, samples_a_task, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) mine.put(block, i, own.row(i));
        });
    });
    arena.blocks(samples, samples_a_task, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            for (int r = 0; r < exchange.size(); ++r)
                packed(r).get(exchange.block(r), i, full.row(i) + slices.first(r));
            std::fill(full.row(i) + full.cols, full.row(i) + full.stride, 0.0f);
        }
    });
}

void sum_columns(Cluster &cluster, const Slices &slices, std::int64_t samples, const Matrix &partial, Matrix &own,
                 double &count) {
    Exchange &exchange = cluster.exchange();
    Arena &arena = cluster.arena();
    const auto packed = [&](int r) { return Packed(cluster.bf16_payload(), slices.width(r)); };
    const std::int64_t width = slices.width(exchange.rank());
    exchange.local([&] { own.reshape(samples, width); });
    exchange.all_to_all(
        Phase::gradients, [&](int, int to) { return sizeof count + packed(to).bytes(samples); },
        [&](int to, std::byte *block) {
            std::memcpy(block, &count, sizeof count);
            const Packed theirs = packed(to);
            arena.blocks(samples, samples_a_task, [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t i = begin; i < end; ++i)
                    theirs.put(block + sizeof count, i, partial.row(i) + slices.first(to));
            });
        });
    count = 0;
    for (int r = 0; r < exchange.size(); ++r) {
        double part;
        std::memcpy(&part, exchange.block(r), sizeof part);
        count += part;
    }
    const Packed mine = packed(exchange.rank());
    arena.blocks(samples, samples_a_task, [&](std::int64_t begin, std::int64_t end) {
        Array<float> row(static_cast<std::size_t>(own.stride));
        for (std::int64_t i = begin; i < end; ++i) {
            std::fill(own.row(i), own.row(i) + own.stride, 0.0f);
            for (int r = 0; r < exchange.size(); ++r) {
                mine.get(exchange.block(r) + sizeof count, i, row.data());
                simd::kernels().axpy(1, row.data(), own.row(i), own.stride);
            }
        }
    });
}

} // namespace dslide
