// SPDX-License-Identifier: Apache-2.0
#include "data/streaming.hpp"

#include "core/error.hpp"
#include "data/shuffle.hpp"
#include "data/text_info.hpp"

#include <algorithm>

namespace dslide {
namespace {
constexpr std::int64_t default_shuffle_rows = 65536;
}

StreamingDataset::StreamingDataset(std::shared_ptr<Arena> arena, Input input, const dslide_dataset_options &options,
                                   const TextRules &rules, std::size_t block_bytes)
    : arena_(std::move(arena)), input_(std::move(input)), options_(options), rules_(rules), block_bytes_(block_bytes),
      shuffle_rows_(options.shuffle_rows ? options.shuffle_rows : default_shuffle_rows) {
    start_reader();
    find_sizes();
    StreamingDataset::rewind(0, false);
}

void StreamingDataset::start_reader() {
    const Stopwatch watch;
    std::unique_ptr<ByteSource> source = input_.open(); // a pipe's second time fails here, with all as it was
    reader_.reset();                                    // its buffers go before the new ones come
    try {
        reader_.emplace(arena_, std::move(source), input_.name(), rules_, block_bytes_);
    } catch (...) {
        failure_ = std::current_exception(); // there is no reader until the next rewind()
        throw;
    }
    untouched_ = true;
    read_seconds_ += watch.seconds();
}

void StreamingDataset::find_sizes() {
    n_features_ = reader_->rules().n_features;
    n_labels_ = reader_->rules().n_labels;
    if (n_features_ && n_labels_) return;
    if (!input_.repeatable())
        fail(DSLIDE_E_ARGUMENT, input_.name(), " is a pipe without a header: streaming needs n_features and n_labels");
    const Stopwatch watch;
    untouched_ = false;
    while (!reader_->next().empty()) {
    }
    totals_ = reader_->counts();
    read_seconds_ += watch.seconds();
    if (!n_features_) n_features_ = inferred_width(totals_->feature_width);
    if (!n_labels_) n_labels_ = inferred_width(totals_->label_width);
}

dslide_dataset_info StreamingDataset::info() const {
    const TextCounts counts = totals_ ? *totals_ : reader_ ? reader_->counts() : TextCounts{};
    dslide_dataset_info info = text_info(counts, rules_.format, n_features_, n_labels_);
    if (!totals_) info.n_rows = info.n_feature_values = info.n_label_values = -1;
    info.resident_bytes =
        rows_.bytes() + static_cast<std::int64_t>(order_.capacity() * sizeof order_[0]) + batch_.bytes();
    info.read_seconds = read_seconds_;
    return info;
}

void StreamingDataset::rewind(std::int64_t epoch, bool in_file_order) {
    if (!untouched_) start_reader();
    failure_ = nullptr;
    rows_ = {};
    epoch_ = epoch;
    shuffled_ = options_.shuffle == 1 && !in_file_order;
    block_ = -1;
    begin_ = end_ = position_ = 0;
}

// Goes on to the next rows: as many as are shuffled together, or what the reader gives. False: there are none.
bool StreamingDataset::load_rows() {
    const Stopwatch watch;
    rows_.drop_before(end_);
    begin_ = end_;
    const std::int64_t wanted = begin_ + (shuffled_ ? shuffle_rows_ : 1);
    untouched_ = false;
    while (rows_.end() < wanted) {
        std::vector<RowChunk> chunks = reader_->next();
        if (chunks.empty()) {
            totals_ = reader_->counts();
            break;
        }
        for (RowChunk &chunk : chunks) rows_.append(std::move(chunk));
    }
    end_ = shuffled_ ? std::min(rows_.end(), wanted) : rows_.end();
    ++block_;
    if (shuffled_) shuffled_order(end_ - begin_, shuffle_seed(options_.seed), epoch_, block_, order_);
    read_seconds_ += watch.seconds();
    return end_ > begin_;
}

void StreamingDataset::take(std::int64_t max_rows, bool keep) {
    if (failure_) std::rethrow_exception(failure_);
    try {
        for (std::int64_t left = max_rows; left > 0; --left, ++position_) {
            if (position_ == end_ && !load_rows()) return;
            const std::int64_t row =
                shuffled_ ? begin_ + order_[static_cast<std::size_t>(position_ - begin_)] : position_;
            if (keep) batch_.append(rows_.at(row), row);
        }
    } catch (...) {
        failure_ = std::current_exception();
        throw;
    }
}

void StreamingDataset::skip(std::int64_t rows) { take(rows, false); }

Batch StreamingDataset::next(std::int64_t max_rows) {
    batch_.clear();
    take(max_rows, true);
    return batch_.batch(n_features_, n_labels_);
}

} // namespace dslide
