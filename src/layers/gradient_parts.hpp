// SPDX-License-Identifier: Apache-2.0
// dL/dh is summed by several tasks at once: one accumulator for each of a fixed number of parts, added up in order, so
// that the result does not depend on threads.
#pragma once

#include "core/arena.hpp"
#include "simd/matrix.hpp"

namespace dslide {

class GradientParts {
public:
    /// How many parts suit `work` entries for `samples` samples; depends on sizes alone.
    static std::int64_t choose(std::int64_t samples, std::int64_t stride, std::int64_t work);

    void reset(Arena &arena, std::int64_t parts, std::int64_t samples, std::int64_t width);
    float *part(std::int64_t p) { return parts_.data() + p * part_size_; }
    /// dh += sum of the parts.
    void add_to(Arena &arena, Matrix &dh) const;
    std::size_t bytes() const { return parts_.bytes(); }

private:
    Array<float> parts_;
    std::int64_t count_ = 0, part_size_ = 0;
};

} // namespace dslide
