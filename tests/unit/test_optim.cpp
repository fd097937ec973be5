// SPDX-License-Identifier: Apache-2.0
#include "cmocka.hpp"
#include "core/random.hpp"
#include "optim/learning_rate.hpp"
#include "optim/optimizer.hpp"
#include "simd/matrix.hpp"

#include <algorithm>
#include <string>
#include <vector>

using namespace dslide;

namespace {

dslide_trainer_options options_of(std::int32_t optimizer) {
    dslide_trainer_options o{};
    o.optimizer = optimizer;
    o.learning_rate = 0.1f;
    o.beta1 = 0.9f;
    o.beta2 = 0.999f;
    o.epsilon = 1e-8f;
    return o;
}

/// Weights of some rows with what state the rule keeps, and a bias of as many values.
struct Rows {
    Matrix weight, bias;
    std::vector<Matrix> weight_state, bias_state;
    dslide_trainer_options options;

    Rows(const dslide_trainer_options &o, std::int64_t rows, std::int64_t cols, float start)
        : weight(rows, cols), bias(1, rows), options(o) {
        for (std::int64_t r = 0; r < rows; ++r) {
            std::fill_n(weight.row(r), cols, start);
            bias.row(0)[r] = start;
        }
        for (int p = 0; p < state_planes(o); ++p) {
            weight_state.emplace_back(rows, cols);
            bias_state.emplace_back(1, rows);
        }
    }
    Parameters weights() {
        Parameters p{weight.row(0), {}, weight.rows, weight.cols, weight.stride};
        for (std::size_t i = 0; i < weight_state.size(); ++i) p.state[i] = weight_state[i].row(0);
        return p;
    }
    Parameters biases() {
        Parameters p{bias.row(0), {}, 1, bias.cols, bias.stride};
        for (std::size_t i = 0; i < bias_state.size(); ++i) p.state[i] = bias_state[i].row(0);
        return p;
    }
    /// The same gradient in every column of row r and for its bias.
    void update(std::int64_t step, std::int64_t r, float g) {
        const Optimizer optimizer(options, step, options.learning_rate);
        Array<float> grad(static_cast<std::size_t>(weight.stride));
        std::fill_n(grad.data(), weight.cols, g);
        optimizer.update_row(weights(), r, grad.data());
        optimizer.update_scalar(biases(), r, g);
    }
};

/// Weight and bias of a single row after each step with these gradients; the columns must agree.
struct Path {
    std::vector<double> weight, bias;
    bool columns_agree = true;
};

Path path_of(const dslide_trainer_options &o, float start, const std::vector<float> &gradients) {
    Rows rows(o, 1, 21, start);
    Path path;
    for (std::size_t t = 0; t < gradients.size(); ++t) {
        rows.update(static_cast<std::int64_t>(t) + 1, 0, gradients[t]);
        path.weight.push_back(rows.weight.row(0)[0]);
        path.bias.push_back(rows.bias.row(0)[0]);
        for (std::int64_t j = 0; j < rows.weight.cols; ++j)
            path.columns_agree &= std::abs(rows.weight.row(0)[j] - path.weight.back()) < 1e-7;
        for (std::int64_t j = rows.weight.cols; j < rows.weight.stride; ++j)
            path.columns_agree &= rows.weight.row(0)[j] == 0; // the pad
    }
    return path;
}

double farthest(const std::vector<double> &found, const std::vector<double> &expected) {
    double worst = found.size() == expected.size() ? 0 : 1e9;
    for (std::size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(found[i] - expected[i]));
    return worst;
}

constexpr double tolerance = 3e-7; // a few roundings of values around 1

} // namespace

// m = 0.1 g1; v = 0.001 g1^2; the first step is rate * sign(g) but for epsilon. Second step, with g = 0.5 then -0.25:
// m = 0.9 x 0.05 - 0.1 x 0.25 = 0.02, m / (1 - 0.81) = 0.105263158
// v = 0.999 x 0.00025 + 0.001 x 0.0625 = 0.00031225, v / (1 - 0.998001) = 0.156203102, root 0.395225382
// step = 0.1 x 0.105263158 / 0.395225382 = 0.026633703
static void test_optim__adam_by_hand(void **) {
    const Path p = path_of(options_of(DSLIDE_ADAM), 1, {0.5f, -0.25f});
    const double after_two = 0.9 - 0.026633703;
    assert_true(farthest(p.weight, {0.9, after_two}) < tolerance);
    assert_true(farthest(p.bias, {0.9, after_two}) < tolerance);
    assert_true(p.columns_agree);
}

// Without memory of gradients each step is rate * g / (|g| + epsilon).
static void test_optim__adam_with_negative_betas_has_no_memory(void **) {
    auto o = options_of(DSLIDE_ADAM);
    o.beta1 = o.beta2 = -1;
    o.epsilon = 0.5f;
    const Path p = path_of(o, 1, {0.5f, -1.5f, 0.5f, 0.0f});
    assert_true(farthest(p.weight, {0.95, 1.025, 0.975, 0.975}) < tolerance);
    assert_true(farthest(p.bias, {0.95, 1.025, 0.975, 0.975}) < tolerance);
}

static void test_optim__sgd_by_hand(void **) {
    const Path plain = path_of(options_of(DSLIDE_SGD), 1, {0.5f, -0.25f, 2.0f});
    auto o = options_of(DSLIDE_SGD);
    o.momentum = 0.5f;
    const Path momentum = path_of(o, 1, {0.5f, -0.25f, 2.0f}); // velocities 0.5, 0, 2
    assert_true(farthest(plain.weight, {0.95, 0.975, 0.775}) < tolerance);
    assert_true(farthest(plain.bias, {0.95, 0.975, 0.775}) < tolerance);
    assert_true(farthest(momentum.weight, {0.95, 0.95, 0.75}) < tolerance);
    assert_true(farthest(momentum.bias, {0.95, 0.95, 0.75}) < tolerance);
    assert_true(plain.columns_agree && momentum.columns_agree);
}

// Sums of squares 9, 25, 25: steps 0.1 x 3/3, 0.1 x 4/5, 0.
static void test_optim__adagrad_by_hand(void **) {
    const Path p = path_of(options_of(DSLIDE_ADAGRAD), 1, {3.0f, 4.0f, 0.0f});
    assert_true(farthest(p.weight, {0.9, 0.82, 0.82}) < tolerance);
    assert_true(farthest(p.bias, {0.9, 0.82, 0.82}) < tolerance);
    auto o = options_of(DSLIDE_ADAGRAD);
    o.epsilon = 1;
    const Path damped = path_of(o, 1, {3.0f}); // 0.1 x 3 / 4
    assert_true(farthest(damped.weight, {0.925}) < tolerance);
}

static void test_optim__state_planes_of_each_rule(void **) {
    auto sgd = options_of(DSLIDE_SGD), with_momentum = sgd;
    with_momentum.momentum = 0.9f;
    assert_int_equal(state_planes(options_of(DSLIDE_ADAM)), 2);
    assert_int_equal(state_planes(options_of(DSLIDE_ADAGRAD)), 1);
    assert_int_equal(state_planes(sgd), 0);
    assert_int_equal(state_planes(with_momentum), 1);
}

// L2 adds decay * w to the gradient: 0.5 + 0.1 x 2 = 0.7. Decoupled: w shrinks by 1 - 0.1 x 0.1 first. A bias does
// neither.
static void test_optim__decay_of_weights_but_not_of_biases(void **) {
    auto o = options_of(DSLIDE_SGD);
    o.weight_decay = 0.1f;
    const Path l2 = path_of(o, 2, {0.5f});
    o.decay_mode = DSLIDE_DECAY_DECOUPLED;
    const Path decoupled = path_of(o, 2, {0.5f});
    o.momentum = 0.5f;
    const Path with_momentum = path_of(o, 2, {0.5f, 0.0f}); // 2 x 0.99 - 0.05, then x 0.99 - 0.025
    auto adagrad = options_of(DSLIDE_ADAGRAD);
    adagrad.weight_decay = 0.5f;
    const Path adagrad_l2 = path_of(adagrad, 2, {2.0f}); // gradient 3, its root 3: a step of 0.1
    adagrad.decay_mode = DSLIDE_DECAY_DECOUPLED;
    const Path adagrad_decoupled = path_of(adagrad, 2, {2.0f}); // 2 x 0.95 - 0.1
    auto adam = options_of(DSLIDE_ADAM);
    adam.weight_decay = 1;
    const Path adam_l2 = path_of(adam, 2, {-1.0f}); // gradient +1
    adam.decay_mode = DSLIDE_DECAY_DECOUPLED;
    const Path adam_decoupled = path_of(adam, 2, {-1.0f}); // 2 x 0.9 + 0.1
    assert_true(farthest(l2.weight, {1.93}) < tolerance);
    assert_true(farthest(l2.bias, {1.95}) < tolerance);
    assert_true(farthest(decoupled.weight, {1.93}) < tolerance);
    assert_true(farthest(decoupled.bias, {1.95}) < tolerance);
    assert_true(farthest(with_momentum.weight, {1.93, 1.93 * 0.99 - 0.025}) < tolerance);
    assert_true(farthest(with_momentum.bias, {1.95, 1.925}) < tolerance);
    assert_true(farthest(adagrad_l2.weight, {1.9}) < tolerance);
    assert_true(farthest(adagrad_l2.bias, {1.9}) < tolerance);
    assert_true(farthest(adagrad_decoupled.weight, {1.8}) < tolerance);
    assert_true(farthest(adam_l2.weight, {1.9}) < tolerance);
    assert_true(farthest(adam_l2.bias, {2.1}) < tolerance);
    assert_true(farthest(adam_decoupled.weight, {1.9}) < tolerance);
}

static void test_optim__whole_bias_moves_like_a_row_without_decay(void **) {
    std::string failing;
    for (const std::int32_t rule : {DSLIDE_ADAM, DSLIDE_SGD, DSLIDE_ADAGRAD}) {
        auto o = options_of(rule);
        o.weight_decay = 0.5f;
        Rows rows(o, 21, 3, 1); // a bias of 21
        Array<float> grad(static_cast<std::size_t>(rows.bias.stride));
        for (std::int64_t step = 1; step <= 3; ++step) {
            const Optimizer optimizer(o, step, 0.1);
            std::fill_n(grad.data(), 21, 0.25f * static_cast<float>(step));
            optimizer.update_bias(rows.biases(), grad.data());
        }
        const Path one = path_of(o, 1, {0.25f, 0.5f, 0.75f});
        for (std::int64_t j = 0; j < 21; ++j)
            if (std::abs(rows.bias.row(0)[j] - one.bias.back()) > tolerance) failing += std::to_string(rule) + " ";
    }
    assert_string_equal(failing.c_str(), "");
}

// Row 1 stays as it is while row 0 moves; when it is touched in step 3 for the first time, its correction is that of
// step 3: m = 0.05, /(1 - 0.729) = 0.184501845; v = 0.00025, /(1 - 0.997002999) = 0.083416708, root 0.288819508;
// 0.1 x 0.184501845 / 0.288819508 = 0.063881365.
static void test_optim__lazy_adam_corrects_by_the_global_step(void **) {
    Rows rows(options_of(DSLIDE_ADAM), 3, 5, 1);
    rows.update(1, 0, 0.5f);
    rows.update(2, 0, 0.5f);
    const float untouched = rows.weight.row(1)[0], its_m = rows.weight_state[0].row(1)[0];
    rows.update(3, 1, 0.5f);
    assert_true(untouched == 1 && its_m == 0);
    assert_true(rows.weight.row(2)[4] == 1 && rows.weight_state[1].row(2)[4] == 0);
    assert_true(std::abs(rows.weight.row(1)[0] - (1 - 0.063881365)) < tolerance);
    assert_true(std::abs(rows.bias.row(0)[1] - (1 - 0.063881365)) < tolerance);
}

static void test_optim__clipping_by_value_and_by_norm(void **) {
    auto o = options_of(DSLIDE_SGD);
    o.clip_value = 0.25f;
    const Path by_value = path_of(o, 1, {3.0f, -3.0f, 0.125f});
    o.clip_value = 0;
    o.clip_row_norm = 1;                              // 21 columns of 2: norm 2 sqrt(21), each becomes 1 / sqrt(21)
    const Path by_norm = path_of(o, 1, {2.0f, 0.1f}); // the second has norm 0.458: kept
    o.clip_value = 0.05f;                             // value first, then norm: 0.05 sqrt(21) = 0.229 is below 1
    const Path both = path_of(o, 1, {2.0f});
    assert_true(farthest(by_value.weight, {0.975, 1.0, 0.9875}) < tolerance);
    assert_true(farthest(by_value.bias, {0.975, 1.0, 0.9875}) < tolerance);
    const double step = 0.1 / std::sqrt(21.0);
    assert_true(farthest(by_norm.weight, {1 - step, 1 - step - 0.01}) < tolerance);
    assert_true(farthest(by_norm.bias, {0.9, 0.89}) < tolerance); // a bias is a row of one
    assert_true(farthest(both.weight, {0.995}) < tolerance);
}

static void test_optim__a_zero_gradient_of_norm_zero_is_not_divided(void **) {
    auto o = options_of(DSLIDE_SGD);
    o.clip_row_norm = 1;
    const Path p = path_of(o, 1, {0.0f});
    assert_true(p.weight[0] == 1 && p.bias[0] == 1);
}

// Many steps of both forms with random gradients.
static void test_optim__rows_and_single_values_move_alike(void **) {
    std::string failing;
    RandomStream random(5, Purpose::shuffle);
    std::vector<float> gradients;
    for (int t = 0; t < 200; ++t) gradients.push_back(static_cast<float>(random.normal()));
    for (const std::int32_t rule : {DSLIDE_ADAM, DSLIDE_SGD, DSLIDE_ADAGRAD})
        for (const float momentum : {0.0f, 0.9f}) {
            auto o = options_of(rule);
            o.momentum = momentum;
            o.learning_rate = 0.01f;
            const Path p = path_of(o, 1, gradients);
            if (farthest(p.weight, p.bias) > 1e-5 || !p.columns_agree) failing += std::to_string(rule) + " ";
        }
    assert_string_equal(failing.c_str(), "");
}

namespace {

dslide_trainer_options schedule_of(std::int32_t schedule) {
    auto o = options_of(DSLIDE_ADAM);
    o.learning_rate = 2;
    o.schedule = schedule;
    o.total_samples = 1000;
    o.final_rate = 0.1f;
    o.step_samples = 100;
    o.step_factor = 0.5f;
    return o;
}

bool close(double a, double b) { return std::abs(a - b) < 1e-6; }

} // namespace

static void test_optim__schedules_at_their_corners(void **) {
    const auto constant = schedule_of(DSLIDE_SCHEDULE_CONSTANT), linear = schedule_of(DSLIDE_SCHEDULE_LINEAR),
               cosine = schedule_of(DSLIDE_SCHEDULE_COSINE), step = schedule_of(DSLIDE_SCHEDULE_STEP);
    assert_true(close(learning_rate(constant, 0), 2) && close(learning_rate(constant, 1000000), 2));
    assert_true(close(learning_rate(linear, 0), 2));
    assert_true(close(learning_rate(linear, 500), 1.1)); // half way from 2 to 0.2
    assert_true(close(learning_rate(linear, 1000), 0.2));
    assert_true(close(learning_rate(linear, 5000), 0.2));
    assert_true(close(learning_rate(cosine, 0), 2));
    assert_true(close(learning_rate(cosine, 250), 0.2 + 1.8 * (0.5 + 0.25 * std::sqrt(2.0))));
    assert_true(close(learning_rate(cosine, 500), 1.1));
    assert_true(close(learning_rate(cosine, 1000), 0.2));
    assert_true(close(learning_rate(cosine, 99999), 0.2));
    assert_true(close(learning_rate(step, 0), 2) && close(learning_rate(step, 99), 2));
    assert_true(close(learning_rate(step, 100), 1) && close(learning_rate(step, 199), 1));
    assert_true(close(learning_rate(step, 200), 0.5));
}

static void test_optim__warm_up_multiplies_the_schedule(void **) {
    auto o = schedule_of(DSLIDE_SCHEDULE_CONSTANT);
    o.warmup_samples = 99;
    const double start = learning_rate(o, 0), middle = learning_rate(o, 49), before = learning_rate(o, 98),
                 end = learning_rate(o, 99);
    o.schedule = DSLIDE_SCHEDULE_LINEAR;
    const double with_linear = learning_rate(o, 49);
    assert_true(start > 0); // the first step learns something
    assert_true(close(middle, 2 * 0.5));
    assert_true(before < 2 && before > 1.9);
    assert_true(close(end, 2));
    assert_true(close(with_linear, 0.5 * 2 * (1 - 0.9 * 0.049)));
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_optim__adam_by_hand),
        cmocka_unit_test(test_optim__adam_with_negative_betas_has_no_memory),
        cmocka_unit_test(test_optim__sgd_by_hand),
        cmocka_unit_test(test_optim__adagrad_by_hand),
        cmocka_unit_test(test_optim__state_planes_of_each_rule),
        cmocka_unit_test(test_optim__decay_of_weights_but_not_of_biases),
        cmocka_unit_test(test_optim__whole_bias_moves_like_a_row_without_decay),
        cmocka_unit_test(test_optim__lazy_adam_corrects_by_the_global_step),
        cmocka_unit_test(test_optim__clipping_by_value_and_by_norm),
        cmocka_unit_test(test_optim__a_zero_gradient_of_norm_zero_is_not_divided),
        cmocka_unit_test(test_optim__rows_and_single_values_move_alike),
        cmocka_unit_test(test_optim__schedules_at_their_corners),
        cmocka_unit_test(test_optim__warm_up_multiplies_the_schedule),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
