// SPDX-License-Identifier: Apache-2.0
// The model's part of a checkpoint. docs/checkpoint.md lists tensors and keys.
#include "core/error.hpp"
#include "model/meta.hpp"
#include "model/model.hpp"

#include "data/source.hpp"

#include <dslide/model.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>

namespace dslide {
namespace {

constexpr std::array<const char *, 2> name_files{"labels.txt", "features.txt"};
constexpr const char *counts_tensor = "label.counts";
constexpr const char *classes_tensor = "output.classes";

std::vector<std::string> split_lines(std::string_view text) {
    std::vector<std::string> lines;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        std::string_view line = text.substr(0, end);
        if (line.ends_with('\r')) line.remove_suffix(1);
        lines.emplace_back(line);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    return lines;
}

std::string join_lines(const std::vector<std::string> &lines) {
    std::string text;
    for (const std::string &line : lines) text += line + '\n';
    return text;
}

dslide_model_options options_from(const Meta &meta) {
    dslide_model_options o{};
    o.struct_size = sizeof o;
    o.n_inputs = meta.get_int("n_inputs");
    o.n_outputs = meta.get_int("n_outputs");
    const std::vector<std::int64_t> hidden = meta.get_ints("hidden");
    if (hidden.empty() || hidden.size() > DSLIDE_MAX_HIDDEN)
        fail(DSLIDE_E_FORMAT, "checkpoint: ", hidden.size(), " hidden layers, expected 1 .. ", DSLIDE_MAX_HIDDEN);
    o.n_hidden = static_cast<std::int32_t>(hidden.size());
    for (std::size_t i = 0; i < hidden.size(); ++i) {
        if (hidden[i] < 1 || hidden[i] > 65536)
            fail(DSLIDE_E_FORMAT, "checkpoint: hidden width ", hidden[i], ", expected 1 .. 65536");
        o.hidden[i] = static_cast<std::int32_t>(hidden[i]);
    }
    o.seed = meta.get_uint("model_seed");
    o.input_scale = static_cast<float>(meta.get_number("input_scale"));
    o.output_scale = static_cast<float>(meta.get_number("output_scale"));
    o.index_base = static_cast<std::int32_t>(meta.get_int("index_base"));
    return o;
}

// Before memory is allocated for the shape that meta states, the tensors must confirm it: they are as large as their
// files.
void check_shapes(const CheckpointReader &checkpoint, const dslide_model_options &o) {
    const auto expect = [&](const std::string &name, std::int64_t rows, std::int64_t cols) {
        if (!checkpoint.has(name)) fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": tensor ", name, " is missing");
        const TensorShape s = checkpoint.shape(name);
        if (s.type != DType::f32 || s.rows != rows || s.cols != cols)
            fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": tensor ", name, " is ", s.rows, " x ", s.cols,
                 ", expected fp32 ", rows, " x ", cols);
    };
    expect("input.weight", o.n_inputs, o.hidden[0]);
    expect("input.bias", 1, o.hidden[0]);
    for (int i = 1; i < o.n_hidden; ++i) {
        expect("hidden." + std::to_string(i) + ".weight", o.hidden[i], o.hidden[i - 1]);
        expect("hidden." + std::to_string(i) + ".bias", 1, o.hidden[i]);
    }
    expect("output.weight", o.n_outputs, o.hidden[o.n_hidden - 1]);
    expect("output.bias", 1, o.n_outputs);
}

} // namespace

Model::Model(std::shared_ptr<Cluster> cluster, const CheckpointReader &checkpoint) : cluster_(std::move(cluster)) {
    const Meta meta(checkpoint.meta());
    dslide_model_options stated = options_from(meta);
    check_shapes(checkpoint, stated);
    options_ = from_file(checkpoint, [&] { return resolved(stated); });
    samples_seen = meta.get_count("samples_seen");
    read_label_counts(checkpoint, meta);
    place_classes(checkpoint);
    allocate();
    for (const std::string &name : tensor_names()) read_part(checkpoint, tensor(name));
    check_finite();
    for (std::size_t kind = 0; kind < name_files.size(); ++kind) {
        const auto files = checkpoint.file_names();
        if (std::find(files.begin(), files.end(), name_files[kind]) == files.end()) continue;
        names_[kind] = split_lines(checkpoint.read_file(name_files[kind]));
        const std::int64_t expected = kind == DSLIDE_NAMES_LABELS ? n_outputs() : n_inputs();
        if (static_cast<std::int64_t>(names_[kind].size()) != expected)
            fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": ", name_files[kind], " has ", names_[kind].size(),
                 " lines, expected ", expected);
    }
}

void Model::read_label_counts(const CheckpointReader &checkpoint, const Meta &meta) {
    if (!checkpoint.has(counts_tensor)) return;
    const TensorShape s = checkpoint.shape(counts_tensor);
    if (s.type != DType::i64 || s.rows != n_outputs() || s.cols != 1)
        fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": tensor ", counts_tensor, " is ", s.rows, " x ", s.cols,
             ", expected int64 ", n_outputs(), " x 1");
    label_frequencies_.counts.resize(static_cast<std::size_t>(n_outputs()));
    checkpoint.read_rows(counts_tensor, 0, s.rows, label_frequencies_.counts.data(), 1);
    label_frequencies_.samples = meta.get_count("label_count_samples");
    const auto &counts = label_frequencies_.counts;
    if (label_frequencies_.samples < 1 || *std::min_element(counts.begin(), counts.end()) < 0 ||
        *std::max_element(counts.begin(), counts.end()) > most_count)
        fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": label counts are out of range");
}

void Model::place_classes(const CheckpointReader &checkpoint) {
    placement_ = Placement(n_outputs(), label_frequencies_.counts, cluster_->shares(), cluster_->rank(), options_.seed);
    // Where each class stands in the checkpoint.
    std::vector<std::int32_t> stored(static_cast<std::size_t>(n_outputs()), -1);
    if (checkpoint.has(classes_tensor)) {
        const TensorShape s = checkpoint.shape(classes_tensor);
        if (s.type != DType::i32 || s.rows != n_outputs() || s.cols != 1)
            fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": tensor ", classes_tensor, " is ", s.rows, " x ", s.cols,
                 ", expected int32 ", n_outputs(), " x 1");
        std::vector<std::int32_t> classes(stored.size());
        checkpoint.read_rows(classes_tensor, 0, s.rows, classes.data(), 1);
        for (std::size_t r = 0; r < classes.size(); ++r) {
            const std::int32_t c = classes[r];
            if (c < 0 || c >= n_outputs() || stored[static_cast<std::size_t>(c)] >= 0)
                fail(DSLIDE_E_FORMAT, checkpoint.dir(), ": ", classes_tensor, " has class ", c,
                     c < 0 || c >= n_outputs() ? ", which does not exist" : " twice");
            stored[static_cast<std::size_t>(c)] = static_cast<std::int32_t>(r);
        }
    } else {
        std::iota(stored.begin(), stored.end(), 0);
    }
    stored_rows_.clear();
    for (std::int64_t r = 0; r < placement_.rows(cluster_->rank()); ++r)
        stored_rows_.push_back(stored[static_cast<std::size_t>(placement_.class_of(r))]);
}

void Model::read_part(const CheckpointReader &checkpoint, const TensorPart &part) const {
    void *data = const_cast<void *>(part.data);
    const std::int64_t own = static_cast<std::int64_t>(stored_rows_.size());
    if (!part.name.starts_with("output.") && part.name != "tables.codes") {
        checkpoint.read_block(part.name, part.row_begin, part.row_end, part.col_begin,
                              part.col_begin + part.col_count(), data, part.row_stride);
    } else if (part.name.starts_with("output.bias")) { // one row of all classes
        std::vector<float> all(static_cast<std::size_t>(part.cols));
        checkpoint.read_rows(part.name, 0, 1, all.data(), part.cols);
        for (std::int64_t r = 0; r < own; ++r)
            static_cast<float *>(data)[r] = all[static_cast<std::size_t>(stored_rows_[static_cast<std::size_t>(r)])];
    } else if (own > 0 && stored_rows_.back() - stored_rows_.front() == own - 1 &&
               std::is_sorted(stored_rows_.begin(), stored_rows_.end())) { // they lie together
        checkpoint.read_rows(part.name, stored_rows_.front(), stored_rows_.back() + 1, data, part.row_stride);
    } else {
        checkpoint.read_list(part.name, stored_rows_, data, part.row_stride);
    }
}

CheckpointContent Model::content() const {
    check_finite();
    Meta meta;
    meta.set_bool("full", false);
    meta.set_int("n_inputs", n_inputs());
    meta.set_int("n_outputs", n_outputs());
    meta.set_ints("hidden", {options_.hidden, options_.hidden + options_.n_hidden});
    meta.set_uint("model_seed", options_.seed);
    meta.set_number("input_scale", options_.input_scale);
    meta.set_number("output_scale", options_.output_scale);
    meta.set_int("index_base", options_.index_base);
    meta.set_int("samples_seen", samples_seen);
    meta.set_int("steps", 0);
    CheckpointContent content;
    for (const std::string &name : tensor_names()) content.tensors.push_back(tensor(name));
    const int rank = cluster_->rank();
    if (!placement_.is_identity())
        content.tensors.push_back({classes_tensor, DType::i32, n_outputs(), 1, placement_.start(rank),
                                   placement_.start(rank) + placement_.rows(rank), placement_.class_list().data(), 1});
    if (!label_frequencies_.counts.empty()) {
        meta.set_int("label_count_samples", label_frequencies_.samples);
        if (rank == 0)
            content.tensors.push_back(
                {counts_tensor, DType::i64, n_outputs(), 1, 0, n_outputs(), label_frequencies_.counts.data(), 1});
    }
    for (std::size_t kind = 0; kind < name_files.size(); ++kind)
        if (!names_[kind].empty()) content.files[name_files[kind]] = join_lines(names_[kind]);
    content.meta = meta.json();
    return content;
}

std::vector<std::string> read_names(const std::string &path, std::int64_t count) {
    std::string text;
    Input input = Input::file(path); // its sources read from its descriptor
    const std::unique_ptr<ByteSource> source = input.open();
    std::string block(std::size_t{1} << 16, '\0');
    try {
        constexpr std::int64_t most_lines_too_many = 1 << 20; // fewer are counted, for the message
        std::int64_t lines = 0;
        while (const std::size_t n = source->read(block.data(), block.size())) {
            if (std::memchr(block.data(), '\0', n)) fail(DSLIDE_E_FORMAT, path, ": expected text, found a zero byte");
            lines += std::count(block.data(), block.data() + n, '\n');
            if (lines > count + most_lines_too_many)
                fail(DSLIDE_E_FORMAT, path, ": more than ", lines, " names, expected one a line for each of ", count,
                     " ids");
            text.append(block, 0, n);
        }
    } catch (const DamagedInput &damage) {
        fail(DSLIDE_E_FORMAT, path, ": ", damage.text);
    }
    std::vector<std::string> names = split_lines(text);
    if (static_cast<std::int64_t>(names.size()) != count)
        fail(DSLIDE_E_FORMAT, path, ": ", names.size(), " names, expected one a line for each of ", count, " ids");
    return names;
}

} // namespace dslide
