// SPDX-License-Identifier: Apache-2.0
// Every table this CPU can run against its plain twin; what has an exact answer, exactly; sums within the bound that
// float rounding gives: an n-term sum in any order, fused or not, is off by at most (n + 2) eps sum |terms|.
#include "core/memory.hpp"
#include "core/random.hpp"
#include "simd/kernels.hpp"

#include "cmocka.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

using namespace dslide;
using simd::Kernels;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
constexpr double eps = 1.0 / (1 << 24); ///< half a unit in the last place, relative
constexpr std::int64_t widths[] = {16, 32, 48, 112, 128, 144, 208, 256, 272, 1024};
constexpr std::int64_t counts[] = {0, 1, 2, 3, 5, 16, 17, 100};
constexpr std::int64_t table_rows = 37; ///< fewer than the largest count: samples repeat

const Kernels &plain() { return *simd::find_kernels("plain"); }

/// Calls check(kernels) for each table; the names of those for which it said no.
std::string failing_tables(const std::function<bool(const Kernels &)> &check) {
    std::string failing;
    for (const char *const *name = simd::kernel_names(); *name; ++name)
        if (!check(*simd::find_kernels(*name))) failing += std::string(*name) + " ";
    return failing;
}

struct Data {
    RandomStream random{7, Purpose::shuffle, 1, 1};
    float value() { return static_cast<float>(2 * random.uniform() - 1); }
    Array<float> values(std::int64_t n) {
        Array<float> x(static_cast<std::size_t>(n));
        for (float &v : x) v = value();
        return x;
    }
    std::vector<std::int32_t> samples(std::int64_t count) {
        std::vector<std::int32_t> sample(static_cast<std::size_t>(count));
        for (auto &s : sample) s = static_cast<std::int32_t>(random.below(table_rows));
        return sample;
    }
};

Array<float> copy(const Array<float> &x) {
    Array<float> y(x.size());
    std::memcpy(y.data(), x.data(), x.size() * sizeof(float));
    return y;
}

bool near(float found, double expected, double bound) {
    return std::fabs(static_cast<double>(found) - expected) <= bound;
}

/// Same number, or both NaN; 0 and -0 are the same.
bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

float from_bf16(std::uint16_t x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16); }

Array<std::uint16_t> to_bf16(const Array<float> &x) {
    Array<std::uint16_t> y(x.size());
    plain().to_bf16(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    return y;
}

bool for_all_shapes(const std::function<bool(std::int64_t n, std::int64_t count)> &check) {
    for (const auto n : widths)
        for (const auto count : counts)
            if (!check(n, count)) return false;
    return true;
}

} // namespace

static void test_simd__score_row_is_the_dot_product(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        return for_all_shapes([&](std::int64_t n, std::int64_t count) {
            Data data;
            const auto w = data.values(n), h = data.values(table_rows * n);
            const auto sample = data.samples(count);
            std::vector<float> z(static_cast<std::size_t>(count) + 1, 77.0f);
            k.score_row(w.data(), 0.25f, h.data(), n, n, sample.data(), count, z.data());
            bool good = z.back() == 77.0f;
            for (std::size_t i = 0; i < sample.size(); ++i) {
                double sum = 0.25, size = 0.25;
                for (std::int64_t j = 0; j < n; ++j) {
                    const double term = double(w[j]) * double(h[sample[i] * n + j]);
                    sum += term;
                    size += std::fabs(term);
                }
                good &= near(z[i], sum, double(n + 2) * eps * size);
            }
            return good;
        });
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__score_row_bf16_is_the_dot_product(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        return for_all_shapes([&](std::int64_t n, std::int64_t count) {
            Data data;
            const auto w = to_bf16(data.values(n)), h = to_bf16(data.values(table_rows * n));
            const auto sample = data.samples(count);
            std::vector<float> z(static_cast<std::size_t>(count) + 1, 77.0f);
            k.score_row_bf16(w.data(), -0.5f, h.data(), n, n, sample.data(), count, z.data());
            bool good = z.back() == 77.0f;
            for (std::size_t i = 0; i < sample.size(); ++i) {
                double sum = -0.5, size = 0.5;
                for (std::int64_t j = 0; j < n; ++j) {
                    const double term = double(from_bf16(w[j])) * double(from_bf16(h[sample[i] * n + j]));
                    sum += term;
                    size += std::fabs(term);
                }
                good &= near(z[i], sum, double(n + 2) * eps * size);
            }
            return good;
        });
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__score_does_not_depend_on_the_place_in_the_list(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        return for_all_shapes([&](std::int64_t n, std::int64_t count) {
            Data data;
            const auto w = data.values(n), h = data.values(table_rows * n);
            const auto w16 = to_bf16(w), h16 = to_bf16(h);
            const auto sample = data.samples(count);
            std::vector<float> z(sample.size()), z16(sample.size());
            k.score_row(w.data(), 0.1f, h.data(), n, n, sample.data(), count, z.data());
            k.score_row_bf16(w16.data(), 0.1f, h16.data(), n, n, sample.data(), count, z16.data());
            bool good = true;
            for (std::size_t i = 0; i < sample.size(); ++i) {
                float one = 0, one16 = 0;
                k.score_row(w.data(), 0.1f, h.data(), n, n, &sample[i], 1, &one);
                k.score_row_bf16(w16.data(), 0.1f, h16.data(), n, n, &sample[i], 1, &one16);
                good &= one == z[i] && one16 == z16[i];
            }
            return good;
        });
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__rows_may_lie_apart(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        constexpr std::int64_t n = 48, stride = 80;
        Data data;
        auto wide = data.values(table_rows * stride);
        Array<float> narrow(static_cast<std::size_t>(table_rows * n));
        for (std::int64_t row = 0; row < table_rows; ++row)
            std::memcpy(&narrow[row * n], &wide[row * stride], n * sizeof(float));
        const auto w = data.values(n);
        const auto sample = data.samples(11);
        float z_wide[11], z_narrow[11], sum_wide[n], sum_narrow[n];
        k.score_row(w.data(), 0, wide.data(), stride, n, sample.data(), 11, z_wide);
        k.score_row(w.data(), 0, narrow.data(), n, n, sample.data(), 11, z_narrow);
        k.gather_sum(wide.data(), stride, n, sample.data(), nullptr, 11, sum_wide);
        k.gather_sum(narrow.data(), n, n, sample.data(), nullptr, 11, sum_narrow);
        auto dh_wide = copy(wide), dh_narrow = copy(narrow);
        float grad_wide[n], grad_narrow[n];
        k.backprop_row(w.data(), wide.data(), dh_wide.data(), stride, n, sample.data(), z_wide, 11, grad_wide);
        k.backprop_row(w.data(), narrow.data(), dh_narrow.data(), n, n, sample.data(), z_wide, 11, grad_narrow);
        bool good = std::memcmp(z_wide, z_narrow, sizeof z_wide) == 0 &&
                    std::memcmp(sum_wide, sum_narrow, sizeof sum_wide) == 0 &&
                    std::memcmp(grad_wide, grad_narrow, sizeof grad_wide) == 0;
        for (std::int64_t row = 0; row < table_rows; ++row) {
            good &= std::memcmp(&dh_wide[row * stride], &dh_narrow[row * n], n * sizeof(float)) == 0;
            good &= std::memcmp(&dh_wide[row * stride + n], &wide[row * stride + n], (stride - n) * sizeof(float)) == 0;
        }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__backprop_row_adds_both_gradients(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        return for_all_shapes([&](std::int64_t n, std::int64_t count) {
            Data data;
            const auto w = data.values(n), h = data.values(table_rows * n), dh_before = data.values(table_rows * n);
            const auto sample = data.samples(count);
            auto g = data.values(count);
            if (count > 2) g[1] = 0;
            auto dh = copy(dh_before);
            auto grad = data.values(n); // overwritten
            k.backprop_row(w.data(), h.data(), dh.data(), n, n, sample.data(), g.data(), count, grad.data());
            bool good = true;
            for (std::int64_t j = 0; j < n; ++j) {
                double sum = 0, size = 0;
                for (std::int64_t i = 0; i < count; ++i) {
                    const double term = double(g[i]) * double(h[sample[i] * n + j]);
                    sum += term;
                    size += std::fabs(term);
                }
                good &= near(grad[j], sum, double(count + 2) * eps * size);
            }
            for (std::int64_t row = 0; row < table_rows; ++row) {
                double g_sum = 0, g_size = 0;
                for (std::int64_t i = 0; i < count; ++i)
                    if (sample[i] == row) {
                        g_sum += double(g[i]);
                        g_size += std::fabs(double(g[i]));
                    }
                for (std::int64_t j = 0; j < n; ++j) {
                    const double before = double(dh_before[row * n + j]), weight = double(w[j]);
                    const double size = std::fabs(before) + g_size * std::fabs(weight);
                    good &= near(dh[row * n + j], before + g_sum * weight, double(count + 2) * eps * size);
                }
            }
            return good;
        });
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__backprop_row_skips_zero_gradients(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        constexpr std::int64_t n = 144;
        Data data;
        const auto w = data.values(n);
        Array<float> h(2 * n), dh(2 * n), grad(n);
        for (std::int64_t j = 0; j < n; ++j) { // row 1 would spread its NaN if it were touched
            h[j] = 1;
            h[n + j] = dh[n + j] = nan_value;
        }
        const std::int32_t sample[] = {1, 0, 1};
        const float g[] = {0, 2, -0.0f};
        k.backprop_row(w.data(), h.data(), dh.data(), n, n, sample, g, 3, grad.data());
        bool good = true;
        for (std::int64_t j = 0; j < n; ++j) good &= grad[j] == 2 && dh[j] == 2 * w[j];
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__gather_sum_is_the_weighted_sum(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        return for_all_shapes([&](std::int64_t n, std::int64_t count) {
            Data data;
            const auto rows = data.values(table_rows * n), val = data.values(count);
            const auto index = data.samples(count);
            bool good = true;
            for (const bool weighted : {false, true}) {
                auto out = data.values(n); // overwritten
                k.gather_sum(rows.data(), n, n, index.data(), weighted ? val.data() : nullptr, count, out.data());
                for (std::int64_t j = 0; j < n; ++j) {
                    double sum = 0, size = 0;
                    for (std::int64_t i = 0; i < count; ++i) {
                        const double term = (weighted ? double(val[i]) : 1.0) * double(rows[index[i] * n + j]);
                        sum += term;
                        size += std::fabs(term);
                    }
                    good &= near(out[j], sum, double(count + 2) * eps * size);
                }
            }
            return good;
        });
    });
    assert_string_equal(failing.c_str(), "");
}

/// One update of one row by `rule`, in double, beside the kernel's; 8 eps for the handful of roundings of each term.
struct Updated {
    double w, first, second;
    double size; ///< sum of the magnitudes of the terms of w
};
static bool
row_update_agrees(const std::function<void(float *w, float *a, float *b, const float *grad, std::int64_t n)> &run,
                  const std::function<Updated(double w, double a, double b, double grad)> &rule) {
    for (const auto n : widths) {
        Data data;
        auto w = data.values(n), a = data.values(n), b = data.values(n);
        for (float &x : b) x = std::fabs(x);
        auto grad = data.values(n);
        w[0] = a[0] = b[0] = grad[0] = 0; // as in the pad: epsilon alone divides
        const auto w0 = copy(w), a0 = copy(a), b0 = copy(b);
        run(w.data(), a.data(), b.data(), grad.data(), n);
        for (std::int64_t j = 0; j < n; ++j) {
            const Updated u = rule(double(w0[j]), double(a0[j]), double(b0[j]), double(grad[j]));
            if (!near(a[j], u.first, 8 * eps * 2)) return false;
            if (!near(b[j], u.second, 8 * eps * (std::fabs(u.second) + 1))) return false;
            if (!near(w[j], u.w, 8 * eps * u.size)) return false;
        }
    }
    return true;
}

static void test_simd__adam_row_follows_the_rule(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        const simd::AdamStep step = {0.9f, 0.999f, 0.01f, 3.5f, 0.05f, 0.01f, 0.99f};
        return row_update_agrees(
            [&](float *w, float *m, float *v, const float *grad, std::int64_t n) {
                k.adam_row(w, m, v, grad, n, step);
            },
            [&](double w, double m, double v, double grad) {
                const double g = grad + double(step.l2) * w, beta1 = double(step.beta1), beta2 = double(step.beta2);
                const double m1 = beta1 * m + (1 - beta1) * g, v1 = beta2 * v + (1 - beta2) * g * g;
                const double part = double(step.rate) / (std::sqrt(v1) * double(step.root_bc2) + double(step.epsilon));
                return Updated{double(step.shrink) * w - part * m1, m1, v1, std::fabs(w) + part * 2};
            });
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__sgd_row_follows_the_rule(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        const simd::SgdStep step = {0.1f, 0.9f, 0.01f, 0.99f};
        return row_update_agrees(
            [&](float *w, float *m, float *, const float *grad, std::int64_t n) { k.sgd_row(w, m, grad, n, step); },
            [&](double w, double m, double b, double grad) {
                const double m1 = double(step.momentum) * m + grad + double(step.l2) * w;
                return Updated{double(step.shrink) * w - double(step.rate) * m1, m1, b, std::fabs(w) + 0.1 * 2};
            });
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__adagrad_row_follows_the_rule(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        const simd::AdagradStep step = {0.1f, 0.05f, 0.01f, 0.99f};
        return row_update_agrees(
            [&](float *w, float *, float *sum, const float *grad, std::int64_t n) {
                k.adagrad_row(w, sum, grad, n, step);
            },
            [&](double w, double a, double sum, double grad) {
                const double g = grad + double(step.l2) * w, sum1 = sum + g * g;
                const double part = double(step.rate) / (std::sqrt(sum1) + double(step.epsilon));
                return Updated{double(step.shrink) * w - part * g, a, sum1, std::fabs(w) + part * 2};
            });
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__axpy_and_dot(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        bool good = true;
        for (const auto n : widths) {
            Data data;
            const auto x = data.values(n), y0 = data.values(n);
            auto y = copy(y0);
            k.axpy(0.7f, x.data(), y.data(), n);
            double sum = 0, size = 0;
            for (std::int64_t j = 0; j < n; ++j) {
                const double term = double(0.7f) * double(x[j]);
                good &= near(y[j], double(y0[j]) + term, 2 * eps * (std::fabs(double(y0[j])) + std::fabs(term)));
                sum += double(x[j]) * double(y0[j]);
                size += std::fabs(double(x[j]) * double(y0[j]));
            }
            good &= near(k.dot(x.data(), y0.data(), n), sum, double(n) * eps * size);
        }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__relu_and_its_mask_are_exact(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        constexpr std::int64_t n = 48;
        Data data;
        auto x = data.values(n);
        const auto bias = data.values(n);
        const float special[] = {nan_value, inf, -inf, 1e-45f, -1e-45f, -0.0f, 0.0f};
        for (std::size_t i = 0; i < std::size(special); ++i) x[i * 5] = special[i] - bias[i * 5];
        const auto before = copy(x);
        k.bias_relu(x.data(), bias.data(), n);
        bool good = true;
        for (std::int64_t j = 0; j < n; ++j) {
            const float sum = before[j] + bias[j];
            good &= same(x[j], sum < 0 ? 0.0f : sum);
        }
        auto activation = copy(before), masked = data.values(n);
        for (std::size_t i = 0; i < std::size(special); ++i) activation[i * 5] = special[i];
        masked[1] = nan_value;
        const auto unmasked = copy(masked);
        k.relu_mask(masked.data(), activation.data(), n);
        for (std::int64_t j = 0; j < n; ++j) good &= same(masked[j], activation[j] > 0 ? unmasked[j] : 0.0f);
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__max_is_exact_and_passes_over_nan(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        bool good = k.max(nullptr, 0) == -inf;
        for (const auto count : counts)
            for (std::int64_t at = 0; at < count; ++at) { // the largest at each place, a NaN before and after it
                Data data;
                auto z = data.values(count + 1);
                for (float &x : z) x -= 10;
                z[count] = inf; // past the end
                z[at] = -3;
                if (at > 0) z[at - 1] = nan_value;
                if (at + 1 < count) z[at + 1] = nan_value;
                good &= k.max(z.data(), count) == -3;
            }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__exp_sum_is_accurate(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        constexpr std::int64_t count = 200001; // -89 .. 89
        bool good = true;
        for (const float shift : {0.0f, 3.25f}) {
            Array<float> z(count), x(count);
            for (std::int64_t i = 0; i < count; ++i) {
                z[i] = -89.0f + 178.0f * static_cast<float>(i) / static_cast<float>(count - 1);
                x[i] = z[i] - shift;
            }
            k.exp_sum(z.data(), shift, count);
            for (std::int64_t i = 0; i < count; ++i) {
                const double exact = std::exp(double(x[i]));
                if (x[i] < -87)
                    good &= z[i] == 0;
                else if (exact > double(std::numeric_limits<float>::max()))
                    good &= z[i] == inf;
                else
                    good &= near(z[i], exact, 4e-7 * exact);
            }
        }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__exp_sum_returns_the_sum(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        bool good = true;
        for (const auto count : counts) {
            Data data;
            auto z = data.values(count + 1);
            z[count] = 5; // past the end
            const float sum = k.exp_sum(z.data(), 0.5f, count);
            double expected = 0;
            for (std::int64_t i = 0; i < count; ++i) expected += double(z[i]);
            good &= near(sum, expected, double(count) * eps * expected) && z[count] == 5;
        }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__exp_sum_of_special_values(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        bool good = true;
        for (const std::int64_t count : {1, 16, 19}) {
            const std::pair<float, float> cases[] = {{nan_value, nan_value}, {inf, inf},       {-inf, 0.0f},
                                                     {1000.0f, inf},         {-1000.0f, 0.0f}, {1e-45f, 1.0f},
                                                     {-0.0f, 1.0f}};
            for (const auto &[x, value] : cases) {
                std::vector<float> z(static_cast<std::size_t>(count), -0.0f);
                z.back() = x;
                const float sum = k.exp_sum(z.data(), 0, count);
                good &= same(z.back(), value) && same(sum, value + static_cast<float>(count - 1));
            }
            std::vector<float> z(static_cast<std::size_t>(count), -inf); // a row of -inf, as max gives its shift
            good &= std::isnan(k.exp_sum(z.data(), -inf, count)) && std::isnan(z[0]);
        }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__scale_is_exact(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        bool good = true;
        for (const auto count : counts) {
            Data data;
            auto z = data.values(count + 1);
            const auto before = copy(z);
            k.scale(z.data(), 1.7f, count);
            for (std::int64_t i = 0; i < count; ++i) good &= z[i] == before[i] * 1.7f;
            good &= z[count] == before[count];
        }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__find_above_is_exact(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        bool good = true;
        for (const auto count : counts)
            for (const float threshold : {-2.0f, -0.5f, 0.0f, 0.9f, 2.0f}) {
                Data data;
                auto z = data.values(count);
                if (count > 2) z[1] = threshold, z[2] = nan_value;
                if (count > 16) z[15] = inf;
                std::vector<std::int32_t> expected, index(static_cast<std::size_t>(count) + 1, -1);
                for (std::int64_t i = 0; i < count; ++i)
                    if (z[i] > threshold) expected.push_back(static_cast<std::int32_t>(i));
                const auto found = k.find_above(z.data(), count, threshold, index.data());
                good &= index.back() == -1 && found == static_cast<std::int64_t>(expected.size());
                good = good && std::equal(expected.begin(), expected.end(), index.begin());
            }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__count_above_agrees_with_find_above(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        bool good = true;
        for (const auto count : counts)
            for (const float threshold : {-2.0f, -0.5f, 0.0f, 0.9f, -inf}) {
                Data data;
                auto z = data.values(count);
                if (count > 2) z[1] = threshold, z[2] = nan_value;
                std::int64_t expected = 0;
                for (std::int64_t i = 0; i < count; ++i) expected += z[i] > threshold;
                good &= k.count_above(z.data(), count, threshold) == expected;
            }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__bytes_from_a_level_are_counted_and_found(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        bool good = true;
        for (const std::int64_t count : {0, 1, 15, 63, 64, 65, 200, 1000})
            for (const int level : {1, 2, 7, 128, 255}) {
                std::vector<std::uint8_t> c(static_cast<std::size_t>(count));
                for (std::size_t i = 0; i < c.size(); ++i)
                    c[i] = static_cast<std::uint8_t>(i * i * 37 % 256 % (i % 3 ? 256 : 4));
                std::vector<std::int32_t> expected, index(c.size() + 1, -1);
                for (std::size_t i = 0; i < c.size(); ++i)
                    if (c[i] >= level) expected.push_back(static_cast<std::int32_t>(i));
                const auto found = k.find_bytes_from(c.data(), count, static_cast<std::uint8_t>(level), index.data());
                good &= found == static_cast<std::int64_t>(expected.size()) && index.back() == -1;
                good = good && std::equal(expected.begin(), expected.end(), index.begin());
                good &= k.count_bytes_from(c.data(), count, static_cast<std::uint8_t>(level)) == found;
            }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__to_bf16_rounds_to_nearest_even(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        // Worked out by hand: bits of a float, bits of its bfloat16.
        const std::pair<std::uint32_t, std::uint16_t> cases[] = {
            {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
            {0x3f817fff, 0x3f81}, {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x7f800000, 0x7f80},
            {0xff800000, 0xff80}, {0x7f7fffff, 0x7f80}, {0xff7fffff, 0xff80}, {0x00000001, 0x0000},
            {0x00008001, 0x0001}, {0x007fffff, 0x0080}, {0x7fc00000, 0x7fc0}, {0x7fffffff, 0x7fff},
            {0x7f800001, 0x7fc0}, {0xff800001, 0xffc0}, {0xffffffff, 0xffff}};
        Array<float> x(32);
        Array<std::uint16_t> y(32);
        for (std::size_t i = 0; i < std::size(cases); ++i) {
            const std::uint32_t bits = cases[i].first;
            std::memcpy(&x[i], &bits, sizeof bits);
        }
        k.to_bf16(x.data(), y.data(), 32);
        bool good = true;
        for (std::size_t i = 0; i < std::size(cases); ++i) good &= y[i] == cases[i].second;
        for (const auto n : widths) {
            Data data;
            const auto values = data.values(n);
            Array<std::uint16_t> found(values.size()), expected = to_bf16(values);
            k.to_bf16(values.data(), found.data(), n);
            good &= std::memcmp(found.data(), expected.data(), found.size() * sizeof(std::uint16_t)) == 0;
        }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__hadamard_is_the_transform(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        bool good = true;
        for (std::int64_t size = 16; size <= 4096; size *= 2) {
            Data data;
            auto x = data.values(size);
            const auto before = copy(x);
            k.hadamard(x.data(), size);
            double size_of_terms = 0;
            for (std::int64_t j = 0; j < size; ++j) size_of_terms += std::fabs(double(before[j]));
            for (std::int64_t row = 0; row<size; row += size> 512 ? 37 : 1) {
                double sum = 0; // entry (row, j) is -1 to the number of bits set in both
                for (std::int64_t j = 0; j < size; ++j)
                    sum +=
                        std::popcount(static_cast<std::uint64_t>(row & j)) % 2 ? -double(before[j]) : double(before[j]);
                good &= near(x[row], sum, 12 * eps * size_of_terms); // 12 stages at most
            }
        }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__sign_bits_are_exact(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        bool good = true;
        for (const auto count : widths) {
            Data data;
            auto x = data.values(count);
            const float special[] = {nan_value, inf, -inf, 1e-45f, -1e-45f, -0.0f, 0.0f};
            for (std::size_t i = 0; i < std::size(special); ++i) x[i * 2] = special[i];
            std::vector<std::uint16_t> bits(static_cast<std::size_t>(count / 16) + 1, 0x5a5a);
            k.sign_bits(x.data(), count, bits.data());
            for (std::int64_t i = 0; i < count; ++i) good &= (bits[i / 16] >> (i % 16) & 1) == (x[i] > 0);
            good &= bits.back() == 0x5a5a;
        }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__result_does_not_depend_on_alignment(void **) {
    const auto failing = failing_tables([](const Kernels &k) {
        constexpr std::int64_t count = 100;
        Data data;
        const auto z = data.values(count + 16);
        bool good = true;
        for (std::int64_t shift = 1; shift < 16; ++shift) {
            auto aligned = data.values(count), moved = data.values(count + 16);
            std::memcpy(aligned.data(), z.data() + shift, count * sizeof(float));
            std::memcpy(moved.data(), z.data(), moved.size() * sizeof(float));
            good &= k.exp_sum(aligned.data(), 0.5f, count) == k.exp_sum(moved.data() + shift, 0.5f, count);
            good &= std::memcmp(aligned.data(), moved.data() + shift, count * sizeof(float)) == 0;
        }
        return good;
    });
    assert_string_equal(failing.c_str(), "");
}

static void test_simd__environment_names_the_table(void **) {
    const char *wish = std::getenv("DSLIDE_ISA");
    const Kernels *wished = wish ? simd::find_kernels(wish) : nullptr;
    const char *const *last = simd::kernel_names();
    while (last[1]) ++last;
    assert_string_equal(simd::kernel_names()[0], "plain");
    assert_null(simd::find_kernels("no such table"));
    assert_string_equal(simd::kernels().name, wished ? wish : *last);
    assert_ptr_equal(&simd::kernels(), simd::find_kernels(simd::kernels().name));
    if (wished) {
        assert_string_equal(simd::kernel_choice(), "named by DSLIDE_ISA");
    } else {
        assert_ptr_equal(std::strstr(simd::kernel_choice(), "best of this CPU"), simd::kernel_choice());
        if (wish) assert_non_null(std::strstr(simd::kernel_choice(), wish));
    }
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_simd__score_row_is_the_dot_product),
        cmocka_unit_test(test_simd__score_row_bf16_is_the_dot_product),
        cmocka_unit_test(test_simd__score_does_not_depend_on_the_place_in_the_list),
        cmocka_unit_test(test_simd__rows_may_lie_apart),
        cmocka_unit_test(test_simd__backprop_row_adds_both_gradients),
        cmocka_unit_test(test_simd__backprop_row_skips_zero_gradients),
        cmocka_unit_test(test_simd__gather_sum_is_the_weighted_sum),
        cmocka_unit_test(test_simd__adam_row_follows_the_rule),
        cmocka_unit_test(test_simd__sgd_row_follows_the_rule),
        cmocka_unit_test(test_simd__adagrad_row_follows_the_rule),
        cmocka_unit_test(test_simd__axpy_and_dot),
        cmocka_unit_test(test_simd__relu_and_its_mask_are_exact),
        cmocka_unit_test(test_simd__max_is_exact_and_passes_over_nan),
        cmocka_unit_test(test_simd__exp_sum_is_accurate),
        cmocka_unit_test(test_simd__exp_sum_returns_the_sum),
        cmocka_unit_test(test_simd__exp_sum_of_special_values),
        cmocka_unit_test(test_simd__scale_is_exact),
        cmocka_unit_test(test_simd__find_above_is_exact),
        cmocka_unit_test(test_simd__count_above_agrees_with_find_above),
        cmocka_unit_test(test_simd__bytes_from_a_level_are_counted_and_found),
        cmocka_unit_test(test_simd__to_bf16_rounds_to_nearest_even),
        cmocka_unit_test(test_simd__hadamard_is_the_transform),
        cmocka_unit_test(test_simd__sign_bits_are_exact),
        cmocka_unit_test(test_simd__result_does_not_depend_on_alignment),
        cmocka_unit_test(test_simd__environment_names_the_table),
    };
    return cmocka_run_group_tests_name("simd", tests, nullptr, nullptr);
}
