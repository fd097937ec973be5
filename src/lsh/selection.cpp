// SPDX-License-Identifier: Apache-2.0
#include "lsh/selection.hpp"

#include "core/random.hpp"
#include "lsh/row_set.hpp"

#include <algorithm>
#include <cmath>

namespace dslide {

namespace {

constexpr std::int64_t samples_a_task = 16;

/// Takes the marks of shared rows away again, also after an exception.
struct Unmark {
    Array<std::int32_t> &index;
    const std::vector<std::int32_t> &rows;
    ~Unmark() {
        for (const std::int32_t row : rows) index[static_cast<std::size_t>(row)] = 0;
    }
};

} // namespace

void Selection::build(Arena &arena, const SelectionInput &input, ActiveSet &active) {
    const CsrRows &labels = input.labels;
    const std::int64_t n = labels.n_rows;
    active.n_samples = n;
    active.begin.ensure(static_cast<std::size_t>(n));
    active.end.ensure(static_cast<std::size_t>(n));
    active.n_labels.ensure(static_cast<std::size_t>(n));
    active.n_hard.ensure(static_cast<std::size_t>(n));
    active.label_place.ensure(static_cast<std::size_t>(labels.nnz()));
    active.random_log_inclusion =
        input.correction && input.random_fill > 0
            ? static_cast<float>(
                  std::log(std::min(1.0, static_cast<double>(input.random_fill) / static_cast<double>(input.classes))))
            : 0.0f;
    if (static_cast<std::int64_t>(shared_index_.size()) < input.rows)
        shared_index_ = Array<std::int32_t>(static_cast<std::size_t>(input.rows));
    const Unmark unmark{shared_index_, active.shared};
    for (std::size_t s = 0; s < active.shared.size(); ++s)
        shared_index_[static_cast<std::size_t>(active.shared[s])] = static_cast<std::int32_t>(s + 1);

    std::int64_t room = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        active.begin[static_cast<std::size_t>(i)] = room;
        room += labels.nnz(i) + (input.hard ? input.hard->count[static_cast<std::size_t>(i)] : 0) + input.random_fill;
    }
    active.row.ensure(static_cast<std::size_t>(room));

    arena.blocks(n, samples_a_task, [&](std::int64_t first, std::int64_t last) {
        RowSet taken;
        for (std::int64_t i = first; i < last; ++i) {
            const auto s = static_cast<std::size_t>(i);
            const auto own = labels.cols(i);
            std::int32_t *const begin = active.row.data() + active.begin[s];
            std::int32_t *next = begin;
            for (std::size_t e = 0; e < own.size(); ++e) {
                const std::int32_t index = shared_index_[static_cast<std::size_t>(own[e])];
                active.label_place[static_cast<std::size_t>(labels.row_ptr[i] - labels.row_ptr[0]) + e] =
                    index ? ~static_cast<std::int64_t>(index - 1) : next - active.row.data();
                if (!index) *next++ = own[e];
            }
            active.n_labels[s] = static_cast<std::int32_t>(next - begin);
            const auto usable = [&](std::int32_t row) {
                return shared_index_[static_cast<std::size_t>(row)] == 0 &&
                       !std::binary_search(own.begin(), own.end(), row);
            };
            if (input.hard)
                for (std::int32_t c = 0; c < input.hard->count[s]; ++c) {
                    const std::int32_t row = input.hard->row[static_cast<std::size_t>(i * input.hard->stride + c)];
                    if (usable(row)) *next++ = row;
                }
            active.n_hard[s] = static_cast<std::int32_t>(next - begin) - active.n_labels[s];
            if (input.random_fill > 0) {
                taken.reset(next - begin + input.random_fill);
                for (const std::int32_t *r = begin; r < next; ++r) taken.insert(*r);
                // A draw that is taken already is not repeated: fill is at most, so that it ends when all rows are in.
                RandomStream random(input.seed, Purpose::random_fill, static_cast<std::uint64_t>(input.step),
                                    static_cast<std::uint64_t>(i));
                for (std::int64_t d = 0; d < input.random_fill; ++d) {
                    const std::uint64_t drawn = random.below(static_cast<std::uint64_t>(input.classes));
                    const std::int32_t row = input.row_of ? input.row_of[drawn] : static_cast<std::int32_t>(drawn);
                    if (row >= 0 && usable(row) && taken.insert(row)) *next++ = row;
                }
            }
            active.end[s] = next - active.row.data();
        }
    });
}

} // namespace dslide
