// SPDX-License-Identifier: Apache-2.0
// Hard candidates from hash tables over the output rows [w ; b], queried with [h ; 1].
//
// Hashing sees angles, and a direction that all vectors share says nothing about any of them. Both sides have one: relu
// activations are positive, and training pushes most rows' logits down together. So both sides are centred. With m the
// running mean of h and v the mean of the rows, a query is [h - m ; s] and a row [w - v ; (c - mean c) / s], where
// c = b + m.w is the row's mean logit: inner products differ from the logits by the same amount for all rows, so their
// order is kept. s makes the product of the two sides' lengths least, which spreads the angles most:
// s^2 = |h - m| sd(c) / |w - v|, lengths as root mean squares. m, v and s are frozen from one rebuild to the next.
//
// What is never found is never pushed down. The rows with the highest mean logit, which any sample may rank high, are
// therefore candidates of every sample: the head.
#pragma once

#include "lsh/candidates.hpp"
#include "lsh/collisions.hpp"
#include "lsh/row_statistics.hpp"
#include "lsh/tables.hpp"

#include <tbb/enumerable_thread_specific.h>
#include <vector>

namespace dslide {

/// When tables are rebuilt: gaps grow from one rebuild to the next (SLIDE, arXiv 1903.03129, section 4.2).
struct RebuildSchedule {
    std::int64_t next_step = 0; ///< 0-based; the first build is at step 0
    double gap = 0;
};

class TableSource : public CandidateSource {
public:
    struct Settings {
        bool centring;
        std::int64_t rebuild_first, rebuild_max;
        double rebuild_growth;
        std::int64_t head_rows;
        std::uint64_t seed;
    };
    TableSource(std::unique_ptr<HashFamily> family, std::int64_t width, const Settings &settings);

    /// The rows at hand; ids: their classes, ascending, and row_of: the row of a class or -1; null: row = class.
    struct Rows {
        const float *weights;
        std::int64_t stride, count;
        const float *bias;
        const std::int32_t *ids = nullptr, *row_of = nullptr;
    };
    /// Takes the batch's activations into the running mean. Whether the tables are to be rebuilt before find().
    bool observe(const Matrix &h, std::int64_t step);
    /// First half of a rebuild: freezes the mean and measures the rows at hand.
    RowStatistics measure(Arena &arena, const Rows &rows);
    /// Second half, with the statistics of the rows of all ranks. Moves the schedule on if
    /// `step` was due.
    void rebuild(Arena &arena, const Rows &rows, const RowStatistics &all, std::int64_t step);
    std::int64_t head_rows() const { return settings_.head_rows; }
    void find(Arena &arena, const Matrix &h, std::int64_t step, std::int64_t want, Candidates &out) override;
    std::size_t bytes() const { return tables_.bytes(); }
    const HashTables &tables() const { return tables_; }
    HashTables &tables() { return tables_; }

    /// What a checkpoint keeps besides the tables' codes.
    struct State {
        RebuildSchedule schedule;
        float running_square = 0; ///< of |h - m|
        float scale = 1;          ///< s
        std::int64_t rebuilds = 0, batches = 0;
    };
    State &state() { return state_; }
    std::vector<float> &running_mean() { return running_mean_; }
    std::vector<float> &frozen_mean() { return frozen_mean_; }
    /// The head over all ranks, best first.
    const std::vector<std::int32_t> &head_classes() const { return head_classes_; }
    /// row_of: the row of a class or -1, null: row = class; rows: at hand.
    void set_head(std::vector<std::int32_t> classes, const std::int32_t *row_of, std::int64_t rows);

private:
    void update_mean(const Matrix &h);

    HashTables tables_;
    Settings settings_;
    State state_;
    std::vector<float> running_mean_, frozen_mean_; ///< padded to the SIMD width
    std::vector<std::int32_t> head_classes_;
    std::vector<std::int32_t> head_;    ///< of these, the rows at hand
    std::vector<std::uint8_t> is_head_; ///< a flag a row
    Array<float> last_;                 ///< last coordinates: of the rows, and of the queries
    Array<std::uint32_t> codes_;        ///< table x sample
    tbb::enumerable_thread_specific<CollisionCounter> counters_;
};

} // namespace dslide
