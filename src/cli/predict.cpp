// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/format.hpp"
#include "cli/host.hpp"
#include "cli/json_lines.hpp"

#include <limits>

namespace dslide::cli {

namespace {

/// The k best labels of the rows of one batch, row by row.
struct Ranking {
    std::vector<std::int64_t> labels;
    std::vector<float> scores;
};

class RowPrinter {
public:
    RowPrinter(const PredictFlags &flags, const Model &model)
        : flags_(flags), model_(model), info_(model_info(model)) {}

    std::string text(const dslide_csr_view &features, std::int64_t row, const Ranking &ranking) const {
        std::string line = flags_.names && info_.n_feature_names > 0 ? feature_names(features, row) + "\t" : "";
        const std::int64_t begin = row * flags_.top;
        for (std::int64_t i = begin; i < begin + flags_.top; ++i) {
            const std::int64_t label = ranking.labels[static_cast<std::size_t>(i)];
            const std::string score = significant(ranking.scores[static_cast<std::size_t>(i)], score_digits);
            if (flags_.names)
                line.append(i > begin ? "\t" : "").append(name(label)).append(" (" + score + ")");
            else
                line.append(i > begin ? " " : "")
                    .append(std::to_string(label + flags_.data.label_base))
                    .append(":" + score);
        }
        return line + "\n";
    }

    JsonObject json(std::int64_t row_number, std::int64_t row, const Ranking &ranking) const {
        JsonObject object;
        object.set("row", row_number);
        for (std::int64_t i = row * flags_.top; i < (row + 1) * flags_.top; ++i) {
            JsonObject label;
            label.set("label", ranking.labels[static_cast<std::size_t>(i)] + flags_.data.label_base);
            if (flags_.names) label.set("name", name(ranking.labels[static_cast<std::size_t>(i)]));
            label.set("score", static_cast<double>(ranking.scores[static_cast<std::size_t>(i)]));
            object.append("labels", std::move(label));
        }
        return object;
    }

private:
    static constexpr int score_digits = 6;

    std::string name(std::int64_t label) const { return name_of(model_, DSLIDE_NAMES_LABELS, label); }

    std::string feature_names(const dslide_csr_view &features, std::int64_t row) const {
        std::string names;
        for (std::int64_t i = features.row_ptr[row]; i < features.row_ptr[row + 1]; ++i) {
            const std::int64_t column = features.index_bits == 64 ? static_cast<const std::int64_t *>(features.col)[i]
                                                                  : static_cast<const std::int32_t *>(features.col)[i];
            names.append(names.empty() ? "" : " ").append(name_of(model_, DSLIDE_NAMES_FEATURES, column));
        }
        return names;
    }

    const PredictFlags &flags_;
    const Model &model_;
    dslide_model_info info_;
};

void check_flags(const PredictFlags &flags) {
    if (flags.model.empty()) throw UsageError("--model DIR is missing");
    if (flags.input.empty()) throw UsageError("--input FILE is missing");
    need_model_dir(flags.model);
    need_readable(flags.input);
}

} // namespace

int run_predict(const PredictFlags &flags) {
    check_flags(flags);
    JsonLines json(flags.json);
    const Cluster cluster = open_cluster(flags.threads);
    const Model model = load_model(cluster, flags.model);
    const std::int64_t outputs = model_info(model).n_outputs;
    if (flags.top > outputs)
        throw UsageError("--top " + std::to_string(flags.top) + ": the model has " + std::to_string(outputs) +
                         " labels");
    dslide_dataset_options options = dataset_options_for(model, flags.data, flags.index_base_given);
    options.mode = DSLIDE_DATASET_STREAMING; // a pipe of any length in bounded memory
    options.n_features = model_info(model).n_inputs;
    options.n_labels = std::numeric_limits<std::int32_t>::max(); // labels are read over, whichever they are
    const Dataset input = open_dataset(cluster, flags.input, options);

    const RowPrinter printer(flags, model);
    Ranking ranking;
    dslide_batch batch = {};
    batch.struct_size = sizeof batch;
    check(dslide_dataset_rewind(input.get(), 0));
    for (check(dslide_dataset_next(input.get(), flags.batch, &batch)); batch.features.n_rows > 0;
         check(dslide_dataset_next(input.get(), flags.batch, &batch))) {
        const auto places = static_cast<std::size_t>(batch.features.n_rows * flags.top);
        ranking.labels.resize(places);
        ranking.scores.resize(places);
        check(dslide_model_predict(model.get(), &batch.features, flags.top, ranking.labels.data(),
                                   ranking.scores.data()));
        for (std::int64_t row = 0; row < batch.features.n_rows; ++row) {
            if (flags.json.empty())
                print(printer.text(batch.features, row, ranking));
            else
                json.write(printer.json(batch.row_ids[row], row, ranking));
        }
        flush_output();
        json.finish();
    }
    return exit_ok;
}

} // namespace dslide::cli
