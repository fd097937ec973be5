// SPDX-License-Identifier: Apache-2.0
// A data set that is read again each epoch. In memory: the rows shuffled together, and the blocks being parsed.
#pragma once

#include "core/clock.hpp"
#include "data/dataset.hpp"
#include "data/row_store.hpp"
#include "data/source.hpp"
#include "data/text_reader.hpp"

#include <exception>
#include <optional>

namespace dslide {

class StreamingDataset final : public Dataset {
public:
    /// Reads the beginning. Where neither options nor a header tell the sizes, the whole text is read once for them;
    /// E_ARGUMENT if it is a pipe.
    StreamingDataset(std::shared_ptr<Arena> arena, Input input, const dslide_dataset_options &options,
                     const TextRules &rules, std::size_t block_bytes);

    dslide_dataset_info info() const override;
    void rewind(std::int64_t epoch, bool in_file_order) override;
    void skip(std::int64_t rows) override;
    Batch next(std::int64_t max_rows) override;

private:
    void start_reader();
    void find_sizes();
    bool load_rows();
    void take(std::int64_t max_rows, bool keep);

    std::shared_ptr<Arena> arena_;
    Input input_;
    dslide_dataset_options options_;
    TextRules rules_;
    std::size_t block_bytes_;
    std::int64_t shuffle_rows_;
    double read_seconds_ = 0;

    std::optional<TextReader> reader_; ///< none: failure_ tells why
    bool untouched_ = false;           ///< no row was taken from the reader
    std::optional<TextCounts> totals_; ///< known after the first pass to the end
    std::int64_t n_features_ = 0, n_labels_ = 0;

    RowStore rows_;
    std::int64_t epoch_ = 0;
    bool shuffled_ = false;
    std::int64_t block_ = -1;          ///< number of the rows shuffled together, from 0
    std::int64_t begin_ = 0, end_ = 0; ///< its rows
    std::int64_t position_ = 0;
    std::vector<std::int64_t> order_;
    std::exception_ptr failure_; ///< ends the epoch: every next() throws it again
    BatchBuilder batch_;
};

} // namespace dslide
