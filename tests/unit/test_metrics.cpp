// SPDX-License-Identifier: Apache-2.0
// Expected values are worked by hand in the comments; tests/numeric/metrics_reference.py judges random cases.
#include "cmocka.hpp"
#include "core/error.hpp"
#include "loss/metrics.hpp"

#include <algorithm>
#include <span>
#include <vector>

using namespace dslide;

namespace {

constexpr double ln_1000 = 6.907755278982137, log2_3 = 1.584962500721156;

struct Row {
    std::vector<std::int64_t> ranked;
    std::vector<std::int32_t> labels;
};

dslide_metrics judge(std::vector<std::int32_t> cutoffs, std::int64_t n_outputs, const std::vector<Row> &rows,
                     const LabelFrequencies *frequencies = nullptr, float a = 0, float b = 0, bool skip = false) {
    MetricAccumulator metrics(cutoffs, n_outputs, frequencies, a, b, skip);
    // The rankings below are whole ones; a caller hands over the places down to the deepest cut-off.
    const auto depth = static_cast<std::size_t>(metrics.depth());
    for (const Row &row : rows)
        metrics.add(std::span(row.ranked).first(std::min(depth, row.ranked.size())), row.labels);
    return metrics.result();
}

// Row A finds its two labels at places 1 and 3, row B its only one at place 2.
const std::vector<Row> two_rows{{{4, 0, 1, 2, 3, 5}, {1, 4}}, {{2, 0, 1, 3, 4, 5}, {0}}};

// With A = B = 1 and N = 1000: C = 2 (ln 1000 - 1), 1/p_l = 1 + C / (N_l + 1). Thus
// 1/p_0 = 1 + C/2 = ln 1000;  1/p_1 = 1 + C = 2 ln 1000 - 1;  1/p_4 = 1 + C/4 = ln 1000 / 2 + 1/2.
const LabelFrequencies frequencies{{1, 0, 7, 7, 3, 7}, 1000};
constexpr double inverse_0 = ln_1000, inverse_1 = 2 * ln_1000 - 1, inverse_4 = (ln_1000 + 1) / 2;

bool near(double value, double expected) { return std::abs(value - expected) < 1e-12; }

dslide_status refusal(std::vector<std::int32_t> cutoffs, float a, float b) {
    try {
        MetricAccumulator(cutoffs, 10, nullptr, a, b, false);
    } catch (const Error &e) {
        return e.status();
    }
    return DSLIDE_OK;
}

} // namespace

static void test_metrics__match_two_rows_by_hand(void **) {
    const dslide_metrics m = judge({1, 3}, 6, two_rows);
    assert_int_equal(m.rows, 2);
    // P@1 = (1 + 0) / 2;  P@3 = (2/3 + 1/3) / 2
    assert_true(near(m.precision[0], 0.5));
    assert_true(near(m.precision[1], 0.5));
    // R@1 = (1/2 + 0) / 2;  R@3 = (2/2 + 1/1) / 2
    assert_true(near(m.recall[0], 0.25));
    assert_true(near(m.recall[1], 1));
    // nDCG@1 = (1 + 0) / 2.  nDCG@3: A found 1 + 1/log2(4) of the ideal 1 + 1/log2(3); B 1/log2(3) of 1.
    assert_true(near(m.ndcg[0], 0.5));
    assert_true(near(m.ndcg[1], (1.5 / (1 + 1 / log2_3) + 1 / log2_3) / 2));
    // Labels 0, 1 and 4 are there; at place 1 only 4 was found.
    assert_true(near(m.coverage[0], 1.0 / 3));
    assert_true(near(m.coverage[1], 1));
}

static void test_metrics__weigh_by_inverse_propensity(void **) {
    const dslide_metrics m = judge({1, 2, 3}, 6, two_rows, &frequencies, 1, 1);
    // @1: found 4; best are 1 in A (rarer than 4) and 0 in B.
    assert_true(near(m.psp[0], inverse_4 / (inverse_1 + inverse_0)));
    // @2: found 4 and 0; best are 1 and 4 in A, 0 in B.
    assert_true(near(m.psp[1], (inverse_4 + inverse_0) / (inverse_1 + inverse_4 + inverse_0)));
    assert_true(near(m.psp[2], 1));
}

static void test_metrics__default_propensities_are_those_of_jain(void **) {
    // Label 0 is found, label 1 is not, each the only one of its row: PSP@1 = (1/p_0) / (1/p_0 + 1/p_1).
    // C = (ln 100 - 1) 2.5^0.55 = 3.605170186 * 1.655262990 = 5.967504781
    // 1/p_0 = 1 + C / 11.5^0.55 = 1 + C / 3.831632181 = 2.557431533
    // 1/p_1 = 1 + C /  1.5^0.55 = 1 + C / 1.249827835 = 5.774661451
    const LabelFrequencies counts{{10, 0, 0}, 100};
    const dslide_metrics m = judge({1}, 3, {{{0}, {0}}, {{2}, {1}}}, &counts);
    const dslide_metrics same = judge({1}, 3, {{{0}, {0}}, {{2}, {1}}}, &counts, 0.55f, 1.5f);
    assert_true(std::abs(m.psp[0] - 2.557431533 / (2.557431533 + 5.774661451)) < 1e-8);
    assert_true(std::abs(m.psp[0] - same.psp[0]) < 1e-7); // 0.55 as a float
}

static void test_metrics__tiny_training_sets_have_propensity_one(void **) {
    // ln 2 - 1 < 0 would make propensities above 1. All are 1 instead: found 1 of 2.
    const LabelFrequencies counts{{1, 0, 1}, 2};
    const dslide_metrics m = judge({1}, 3, {{{0}, {0}}, {{2}, {1}}}, &counts);
    assert_true(near(m.psp[0], 0.5));
}

static void test_metrics__unknown_frequencies_give_no_psp(void **) {
    const LabelFrequencies unknown{};
    const dslide_metrics none = judge({1, 3}, 6, two_rows), empty = judge({1, 3}, 6, two_rows, &unknown);
    assert_true(none.psp[0] == 0 && none.psp[1] == 0);
    assert_true(empty.psp[0] == 0 && empty.psp[1] == 0);
}

static void test_metrics__missing_places_are_misses(void **) {
    // 3 classes, k = 5: both labels found, P@5 = 2/5 although no better ranking exists; R and nDCG are complete.
    const dslide_metrics m = judge({5}, 3, {{{2, 0, 1}, {0, 2}}}, nullptr);
    assert_true(near(m.precision[0], 0.4));
    assert_true(near(m.recall[0], 1));
    assert_true(near(m.ndcg[0], 1));
    // Fewer predictions than classes: {1} of k = 2.
    const dslide_metrics few = judge({2}, 3, {{{2}, {0, 2}}}, nullptr);
    assert_true(near(few.precision[0], 0.5));
    assert_true(near(few.recall[0], 0.5));
    assert_true(near(few.ndcg[0], 1 / (1 + 1 / log2_3)));
    const dslide_metrics nothing = judge({2}, 3, {{{}, {0, 2}}}, nullptr);
    assert_true(nothing.precision[0] == 0 && nothing.recall[0] == 0 && nothing.ndcg[0] == 0);
    assert_true(nothing.coverage[0] == 0);
}

static void test_metrics__depth_is_the_deepest_cutoff_within_the_classes(void **) {
    const std::vector<std::int32_t> cutoffs{3, 7, 1};
    assert_int_equal(MetricAccumulator(cutoffs, 100, nullptr, 0, 0, false).depth(), 7);
    assert_int_equal(MetricAccumulator(cutoffs, 5, nullptr, 0, 0, false).depth(), 5);
    assert_int_equal(MetricAccumulator({}, 100, nullptr, 0, 0, false).depth(), 5);
}

static void test_metrics__unlabelled_rows_miss_or_are_left_out(void **) {
    const std::vector<Row> rows{{{1}, {1}}, {{1}, {}}, {{2}, {}}, {{0}, {1}}};
    const dslide_metrics missed = judge({1}, 3, rows), left_out = judge({1}, 3, rows, nullptr, 0, 0, true);
    assert_int_equal(missed.rows, 4);
    assert_int_equal(missed.rows_without_label, 2);
    assert_true(near(missed.precision[0], 0.25));
    assert_true(near(missed.recall[0], 0.25));
    assert_true(near(missed.ndcg[0], 0.25));
    assert_int_equal(left_out.rows, 2);
    assert_int_equal(left_out.rows_without_label, 2);
    assert_true(near(left_out.precision[0], 0.5));
    assert_true(near(left_out.recall[0], 0.5));
    assert_true(near(left_out.ndcg[0], 0.5));
}

static void test_metrics__unlabelled_rows_do_not_move_psp_or_coverage(void **) {
    std::vector<Row> rows = two_rows;
    rows.push_back({{0}, {}});
    const dslide_metrics with = judge({1}, 6, rows, &frequencies, 1, 1);
    const dslide_metrics without = judge({1}, 6, two_rows, &frequencies, 1, 1);
    assert_true(with.psp[0] == without.psp[0]);
    assert_true(with.coverage[0] == without.coverage[0]);
}

static void test_metrics__labels_out_of_range_are_misses(void **) {
    // 3 classes; labels 3 and 9 cannot be found. Row A finds 1 of 3 labels at place 1, row B none of one.
    const LabelFrequencies counts{{0, 0, 0}, 1000};
    const dslide_metrics m = judge({1, 2}, 3, {{{2, 0}, {2, 3, 9}}, {{0, 1}, {9}}}, &counts, 1, 1);
    assert_int_equal(m.labels_out_of_range, 3);
    assert_int_equal(m.rows_without_label, 0);
    assert_true(near(m.precision[0], 0.5));
    assert_true(near(m.recall[0], 1.0 / 6));
    assert_true(near(m.ndcg[1], 0.5 / (1 + 1 / log2_3)));
    // All propensities are equal (no training sample has any of these labels): found 1 of 2 at @1, 1 of 3 at @2.
    assert_true(near(m.psp[0], 0.5));
    assert_true(near(m.psp[1], 1.0 / 3));
    // Distinct labels 2, 3, 9.
    assert_true(near(m.coverage[0], 1.0 / 3));
}

static void test_metrics__coverage_asks_where_the_label_is_true(void **) {
    // Label 1 is predicted first where it is false; where it is true it comes second, and once first.
    const std::vector<Row> rows{{{1, 0}, {2}}, {{0, 1}, {1}}};
    const dslide_metrics m = judge({1, 2}, 3, rows);
    assert_true(m.coverage[0] == 0);
    assert_true(near(m.coverage[1], 0.5));
    const dslide_metrics later = judge({1, 2}, 3, {rows[0], rows[1], {{1, 0}, {1}}});
    assert_true(near(later.coverage[0], 0.5));
    const dslide_metrics earlier = judge({1, 2}, 3, {{{1, 0}, {1}}, rows[0], rows[1]});
    assert_true(near(earlier.coverage[0], 0.5));
}

static void test_metrics__cutoffs_keep_their_order_and_may_repeat(void **) {
    const dslide_metrics m = judge({3, 1, 3}, 6, two_rows, &frequencies, 1, 1);
    const dslide_metrics sorted = judge({1, 3}, 6, two_rows, &frequencies, 1, 1);
    assert_int_equal(m.n_cutoffs, 3);
    const std::int32_t order[] = {3, 1, 3}, place[] = {1, 0, 1};
    for (int i = 0; i < 3; ++i) {
        assert_int_equal(m.k[i], order[i]);
        assert_true(m.recall[i] == sorted.recall[place[i]]);
        assert_true(m.ndcg[i] == sorted.ndcg[place[i]]);
        assert_true(m.psp[i] == sorted.psp[place[i]]);
        assert_true(m.coverage[i] == sorted.coverage[place[i]]);
    }
    const dslide_metrics usual = judge({}, 6, two_rows);
    assert_int_equal(usual.n_cutoffs, 3);
    assert_int_equal(usual.k[0], 1);
    assert_int_equal(usual.k[1], 3);
    assert_int_equal(usual.k[2], 5);
}

static void test_metrics__refuse_bad_options(void **) {
    assert_int_equal(refusal({1, 0}, 0, 0), DSLIDE_E_ARGUMENT);
    assert_int_equal(refusal({-1}, 0, 0), DSLIDE_E_ARGUMENT);
    assert_int_equal(refusal(std::vector<std::int32_t>(DSLIDE_MAX_CUTOFFS + 1, 1), 0, 0), DSLIDE_E_ARGUMENT);
    assert_int_equal(refusal(std::vector<std::int32_t>(DSLIDE_MAX_CUTOFFS, 1), 0, 0), DSLIDE_OK);
    assert_int_equal(refusal({1}, -1, 0), DSLIDE_E_ARGUMENT);
    assert_int_equal(refusal({1}, 0, NAN), DSLIDE_E_ARGUMENT);
    assert_int_equal(refusal({1}, 0, INFINITY), DSLIDE_E_ARGUMENT);
}

static void test_metrics__no_row_gives_zeros(void **) {
    const dslide_metrics m = judge({1}, 6, {}, &frequencies);
    assert_int_equal(m.rows, 0);
    assert_true(m.precision[0] == 0 && m.recall[0] == 0 && m.ndcg[0] == 0 && m.psp[0] == 0 && m.coverage[0] == 0);
    assert_int_equal(m.struct_size, sizeof(dslide_metrics));
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics__match_two_rows_by_hand),
        cmocka_unit_test(test_metrics__weigh_by_inverse_propensity),
        cmocka_unit_test(test_metrics__default_propensities_are_those_of_jain),
        cmocka_unit_test(test_metrics__tiny_training_sets_have_propensity_one),
        cmocka_unit_test(test_metrics__unknown_frequencies_give_no_psp),
        cmocka_unit_test(test_metrics__missing_places_are_misses),
        cmocka_unit_test(test_metrics__depth_is_the_deepest_cutoff_within_the_classes),
        cmocka_unit_test(test_metrics__unlabelled_rows_miss_or_are_left_out),
        cmocka_unit_test(test_metrics__unlabelled_rows_do_not_move_psp_or_coverage),
        cmocka_unit_test(test_metrics__labels_out_of_range_are_misses),
        cmocka_unit_test(test_metrics__coverage_asks_where_the_label_is_true),
        cmocka_unit_test(test_metrics__cutoffs_keep_their_order_and_may_repeat),
        cmocka_unit_test(test_metrics__refuse_bad_options),
        cmocka_unit_test(test_metrics__no_row_gives_zeros),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
