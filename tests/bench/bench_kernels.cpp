// SPDX-License-Identifier: Apache-2.0
// Each kernel of each table this CPU can run: build with -Dbench=true, run with --benchmark_filter=score_row.
// Hidden rows are those of a batch of 1024; gather_sum reads an input table that no cache holds.
#include "core/memory.hpp"
#include "core/random.hpp"
#include "simd/kernels.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace dslide;
using simd::Kernels;

namespace {

constexpr std::int64_t batch_rows = 1024, input_rows = 131072;

struct Shape {
    std::int64_t n, count;
};

Array<float> random_values(std::int64_t n) {
    RandomStream random(1, Purpose::shuffle, 1, static_cast<std::uint64_t>(n));
    Array<float> x(static_cast<std::size_t>(n));
    for (std::int64_t j = 0; j < n; ++j) x[j] = static_cast<float>(2 * random.uniform() - 1);
    return x;
}

Array<std::uint16_t> bf16_values(const Kernels &k, std::int64_t n) {
    const auto x = random_values(n);
    Array<std::uint16_t> y(static_cast<std::size_t>(n));
    k.to_bf16(x.data(), y.data(), n);
    return y;
}

std::vector<std::int32_t> random_rows(std::int64_t count, std::int64_t rows) {
    RandomStream random(2, Purpose::shuffle, 1, 1);
    std::vector<std::int32_t> sample(static_cast<std::size_t>(count));
    for (auto &s : sample) s = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(rows)));
    return sample;
}

/// Lists of `count` rows taken in turn, so that each call meets other rows, as calls for one class after another do.
class Lists {
public:
    Lists(std::int64_t count, std::int64_t rows) : count_(count), all_(random_rows(count * lists, rows)) {}
    const std::int32_t *next() { return all_.data() + (turn_++ % lists) * count_; }

private:
    static constexpr std::int64_t lists = 512;
    std::int64_t count_, turn_ = 0;
    std::vector<std::int32_t> all_;
};

void score_row(benchmark::State &state, const Kernels &k, Shape shape) {
    const auto w = random_values(shape.n), h = random_values(batch_rows * shape.n);
    Array<float> z(static_cast<std::size_t>(shape.count));
    Lists lists(shape.count, batch_rows);
    for (auto _ : state) k.score_row(w.data(), 0.5f, h.data(), shape.n, shape.n, lists.next(), shape.count, z.data());
}

void score_row_bf16(benchmark::State &state, const Kernels &k, Shape shape) {
    const auto w = bf16_values(k, shape.n), h = bf16_values(k, batch_rows * shape.n);
    Array<float> z(static_cast<std::size_t>(shape.count));
    Lists lists(shape.count, batch_rows);
    for (auto _ : state)
        k.score_row_bf16(w.data(), 0.5f, h.data(), shape.n, shape.n, lists.next(), shape.count, z.data());
}

void backprop_row(benchmark::State &state, const Kernels &k, Shape shape) {
    const auto w = random_values(shape.n), h = random_values(batch_rows * shape.n), g = random_values(shape.count);
    auto dh = random_values(batch_rows * shape.n);
    Array<float> grad(static_cast<std::size_t>(shape.n));
    Lists lists(shape.count, batch_rows);
    for (auto _ : state)
        k.backprop_row(w.data(), h.data(), dh.data(), shape.n, shape.n, lists.next(), g.data(), shape.count,
                       grad.data());
}

void gather_sum(benchmark::State &state, const Kernels &k, Shape shape) {
    const auto rows = random_values(input_rows * shape.n), val = random_values(shape.count);
    Array<float> out(static_cast<std::size_t>(shape.n));
    Lists lists(shape.count, input_rows);
    for (auto _ : state) k.gather_sum(rows.data(), shape.n, shape.n, lists.next(), val.data(), shape.count, out.data());
}

void adam_row(benchmark::State &state, const Kernels &k, Shape shape) {
    auto w = random_values(shape.n), m = random_values(shape.n), v = random_values(shape.n);
    const auto grad = random_values(shape.n);
    for (float &x : v) x = x < 0 ? -x : x;
    const simd::AdamStep step = {0.9f, 0.999f, 1e-3f, 1.5f, 1e-8f, 0.0f, 1.0f};
    for (auto _ : state) k.adam_row(w.data(), m.data(), v.data(), grad.data(), shape.n, step);
}

void sgd_row(benchmark::State &state, const Kernels &k, Shape shape) {
    auto w = random_values(shape.n), m = random_values(shape.n);
    const auto grad = random_values(shape.n);
    const simd::SgdStep step = {1e-3f, 0.9f, 0.0f, 1.0f};
    for (auto _ : state) k.sgd_row(w.data(), m.data(), grad.data(), shape.n, step);
}

void adagrad_row(benchmark::State &state, const Kernels &k, Shape shape) {
    auto w = random_values(shape.n), sum = random_values(shape.n);
    const auto grad = random_values(shape.n);
    for (float &x : sum) x = x < 0 ? -x : x;
    const simd::AdagradStep step = {1e-3f, 1e-6f, 0.0f, 1.0f};
    for (auto _ : state) k.adagrad_row(w.data(), sum.data(), grad.data(), shape.n, step);
}

void axpy(benchmark::State &state, const Kernels &k, Shape shape) {
    const auto x = random_values(shape.n);
    auto y = random_values(shape.n);
    for (auto _ : state) k.axpy(1e-9f, x.data(), y.data(), shape.n);
}

void dot(benchmark::State &state, const Kernels &k, Shape shape) {
    const auto x = random_values(shape.n), y = random_values(shape.n);
    for (auto _ : state) benchmark::DoNotOptimize(k.dot(x.data(), y.data(), shape.n));
}

void bias_relu(benchmark::State &state, const Kernels &k, Shape shape) {
    auto x = random_values(shape.n);
    const Array<float> bias(static_cast<std::size_t>(shape.n));
    for (auto _ : state) k.bias_relu(x.data(), bias.data(), shape.n);
}

void relu_mask(benchmark::State &state, const Kernels &k, Shape shape) {
    auto x = random_values(shape.n);
    const auto activation = random_values(shape.n);
    for (auto _ : state) k.relu_mask(x.data(), activation.data(), shape.n);
}

void largest(benchmark::State &state, const Kernels &k, Shape shape) {
    const auto z = random_values(shape.count);
    for (auto _ : state) benchmark::DoNotOptimize(k.max(z.data(), shape.count));
}

void exp_sum(benchmark::State &state, const Kernels &k, Shape shape) {
    auto z = random_values(shape.count);
    for (auto _ : state) benchmark::DoNotOptimize(k.exp_sum(z.data(), 1, shape.count));
}

void scale(benchmark::State &state, const Kernels &k, Shape shape) {
    auto z = random_values(shape.count);
    for (auto _ : state) k.scale(z.data(), -1, shape.count);
}

void find_above(benchmark::State &state, const Kernels &k, Shape shape) {
    const auto z = random_values(shape.count);
    std::vector<std::int32_t> index(static_cast<std::size_t>(shape.count));
    for (auto _ : state) benchmark::DoNotOptimize(k.find_above(z.data(), shape.count, 0.8f, index.data()));
}

void to_bf16(benchmark::State &state, const Kernels &k, Shape shape) {
    const auto x = random_values(shape.n);
    Array<std::uint16_t> y(static_cast<std::size_t>(shape.n));
    for (auto _ : state) k.to_bf16(x.data(), y.data(), shape.n);
}

void hadamard(benchmark::State &state, const Kernels &k, Shape shape) {
    Array<float> x(static_cast<std::size_t>(shape.n)); // zeros: the values would grow without end
    for (auto _ : state) k.hadamard(x.data(), shape.n);
}

void sign_bits(benchmark::State &state, const Kernels &k, Shape shape) {
    const auto x = random_values(shape.n);
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(shape.n / 16));
    for (auto _ : state) k.sign_bits(x.data(), shape.n, bits.data());
}

using Bench = void (*)(benchmark::State &, const Kernels &, Shape);
struct Entry {
    const char *name;
    Bench run;
    bool by_width, by_count;
};

constexpr Entry entries[] = {
    {"score_row", score_row, true, true},
    {"score_row_bf16", score_row_bf16, true, true},
    {"backprop_row", backprop_row, true, true},
    {"gather_sum", gather_sum, true, true},
    {"adam_row", adam_row, true, false},
    {"sgd_row", sgd_row, true, false},
    {"adagrad_row", adagrad_row, true, false},
    {"axpy", axpy, true, false},
    {"dot", dot, true, false},
    {"bias_relu", bias_relu, true, false},
    {"relu_mask", relu_mask, true, false},
    {"max", largest, false, true},
    {"exp_sum", exp_sum, false, true},
    {"scale", scale, false, true},
    {"find_above", find_above, false, true},
    {"to_bf16", to_bf16, true, false},
    {"hadamard", hadamard, true, false},
    {"sign_bits", sign_bits, true, false},
};

void add(const Entry &entry, const Kernels &k, Shape shape) {
    std::string name = std::string(entry.name) + "/" + k.name;
    if (entry.by_width) name += "/n:" + std::to_string(shape.n);
    if (entry.by_count) name += "/count:" + std::to_string(shape.count);
    benchmark::RegisterBenchmark(name.c_str(), [=, &k](benchmark::State &state) { entry.run(state, k, shape); });
}

} // namespace

int main(int argc, char **argv) {
    for (const Entry &entry : entries)
        for (const char *const *name = simd::kernel_names(); *name; ++name)
            for (const std::int64_t n : {128, 256})
                for (const std::int64_t count : {16, 256})
                    if ((entry.by_width || n == 128) && (entry.by_count || count == 16))
                        add(entry, *simd::find_kernels(*name), {n, count});
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
