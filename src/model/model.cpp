// SPDX-License-Identifier: Apache-2.0
#include "model/model.hpp"

#include "core/error.hpp"
#include "core/random.hpp"
#include "layers/dense.hpp"
#include "layers/sparse_input.hpp"
#include "layers/top_k.hpp"

#include <algorithm>
#include <cmath>

namespace dslide {
namespace {

constexpr std::int64_t rows_a_task = 1024;
constexpr std::int64_t largest_index = INT32_MAX;

void start_normal(Arena &arena, Matrix &m, double scale, std::uint64_t seed, Purpose purpose, std::uint64_t layer = 0) {
    arena.blocks(m.rows, rows_a_task, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
            RandomStream random(seed, purpose, static_cast<std::uint64_t>(r), layer);
            for (std::int64_t j = 0; j < m.cols; ++j) m.row(r)[j] = static_cast<float>(scale) * random.quick_normal();
        }
    });
}

bool all_finite(const TensorPart &t) {
    const auto *data = static_cast<const float *>(t.data);
    for (std::int64_t r = 0; r < t.rows; ++r)
        if (!std::all_of(data + r * t.row_stride, data + r * t.row_stride + t.cols,
                         [](float x) { return std::isfinite(x); }))
            return false;
    return true;
}

} // namespace

dslide_model_options resolved(dslide_model_options o) {
    const auto check = [](std::int64_t value, std::int64_t most, const char *name) {
        if (value < 1 || value > most) fail(DSLIDE_E_ARGUMENT, name, " is ", value, ", expected 1 .. ", most);
    };
    check(o.n_inputs, largest_index, "n_inputs");
    check(o.n_outputs, largest_index, "n_outputs");
    if (o.n_hidden == 0) o.n_hidden = 1, o.hidden[0] = 128;
    check(o.n_hidden, DSLIDE_MAX_HIDDEN, "n_hidden");
    for (int i = 0; i < o.n_hidden; ++i) check(o.hidden[i], 65536, "hidden");
    for (int i = o.n_hidden; i < DSLIDE_MAX_HIDDEN; ++i) o.hidden[i] = 0;
    if (o.seed == 0) o.seed = default_seed;
    if (o.input_scale == 0) o.input_scale = 1 / std::sqrt(static_cast<float>(o.hidden[0]));
    if (o.output_scale == 0) o.output_scale = 0.01f;
    for (const float scale : {o.input_scale, o.output_scale})
        if (!(scale > 0 && std::isfinite(scale)))
            fail(DSLIDE_E_ARGUMENT, "scale of start weights is ", scale, ", expected > 0");
    if (o.index_base != 0 && o.index_base != 1)
        fail(DSLIDE_E_ARGUMENT, "index_base is ", o.index_base, ", expected 0 or 1");
    return o;
}

Parameters parameters_of(Layer &layer) {
    return {layer.weight.data.data(), {}, layer.weight.rows, layer.weight.cols, layer.weight.stride};
}

Parameters bias_of(Layer &layer) {
    return {layer.bias.data(), {}, 1, layer.bias_size, static_cast<std::int64_t>(layer.bias.size())};
}

Model::Model(std::shared_ptr<Cluster> cluster, const dslide_model_options &options)
    : cluster_(std::move(cluster)), options_(resolved(options)) {
    allocate();
    start_weights();
}

void Model::allocate() {
    const dslide_model_options &o = options_;
    input_ = Layer(o.n_inputs, o.hidden[0], o.hidden[0]);
    for (int i = 1; i < o.n_hidden; ++i) hidden_.emplace_back(o.hidden[i], o.hidden[i - 1], o.hidden[i]);
    output_ = Layer(o.n_outputs, o.hidden[o.n_hidden - 1], o.n_outputs);
}

void Model::start_weights() {
    Arena &arena = cluster_->arena();
    start_normal(arena, input_.weight, options_.input_scale, options_.seed, Purpose::input_weights);
    for (std::size_t i = 0; i < hidden_.size();
         ++i) // He et al., arXiv 1502.01852: variance 2 / fan-in keeps relu activations' size
        start_normal(arena, hidden_[i].weight, std::sqrt(2.0 / static_cast<double>(hidden_[i].weight.cols)),
                     options_.seed, Purpose::hidden_weights, i);
    start_normal(arena, output_.weight, options_.output_scale, options_.seed, Purpose::output_weights);
}

std::int64_t Model::n_parameters() const {
    std::int64_t n = 0;
    for (const std::string &name : tensor_names()) {
        const TensorPart t = tensor(name);
        n += t.rows * t.cols;
    }
    return n;
}

std::int64_t Model::bytes() const {
    std::size_t bytes = 0;
    const auto add = [&](const Layer &l) { bytes += l.weight.data.bytes() + l.bias.bytes(); };
    add(input_);
    add(output_);
    for (const Layer &l : hidden_) add(l);
    return static_cast<std::int64_t>(bytes);
}

void Model::forward(const CsrRows &x, std::vector<Matrix> &activations) const {
    Arena &arena = cluster_->arena();
    auto &self = const_cast<Model &>(*this); // Parameters are views for reading and writing; forward passes only read
    activations.resize(hidden_.size() + 1);
    sparse_input_forward(arena, x, parameters_of(self.input_), input_.bias.data(), activations[0]);
    for (std::size_t i = 0; i < hidden_.size(); ++i)
        dense_forward(arena, activations[i], parameters_of(self.hidden_[i]), hidden_[i].bias.data(),
                      activations[i + 1]);
}

void Model::predict(const CsrRows &x, std::int64_t k, std::int32_t *rows, float *scores) const {
    std::vector<Matrix> activations;
    forward(x, activations);
    auto &self = const_cast<Model &>(*this);
    exact_top_k(cluster_->arena(), activations.back(), parameters_of(self.output_), bias_of(self.output_), k, rows,
                scores);
}

std::vector<std::string> Model::tensor_names() const {
    std::vector<std::string> names{"input.weight", "input.bias", "output.weight", "output.bias"};
    for (std::size_t i = 1; i <= hidden_.size(); ++i)
        for (const char *part : {".weight", ".bias"}) names.push_back("hidden." + std::to_string(i) + part);
    return names;
}

TensorPart Model::tensor(const std::string &name) const {
    const auto of = [&](const Layer &l) -> TensorPart {
        if (name.ends_with(".bias")) return {name, DType::f32, 1, l.bias_size, 0, 1, l.bias.data(), l.bias_size};
        return {name, DType::f32,    l.weight.rows,        l.weight.cols,
                0,    l.weight.rows, l.weight.data.data(), l.weight.stride};
    };
    const auto is = [&](const std::string &layer) { return name == layer + ".weight" || name == layer + ".bias"; };
    if (is("input")) return of(input_);
    if (is("output")) return of(output_);
    for (std::size_t i = 0; i < hidden_.size(); ++i)
        if (is("hidden." + std::to_string(i + 1))) return of(hidden_[i]);
    fail(DSLIDE_E_ARGUMENT, "no tensor is called \"", name, "\"");
}

void Model::set_rows(const std::string &name, std::int64_t row_begin, std::int64_t n_rows, const float *data) {
    const TensorPart t = tensor(name);
    if (row_begin < 0 || n_rows < 0 || row_begin > t.rows - n_rows)
        fail(DSLIDE_E_ARGUMENT, n_rows, " rows from ", row_begin, " on of \"", name, "\", which has ", t.rows);
    for (std::int64_t i = 0; i < n_rows * t.cols; ++i)
        if (!std::isfinite(data[i]))
            fail(DSLIDE_E_ARGUMENT, "data: value ", data[i], " in row ", row_begin + i / t.cols, " of \"", name,
                 "\" is not finite");
    auto *to = static_cast<float *>(const_cast<void *>(t.data)) + row_begin * t.row_stride;
    for (std::int64_t r = 0; r < n_rows; ++r) std::copy_n(data + r * t.cols, t.cols, to + r * t.row_stride);
    ++edits_;
}

void Model::check_finite() const {
    for (const std::string &name : tensor_names())
        if (!all_finite(tensor(name)))
            fail(DSLIDE_E_DIVERGED, "\"", name, "\" holds a value that is not finite; nothing was saved");
}

} // namespace dslide
