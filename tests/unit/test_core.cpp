// SPDX-License-Identifier: Apache-2.0
#include "cmocka.hpp"
#include "core/arena.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/memory.hpp"
#include "core/random.hpp"

#include <locale>
#include <string>
#include <vector>

using namespace dslide;

static void test_memory__is_zeroed_and_aligned(void **) {
    bool aligned = true, zero = true;
    for (std::size_t n : {std::size_t{1}, std::size_t{1000}, std::size_t{5000000}}) {
        Array<float> array(n);
        aligned &= reinterpret_cast<std::uintptr_t>(array.data()) % 64 == 0;
        for (float x : array) zero &= x == 0;
    }
    assert_true(aligned);
    assert_true(zero);
}

static void test_memory__product_overflow_is_an_error(void **) {
    dslide_status status = DSLIDE_OK;
    try {
        checked_product(SIZE_MAX / 2, 4);
    } catch (const Error &e) {
        status = e.status();
    }
    assert_int_equal(status, DSLIDE_E_MEMORY);
}

static void test_random__depends_on_the_key_alone(void **) {
    RandomStream a(1, Purpose::shuffle, 2, 3), b(1, Purpose::shuffle, 2, 3), c(1, Purpose::shuffle, 2, 4);
    const auto first = a.bits();
    assert_true(first == b.bits());
    assert_true(first != c.bits());
}

static void test_random__uniform_and_normal_have_their_moments(void **) {
    constexpr int n = 100000;
    RandomStream stream(7, Purpose::shuffle);
    double sum = 0, square = 0, uniform = 0;
    for (int i = 0; i < n; ++i) {
        const double x = stream.normal();
        sum += x;
        square += x * x;
        uniform += stream.uniform();
    }
    // Five standard errors: sd of the mean is 1/sqrt(n); of the variance sqrt(2/n); of the uniform's mean sqrt(1/12n).
    assert_true(std::abs(sum / n) < 5 / std::sqrt(n));
    assert_true(std::abs(square / n - 1) < 5 * std::sqrt(2.0 / n));
    assert_true(std::abs(uniform / n - 0.5) < 5 * std::sqrt(1 / (12.0 * n)));
}

static void test_random__below_reaches_every_value_evenly(void **) {
    constexpr int n = 60000, sides = 6;
    RandomStream stream(7, Purpose::shuffle);
    std::vector<int> counts(sides);
    for (int i = 0; i < n; ++i) ++counts[stream.below(sides)];
    double chi = 0;
    for (int c : counts) chi += (c - n / 6.0) * (c - n / 6.0) / (n / 6.0);
    assert_true(chi < 20.5); // 99.9 % point of chi-square with 5 degrees of freedom
}

static void test_arena__visits_every_index_once(void **) {
    bool once = true;
    for (int threads : {1, 2, 3, 8}) {
        Arena arena(threads);
        std::vector<int> seen(1003);
        arena.blocks(1003, 10, [&](std::int64_t begin, std::int64_t end) {
            for (auto i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
        });
        for (int s : seen) once &= s == 1;
    }
    assert_true(once);
}

static void test_arena__passes_an_exception_to_the_caller(void **) {
    bool caught = false;
    try {
        Arena(2).each(100, [](std::int64_t i) {
            if (i == 57) fail(DSLIDE_E_ARGUMENT, "i is ", i);
        });
    } catch (const Error &e) {
        caught = std::string(e.what()) == "i is 57";
    }
    assert_true(caught);
}

static void test_arena__counts_at_least_one_thread(void **) { assert_true(available_threads() >= 1); }

static std::string as_line(std::string_view text, std::size_t cap = 1024) {
    std::string line(cap, 'x');
    line.resize(one_line(text, line.data(), cap));
    return line;
}

static void test_text__is_one_line_of_utf8(void **) {
    assert_string_equal(as_line("").c_str(), "");
    assert_string_equal(as_line("a\nb\tc\x1b[31m\x7f").c_str(), "a?b?c?[31m?");
    assert_string_equal(as_line("\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80").c_str(),
                        "\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80");
    // Alone, cut off, overlong, a surrogate, above U+10FFFF, never a first byte.
    for (const char *bytes : {"\xbc", "\xc3", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"})
        assert_string_equal(as_line(bytes).c_str(), std::string(std::string_view(bytes).size(), '?').c_str());
}

static void test_text__too_long_loses_its_middle(void **) {
    const std::string begin = "cannot open /", end = ": File name too long";
    std::string name;
    for (int i = 0; i < 200; ++i) name += "\xc3\xbc";
    assert_string_equal(as_line(std::string(63, 'a'), 64).c_str(), std::string(63, 'a').c_str());
    for (std::size_t cap = 64; cap < 80; ++cap) { // cuts at both halves of a character
        const std::string line = as_line(begin + name + end, cap);
        assert_in_range(line.size(), cap - 3, cap - 1);
        assert_true(line.starts_with(begin + "\xc3\xbc") && line.ends_with("\xc3\xbc" + end));
        assert_true(line.find(" ... ") != std::string::npos && line.find('?') == std::string::npos);
    }
}

namespace {
struct GroupedDigits : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    char do_decimal_point() const override { return ','; }
    std::string do_grouping() const override { return "\3"; }
};
} // namespace

static void test_text__numbers_are_not_the_hosts_locale(void **) {
    std::string error, logged;
    log_sink() = {[](void *to, std::int32_t, const char *line) { *static_cast<std::string *>(to) = line; }, &logged, 2};
    const std::locale before = std::locale::global(std::locale(std::locale(), new GroupedDigits));
    try {
        fail(DSLIDE_E_FORMAT, "line ", 30001, " has ", 1.5);
    } catch (const Error &e) {
        error = e.what();
    }
    log(DSLIDE_LOG_INFO, "line ", 30001, "\nhas ", 1.5);
    std::locale::global(before);
    log_sink() = {};
    assert_string_equal(error.c_str(), "line 30001 has 1.5");
    assert_string_equal(logged.c_str(), "line 30001?has 1.5");
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_memory__is_zeroed_and_aligned),
        cmocka_unit_test(test_memory__product_overflow_is_an_error),
        cmocka_unit_test(test_random__depends_on_the_key_alone),
        cmocka_unit_test(test_random__uniform_and_normal_have_their_moments),
        cmocka_unit_test(test_random__below_reaches_every_value_evenly),
        cmocka_unit_test(test_arena__visits_every_index_once),
        cmocka_unit_test(test_arena__passes_an_exception_to_the_caller),
        cmocka_unit_test(test_arena__counts_at_least_one_thread),
        cmocka_unit_test(test_text__is_one_line_of_utf8),
        cmocka_unit_test(test_text__too_long_loses_its_middle),
        cmocka_unit_test(test_text__numbers_are_not_the_hosts_locale),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
