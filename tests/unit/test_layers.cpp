// SPDX-License-Identifier: Apache-2.0
#include "cmocka.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "layers/dense.hpp"
#include "layers/dense_output.hpp"
#include "layers/inverse.hpp"
#include "layers/sampled_output.hpp"
#include "layers/sparse_input.hpp"
#include "layers/top_k.hpp"
#include "lsh/selection.hpp"

#include <dslide/trainer.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

using namespace dslide;

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

RandomStream stream_of(std::uint64_t number) { return RandomStream(31, Purpose::shuffle, number); }

Matrix normal_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t number, bool relu = false) {
    RandomStream random = stream_of(number);
    Matrix m(rows, cols);
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c) {
            const auto x = static_cast<float>(random.normal());
            m.row(r)[c] = relu ? std::max(x, 0.0f) : x;
        }
    return m;
}

/// Weights with a bias a row, and a momentum for both.
struct Layer {
    Matrix weight, bias, weight_state, bias_state;
    Layer(std::int64_t rows, std::int64_t cols, std::uint64_t number, std::int64_t n_bias = 0)
        : weight(normal_matrix(rows, cols, number)), bias(normal_matrix(1, n_bias ? n_bias : rows, number + 1000)),
          weight_state(rows, cols), bias_state(1, bias.cols) {}
    Parameters weights() {
        return {weight.row(0), {weight_state.row(0), nullptr}, weight.rows, weight.cols, weight.stride};
    }
    Parameters biases() { return {bias.row(0), {bias_state.row(0), nullptr}, 1, bias.cols, bias.stride}; }
};

double farthest(const Matrix &a, const Matrix &b) {
    if (a.rows != b.rows || a.cols != b.cols) return 1e9;
    double worst = 0;
    for (std::int64_t r = 0; r < a.rows; ++r)
        for (std::int64_t c = 0; c < a.cols; ++c)
            worst = std::max(worst, std::abs(static_cast<double>(a.row(r)[c]) - b.row(r)[c]));
    return worst;
}

bool same_bits(const Matrix &a, const Matrix &b) {
    return a.rows == b.rows && a.stride == b.stride &&
           std::memcmp(a.row(0), b.row(0), at(a.rows * a.stride) * sizeof(float)) == 0;
}

Optimizer sgd(float rate) {
    dslide_trainer_options o{};
    o.optimizer = DSLIDE_SGD;
    return Optimizer(o, 1, rate);
}

struct Lists {
    std::vector<std::int64_t> begin, end;
    std::vector<std::int32_t> row;
    std::int64_t n_rows;

    /// Lists of 0 .. most distinct rows with gaps between them that hold nonsense.
    Lists(std::int64_t samples, std::int64_t rows, std::int64_t most, std::uint64_t number) : n_rows(rows) {
        RandomStream random = stream_of(number);
        const auto below = [&](std::int64_t n) {
            return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(n)));
        };
        for (std::int64_t s = 0; s < samples; ++s) {
            begin.push_back(static_cast<std::int64_t>(row.size()));
            std::set<std::int64_t> seen;
            for (std::int64_t n = below(most + 1); n > 0; --n) {
                const std::int64_t r = below(rows);
                if (seen.insert(r).second) row.push_back(static_cast<std::int32_t>(r));
            }
            end.push_back(static_cast<std::int64_t>(row.size()));
            for (std::int64_t gap = below(3); gap > 0; --gap) row.push_back(-77);
        }
    }
    SampleLists view() const { return {static_cast<std::int64_t>(begin.size()), begin.data(), end.data(), row.data()}; }
};

std::string check_inverse(const Inverse &inverse, const Lists &lists) {
    std::map<std::int32_t, std::vector<std::pair<std::int32_t, std::int32_t>>> naive; // row -> (sample, position)
    for (std::size_t s = 0; s < lists.begin.size(); ++s)
        for (std::int64_t e = lists.begin[s]; e < lists.end[s]; ++e)
            naive[lists.row[at(e)]].emplace_back(static_cast<std::int32_t>(s), static_cast<std::int32_t>(e));
    if (inverse.touched() != static_cast<std::int64_t>(naive.size())) return "touched ";
    std::int64_t i = 0, entries = 0;
    for (const auto &[row, expected] : naive) {
        if (inverse.row(i) != row || inverse.count(i) != static_cast<std::int64_t>(expected.size())) return "rows ";
        for (std::size_t e = 0; e < expected.size(); ++e) {
            const std::int64_t place = inverse.begin(i) + static_cast<std::int64_t>(e);
            if (inverse.samples()[place] != expected[e].first || inverse.positions()[place] != expected[e].second)
                return "entries ";
        }
        entries += static_cast<std::int64_t>(expected.size());
        ++i;
    }
    if (inverse.entries() != entries) return "number of entries ";
    for (const std::int64_t parts : {1, 2, 7, 64, 100000}) {
        const auto cut = inverse.cut(parts);
        if (cut.front() != 0 || cut.back() != inverse.touched() || static_cast<std::int64_t>(cut.size()) > parts + 1 ||
            cut.size() < 2 || !std::is_sorted(cut.begin(), cut.end()))
            return "cut ";
        if (inverse.touched() > 0 && std::adjacent_find(cut.begin(), cut.end()) != cut.end()) return "empty part ";
    }
    return "";
}

} // namespace

static void test_layers__inverse_equals_a_naive_one(void **) {
    std::string failing;
    for (const int threads : {1, 2, 3, 8}) {
        Arena arena(threads);
        Inverse reused;
        std::uint64_t number = 0;
        for (const auto &[samples, rows, most] : {std::tuple{0, 5, 3},
                                                  {1, 1, 1},
                                                  {3, 1, 1},
                                                  {5, 7, 0},
                                                  {100, 511, 20},
                                                  {100, 512, 20},
                                                  {33, 513, 20},
                                                  {500, 70000, 30},
                                                  {64, 200000, 300},
                                                  {2, 2147483647 / 4096, 5},
                                                  {1000, 3, 3}}) {
            const Lists lists(samples, rows, most, ++number);
            Inverse fresh;
            fresh.build(arena, lists.view(), rows);
            reused.build(arena, lists.view(), rows); // for another number of rows than before
            failing += check_inverse(fresh, lists) + check_inverse(reused, lists);
        }
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_layers__inverse_cuts_into_parts_of_like_work(void **) {
    Arena arena(1);
    const Lists lists(2000, 5000, 20, 99);
    Inverse inverse;
    inverse.build(arena, lists.view(), 5000);
    const auto cut = inverse.cut(8);
    std::int64_t least = INT64_MAX, most = 0;
    for (std::size_t p = 0; p + 1 < cut.size(); ++p) {
        const std::int64_t entries =
            inverse.begin(cut[p + 1] - 1) + inverse.count(cut[p + 1] - 1) - inverse.begin(cut[p]);
        least = std::min(least, entries);
        most = std::max(most, entries);
    }
    assert_int_equal(cut.size(), 9);
    assert_true(most < 2 * least);
}

static void test_layers__inverse_refuses_more_entries_than_it_can_number(void **) {
    Arena arena(1);
    const std::int64_t begin = std::int64_t{1} << 31, end = begin + 1;
    // The one entry lies far out in the array: the array is thought of, its base moved back by as much.
    const std::int32_t row = 0;
    const auto base = reinterpret_cast<std::uintptr_t>(&row) - static_cast<std::uintptr_t>(begin) * sizeof row;
    dslide_status status = DSLIDE_OK;
    Inverse inverse;
    try {
        inverse.build(arena, {1, &begin, &end, reinterpret_cast<const std::int32_t *>(base)}, 1);
    } catch (const Error &e) {
        status = e.status();
    }
    assert_int_equal(status, DSLIDE_E_ARGUMENT);
}

namespace {

/// Sparse rows; sample i has i % 5 features.
struct Sparse {
    std::vector<std::int64_t> ptr{0};
    std::vector<std::int32_t> col;
    std::vector<float> val;
    std::int64_t cols;
    Sparse(std::int64_t samples, std::int64_t n_cols, std::uint64_t number, std::int64_t least = 0) : cols(n_cols) {
        RandomStream random = stream_of(number);
        for (std::int64_t i = 0; i < samples; ++i) {
            std::set<std::int32_t> own;
            while (static_cast<std::int64_t>(own.size()) < std::min(n_cols, std::max(least, i % 5)))
                own.insert(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(n_cols))));
            for (const std::int32_t c : own) {
                col.push_back(c);
                val.push_back(static_cast<float>(random.normal()));
            }
            ptr.push_back(static_cast<std::int64_t>(col.size()));
        }
    }
    CsrRows rows(bool values = true) const {
        return {static_cast<std::int64_t>(ptr.size()) - 1, cols, ptr.data(), col.data(), values ? val.data() : nullptr};
    }
};

} // namespace

static void test_layers__sparse_input_equals_the_dense_product(void **) {
    std::string failing;
    for (const bool values : {true, false})
        for (const std::int64_t width : {1, 7, 16, 200}) {
            const Sparse x(37, 50, 5);
            Layer layer(50, width, 6, width);
            Matrix h, expected(37, width), dz = normal_matrix(37, width, 7);
            for (std::int64_t i = 0; i < 37; ++i)
                for (std::int64_t j = 0; j < width; ++j) {
                    double sum = layer.bias.row(0)[j];
                    for (std::int64_t e = x.ptr[at(i)]; e < x.ptr[at(i) + 1]; ++e)
                        sum += (values ? x.val[at(e)] : 1.0) * layer.weight.row(x.col[at(e)])[j];
                    expected.row(i)[j] = static_cast<float>(std::max(sum, 0.0));
                }
            Arena arena(3);
            sparse_input_forward(arena, x.rows(values), layer.weights(), layer.bias.row(0), h);
            if (farthest(h, expected) > 1e-5) failing += "forward ";

            Matrix weight(50, width), bias(1, width);
            for (std::int64_t f = 0; f < 50; ++f) std::copy_n(layer.weight.row(f), width, weight.row(f));
            std::copy_n(layer.bias.row(0), width, bias.row(0));
            for (std::int64_t j = 0; j < width; ++j)
                for (std::int64_t i = 0; i < 37; ++i) {
                    bias.row(0)[j] -= 0.1f * dz.row(i)[j];
                    for (std::int64_t e = x.ptr[at(i)]; e < x.ptr[at(i) + 1]; ++e)
                        weight.row(x.col[at(e)])[j] -= 0.1f * (values ? x.val[at(e)] : 1) * dz.row(i)[j];
                }
            SparseInputBackward backward;
            backward.prepare(arena, x.rows(values), 50);
            const std::set<std::int32_t> used(x.col.begin(), x.col.end());
            const std::int64_t touched =
                backward.apply(arena, x.rows(values), dz, layer.weights(), layer.biases(), sgd(0.1f), false);
            if (touched != static_cast<std::int64_t>(used.size())) failing += "touched ";
            if (farthest(layer.weight, weight) > 1e-5 || farthest(layer.bias, bias) > 1e-5) failing += "backward ";
        }
    assert_string_equal(failing.c_str(), "");
}

// Momentum left from before moves every row, once.
static void test_layers__sparse_input_can_move_every_row(void **) {
    std::string failing;
    dslide_trainer_options o{};
    o.optimizer = DSLIDE_SGD;
    o.momentum = 0.5f;
    for (const std::int64_t samples : {0, 1, 4, 200})
        for (const std::int64_t features : {1, 50, 3000}) {
            const Sparse x(samples, features, 8);
            Layer layer(features, 8, 9, 8);
            const Matrix before = normal_matrix(features, 8, 9);
            std::fill_n(layer.weight_state.row(0), features * layer.weight_state.stride, 0.25f);
            Matrix dz(std::max<std::int64_t>(samples, 1), 8); // zeros
            dz.rows = samples;
            Arena arena(2);
            SparseInputBackward backward;
            backward.prepare(arena, x.rows(), features);
            backward.apply(arena, x.rows(), dz, layer.weights(), layer.biases(), Optimizer(o, 1, 1), true);
            for (std::int64_t f = 0; f < features; ++f)
                if (std::abs(layer.weight.row(f)[3] - (before.row(f)[3] - 0.125f)) > 1e-6) failing += "row ";
        }
    assert_string_equal(failing.substr(0, 100).c_str(), "");
}

static void test_layers__dense_layer_equals_plain_loops(void **) {
    std::string failing;
    for (const auto &[samples, in, out] : {std::tuple{1, 1, 1}, {5, 7, 3}, {130, 20, 70}, {64, 200, 33}}) {
        const Matrix x = normal_matrix(samples, in, 10, true), dz = normal_matrix(samples, out, 11);
        Layer layer(out, in, 12);
        Matrix h, dx, h_expected(samples, out), dx_expected(samples, in), weight(out, in), bias(1, out);
        for (std::int64_t i = 0; i < samples; ++i) {
            for (std::int64_t n = 0; n < out; ++n) {
                double sum = layer.bias.row(0)[n];
                for (std::int64_t j = 0; j < in; ++j) sum += static_cast<double>(x.row(i)[j]) * layer.weight.row(n)[j];
                h_expected.row(i)[n] = static_cast<float>(std::max(sum, 0.0));
            }
            for (std::int64_t j = 0; j < in; ++j) {
                double sum = 0;
                for (std::int64_t n = 0; n < out; ++n)
                    sum += static_cast<double>(dz.row(i)[n]) * layer.weight.row(n)[j];
                dx_expected.row(i)[j] = static_cast<float>(sum);
            }
        }
        for (std::int64_t n = 0; n < out; ++n) {
            double bias_sum = 0;
            for (std::int64_t i = 0; i < samples; ++i) bias_sum += dz.row(i)[n];
            bias.row(0)[n] = static_cast<float>(layer.bias.row(0)[n] - 0.01 * bias_sum);
            for (std::int64_t j = 0; j < in; ++j) {
                double sum = 0;
                for (std::int64_t i = 0; i < samples; ++i) sum += static_cast<double>(dz.row(i)[n]) * x.row(i)[j];
                weight.row(n)[j] = static_cast<float>(layer.weight.row(n)[j] - 0.01 * sum);
            }
        }
        Arena arena(2);
        dense_forward(arena, x, layer.weights(), layer.bias.row(0), h);
        dense_backward_input(arena, dz, layer.weights(), dx);
        dense_backward_update(arena, dz, x, layer.weights(), layer.biases(), sgd(0.01f));
        if (farthest(h, h_expected) > 1e-4) failing += "forward ";
        if (farthest(dx, dx_expected) > 1e-4) failing += "input ";
        if (farthest(layer.weight, weight) > 1e-4 || farthest(layer.bias, bias) > 1e-4) failing += "update ";
        for (std::int64_t j = h.cols; j < h.stride; ++j)
            if (h.row(0)[j] != 0) failing += "pad ";
    }
    assert_string_equal(failing.c_str(), "");
}

namespace {

struct OutputResult {
    double loss_sum = 0;
    double active_pairs = 0;
    Matrix dh, weight, bias;
    std::int64_t touched = 0;
};

struct OutputCase {
    std::int64_t samples, classes, width;
    std::int32_t loss;
    Sparse labels;
    Matrix h;
    Targets targets;

    OutputCase(std::int64_t n, std::int64_t c, std::int64_t w, std::int32_t l)
        : samples(n), classes(c), width(w), loss(l), labels(n, c, 20), h(normal_matrix(n, w, 21, true)) {
        Batch batch;
        batch.features.n_rows = n;
        batch.labels = labels.rows(false);
        targets.set(loss, batch);
    }
    OutputResult dense(int threads = 2, std::int64_t most_score_bytes = DenseOutput::score_bytes) {
        Arena arena(threads);
        Layer layer(classes, width, 22);
        OutputResult r;
        DenseOutput output(most_score_bytes);
        LossParts parts;
        output.forward(arena, loss, labels.rows(false), targets, h, layer.weights(), layer.biases(), r.dh, parts);
        r.loss_sum = parts.mean_loss(loss, labels.rows(false), targets);
        r.active_pairs = parts.active_pairs;
        output.update(arena, loss, labels.rows(false), targets, h, layer.weights(), layer.biases(), sgd(0.5f), parts,
                      r.dh);
        r.weight = std::move(layer.weight);
        r.bias = std::move(layer.bias);
        return r;
    }
    /// All classes active: these shared, the others private.
    OutputResult sampled(const std::vector<std::int32_t> &shared, int threads = 2, std::int64_t keep = INT32_MAX) {
        Arena arena(threads);
        Layer layer(classes, width, 22);
        Candidates hard;
        RandomSource(classes, 1).find(arena, h, 0, classes, hard);
        ActiveSet active;
        active.shared = shared;
        active.shared_log_inclusion.assign(shared.size(), 0.0f);
        Selection().build(arena, {labels.rows(false), &hard, 0, false, 0, 0, classes, classes}, active);
        SampledOutput output;
        OutputResult r;
        output.score(arena, active, h, layer.weights(), layer.biases(), keep);
        LossParts parts;
        output.loss(arena, loss, active, labels.rows(false), targets, parts);
        r.loss_sum = parts.mean_loss(loss, labels.rows(false), targets);
        r.active_pairs = parts.active_pairs;
        output.gradients(arena, loss, active, labels.rows(false), targets, parts);
        output.reserve(arena, active, h, r.dh);
        r.touched = output.update(arena, active, h, layer.weights(), layer.biases(), sgd(0.5f), false, r.dh);
        r.weight = std::move(layer.weight);
        r.bias = std::move(layer.bias);
        return r;
    }
    /// Loss, dh and updated weights by plain loops in double.
    OutputResult reference() {
        Layer layer(classes, width, 22);
        OutputResult r;
        r.dh = Matrix(samples, width);
        std::vector<double> weight(at(classes * width)), bias(at(classes));
        for (std::int64_t i = 0; i < samples; ++i) {
            const double share = targets.sample_weight[at(i)];
            if (share == 0) continue;
            std::vector<double> z(at(classes)), t(at(classes));
            for (std::int64_t e = labels.ptr[at(i)]; e < labels.ptr[at(i) + 1]; ++e)
                t[at(labels.col[at(e)])] = targets.t[at(e)];
            double max = -1e30, sum = 0;
            for (std::int64_t c = 0; c < classes; ++c) {
                z[at(c)] = layer.bias.row(0)[c];
                for (std::int64_t j = 0; j < width; ++j)
                    z[at(c)] += static_cast<double>(h.row(i)[j]) * layer.weight.row(c)[j];
                max = std::max(max, z[at(c)]);
            }
            for (const double x : z) sum += std::exp(x - max);
            for (std::int64_t c = 0; c < classes; ++c) {
                const double x = z[at(c)];
                if (loss == DSLIDE_SOFTMAX)
                    r.loss_sum += share * t[at(c)] * (max + std::log(sum) - x);
                else
                    r.loss_sum += share * (std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))) - t[at(c)] * x);
                const double p = loss == DSLIDE_SOFTMAX ? std::exp(x - max) / sum : 1 / (1 + std::exp(-x));
                const double g = share * (p - t[at(c)]);
                bias[at(c)] += g;
                for (std::int64_t j = 0; j < width; ++j) {
                    weight[at(c * width + j)] += g * h.row(i)[j];
                    r.dh.row(i)[j] += static_cast<float>(g * layer.weight.row(c)[j]);
                }
            }
        }
        for (std::int64_t c = 0; c < classes; ++c) {
            layer.bias.row(0)[c] -= static_cast<float>(0.5 * bias[at(c)]);
            for (std::int64_t j = 0; j < width; ++j)
                layer.weight.row(c)[j] -= static_cast<float>(0.5 * weight[at(c * width + j)]);
        }
        r.weight = std::move(layer.weight);
        r.bias = std::move(layer.bias);
        return r;
    }
};

/// fp32 sums of up to `classes` terms around 1 against double: 2e-5 absolute leaves a factor of 10.
std::string compare(const OutputResult &found, const OutputResult &expected) {
    std::string wrong;
    const double loss = expected.loss_sum;
    if (!(std::abs(found.loss_sum - loss) <= 2e-5 * std::max(1.0, std::abs(loss)))) wrong += "loss ";
    if (!(farthest(found.dh, expected.dh) < 2e-5)) wrong += "dh ";
    if (!(farthest(found.weight, expected.weight) < 2e-5)) wrong += "weight ";
    if (!(farthest(found.bias, expected.bias) < 2e-5)) wrong += "bias ";
    return wrong;
}

std::vector<std::int32_t> every(std::int64_t n, std::int64_t step) {
    std::vector<std::int32_t> rows;
    for (std::int64_t r = 0; r < n; r += step) rows.push_back(static_cast<std::int32_t>(r));
    return rows;
}

} // namespace

static void test_layers__outputs_equal_plain_loops_with_all_rows_active(void **) {
    std::string failing;
    for (const std::int32_t loss : {DSLIDE_SOFTMAX, DSLIDE_BCE})
        for (const auto &[samples, classes, width] :
             {std::tuple{1, 1, 1}, {6, 2, 7}, {20, 100, 16}, {70, 1300, 24}, {40, 513, 200}}) {
            OutputCase c(samples, classes, width, loss);
            const OutputResult expected = c.reference(), dense = c.dense();
            failing += compare(dense, expected);
            // All private; some, and then all, shared.
            failing += compare(c.sampled({}), expected);
            failing += compare(c.sampled(every(classes, 3)), expected);
            const OutputResult all_shared = c.sampled(every(classes, 1));
            failing += compare(all_shared, expected);
            double counted = 0;
            for (std::int64_t i = 0; i < samples; ++i) counted += c.targets.sample_weight[at(i)] > 0;
            for (const OutputResult *r : {&dense, &all_shared})
                if (r->active_pairs != counted * static_cast<double>(classes)) failing += "pairs ";
            if (all_shared.touched != classes) failing += "touched ";
        }
    assert_string_equal(failing.c_str(), "");
}

static void test_layers__outputs_do_not_depend_on_threads(void **) {
    std::string failing;
    for (const std::int32_t loss : {DSLIDE_SOFTMAX, DSLIDE_BCE}) {
        OutputCase c(100, 1500, 24, loss);
        const OutputResult dense = c.dense(1), sampled = c.sampled(every(1500, 7), 1, 300);
        for (const int threads : {2, 3, 8}) {
            const OutputResult d = c.dense(threads), s = c.sampled(every(1500, 7), threads, 300);
            if (!same_bits(d.weight, dense.weight) || !same_bits(d.dh, dense.dh)) failing += "dense ";
            if (!same_bits(s.weight, sampled.weight) || !same_bits(s.dh, sampled.dh)) failing += "sampled ";
            if (d.loss_sum != dense.loss_sum || s.loss_sum != sampled.loss_sum) failing += "loss ";
        }
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_layers__scores_worked_out_twice_give_the_same_bits(void **) {
    std::string failing;
    for (const std::int32_t loss : {DSLIDE_SOFTMAX, DSLIDE_BCE}) {
        OutputCase c(40, 1300, 24, loss);
        const OutputResult kept = c.dense(2), again = c.dense(2, 0);
        if (!same_bits(kept.weight, again.weight) || !same_bits(kept.bias, again.bias) || !same_bits(kept.dh, again.dh))
            failing += "weights ";
        if (kept.loss_sum != again.loss_sum) failing += "loss ";
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_layers__the_best_hard_rows_stay(void **) {
    // One sample without labels under BCE: every row that stays gets a bias gradient sigmoid(z) > 0.
    std::string failing;
    for (const std::int64_t keep : {1, 2, 10, 99, 100, 500}) {
        OutputCase c(1, 100, 16, DSLIDE_BCE); // sample 0 has no label
        const OutputResult r = c.sampled({}, 1, keep);
        Layer start(100, 16, 22);
        std::vector<std::pair<double, std::int64_t>> scored;
        for (std::int64_t row = 0; row < 100; ++row) {
            double z = start.bias.row(0)[row];
            for (std::int64_t j = 0; j < 16; ++j) z += static_cast<double>(c.h.row(0)[j]) * start.weight.row(row)[j];
            scored.emplace_back(-z, row);
        }
        std::sort(scored.begin(), scored.end());
        for (std::int64_t place = 0; place < 100; ++place) {
            const std::int64_t row = scored[at(place)].second;
            const bool moved = r.bias.row(0)[row] != start.bias.row(0)[row];
            if (moved != (place < keep)) failing += std::to_string(keep) + "/" + std::to_string(place) + " ";
        }
        if (r.touched != std::min<std::int64_t>(keep, 100)) failing += "touched ";
    }
    assert_string_equal(failing.c_str(), "");
}

namespace {

std::string check_top_k(std::int64_t samples, std::int64_t classes, std::int64_t width, std::int64_t k, bool ties,
                        int threads) {
    Matrix h = normal_matrix(samples, width, 40);
    Layer layer(classes, width, 41);
    if (ties) { // small whole numbers: sums are exact, and there are few different ones
        for (Matrix *m : {&h, &layer.weight, &layer.bias})
            for (float &x : m->data) x = static_cast<float>(std::lround(x));
    }
    std::vector<std::int32_t> rows(at(samples * k), -5);
    std::vector<float> scores(rows.size());
    Arena arena(threads);
    exact_top_k(arena, h, layer.weights(), layer.biases(), k, rows.data(), scores.data());
    for (std::int64_t i = 0; i < samples; ++i) {
        std::vector<std::pair<double, std::int32_t>> scored(at(classes));
        for (std::int64_t c = 0; c < classes; ++c) {
            double z = layer.bias.row(0)[c];
            for (std::int64_t j = 0; j < width; ++j) z += static_cast<double>(h.row(i)[j]) * layer.weight.row(c)[j];
            scored[at(c)] = {-z, static_cast<std::int32_t>(c)};
        }
        const std::vector<std::pair<double, std::int32_t>> by_class = scored;
        std::partial_sort(scored.begin(), scored.begin() + k, scored.end());
        std::set<std::int32_t> distinct;
        for (std::int64_t j = 0; j < k; ++j) {
            const std::int32_t row = rows[at(i * k + j)];
            if (row < 0 || row >= classes || !distinct.insert(row).second) return "a row twice ";
            // With exact sums the very order, otherwise one whose scores differ by rounding alone.
            if (ties && row != scored[at(j)].second) return "order ";
            if (std::abs(-by_class[at(row)].first - scores[at(i * k + j)]) > 1e-4) return "score ";
            if (std::abs(by_class[at(row)].first - scored[at(j)].first) > 1e-4) return "a better one left out ";
            if (j > 0 && scores[at(i * k + j)] > scores[at(i * k + j - 1)]) return "falling ";
        }
    }
    return "";
}

} // namespace

static void test_layers__top_k_equals_a_sort(void **) {
    std::string failing;
    for (const bool ties : {false, true})
        for (const auto &[samples, classes, width, k] : {std::tuple{1, 1, 1, 1},
                                                         {0, 10, 4, 3},
                                                         {3, 10, 4, 10},
                                                         {4, 1024, 5, 7},
                                                         {5, 1025, 5, 1},
                                                         {130, 50, 7, 5},
                                                         {2, 2000, 3, 2000},
                                                         {1, 70000, 4, 100},
                                                         {5, 140000, 3, 10},
                                                         {1, 66000, 2, 66000}})
            for (const int threads : {1, 3}) {
                const std::string wrong = check_top_k(samples, classes, width, k, ties, threads);
                if (!wrong.empty()) failing += std::to_string(classes) + "/" + std::to_string(k) + " " + wrong;
            }
    assert_string_equal(failing.c_str(), "");
}

static void test_layers__top_k_of_equal_scores_are_the_lowest_classes(void **) {
    Matrix h(2, 4);
    Layer layer(70000, 4, 41);
    std::fill(layer.bias.data.begin(), layer.bias.data.end(), 2.0f);
    std::vector<std::int32_t> rows(6);
    Arena arena(2);
    exact_top_k(arena, h, layer.weights(), layer.biases(), 3, rows.data(), nullptr);
    const bool lowest = rows == std::vector<std::int32_t>{0, 1, 2, 0, 1, 2};
    assert_true(lowest);
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_layers__inverse_equals_a_naive_one),
        cmocka_unit_test(test_layers__inverse_cuts_into_parts_of_like_work),
        cmocka_unit_test(test_layers__inverse_refuses_more_entries_than_it_can_number),
        cmocka_unit_test(test_layers__sparse_input_equals_the_dense_product),
        cmocka_unit_test(test_layers__sparse_input_can_move_every_row),
        cmocka_unit_test(test_layers__dense_layer_equals_plain_loops),
        cmocka_unit_test(test_layers__outputs_equal_plain_loops_with_all_rows_active),
        cmocka_unit_test(test_layers__outputs_do_not_depend_on_threads),
        cmocka_unit_test(test_layers__scores_worked_out_twice_give_the_same_bits),
        cmocka_unit_test(test_layers__the_best_hard_rows_stay),
        cmocka_unit_test(test_layers__top_k_equals_a_sort),
        cmocka_unit_test(test_layers__top_k_of_equal_scores_are_the_lowest_classes),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
