// SPDX-License-Identifier: Apache-2.0
// A data set that is in memory whole.
#pragma once

#include "data/dataset.hpp"
#include "data/row_store.hpp"

namespace dslide {

class ResidentDataset final : public Dataset {
public:
    /// `info` without resident_bytes.
    ResidentDataset(RowStore rows, const dslide_dataset_info &info, const dslide_dataset_options &options);

    dslide_dataset_info info() const override;
    void rewind(std::int64_t epoch, bool in_file_order) override;
    void skip(std::int64_t rows) override;
    Batch next(std::int64_t max_rows) override;

private:
    RowStore rows_;
    dslide_dataset_info info_;
    bool shuffle_;
    std::uint64_t seed_;
    std::vector<std::int64_t> order_; ///< empty: file order
    std::int64_t position_ = 0;
    BatchBuilder batch_;
};

} // namespace dslide
