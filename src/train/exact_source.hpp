// SPDX-License-Identifier: Apache-2.0
// The rows with the highest logits, found by scoring all: perfect retrieval, the reference for every hash family.
#pragma once

#include "lsh/candidates.hpp"
#include "optim/optimizer.hpp"

namespace dslide {

class ExactSource : public CandidateSource {
public:
    ExactSource(const Parameters &weight, const Parameters &bias) : weight_(weight), bias_(bias) {}
    void find(Arena &arena, const Matrix &h, std::int64_t step, std::int64_t want, Candidates &out) override;

private:
    Parameters weight_, bias_;
};

} // namespace dslide
