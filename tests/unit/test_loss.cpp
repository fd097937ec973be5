// SPDX-License-Identifier: Apache-2.0
#include "cmocka.hpp"
#include "core/random.hpp"
#include "loss/loss.hpp"
#include "loss/targets.hpp"

#include <dslide/trainer.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

using namespace dslide;

namespace {

constexpr float absent = -std::numeric_limits<float>::infinity();

/// Loss of one sample in double, straight from its definition.
double reference(std::int32_t loss, const std::vector<double> &z, const std::vector<double> &t) {
    double value = 0;
    if (loss == DSLIDE_SOFTMAX) {
        const double max = *std::max_element(z.begin(), z.end());
        double sum = 0;
        for (const double x : z) sum += std::exp(x - max);
        for (std::size_t i = 0; i < z.size(); ++i)
            if (t[i] > 0) value += t[i] * (max + std::log(sum) - z[i]);
        return value;
    }
    for (std::size_t i = 0; i < z.size(); ++i)
        if (std::isfinite(z[i])) value += std::max(z[i], 0.0) + std::log1p(std::exp(-std::abs(z[i]))) - t[i] * z[i];
    return value;
}

struct Result {
    double loss = 0;
    std::vector<float> gradient;
};

/// As the layers do it: the scores cut into pieces that end at `ends`, a partial result each, merged in order.
Result in_pieces(std::int32_t loss, std::vector<float> z, const std::vector<double> &t,
                 const std::vector<std::size_t> &ends, float weight = 1) {
    double target_sum = 0, target_score = 0;
    for (std::size_t i = 0; i < z.size(); ++i)
        if (t[i] > 0) target_sum += t[i], target_score += t[i] * static_cast<double>(z[i]);
    PartialLoss total = empty_partial(loss);
    std::vector<PartialLoss> pieces;
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
        pieces.push_back(loss_piece(loss, z.data() + begin, static_cast<std::int64_t>(end - begin)));
        total = merge(loss, total, pieces.back());
        begin = end;
    }
    begin = 0;
    for (std::size_t p = 0; p < ends.size(); ++p) {
        const float factor = gradient_factor(loss, pieces[p], total, weight);
        for (; begin < ends[p]; ++begin) z[begin] *= factor;
    }
    for (std::size_t i = 0; i < z.size(); ++i) z[i] -= weight * static_cast<float>(t[i]);
    return {loss_value(loss, total, target_sum, target_score), z};
}

Result whole(std::int32_t loss, const std::vector<float> &z, const std::vector<double> &t, float weight = 1) {
    return in_pieces(loss, z, t, {z.size()}, weight);
}

/// Central differences of the reference.
std::vector<double> differences(std::int32_t loss, const std::vector<float> &z, const std::vector<double> &t) {
    std::vector<double> x(z.begin(), z.end()), gradient;
    for (double &at : x) {
        if (!std::isfinite(at)) {
            gradient.push_back(0);
            continue;
        }
        const double middle = at, h = 1e-5;
        at = middle + h;
        const double above = reference(loss, x, t);
        at = middle - h;
        gradient.push_back((above - reference(loss, x, t)) / (2 * h));
        at = middle;
    }
    return gradient;
}

std::string compare(std::int32_t loss, const std::vector<float> &z, const std::vector<double> &t) {
    const Result found = whole(loss, z, t);
    const double expected = reference(loss, {z.begin(), z.end()}, t);
    if (!(std::abs(found.loss - expected) < 1e-5 * std::max(1.0, std::abs(expected)))) return "loss ";
    const auto gradient = differences(loss, z, t);
    for (std::size_t i = 0; i < z.size(); ++i)
        if (!(std::abs(found.gradient[i] - gradient[i]) < 1e-5)) return "gradient ";
    return "";
}

std::vector<float> normal_scores(std::size_t n, float mean, float spread, std::uint64_t number) {
    RandomStream random(11, Purpose::shuffle, number);
    std::vector<float> z(n);
    for (float &x : z) x = mean + spread * static_cast<float>(random.normal());
    return z;
}

constexpr std::int32_t losses[] = {DSLIDE_SOFTMAX, DSLIDE_BCE};

} // namespace

static void test_loss__gradients_are_the_differences_of_the_loss(void **) {
    std::string failing;
    for (const std::int32_t loss : losses)
        for (const std::size_t n : {1u, 2u, 15u, 16u, 17u, 100u}) {
            std::vector<double> one(n), three(n), all(n, 1 / static_cast<double>(n)), weighted(n);
            one[n / 2] = 1;
            for (const std::size_t i : {std::size_t{0}, n / 2, n - 1}) three[i] = 1.0 / 3;
            if (loss == DSLIDE_SOFTMAX && n < 3) three = one;
            weighted[0] += 0.25, weighted[n - 1] += 0.75;
            for (const auto &t : {one, three, all, weighted})
                for (const float mean : {0.0f, -1000.0f, 30.0f})
                    failing += compare(loss, normal_scores(n, mean, 2, n), t);
        }
    const std::vector<double> none(20); // BCE: only negatives
    failing += compare(DSLIDE_BCE, normal_scores(20, 0, 2, 1), none);
    assert_string_equal(failing.c_str(), "");
}

static void test_loss__one_score_far_above_all_others(void **) {
    std::string failing;
    for (const float peak : {80.0f, 1e4f, 1e30f}) {
        auto z = normal_scores(50, 0, 1, 3);
        z[7] = peak;
        std::vector<double> on_peak(50), off_peak(50);
        on_peak[7] = off_peak[8] = 1;
        const Result sure = whole(DSLIDE_SOFTMAX, z, on_peak), wrong = whole(DSLIDE_SOFTMAX, z, off_peak);
        if (!(std::abs(sure.loss) < 1e-6 * peak) || sure.gradient[7] != 0) failing += "sure ";
        if (!(std::abs(wrong.loss / (peak - static_cast<double>(z[8])) - 1) < 1e-5)) failing += "wrong ";
        if (wrong.gradient[7] != 1 || wrong.gradient[8] != -1) failing += "gradient ";
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_loss__rows_at_minus_infinity_take_no_part(void **) {
    std::string failing;
    for (const std::int32_t loss : losses) {
        auto z = normal_scores(20, 0, 1, 4);
        std::vector<double> t(20);
        t[3] = 1;
        std::vector<float> kept;
        std::vector<double> kept_t;
        for (std::size_t i = 0; i < z.size(); ++i) {
            if (i % 3 == 1) {
                z[i] = absent;
                continue;
            }
            kept.push_back(z[i]);
            kept_t.push_back(t[i]);
        }
        const Result with = whole(loss, z, t), without = whole(loss, kept, kept_t);
        if (std::abs(with.loss - without.loss) > 1e-6) failing += "loss ";
        std::size_t k = 0;
        for (std::size_t i = 0; i < z.size(); ++i) {
            if (i % 3 == 1 ? with.gradient[i] != 0 : std::abs(with.gradient[i] - without.gradient[k++]) > 1e-6)
                failing += "gradient ";
        }
        // A piece in which nothing takes part, before and behind one in which something does.
        std::vector<float> padded(8, absent);
        padded.insert(padded.end(), kept.begin(), kept.end());
        padded.insert(padded.end(), 5, absent);
        std::vector<double> padded_t(8);
        padded_t.insert(padded_t.end(), kept_t.begin(), kept_t.end());
        padded_t.insert(padded_t.end(), 5, 0.0);
        const Result around = in_pieces(loss, padded, padded_t, {8, 8 + kept.size(), padded.size()});
        if (!(std::abs(around.loss - without.loss) < 1e-6)) failing += "empty piece ";
        for (std::size_t i = 0; i < padded.size(); ++i) {
            const float expected = i < 8 || i >= 8 + kept.size() ? 0 : without.gradient[i - 8];
            if (!(std::abs(around.gradient[i] - expected) < 1e-6)) failing += "its gradient ";
        }
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_loss__pieces_make_what_the_whole_makes(void **) {
    std::string failing;
    for (const std::int32_t loss : losses)
        for (const float mean : {0.0f, -500.0f}) {
            auto z = normal_scores(100, mean, 20, 5); // pieces differ much in their maximum
            std::vector<double> t(100);
            t[10] = 0.5, t[90] = 0.5;
            const Result one = whole(loss, z, t, 0.25f);
            for (const std::vector<std::size_t> &ends :
                 {std::vector<std::size_t>{50, 100}, {1, 2, 3, 100}, {99, 100}}) {
                const Result cut = in_pieces(loss, z, t, ends, 0.25f);
                if (!(std::abs(cut.loss - one.loss) < 1e-6 * std::max(1.0, std::abs(one.loss)))) failing += "loss ";
                for (std::size_t i = 0; i < z.size(); ++i)
                    if (!(std::abs(cut.gradient[i] - one.gradient[i]) < 1e-6)) failing += "gradient ";
            }
        }
    assert_string_equal(failing.c_str(), "");
}

static void test_loss__bce_at_its_extremes(void **) {
    const std::vector<float> z{100, -100, 100, -100, 3e38f, -3e38f, 0};
    const std::vector<double> t{1, 0, 0, 1, 1, 0, 1};
    const Result r = whole(DSLIDE_BCE, z, t);
    const std::vector<float> expected{0, 0, 1, -1, 0, 0, -0.5f};
    double worst = 0;
    for (std::size_t i = 0; i < z.size(); ++i)
        worst = std::max(worst, static_cast<double>(std::abs(r.gradient[i] - expected[i])));
    assert_true(worst < 1e-6);
    // The two that are wrong by 100 cost 100 each; 3e38 cancels exactly; the last costs log 2.
    const Result without = whole(DSLIDE_BCE, {100, -100, 100, -100, 0}, {1, 0, 0, 1, 1});
    assert_true(std::abs(without.loss - (200 + std::log(2.0))) < 1e-5);
}

static void test_loss__nan_and_infinity_show_in_the_loss(void **) {
    std::string failing;
    constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    for (const std::int32_t loss : losses)
        for (const float bad : {inf, nan})
            for (const std::size_t place : {0u, 5u, 17u})
                for (const float others : {0.0f, absent}) {
                    std::vector<float> z(18, others);
                    z[2] = 1;
                    z[place] = bad;
                    std::vector<double> t(18);
                    t[2] = 1;
                    if (std::isfinite(whole(loss, z, t).loss)) failing += "hidden ";
                    if (std::isfinite(in_pieces(loss, z, t, {6, 12, 18}).loss)) failing += "hidden in pieces ";
                }
    assert_string_equal(failing.c_str(), "");
}

namespace {

struct LabelledBatch {
    std::vector<std::int64_t> ptr{2, 4, 4, 5, 8}; // 2, 0, 1, 3 labels; the first offset is not 0
    std::vector<std::int32_t> col{99, 99, 0, 4, 2, 1, 3, 5};
    std::vector<float> val{9, 9, 1, 3, 7, 1, 1, 2};
    std::vector<float> weights{1, 5, 2, 1};
    Batch batch(bool values, bool sample_weights) const {
        Batch b;
        b.features = {4, 1, ptr.data(), nullptr, nullptr};
        b.labels = {4, 6, ptr.data(), col.data(), values ? val.data() : nullptr};
        b.weights = sample_weights ? weights.data() : nullptr;
        return b;
    }
};

bool equal(const Array<float> &found, const std::vector<float> &expected) {
    for (std::size_t i = 0; i < expected.size(); ++i)
        if (std::abs(found[i] - expected[i]) > 1e-6f) return false;
    return true;
}

} // namespace

static void test_loss__targets_of_softmax_and_bce(void **) {
    const LabelledBatch data;
    Targets t;
    std::string failing;
    t.set(DSLIDE_SOFTMAX, data.batch(false, false));
    if (!equal(t.t, {0.5f, 0.5f, 1, 1 / 3.f, 1 / 3.f, 1 / 3.f})) failing += "softmax ";
    if (!equal(t.sample_weight, {1 / 3.f, 0, 1 / 3.f, 1 / 3.f})) failing += "softmax weights ";
    t.set(DSLIDE_SOFTMAX, data.batch(true, true));
    if (!equal(t.t, {0.25f, 0.75f, 1, 0.25f, 0.25f, 0.5f})) failing += "softmax values ";
    if (!equal(t.sample_weight, {0.25f, 0, 0.5f, 0.25f})) failing += "softmax sample weights ";
    t.set(DSLIDE_BCE, data.batch(false, false));
    if (!equal(t.t, {1, 1, 1, 1, 1, 1})) failing += "bce ";
    if (!equal(t.sample_weight, {0.25f, 0.25f, 0.25f, 0.25f})) failing += "bce weights ";
    t.set(DSLIDE_BCE, data.batch(true, true));
    if (!equal(t.t, {1, 3, 7, 1, 1, 2})) failing += "bce values ";
    if (!equal(t.sample_weight, {1 / 9.f, 5 / 9.f, 2 / 9.f, 1 / 9.f})) failing += "bce sample weights ";
    assert_string_equal(failing.c_str(), "");
}

static void test_loss__targets_without_any_weight_are_zero(void **) {
    LabelledBatch data;
    data.weights.assign(4, 0.0f);
    Targets t;
    t.set(DSLIDE_BCE, data.batch(false, true));
    const bool zero = equal(t.sample_weight, {0, 0, 0, 0});
    data.ptr.assign(5, 2);
    t.set(DSLIDE_SOFTMAX, data.batch(false, false));
    assert_true(zero);
    assert_true(equal(t.sample_weight, {0, 0, 0, 0}));
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_loss__gradients_are_the_differences_of_the_loss),
        cmocka_unit_test(test_loss__one_score_far_above_all_others),
        cmocka_unit_test(test_loss__rows_at_minus_infinity_take_no_part),
        cmocka_unit_test(test_loss__pieces_make_what_the_whole_makes),
        cmocka_unit_test(test_loss__bce_at_its_extremes),
        cmocka_unit_test(test_loss__nan_and_infinity_show_in_the_loss),
        cmocka_unit_test(test_loss__targets_of_softmax_and_bce),
        cmocka_unit_test(test_loss__targets_without_any_weight_are_zero),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
