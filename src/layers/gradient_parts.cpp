// SPDX-License-Identifier: Apache-2.0
#include "layers/gradient_parts.hpp"

#include <algorithm>
#include <cstring>

namespace dslide {
namespace {

constexpr std::int64_t most_parts = 16;
constexpr std::int64_t bytes_for_parts = std::int64_t{64} << 20;
constexpr std::int64_t samples_a_task = 64;

} // namespace

std::int64_t GradientParts::choose(std::int64_t samples, std::int64_t stride, std::int64_t work) {
    const std::int64_t fit =
        std::max<std::int64_t>(4, bytes_for_parts / std::max<std::int64_t>(1, samples * stride * 4));
    const std::int64_t worth =
        work / std::max<std::int64_t>(1, 4 * samples); // a part costs a write and a read of each dh row
    return std::max<std::int64_t>(1, std::min({most_parts, fit, worth}));
}

void GradientParts::reset(Arena &arena, std::int64_t parts, std::int64_t samples, std::int64_t width) {
    count_ = parts;
    part_size_ = samples * simd::padded(width);
    parts_.ensure(static_cast<std::size_t>(count_ * part_size_));
    arena.each(count_,
               [&](std::int64_t p) { std::memset(part(p), 0, static_cast<std::size_t>(part_size_) * sizeof(float)); });
}

void GradientParts::add_to(Arena &arena, Matrix &dh) const {
    arena.blocks(dh.rows, samples_a_task, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t p = 0; p < count_; ++p)
            simd::kernels().axpy(1, parts_.data() + p * part_size_ + begin * dh.stride, dh.row(begin),
                                 (end - begin) * dh.stride);
    });
}

} // namespace dslide
