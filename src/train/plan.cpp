// SPDX-License-Identifier: Apache-2.0
#include "train/plan.hpp"

#include "core/arena.hpp"
#include "core/error.hpp"
#include "core/random.hpp"
#include "layers/dense_output.hpp"
#include "lsh/collisions.hpp"
#include "lsh/hash_family.hpp"
#include "optim/optimizer.hpp"

#include <dslide/hashtable.h>

#include <algorithm>
#include <cmath>

namespace dslide {
namespace {

void check_range(double value, double low, double high, const char *name) {
    if (value >= low && value <= high) return;
    const auto text = [](double x) { // whole numbers in full
        std::ostringstream out;
        if (x == std::floor(x) && std::abs(x) < 1e15)
            out << static_cast<std::int64_t>(x);
        else
            out << x;
        return out.str();
    };
    fail(DSLIDE_E_ARGUMENT, name, " is ", text(value), ", expected ", text(low), " .. ", text(high));
}

void check_enum(std::int32_t value, std::int32_t last, const char *name) {
    if (value < 0 || value > last) fail(DSLIDE_E_ARGUMENT, name, " is ", value, ", expected 0 .. ", last);
}

constexpr double largest = 1e30f; // as the fields have it

bool uses_bf16(const dslide_trainer_options &o) {
    return (o.flags & DSLIDE_TRAINER_BF16_SCORES) && o.select != DSLIDE_SELECT_ALL;
}

// About 160 rows a bucket: few enough to count through L of them, enough for chance to find what is near.
int default_bits(std::int64_t rows) {
    return std::clamp(static_cast<int>(std::lround(std::log2(static_cast<double>(rows) / 160))), 3, 20);
}

// From so many rows on, what a sample can pay for is too small a share to learn from early, and a rebuild is long.
constexpr std::int64_t very_wide = 50000;
constexpr std::int32_t shared_if_very_wide = 1024;
constexpr double hard_if_very_wide = 128;

// 1 % of the rows of a large layer, but no fewer than learn well, and no more than a sample can pay for.
float default_share(std::int64_t rows) {
    const double wanted = std::clamp(0.01 * static_cast<double>(rows), 96.0, 512.0);
    return static_cast<float>(std::min(1.0, wanted / static_cast<double>(rows)));
}

// Nanoseconds a sample, as measured on one core with AVX-512 and width 128; only the ratio matters.
bool dense_is_cheaper(const dslide_trainer_options &o, const dslide_model_options &shape) {
    const auto rows = static_cast<double>(shape.n_outputs);
    const double per_scale = shape.hidden[shape.n_hidden - 1] / 128.0;
    const double active = o.active_share * rows, buckets = o.tables * rows / std::pow(2.0, o.bits);
    const double dense = 10 * rows * per_scale;
    const double sampled = active * (o.candidate_factor * 20 + 35) * per_scale + 1.5 * buckets;
    return dense < sampled;
}

} // namespace

std::int32_t hash_family_of(std::int32_t select) {
    switch (select) {
    case DSLIDE_SELECT_SIMHASH:
        return DSLIDE_HASH_SIMHASH;
    case DSLIDE_SELECT_DWTA:
        return DSLIDE_HASH_DWTA;
    default:
        return -1;
    }
}

dslide_trainer_options resolved(dslide_trainer_options o, const dslide_model_options &shape) {
    const auto rows = static_cast<double>(shape.n_outputs);
    constexpr std::uint32_t known_flags = DSLIDE_TRAINER_DENSE_UPDATES | DSLIDE_TRAINER_NO_CENTRING |
                                          DSLIDE_TRAINER_CORRECTION | DSLIDE_TRAINER_BF16_SCORES;
    if (o.flags & ~known_flags)
        fail(DSLIDE_E_UNSUPPORTED, "flags has bits that this library does not know: ", o.flags & ~known_flags);
    check_enum(o.optimizer, DSLIDE_ADAGRAD, "optimizer");
    check_enum(o.loss, DSLIDE_BCE, "loss");
    check_enum(o.decay_mode, DSLIDE_DECAY_DECOUPLED, "decay_mode");
    check_enum(o.schedule, DSLIDE_SCHEDULE_STEP, "schedule");
    check_enum(o.select, DSLIDE_SELECT_ALL, "select");
    if (o.seed == 0) o.seed = default_seed;
    if (o.learning_rate == 0) o.learning_rate = 1e-3f;
    // As far as set_learning_rate() goes, or a checkpoint could not be loaded after it.
    if (!(o.learning_rate > 0 && std::isfinite(o.learning_rate)))
        fail(DSLIDE_E_ARGUMENT, "learning_rate is ", o.learning_rate, ", expected > 0 and finite");
    const auto momentum_like = [](float &value, float standard, const char *name) {
        if (value == 0) value = standard;
        if (value == 1 || !(value < 1)) fail(DSLIDE_E_ARGUMENT, name, " is ", value, ", expected below 1");
    };
    momentum_like(o.beta1, 0.9f, "beta1");
    momentum_like(o.beta2, 0.999f, "beta2");
    if (o.epsilon == 0) o.epsilon = 1e-8f;
    check_range(o.epsilon, 0, largest, "epsilon");
    check_range(o.momentum, 0, 0.999999, "momentum");
    check_range(o.weight_decay, 0, largest, "weight_decay");
    check_range(o.clip_value, 0, largest, "clip_value");
    check_range(o.clip_row_norm, 0, largest, "clip_row_norm");
    check_range(static_cast<double>(o.warmup_samples), 0, 1e18, "warmup_samples");
    check_range(static_cast<double>(o.total_samples), 0, 1e18, "total_samples");
    check_range(static_cast<double>(o.hard_from), 0, 1e18, "hard_from");
    check_range(static_cast<double>(o.step_samples), 0, 1e18, "step_samples");
    if (o.schedule == DSLIDE_SCHEDULE_STEP && o.step_samples == 0)
        fail(DSLIDE_E_ARGUMENT, "step_samples must be set for schedule STEP");
    if (o.step_factor == 0) o.step_factor = 0.5f;
    check_range(o.step_factor, 0, 1, "step_factor");
    check_range(o.final_rate, 0, 1, "final_rate");
    check_range(o.active_share, 0, 1, "active_share");
    check_range(o.tables, 0, CollisionCounter::max_tables, "tables");
    check_range(o.bits, 0, 24, "bits");
    check_range(o.shared_negatives, -1, rows, "shared_negatives");
    check_range(o.random_fill, 0, rows, "random_fill");
    if (o.candidate_factor != 0) check_range(o.candidate_factor, 1, largest, "candidate_factor");
    check_range(static_cast<double>(o.rebuild_first), 0, 1e12, "rebuild_first");
    if (o.rebuild_growth != 0) check_range(o.rebuild_growth, 1, 1000, "rebuild_growth");
    check_range(static_cast<double>(o.rebuild_max), 0, 1e12, "rebuild_max");
    if (o.frequency_power == 0) o.frequency_power = 1;
    check_range(o.frequency_power, -1, 10, "frequency_power");

    const bool share_given = o.active_share > 0;
    const bool wide = shape.n_outputs >= very_wide;
    const bool hashes = hash_family_of(o.select) >= 0 || o.select == DSLIDE_SELECT_AUTO;
    if (!share_given && o.shared_negatives == 0 && wide && hashes) {
        o.shared_negatives = shared_if_very_wide;
        o.flags |= DSLIDE_TRAINER_CORRECTION;
        o.active_share = static_cast<float>((shared_if_very_wide + hard_if_very_wide) / rows);
    }
    if (o.shared_negatives == 0) o.shared_negatives = -1;
    if (o.active_share == 0) o.active_share = default_share(shape.n_outputs);
    if (o.tables == 0) o.tables = 50;
    if (o.bits == 0) o.bits = default_bits(shape.n_outputs);
    o.bits = possible_bits(hash_family_of(o.select), o.bits);
    if (o.candidate_factor == 0) o.candidate_factor = 5;
    if (o.rebuild_growth == 0) o.rebuild_growth = wide ? 1.5f : 1.1f;
    if (o.rebuild_max == 0) o.rebuild_max = std::max<std::int64_t>(1000, o.rebuild_first);
    if (o.rebuild_first == 0) o.rebuild_first = std::min<std::int64_t>(50, o.rebuild_max);
    if (o.rebuild_first > o.rebuild_max)
        fail(DSLIDE_E_ARGUMENT, "rebuild_first is ", o.rebuild_first, ", expected at most rebuild_max, ",
             o.rebuild_max);
    if (o.select == DSLIDE_SELECT_AUTO)
        o.select = dense_is_cheaper(o, shape) ? DSLIDE_SELECT_ALL : DSLIDE_SELECT_SIMHASH;
    o.struct_size = sizeof o;
    return o;
}

Plan plan_of(const dslide_trainer_options &o, const dslide_model_options &shape) {
    Plan plan;
    const std::int64_t rows = shape.n_outputs;
    if (o.select == DSLIDE_SELECT_ALL) {
        plan.hard_rows = plan.candidates = rows;
        return plan;
    }
    plan.shared = std::max(0, o.shared_negatives);
    plan.random_fill = o.random_fill;
    const auto active = std::max<std::int64_t>(1, std::llround(o.active_share * static_cast<double>(rows)));
    plan.hard_rows = std::max<std::int64_t>(0, std::min(active, rows) - plan.shared - plan.random_fill);
    const bool ranked_already = o.select == DSLIDE_SELECT_EXACT || o.select == DSLIDE_SELECT_RANDOM;
    const double wanted = ranked_already ? 1 : o.candidate_factor;
    plan.candidates = std::llround(std::min(static_cast<double>(rows), static_cast<double>(plan.hard_rows) * wanted));
    return plan;
}

Plan part_of(const Plan &plan, std::int64_t rows, std::int64_t classes) {
    const auto part = [&](std::int64_t n) { return (n * rows + classes - 1) / classes; };
    return {part(plan.hard_rows), part(plan.candidates), plan.shared, plan.random_fill};
}

dslide_memory_estimate estimate_memory(const dslide_model_options &shape, const dslide_trainer_options &o,
                                       std::int64_t batch, std::int64_t data_bytes) {
    dslide_memory_estimate e{};
    e.struct_size = sizeof e;
    std::int64_t weights = shape.n_inputs * simd::padded(shape.hidden[0]) + simd::padded(shape.hidden[0]);
    for (int i = 1; i < shape.n_hidden; ++i)
        weights += shape.hidden[i] * simd::padded(shape.hidden[i - 1]) + simd::padded(shape.hidden[i]);
    const std::int64_t width = simd::padded(shape.hidden[shape.n_hidden - 1]);
    weights += shape.n_outputs * width + simd::padded(shape.n_outputs);
    e.weight_bytes = 4 * weights;
    e.optimizer_bytes = state_planes(o) * e.weight_bytes;
    if (uses_bf16(o)) e.weight_bytes += 2 * shape.n_outputs * width;
    const Plan plan = plan_of(o, shape);
    const std::int64_t rows = shape.n_outputs;
    if (hash_family_of(o.select) >= 0 && plan.hard_rows > 0) {
        const std::int64_t buckets = std::int64_t{1} << o.bits;
        // Ids, offsets, and every code while a checkpoint is written, which takes more than a rebuild does; mean logits
        // and head of a rebuild; a byte of collision counts a row and thread.
        e.table_bytes = 4 * o.tables * (2 * rows + buckets + 1) + 9 * rows + available_threads() * rows;
    }
    std::int64_t widest = width;
    for (int i = 0; i < shape.n_hidden; ++i) widest = std::max<std::int64_t>(widest, simd::padded(shape.hidden[i]));
    const std::int64_t activations = 2 * shape.n_hidden * batch * widest * 4;
    if (o.select == DSLIDE_SELECT_ALL) {
        const std::int64_t blocks = (rows + DenseOutput::block_rows - 1) / DenseOutput::block_rows;
        const std::int64_t scores = blocks * DenseOutput::block_rows * batch * 4;
        e.buffer_bytes = (scores <= DenseOutput::score_bytes ? scores : 16 * DenseOutput::block_rows * batch * 4) +
                         blocks * batch * 24;
    } else {
        const std::int64_t pairs = batch * (plan.candidates + plan.random_fill);
        const std::int64_t shared = plan.shared + (o.hard_from > 0 ? plan.hard_rows : 0);
        e.buffer_bytes = pairs * (4 + 4 + 4 + 12 + 8) + shared * (batch + 2 * width) * 4 + rows * (4 + 4 + 12);
        if (shared > 0) e.buffer_bytes += 8 * rows; // what they are drawn by
    }
    e.buffer_bytes += 8 * rows + 4 * shape.n_inputs; // label counts; counts of the batch's features
    e.buffer_bytes += activations + 16 * batch * width * 4 + batch * 100 * 20;
    e.data_bytes = data_bytes;
    constexpr std::int64_t process_bytes = std::int64_t{24} << 20; // code, oneDNN, TBB, allocator; measured
    e.total_bytes = e.weight_bytes + e.optimizer_bytes + e.table_bytes + e.buffer_bytes + e.data_bytes + process_bytes;
    return e;
}

} // namespace dslide
