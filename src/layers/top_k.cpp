// SPDX-License-Identifier: Apache-2.0
#include "layers/top_k.hpp"

#include "layers/gemm.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace dslide {
namespace {

constexpr std::int64_t samples_a_task = 128;
constexpr std::int64_t classes_a_block = 1024;
constexpr std::int64_t classes_a_part = 65536; // a task's share of the classes, so that one sample too uses all threads
constexpr std::int64_t samples_for_gemm = 4;   // below, a product by rows beats GEMM, which packs its operands first

struct Scored {
    float score;
    std::int32_t row;
};

bool better(const Scored &a, const Scored &b) { return a.score != b.score ? a.score > b.score : a.row < b.row; }

/// The k best so far, unsorted, with up to k more that may turn out not to be.
class Best {
public:
    explicit Best(std::int64_t k) : k_(static_cast<std::size_t>(k)) { kept_.reserve(2 * k_); }
    float threshold() const { return threshold_; }
    /// Rows come in ascending order, so a score equal to the threshold cannot displace an earlier row.
    void add(float score, std::int32_t row) {
        if (kept_.size() == 2 * k_) prune();
        kept_.push_back({score, row});
        if (kept_.size() == k_) threshold_ = lowest();
    }
    std::vector<Scored> &&take() {
        if (kept_.size() > k_) prune();
        return std::move(kept_);
    }

private:
    float lowest() const {
        return std::min_element(kept_.begin(), kept_.end(),
                                [](const Scored &a, const Scored &b) { return a.score < b.score; })
            ->score;
    }
    void prune() {
        std::nth_element(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(k_ - 1), kept_.end(), better);
        kept_.resize(k_);
        threshold_ = lowest();
    }

    std::size_t k_;
    float threshold_ = -std::numeric_limits<float>::infinity();
    std::vector<Scored> kept_;
};

void score_block(const Matrix &h, std::int64_t first, std::int64_t last, const Parameters &weight,
                 const Parameters &bias, std::int64_t begin, std::int64_t end, float *z) {
    if (last - first < samples_for_gemm) {
        for (std::int64_t i = first; i < last; ++i)
            for (std::int64_t c = begin; c < end; ++c)
                z[(i - first) * classes_a_block + c - begin] = simd::kernels().dot(h.row(i), weight.row(c), h.stride);
    } else {
        gemm(Transpose::no, Transpose::yes, last - first, end - begin, h.stride, h.row(first), h.stride,
             weight.row(begin), weight.stride, z, classes_a_block);
    }
    for (std::int64_t i = 0; i < last - first; ++i)
        for (std::int64_t c = begin; c < end; ++c) z[i * classes_a_block + c - begin] += bias.weights[c];
}

} // namespace

void exact_top_k(Arena &arena, const Matrix &h, const Parameters &weight, const Parameters &bias, std::int64_t k,
                 std::int32_t *rows, float *scores) {
    const std::int64_t parts = (weight.rows + classes_a_part - 1) / classes_a_part;
    const std::int64_t sample_tasks = (h.rows + samples_a_task - 1) / samples_a_task;
    std::vector<std::vector<Scored>> found(static_cast<std::size_t>(h.rows * parts));
    arena.each(sample_tasks * parts, [&](std::int64_t task) {
        const std::int64_t first = task / parts * samples_a_task, last = std::min(h.rows, first + samples_a_task);
        const std::int64_t part = task % parts, part_end = std::min(weight.rows, (part + 1) * classes_a_part);
        std::vector<float> z(static_cast<std::size_t>((last - first) * classes_a_block));
        std::vector<std::int32_t> above(static_cast<std::size_t>(classes_a_block));
        std::vector<Best> best(static_cast<std::size_t>(last - first), Best(k));
        for (std::int64_t begin = part * classes_a_part; begin < part_end; begin += classes_a_block) {
            const std::int64_t end = std::min(part_end, begin + classes_a_block);
            score_block(h, first, last, weight, bias, begin, end, z.data());
            for (std::int64_t i = 0; i < last - first; ++i) {
                Best &of_sample = best[static_cast<std::size_t>(i)];
                const float *row = z.data() + i * classes_a_block;
                const std::int64_t n =
                    simd::kernels().find_above(row, end - begin, of_sample.threshold(), above.data());
                for (std::int64_t a = 0; a < n; ++a) {
                    const std::int32_t c = above[static_cast<std::size_t>(a)];
                    if (row[c] > of_sample.threshold()) of_sample.add(row[c], static_cast<std::int32_t>(begin + c));
                }
            }
        }
        for (std::int64_t i = first; i < last; ++i)
            found[static_cast<std::size_t>(i * parts + part)] = best[static_cast<std::size_t>(i - first)].take();
    });
    arena.blocks(h.rows, samples_a_task, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
            std::vector<Scored> all = std::move(found[static_cast<std::size_t>(i * parts)]);
            for (std::int64_t p = 1; p < parts; ++p) {
                const auto &more = found[static_cast<std::size_t>(i * parts + p)];
                all.insert(all.end(), more.begin(), more.end());
            }
            std::sort(all.begin(), all.end(), better);
            for (std::int64_t j = 0; j < k; ++j) {
                const bool has = j < static_cast<std::int64_t>(all.size());
                rows[i * k + j] = has ? all[static_cast<std::size_t>(j)].row : -1;
                if (scores)
                    scores[i * k + j] =
                        has ? all[static_cast<std::size_t>(j)].score : -std::numeric_limits<float>::infinity();
            }
        }
    });
}

} // namespace dslide
