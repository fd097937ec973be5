// SPDX-License-Identifier: Apache-2.0
// Reads rankings and labels from standard input, in the order that metrics_reference.py writes them, and prints the
// metrics: one line a cut-off, then the counters.
#include "loss/metrics.hpp"

#include <cstdio>
#include <cstdlib>
#include <iostream>

using namespace dslide;

namespace {

template <class T>
T read_value() {
    T value{};
    if (!(std::cin >> value)) {
        std::fputs("input ended early\n", stderr);
        std::exit(1);
    }
    return value;
}

template <class T>
std::vector<T> read_list() {
    std::vector<T> list(read_value<std::size_t>());
    for (T &value : list) value = read_value<T>();
    return list;
}

} // namespace

int main() {
    const auto n_outputs = read_value<std::int64_t>();
    const bool skip_unlabelled = read_value<int>() != 0;
    const auto a = read_value<float>(), b = read_value<float>();
    LabelFrequencies frequencies;
    frequencies.samples = read_value<std::int64_t>();
    frequencies.counts = read_list<std::int64_t>();
    const auto cutoffs = read_list<std::int32_t>();

    MetricAccumulator metrics(cutoffs, n_outputs, &frequencies, a, b, skip_unlabelled);
    for (auto rows = read_value<std::int64_t>(); rows > 0; --rows) {
        const auto ranked = read_list<std::int64_t>();
        const auto labels = read_list<std::int32_t>();
        metrics.add(ranked, labels);
    }

    const dslide_metrics m = metrics.result();
    for (std::int32_t i = 0; i < m.n_cutoffs; ++i)
        std::printf("%.17g %.17g %.17g %.17g %.17g\n", m.precision[i], m.recall[i], m.ndcg[i], m.psp[i], m.coverage[i]);
    std::printf("%lld %lld %lld\n", static_cast<long long>(m.rows), static_cast<long long>(m.rows_without_label),
                static_cast<long long>(m.labels_out_of_range));
    return 0;
}
