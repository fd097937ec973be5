// SPDX-License-Identifier: Apache-2.0
#include "model/model.hpp"

#include "core/error.hpp"
#include "core/random.hpp"
#include "exchange/columns.hpp"
#include "layers/dense.hpp"
#include "layers/sparse_input.hpp"
#include "layers/top_k.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

namespace dslide {
namespace {

constexpr std::int64_t rows_a_task = 1024;
constexpr std::int64_t largest_index = INT32_MAX;

/// Which rows and columns of a layer's random numbers a rank draws.
struct Part {
    std::int64_t first_row = 0, first_col = 0;
    std::span<const std::int32_t> rows{}; ///< not empty: row r is the layer's row rows[r]
};

void start_normal(Arena &arena, Matrix &m, const Part &part, double scale, std::uint64_t seed, Purpose purpose,
                  std::uint64_t layer = 0) {
    arena.blocks(m.rows, rows_a_task, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
            const std::int64_t row = part.rows.empty() ? part.first_row + r : part.rows[static_cast<std::size_t>(r)];
            RandomStream random(seed, purpose, static_cast<std::uint64_t>(row), layer);
            random.advance(part.first_col); // quick_normal() takes one number
            for (std::int64_t j = 0; j < m.cols; ++j) m.row(r)[j] = static_cast<float>(scale) * random.quick_normal();
        }
    });
}

bool all_finite(const TensorPart &t) {
    const auto *data = static_cast<const float *>(t.data);
    for (std::int64_t r = 0; r < t.row_end - t.row_begin; ++r)
        if (!std::all_of(data + r * t.row_stride, data + r * t.row_stride + t.col_count(),
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
    placement_ = Placement(n_outputs(), {}, cluster_->shares(), cluster_->rank(), options_.seed);
    allocate();
    start_weights();
}

void Model::allocate() {
    const dslide_model_options &o = options_;
    const int rank = cluster_->rank();
    for (int i = 0; i < o.n_hidden; ++i) slices_.push_back(cut_neurons(o.hidden[i], cluster_->shares()));
    const auto own = [&](int i) { return slices_[static_cast<std::size_t>(i)].width(rank); };
    input_ = Layer(o.n_inputs, own(0), own(0));
    for (int i = 1; i < o.n_hidden; ++i) hidden_.emplace_back(own(i), o.hidden[i - 1], own(i));
    const std::int64_t rows = placement_.rows(rank);
    output_ = Layer(rows, o.hidden[o.n_hidden - 1], rows);
}

void Model::start_weights() {
    Arena &arena = cluster_->arena();
    const int rank = cluster_->rank();
    start_normal(arena, input_.weight, {0, slices_[0].first(rank)}, options_.input_scale, options_.seed,
                 Purpose::input_weights);
    for (std::size_t i = 0; i < hidden_.size();
         ++i) // He et al., arXiv 1502.01852: variance 2 / fan-in keeps relu activations' size
        start_normal(arena, hidden_[i].weight, {slices_[i + 1].first(rank), 0},
                     std::sqrt(2.0 / static_cast<double>(hidden_[i].weight.cols)), options_.seed,
                     Purpose::hidden_weights, i);
    start_normal(arena, output_.weight, {0, 0, placement_.class_list()}, options_.output_scale, options_.seed,
                 Purpose::output_weights);
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

std::size_t Activations::bytes() const {
    std::size_t bytes = 0;
    for (const std::vector<Matrix> *list : {&full, &own})
        for (const Matrix &m : *list) bytes += m.data.bytes();
    return bytes;
}

void Model::forward(const CsrRows &x, Activations &activations) const {
    Arena &arena = cluster_->arena();
    Exchange &exchange = cluster_->exchange();
    auto &self = const_cast<Model &>(*this); // Parameters are views for reading and writing; forward passes only read
    activations.full.resize(slices_.size());
    activations.own.resize(slices_.size());
    for (std::size_t i = 0; i < slices_.size(); ++i) {
        Matrix &full = activations.full[i], &own = exchange.alone() ? full : activations.own[i];
        exchange.local([&] {
            if (i == 0)
                sparse_input_forward(arena, x, parameters_of(self.input_), input_.bias.data(), own);
            else
                dense_forward(arena, activations.full[i - 1], parameters_of(self.hidden_[i - 1]),
                              hidden_[i - 1].bias.data(), own);
        });
        if (!exchange.alone()) gather_columns(*cluster_, slices_[i], x.n_rows, own, full);
    }
}

namespace {

struct Ranked {
    float score;
    std::int32_t id;
};

bool ranks_before(const Ranked &a, const Ranked &b) { return a.score != b.score ? a.score > b.score : a.id < b.id; }

// Of every rank's best, the best of all, the same on every rank.
void merge_top_k(Cluster &cluster, const Placement &placement, std::int64_t samples, std::int64_t k,
                 std::int32_t *classes, float *scores, const std::vector<Ranked> &own) {
    Exchange &exchange = cluster.exchange();
    const auto depth = [&](int r) { return static_cast<std::size_t>(std::min(k, placement.rows(r))); };
    std::vector<std::size_t> bytes;
    for (int r = 0; r < exchange.size(); ++r)
        bytes.push_back(static_cast<std::size_t>(samples) * depth(r) * sizeof(Ranked));
    exchange.all_gather(Phase::predict, bytes, [&](std::byte *block) {
        if (!own.empty()) std::memcpy(block, own.data(), own.size() * sizeof(Ranked));
    });
    cluster.arena().blocks(samples, 64, [&](std::int64_t begin, std::int64_t end) {
        std::vector<Ranked> all;
        for (std::int64_t i = begin; i < end; ++i) {
            all.clear();
            for (int r = 0; r < exchange.size(); ++r) {
                const std::size_t n = depth(r), before = all.size();
                all.resize(before + n);
                if (n > 0)
                    std::memcpy(all.data() + before,
                                exchange.block(r) + static_cast<std::size_t>(i) * n * sizeof(Ranked),
                                n * sizeof(Ranked));
            }
            std::erase_if(all, [](const Ranked &p) { return p.id < 0; }); // left by NaN scores
            std::sort(all.begin(), all.end(), ranks_before);
            for (std::int64_t j = 0; j < k; ++j) {
                const bool has = j < static_cast<std::int64_t>(all.size());
                const Ranked best =
                    has ? all[static_cast<std::size_t>(j)] : Ranked{-std::numeric_limits<float>::infinity(), -1};
                classes[i * k + j] = best.id;
                if (scores) scores[i * k + j] = best.score;
            }
        }
    });
}

} // namespace

void Model::predict(const CsrRows &x, std::int64_t k, std::int32_t *classes, float *scores) const {
    Activations activations;
    forward(x, activations);
    auto &self = const_cast<Model &>(*this);
    Arena &arena = cluster_->arena();
    const auto top_k = [&](std::int64_t depth, std::int32_t *rows, float *values) {
        exact_top_k(arena, activations.last(), parameters_of(self.output_), bias_of(self.output_), depth, rows, values);
    };
    if (cluster_->exchange().alone()) return top_k(k, classes, scores);
    std::vector<Ranked> own;
    cluster_->exchange().local([&] {
        const std::int64_t depth = std::min(k, output_.weight.rows);
        const auto n = static_cast<std::size_t>(x.n_rows * depth);
        std::vector<std::int32_t> rows(n);
        std::vector<float> values(n);
        if (n > 0) top_k(depth, rows.data(), values.data());
        own.resize(n);
        for (std::size_t i = 0; i < n; ++i) own[i] = {values[i], rows[i] < 0 ? -1 : placement_.class_of(rows[i])};
    });
    merge_top_k(*cluster_, placement_, x.n_rows, k, classes, scores, own);
}

std::vector<std::string> Model::tensor_names() const {
    std::vector<std::string> names{"input.weight", "input.bias", "output.weight", "output.bias"};
    for (std::size_t i = 1; i <= hidden_.size(); ++i)
        for (const char *part : {".weight", ".bias"}) names.push_back("hidden." + std::to_string(i) + part);
    return names;
}

TensorPart Model::tensor(const std::string &name) const {
    const bool is_bias = name.ends_with(".bias");
    const int rank = cluster_->rank();
    // Neurons [first, first + n) of all: columns of the input layer and of every bias, rows of the others.
    const auto of = [&](const Layer &l, std::int64_t first, std::int64_t all, bool by_columns) -> TensorPart {
        const std::int64_t n = l.bias_size;
        if (is_bias)
            return {name, DType::f32, 1, all, 0, 1, l.bias.data(), std::max<std::int64_t>(1, n), first, first + n};
        const Matrix &w = l.weight;
        if (by_columns) return {name, DType::f32, w.rows, all, 0, w.rows, w.data.data(), w.stride, first, first + n};
        return {name, DType::f32, all, w.cols, first, first + n, w.data.data(), w.stride, 0, w.cols};
    };
    const auto is = [&](const std::string &layer) { return name == layer + ".weight" || name == layer + ".bias"; };
    if (is("input")) return of(input_, slices_[0].first(rank), options_.hidden[0], true);
    if (is("output")) return of(output_, placement_.start(rank), n_outputs(), false);
    for (std::size_t i = 0; i < hidden_.size(); ++i)
        if (is("hidden." + std::to_string(i + 1)))
            return of(hidden_[i], slices_[i + 1].first(rank), options_.hidden[i + 1], false);
    fail(DSLIDE_E_ARGUMENT, "no tensor is called \"", name, "\"");
}

template <class Visit>
void Model::visit_own(const std::string &name, std::int64_t begin, std::int64_t end, Visit &&visit) const {
    const TensorPart t = tensor(name);
    auto *data = static_cast<float *>(const_cast<void *>(t.data));
    if (name == "output.bias") { // one row, whose columns stand in the order of the placement
        if (begin < end)
            for (std::int64_t r = 0; r < t.col_count(); ++r)
                visit(std::int64_t{0}, std::int64_t{placement_.class_of(r)}, std::int64_t{1}, data + r);
    } else if (name == "output.weight") {
        for (std::int64_t c = begin; c < end; ++c)
            if (const std::int64_t r = placement_.row_of(static_cast<std::int32_t>(c)); r >= 0)
                visit(c, std::int64_t{0}, t.cols, data + r * t.row_stride);
    } else {
        for (std::int64_t r = std::max(begin, t.row_begin); r < std::min(end, t.row_end); ++r)
            if (t.col_count() > 0) visit(r, t.col_begin, t.col_count(), data + (r - t.row_begin) * t.row_stride);
    }
}

void Model::get_rows(const std::string &name, std::int64_t row_begin, std::int64_t n_rows, float *out) const {
    const std::int64_t cols = tensor(name).cols;
    const auto place = [&](std::int64_t row, std::int64_t col, std::int64_t count, const float *values) {
        std::copy_n(values, count, out + (row - row_begin) * cols + col);
    };
    Exchange &exchange = cluster_->exchange();
    if (exchange.alone()) return visit_own(name, row_begin, row_begin + n_rows, place);
    // In portions that fit buffers: first how much each rank has of it, then where and what.
    struct Run {
        std::int64_t row, col, count;
    };
    constexpr std::int64_t values_a_portion = 1 << 22;
    const std::int64_t portion = std::max<std::int64_t>(1, values_a_portion / std::max<std::int64_t>(1, cols));
    for (std::int64_t begin = row_begin; begin < row_begin + n_rows; begin += portion) {
        const std::int64_t end = std::min(row_begin + n_rows, begin + portion);
        std::vector<std::byte> own;
        exchange.local([&] {
            visit_own(name, begin, end,
                      [&](std::int64_t row, std::int64_t col, std::int64_t count, const float *values) {
                          const Run run{row, col, count};
                          const std::size_t at = own.size(), bytes = static_cast<std::size_t>(count) * sizeof(float);
                          own.resize(at + sizeof run + bytes);
                          std::memcpy(own.data() + at, &run, sizeof run);
                          std::memcpy(own.data() + at + sizeof run, values, bytes);
                      });
        });
        const auto size = static_cast<std::size_t>(exchange.size());
        std::vector<std::size_t> bytes(size, sizeof(std::uint64_t));
        exchange.all_gather(Phase::weights, bytes, [&](std::byte *block) {
            const std::uint64_t n = own.size();
            std::memcpy(block, &n, sizeof n);
        });
        for (std::size_t r = 0; r < size; ++r) {
            std::uint64_t n;
            std::memcpy(&n, exchange.block(static_cast<int>(r)), sizeof n);
            bytes[r] = n;
        }
        exchange.all_gather(Phase::weights, bytes, [&](std::byte *block) { std::copy(own.begin(), own.end(), block); });
        std::vector<float> values;
        for (std::size_t r = 0; r < size; ++r) {
            const std::byte *at = exchange.block(static_cast<int>(r)), *last = at + bytes[r];
            while (at < last) {
                Run run;
                std::memcpy(&run, at, sizeof run);
                values.resize(static_cast<std::size_t>(run.count));
                std::memcpy(values.data(), at + sizeof run, values.size() * sizeof(float));
                place(run.row, run.col, run.count, values.data());
                at += sizeof run + values.size() * sizeof(float);
            }
        }
    }
}

void Model::check_rows(const std::string &name, std::int64_t row_begin, std::int64_t n_rows, const float *data) const {
    const TensorPart t = tensor(name);
    if (row_begin < 0 || n_rows < 0 || row_begin > t.rows - n_rows)
        fail(DSLIDE_E_ARGUMENT, n_rows, " rows from ", row_begin, " on of \"", name, "\", which has ", t.rows);
    for (std::int64_t i = 0; i < n_rows * t.cols; ++i)
        if (!std::isfinite(data[i]))
            fail(DSLIDE_E_ARGUMENT, "data: value ", data[i], " in row ", row_begin + i / t.cols, " of \"", name,
                 "\" is not finite");
}

void Model::set_rows(const std::string &name, std::int64_t row_begin, std::int64_t n_rows, const float *data) {
    check_rows(name, row_begin, n_rows, data);
    const std::int64_t cols = tensor(name).cols;
    visit_own(name, row_begin, row_begin + n_rows,
              [&](std::int64_t row, std::int64_t col, std::int64_t count, float *values) {
                  std::copy_n(data + (row - row_begin) * cols + col, count, values);
              });
    ++edits_;
}

void Model::check_finite() const {
    for (const std::string &name : tensor_names())
        if (!all_finite(tensor(name)))
            fail(DSLIDE_E_DIVERGED, "\"", name, "\" holds a value that is not finite; nothing was saved");
}

} // namespace dslide
