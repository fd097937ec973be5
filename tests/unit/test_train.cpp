// SPDX-License-Identifier: Apache-2.0
#include "cmocka.hpp"
#undef skip // Dataset::skip
#include "core/error.hpp"
#include "core/random.hpp"
#include "data/open.hpp"
#include "model/meta.hpp"
#include "train/run.hpp"
#include "train/trainer.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

using namespace dslide;
namespace fs = std::filesystem;

namespace {

constexpr int thread_counts[] = {1, 2, 3, 8};

/// Random rows; sample i has 1 + i % 6 features and, unless `labels` is 0, up to as many labels.
struct Rows {
    std::int64_t n_features, n_classes;
    std::vector<std::int64_t> feature_ptr{0}, label_ptr{0};
    std::vector<std::int32_t> feature, label;
    std::vector<float> value, weight;

    Rows(std::int64_t samples, std::int64_t features, std::int64_t classes, std::int64_t labels = 3,
         std::uint64_t number = 1)
        : n_features(features), n_classes(classes) {
        RandomStream random(77, Purpose::shuffle, number);
        const auto draw = [&](std::int64_t n, std::int64_t below) {
            std::set<std::int32_t> set;
            while (static_cast<std::int64_t>(set.size()) < std::min(n, below))
                set.insert(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(below))));
            return set;
        };
        for (std::int64_t i = 0; i < samples; ++i) {
            for (const std::int32_t f : draw(1 + i % 6, features)) {
                feature.push_back(f);
                value.push_back(static_cast<float>(random.normal()));
            }
            feature_ptr.push_back(static_cast<std::int64_t>(feature.size()));
            if (labels > 0)
                for (const std::int32_t l : draw(1 + i % labels, classes)) label.push_back(l);
            label_ptr.push_back(static_cast<std::int64_t>(label.size()));
        }
    }
    std::int64_t size() const { return static_cast<std::int64_t>(feature_ptr.size()) - 1; }
    Batch batch(std::int64_t begin, std::int64_t end) const {
        Batch b;
        b.features = {end - begin, n_features, feature_ptr.data() + begin, feature.data(), value.data()};
        b.labels = {end - begin, n_classes, label_ptr.data() + begin, label.data(), nullptr};
        b.weights = weight.empty() ? nullptr : weight.data() + begin;
        return b;
    }
    Batch all() const { return batch(0, size()); }
    std::unique_ptr<Dataset> dataset(bool shuffle = false) const {
        const Batch b = all();
        dslide_dataset_options o{};
        o.struct_size = sizeof o;
        o.shuffle = shuffle;
        return dataset_of_rows(b.features, b.labels, b.weights, o);
    }
};

dslide_model_options shape_of(std::int64_t inputs, std::int64_t outputs, const std::vector<std::int32_t> &hidden) {
    dslide_model_options o{};
    o.struct_size = sizeof o;
    o.n_inputs = inputs;
    o.n_outputs = outputs;
    o.n_hidden = static_cast<std::int32_t>(hidden.size());
    std::copy(hidden.begin(), hidden.end(), o.hidden);
    o.output_scale = 0.1f;
    return o;
}

dslide_trainer_options selecting(std::int32_t select) {
    dslide_trainer_options o{};
    o.struct_size = sizeof o;
    o.select = select;
    o.learning_rate = 0.01f;
    o.active_share = 0.1f;
    o.tables = 12;
    o.bits = 4;
    o.rebuild_first = 3;
    o.rebuild_growth = 1.5f;
    return o;
}

std::shared_ptr<Model> make_model(const dslide_model_options &shape, int threads = 2) {
    return std::make_shared<Model>(std::make_shared<Cluster>(threads), shape);
}

/// All weights and biases, without pads.
std::vector<float> weights_of(const Model &model) {
    std::vector<float> all;
    std::vector<std::string> names{"input.weight", "input.bias", "output.weight", "output.bias"};
    for (int i = 1; i < model.options().n_hidden; ++i) {
        names.push_back("hidden." + std::to_string(i) + ".weight");
        names.push_back("hidden." + std::to_string(i) + ".bias");
    }
    for (const std::string &name : names) {
        const TensorPart t = model.tensor(name);
        const auto *data = static_cast<const float *>(t.data);
        for (std::int64_t r = 0; r < t.rows; ++r)
            all.insert(all.end(), data + r * t.row_stride, data + r * t.row_stride + t.cols);
    }
    return all;
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double farthest(const std::vector<float> &a, const std::vector<float> &b) {
    double worst = a.size() == b.size() ? 0 : 1e9;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
    return worst;
}

bool all_finite(const std::vector<float> &v) {
    return std::all_of(v.begin(), v.end(), [](float x) { return std::isfinite(x); });
}

dslide_status status_of(const std::function<void()> &body, std::string *text = nullptr) {
    try {
        body();
    } catch (const Error &e) {
        if (text) *text = e.what();
        return e.status();
    }
    return DSLIDE_OK;
}

/// A directory of its own, in memory if possible.
class Scratch {
public:
    Scratch() {
        const fs::path memory = "/dev/shm";
        const fs::path base = access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path();
        std::string pattern = (base / "dslide-train-XXXXXX").string();
        path_ = mkdtemp(pattern.data());
    }
    ~Scratch() { fs::remove_all(path_); }
    std::string operator/(const std::string &name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

void save(const Trainer &trainer, const std::string &dir) {
    std::vector<Array<std::int32_t>> scratch;
    write_checkpoint(dir, trainer.content(scratch));
}

struct Loaded {
    std::shared_ptr<Model> model;
    std::unique_ptr<Trainer> trainer;
    explicit Loaded(const std::string &dir, int threads = 2) {
        const CheckpointReader reader(dir, true);
        model = std::make_shared<Model>(std::make_shared<Cluster>(threads), reader);
        trainer = std::make_unique<Trainer>(model, reader);
    }
};

constexpr std::int32_t selections[] = {DSLIDE_SELECT_SIMHASH, DSLIDE_SELECT_DWTA, DSLIDE_SELECT_EXACT,
                                       DSLIDE_SELECT_RANDOM, DSLIDE_SELECT_ALL};

} // namespace

static void test_train__bits_do_not_depend_on_threads(void **) {
    std::string failing;
    const Rows rows(150, 80, 700);
    for (const std::int32_t select : selections)
        for (const bool extras : {false, true})
            for (const auto &hidden : {std::vector<std::int32_t>{24}, {33, 20}}) {
                std::vector<float> first;
                for (const int threads : thread_counts) {
                    auto options = selecting(select);
                    if (extras) {
                        options.shared_negatives = 30;
                        options.random_fill = 9;
                        options.active_share = 0.2f;
                        options.flags = DSLIDE_TRAINER_CORRECTION | DSLIDE_TRAINER_BF16_SCORES;
                    }
                    const auto model = make_model(shape_of(80, 700, hidden), threads);
                    Trainer trainer(model, options);
                    for (int step = 0; step < 6; ++step) trainer.step(rows.batch(25 * step, 25 * step + 25));
                    const auto now = weights_of(*model);
                    if (first.empty()) first = now;
                    if (!same_bits(first, now)) failing += std::to_string(select) + "/" + std::to_string(threads) + " ";
                }
            }
    assert_string_equal(failing.c_str(), "");
}

namespace {

struct ResumeCase {
    std::int32_t optimizer, select, schedule;
    bool edit; ///< weights are overwritten just before the save: the tables are stale
    std::uint32_t flags = 0;
    std::int64_t hard_from = 0;
};

std::string check_resume(const ResumeCase &c, const Rows &rows, const Scratch &scratch) {
    auto options = selecting(c.select);
    options.optimizer = c.optimizer;
    options.schedule = c.schedule;
    options.flags = c.flags;
    options.hard_from = c.hard_from;
    options.momentum = c.optimizer == DSLIDE_SGD ? 0.9f : 0;
    options.total_samples = 400;
    options.step_samples = 100;
    options.warmup_samples = 90;
    options.final_rate = 0.1f;
    options.shared_negatives = 10;
    options.random_fill = 3;
    if (c.schedule == DSLIDE_SCHEDULE_LINEAR) options.flags = DSLIDE_TRAINER_BF16_SCORES, options.hard_from = 200;
    const auto model = make_model(shape_of(80, 300, {20, 16}));
    Trainer trainer(model, options);
    const auto step = [&](Trainer &t, int i) {
        const dslide_step_stats s = t.step(rows.batch(20 * i, 20 * i + 20));
        return std::pair{s.loss, s.rebuilt};
    };
    for (int i = 0; i < 8; ++i) step(trainer, i); // the tables are rebuilt in steps 0, 3, 7 and 13
    if (c.edit) {
        const std::vector<float> row(16, 0.5f);
        model->set_rows("output.weight", 3, 1, row.data());
    }
    save(trainer, scratch / "here");
    Loaded loaded(scratch / "here", 1);
    for (int i = 8; i < 15; ++i)
        if (step(trainer, i) != step(*loaded.trainer, i)) return "step " + std::to_string(i) + " ";
    if (!same_bits(weights_of(*model), weights_of(*loaded.model))) return "weights ";
    if (trainer.info().rebuilds != loaded.trainer->info().rebuilds) return "rebuilds ";
    save(trainer, scratch / "one");
    save(*loaded.trainer, scratch / "two");
    return CheckpointReader(scratch / "one").meta() == CheckpointReader(scratch / "two").meta() ? "" : "meta ";
}

} // namespace

static void test_train__resume_equals_going_on(void **) {
    std::string failing;
    {
        const Scratch scratch;
        const Rows rows(300, 80, 300);
        for (const std::int32_t optimizer : {DSLIDE_ADAM, DSLIDE_SGD, DSLIDE_ADAGRAD})
            for (const std::int32_t select : selections)
                for (const std::int32_t schedule :
                     {DSLIDE_SCHEDULE_CONSTANT, DSLIDE_SCHEDULE_LINEAR, DSLIDE_SCHEDULE_COSINE, DSLIDE_SCHEDULE_STEP}) {
                    const std::string wrong = check_resume({optimizer, select, schedule, false}, rows, scratch);
                    if (!wrong.empty())
                        failing +=
                            std::to_string(optimizer) + std::to_string(select) + std::to_string(schedule) + wrong;
                }
        constexpr std::uint32_t flags[] = {0, DSLIDE_TRAINER_BF16_SCORES, DSLIDE_TRAINER_CORRECTION,
                                           DSLIDE_TRAINER_DENSE_UPDATES | DSLIDE_TRAINER_NO_CENTRING};
        for (const std::int32_t select : {DSLIDE_SELECT_SIMHASH, DSLIDE_SELECT_DWTA})
            for (const std::uint32_t flag : flags)
                for (const std::int64_t hard_from : {0, 100, 200}) // below and above the 160 samples at the save
                    for (const bool edit : {false, true}) {
                        const std::string wrong = check_resume(
                            {DSLIDE_ADAM, select, DSLIDE_SCHEDULE_CONSTANT, edit, flag, hard_from}, rows, scratch);
                        if (!wrong.empty())
                            failing +=
                                std::to_string(flag) + "/" + std::to_string(hard_from) + (edit ? "s " : " ") + wrong;
                    }
    }
    assert_string_equal(failing.c_str(), "");
}

namespace {

struct Stop {
    std::int64_t after_steps = 1 << 30, progress_calls = 0;
    std::int32_t after_epoch = 1 << 30;
    std::vector<dslide_epoch_report> reports;
};

int32_t on_epoch(void *data, const dslide_epoch_report *report) {
    auto *stop = static_cast<Stop *>(data);
    stop->reports.push_back(*report);
    return report->epoch >= stop->after_epoch;
}

int32_t on_progress(void *data, const dslide_progress *progress) {
    auto *stop = static_cast<Stop *>(data);
    ++stop->progress_calls;
    return progress->step >= stop->after_steps;
}

RunOptions run_options(std::int32_t epochs, std::int32_t batch) {
    RunOptions o;
    o.epochs = epochs;
    o.batch_size = batch;
    o.eval.struct_size = sizeof o.eval;
    return o;
}

} // namespace

static void test_train__run_taken_up_within_an_epoch(void **) {
    std::string failing;
    for (const std::int32_t select : {DSLIDE_SELECT_SIMHASH, DSLIDE_SELECT_ALL}) {
        const Scratch scratch;
        const Rows rows(203, 80, 300);
        auto options = selecting(select);
        options.schedule = DSLIDE_SCHEDULE_COSINE; // over what the run says
        const auto whole = make_model(shape_of(80, 300, {20})), cut = make_model(shape_of(80, 300, {20}));
        dslide_epoch_report last{};
        {
            Trainer trainer(whole, options);
            const auto data = rows.dataset(true);
            if (run(trainer, *data, run_options(3, 20), last)) failing += "stopped ";
        }
        {
            Trainer trainer(cut, options);
            const auto data = rows.dataset(true);
            RunOptions o = run_options(3, 20);
            o.save_dir = scratch / "run";
            o.save_every = 5;
            run(trainer, *data, o, last);
        }
        if (!same_bits(weights_of(*whole), weights_of(*cut))) failing += "saving changes the run ";
        // 11 steps an epoch; the store keeps step-000000030 and its like only while they are latest: make one afresh.
        {
            const auto model = make_model(shape_of(80, 300, {20}));
            Trainer trainer(model, options);
            trainer.set_total_samples(203 * 3);
            const auto data = rows.dataset(true);
            std::vector<std::int64_t> counts(300);
            for (const std::int32_t l : rows.label) ++counts[static_cast<std::size_t>(l)];
            trainer.set_label_counts(counts, 203);
            for (int epoch = 0; epoch < 2; ++epoch) { // one epoch and a half, by hand
                data->rewind(epoch);
                for (int i = 0; i < (epoch == 0 ? 11 : 6); ++i) trainer.step(data->next(20));
            }
            trainer.position() = {1, 120, -1, 0};
            save(trainer, scratch / "middle");
        }
        Loaded loaded(scratch / "middle");
        const auto data = rows.dataset(true);
        run(*loaded.trainer, *data, run_options(3, 20), last);
        if (!same_bits(weights_of(*whole), weights_of(*loaded.model))) failing += "resumed ";
        if (last.epoch != 3 || last.step != 33) failing += "counters ";
    }
    assert_string_equal(failing.c_str(), "");
}

namespace {

/// Weights after some dense SGD steps on these rows.
std::vector<float> after_sgd(const Rows &rows, std::int32_t loss) {
    const auto model = make_model(shape_of(rows.n_features, rows.n_classes, {16}));
    auto options = selecting(DSLIDE_SELECT_ALL);
    options.optimizer = DSLIDE_SGD;
    options.learning_rate = 0.1f;
    options.loss = loss;
    Trainer trainer(model, options);
    for (int step = 0; step < 5; ++step) trainer.step(rows.all());
    return weights_of(*model);
}

Rows chosen(const Rows &from, const std::vector<std::int64_t> &which) {
    Rows out(0, from.n_features, from.n_classes);
    for (const std::int64_t i : which) {
        const auto copy = [&](const auto &ptr, const auto &values, auto &to) {
            to.insert(to.end(), values.begin() + ptr[static_cast<std::size_t>(i)],
                      values.begin() + ptr[static_cast<std::size_t>(i) + 1]);
        };
        copy(from.feature_ptr, from.feature, out.feature);
        copy(from.feature_ptr, from.value, out.value);
        copy(from.label_ptr, from.label, out.label);
        out.feature_ptr.push_back(static_cast<std::int64_t>(out.feature.size()));
        out.label_ptr.push_back(static_cast<std::int64_t>(out.label.size()));
    }
    return out;
}

} // namespace

static void test_train__weight_two_is_twice_and_weight_zero_is_absent(void **) {
    std::string failing;
    for (const std::int32_t loss : {DSLIDE_SOFTMAX, DSLIDE_BCE}) {
        const Rows base(6, 30, 40);
        Rows weighted = base;
        weighted.weight = {1, 2, 1, 0, 1, 1};
        const Rows repeated = chosen(base, {0, 1, 1, 2, 4, 5});
        const auto a = after_sgd(weighted, loss), b = after_sgd(repeated, loss), plain = after_sgd(base, loss);
        if (farthest(a, b) > 2e-6) failing += "weights ";
        if (farthest(a, plain) < 1e-3) failing += "no difference ";
        weighted.weight = {1e30f, 2e30f, 1e30f, 0, 1e30f, 1e30f}; // their sum matters not
        if (farthest(after_sgd(weighted, loss), b) > 2e-6) failing += "large weights ";
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_train__weight_zero_is_absent_when_rows_are_sampled(void **) {
    std::string failing;
    for (const std::int32_t select : selections) {
        const Rows base(40, 30, 200);
        Rows weighted = base;
        weighted.weight.assign(40, 1);
        std::fill(weighted.weight.begin() + 20, weighted.weight.end(), 0.0f);
        std::vector<float> results[2];
        for (const bool present : {true, false}) {
            const auto model = make_model(shape_of(30, 200, {16}));
            auto options = selecting(select);
            options.flags = DSLIDE_TRAINER_NO_CENTRING; // the mean of h is taken over all samples
            options.shared_negatives = 10;
            Trainer trainer(model, options);
            const std::vector<std::int64_t> counts(200, 1); // or the absent would count as labels
            trainer.set_label_counts(counts, 200);
            for (int step = 0; step < 3; ++step) trainer.step(present ? weighted.all() : base.batch(0, 20));
            results[present] = weights_of(*model);
        }
        if (farthest(results[0], results[1]) > 1e-5) failing += std::to_string(select) + " ";
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_train__nothing_to_learn_changes_nothing(void **) {
    std::string failing;
    for (const std::int32_t select : selections) {
        const auto model = make_model(shape_of(30, 200, {16}));
        Trainer trainer(model, selecting(select));
        const auto before = weights_of(*model);
        Rows weightless(10, 30, 200);
        weightless.weight.assign(10, 0.0f);
        const dslide_step_stats unlabelled = trainer.step(Rows(10, 30, 200, 0).all()),
                                empty = trainer.step(Rows(0, 30, 200).all()), zero = trainer.step(weightless.all());
        if (!same_bits(before, weights_of(*model))) failing += "weights ";
        if (unlabelled.samples_seen != 10 || empty.samples_seen != 10 || zero.samples_seen != 20 || zero.step != 0 ||
            zero.loss != 0)
            failing += "counters ";
        trainer.step(Rows(10, 30, 200).all());
        if (same_bits(before, weights_of(*model))) failing += "then nothing is learnt ";
    }
    assert_string_equal(failing.c_str(), "");
}

namespace {

/// Mean loss over all classes of the first few samples, from the scores that a prediction gives.
double full_loss(const Model &model, const Rows &rows, std::int32_t loss) {
    const std::int64_t n = std::min<std::int64_t>(rows.size(), 20), k = model.n_outputs();
    const Batch batch = rows.batch(0, n);
    std::vector<std::int32_t> classes(static_cast<std::size_t>(n * k));
    std::vector<float> scores(classes.size());
    model.predict(batch.features, k, classes.data(), scores.data());
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        const auto labels = batch.labels.cols(i);
        double sum = 0;
        for (std::int64_t c = 0; c < k; ++c) {
            const double z = scores[static_cast<std::size_t>(i * k + c)];
            sum += loss == DSLIDE_SOFTMAX ? std::exp(z) : std::log1p(std::exp(z));
            const double share = loss == DSLIDE_SOFTMAX ? 1 / static_cast<double>(labels.size()) : 1;
            if (std::binary_search(labels.begin(), labels.end(), classes[static_cast<std::size_t>(i * k + c)]))
                total -= share * z;
        }
        total += loss == DSLIDE_SOFTMAX ? std::log(sum) : sum;
    }
    return total / static_cast<double>(n);
}

} // namespace

// Shapes at the edge of what is allowed; each must learn: the loss over all classes falls.
static void test_train__edge_shapes_learn(void **) {
    std::string failing;
    struct Shape {
        std::int64_t samples, features, classes, labels;
        std::vector<std::int32_t> hidden;
    };
    const Shape shapes[] = {
        {5, 1, 3, 1, {8}},      {1, 10, 5, 1, {8}},    {20, 10, 2, 1, {1}},         {20, 10, 30, 3, {7}},
        {20, 10, 30, 3, {200}}, {20, 10, 6, 6, {8}},   {20, 10, 700, 3, {3, 5, 2}}, {5000, 20, 50, 2, {4}},
        {20, 10, 30, 30, {16}}, {20, 10, 513, 2, {8}},
    };
    for (const std::int32_t select : selections)
        for (const std::int32_t loss : {DSLIDE_SOFTMAX, DSLIDE_BCE})
            for (const Shape &s : shapes) {
                const Rows rows(s.samples, s.features, s.classes, s.labels);
                const auto model = make_model(shape_of(s.features, s.classes, s.hidden));
                auto options = selecting(select);
                options.active_share = 0.5f;
                options.loss = loss;
                Trainer trainer(model, options);
                const auto before = weights_of(*model);
                const double first = full_loss(*model, rows, loss);
                for (int step = 0; step < 20; ++step) trainer.step(rows.all());
                const double last = full_loss(*model, rows, loss);
                // Relu may leave nothing but the bias; 5000 samples with random labels leave nothing to learn; rows
                // that tables do not find among so few are not pushed down.
                const bool may_fail = s.hidden[0] == 1 || s.hidden.size() == 3 || s.samples == 5000 ||
                                      select == DSLIDE_SELECT_DWTA ||
                                      (select == DSLIDE_SELECT_SIMHASH && s.classes == 3);
                const auto after = weights_of(*model);
                const bool moved = after != before || select <= DSLIDE_SELECT_DWTA; // without a find, a label is alone
                if (!(last < first || may_fail) || !std::isfinite(last) || !all_finite(after) || !moved)
                    failing += std::to_string(select) + "/" + std::to_string(s.classes) + "/" +
                               std::to_string(s.hidden[0]) + " ";
            }
    assert_string_equal(failing.c_str(), "");
}

static void test_train__extreme_choices_of_rows_and_tables(void **) {
    std::string failing;
    const Rows rows(64, 20, 100, 8), everything(5, 20, 100, 100);
    for (const std::int32_t select : selections)
        for (int variant = 0; variant < 11; ++variant) {
            auto o = selecting(select);
            if (variant == 0) o.active_share = 1e-6f; // fewer rows than labels
            if (variant == 1) o.shared_negatives = 100;
            if (variant == 2) o.random_fill = 100;
            if (variant == 3) o.shared_negatives = 100, o.random_fill = 100, o.flags = DSLIDE_TRAINER_CORRECTION;
            if (variant == 4) o.tables = 1, o.bits = 1;
            if (variant == 5) o.tables = 2, o.bits = 24;
            if (variant == 6) o.tables = 255, o.candidate_factor = 1000;
            if (variant == 7) o.active_share = 1;
            if (variant == 8) o.flags = DSLIDE_TRAINER_DENSE_UPDATES | DSLIDE_TRAINER_NO_CENTRING;
            if (variant == 9) o.rebuild_first = 1, o.rebuild_max = 1, o.frequency_power = -1, o.shared_negatives = 3;
            if (variant == 10) o.flags = DSLIDE_TRAINER_BF16_SCORES, o.hard_from = 70;
            const auto model = make_model(shape_of(20, 100, {12}));
            Trainer trainer(model, o);
            const dslide_trainer_info info = trainer.info();
            for (int step = 0; step < 3; ++step) {
                const dslide_step_stats s = trainer.step(rows.all());
                trainer.step(everything.all());
                trainer.step(rows.batch(3, 4));
                const double most = variant == 0 || info.select == DSLIDE_SELECT_ALL ? 1 : 1 + 1e-9;
                if (!(s.active_share > 0 && s.active_share <= most) || s.rows_touched > 100) failing += "share ";
            }
            if (!all_finite(weights_of(*model))) failing += "weights ";
            if (!failing.empty()) failing += std::to_string(select) + "/" + std::to_string(variant) + " ";
        }
    assert_string_equal(failing.c_str(), "");
}

static void test_train__hard_rows_start_when_told(void **) {
    std::vector<bool> rebuilt;
    std::int64_t rows_before = 0;
    {
        const Rows rows(100, 40, 300);
        auto o = selecting(DSLIDE_SELECT_SIMHASH);
        o.active_share = 0.1f;
        o.hard_from = 40;
        const auto model = make_model(shape_of(40, 300, {16}));
        Trainer trainer(model, o);
        for (int step = 0; step < 4; ++step) {
            const dslide_step_stats s = trainer.step(rows.batch(20 * step, 20 * step + 20));
            rebuilt.push_back(s.rebuilt != 0);
            if (step == 0) rows_before = s.rows_touched;
        }
    }
    // 30 draws with replacement and 20 samples' labels, at most 3 each: no more rows than that before the tables start.
    assert_true(rows_before <= 30 + 60);
    assert_false(rebuilt[0] || rebuilt[1]);
    assert_true(rebuilt[2]);
    assert_false(rebuilt[3]);
}

static void test_train__bf16_scores_stay_near_fp32(void **) {
    double losses[2];
    {
        const Rows rows(100, 40, 300);
        for (const bool bf16 : {false, true}) {
            auto o = selecting(DSLIDE_SELECT_RANDOM);
            o.flags = bf16 ? std::uint32_t{DSLIDE_TRAINER_BF16_SCORES} : 0;
            const auto model = make_model(shape_of(40, 300, {16}));
            Trainer trainer(model, o);
            for (int step = 0; step < 20; ++step) losses[bf16] = trainer.step(rows.all()).loss;
        }
    }
    assert_true(losses[0] != losses[1]);                     // the other kernel ran
    assert_true(std::abs(losses[1] / losses[0] - 1) < 0.01); // bfloat16 keeps 8 bits: 0.4 % a factor
}

static void test_train__sampling_all_rows_is_the_dense_network(void **) {
    std::string failing;
    const Rows rows(60, 40, 150);
    for (const std::int32_t loss : {DSLIDE_SOFTMAX, DSLIDE_BCE})
        for (const std::int32_t select :
             {DSLIDE_SELECT_SIMHASH, DSLIDE_SELECT_DWTA, DSLIDE_SELECT_EXACT, DSLIDE_SELECT_RANDOM}) {
            std::vector<float> results[2];
            double losses[2];
            for (const bool dense : {false, true}) {
                const auto model = make_model(shape_of(40, 150, {24}));
                auto o = selecting(dense ? DSLIDE_SELECT_ALL : select);
                o.optimizer = DSLIDE_SGD;
                o.learning_rate = 0.1f;
                o.loss = loss;
                o.active_share = 1;
                Trainer trainer(model, o);
                for (int step = 0; step < 10; ++step) losses[dense] = trainer.step(rows.all()).loss;
                results[dense] = weights_of(*model);
            }
            if (farthest(results[0], results[1]) > 1e-5 || std::abs(losses[0] / losses[1] - 1) > 1e-5)
                failing += std::to_string(loss) + "/" + std::to_string(select) + " ";
        }
    assert_string_equal(failing.c_str(), "");
}

// Rows seldom touched decay and drift by their momentum in the textbook optimizer, wherever they were sampled.
static void test_train__dense_updates_of_all_rows_equal_the_dense_network(void **) {
    const Rows rows(30, 40, 80);
    std::vector<float> results[2];
    for (const bool dense : {false, true}) {
        const auto model = make_model(shape_of(40, 80, {16}));
        auto o = selecting(dense ? DSLIDE_SELECT_ALL : DSLIDE_SELECT_RANDOM);
        o.active_share = 1;
        o.optimizer = DSLIDE_SGD;
        o.momentum = 0.9f;
        o.weight_decay = 0.1f;
        o.learning_rate = 0.05f;
        o.flags = DSLIDE_TRAINER_DENSE_UPDATES;
        Trainer trainer(model, o);
        for (int step = 0; step < 10; ++step) trainer.step(rows.batch(3 * step, 3 * step + 3));
        results[dense] = weights_of(*model);
    }
    assert_true(farthest(results[0], results[1]) < 1e-5);
}

static void test_train__lazy_updates_leave_untouched_rows_alone(void **) {
    const auto model = make_model(shape_of(40, 500, {16}));
    auto o = selecting(DSLIDE_SELECT_SIMHASH);
    o.weight_decay = 0.1f;
    Trainer trainer(model, o);
    const Rows rows(10, 40, 500);
    const auto before = weights_of(*model);
    const dslide_step_stats s = trainer.step(rows.all());
    const auto after = weights_of(*model);
    const std::set<std::int32_t> used(rows.feature.begin(), rows.feature.end());
    std::int64_t features_changed = 0, outputs_changed = 0;
    bool others_stay = true;
    for (std::int64_t f = 0; f < 40; ++f) {
        const bool changed =
            !std::equal(before.begin() + f * 16, before.begin() + (f + 1) * 16, after.begin() + f * 16);
        features_changed += changed;
        others_stay &= !changed || used.count(static_cast<std::int32_t>(f));
    }
    for (std::int64_t r = 0; r < 500; ++r) {
        const auto at = static_cast<std::ptrdiff_t>(40 * 16 + 16 + r * 16);
        outputs_changed += !std::equal(before.begin() + at, before.begin() + at + 16, after.begin() + at);
    }
    assert_true(others_stay);
    assert_int_equal(s.features_touched, used.size());
    assert_true(features_changed <= s.features_touched);
    assert_int_equal(outputs_changed, s.rows_touched);
    assert_true(s.rows_touched > 50 && s.rows_touched < 500);
}

namespace {

/// Trains a little, then a step with a poisoned batch, then goes on. "" or what is wrong.
std::string check_divergence(std::int32_t select, const std::vector<std::int32_t> &hidden, float bad,
                             const std::function<void(Rows &)> &poison) {
    const Rows rows(20, 30, 200);
    const auto model = make_model(shape_of(30, 200, hidden)), twin = make_model(shape_of(30, 200, hidden));
    auto o = selecting(select);
    o.shared_negatives = 5;
    Trainer trainer(model, o), other(twin, o);
    Rows poisoned(20, 30, 200);
    poisoned.value.assign(poisoned.value.size(), bad);
    poison(poisoned);
    for (int step = 0; step < 5; ++step) {
        trainer.step(rows.all());
        other.step(rows.all());
        const auto before = weights_of(*model);
        std::string text;
        const dslide_status status = status_of([&] { trainer.step(poisoned.all()); }, &text);
        if (status != DSLIDE_E_DIVERGED) return "status " + std::to_string(status) + " ";
        if (text.find("step " + std::to_string(step + 2)) == std::string::npos) return "text " + text;
        if (!same_bits(before, weights_of(*model))) return "weights changed ";
    }
    // As if the bad batches had never come.
    return same_bits(weights_of(*model), weights_of(*twin)) ? "" : "traces ";
}

} // namespace

static void test_train__divergence_is_told_and_leaves_no_trace(void **) {
    std::string failing;
    for (const std::int32_t select : selections)
        for (const auto &hidden : {std::vector<std::int32_t>{16}, {16, 12}, {1, 16}})
            for (const float bad : {3e38f, -3e38f}) {
                const auto nothing = [](Rows &) {};
                const auto signs = [](Rows &rows) { // infinities of both signs: NaN
                    for (std::size_t i = 0; i < rows.value.size(); i += 2) rows.value[i] = -rows.value[i];
                };
                std::string wrong;
                if (hidden[0] > 1) wrong += check_divergence(select, hidden, bad, nothing);
                if (hidden[0] > 1) wrong += check_divergence(select, hidden, bad, signs);
                if (!wrong.empty())
                    failing += std::to_string(select) + "/" + std::to_string(hidden.size()) + ":" + wrong;
            }
    assert_string_equal(failing.c_str(), "");
}

// The loss is known only after labels were counted, the mean was moved and tables were rebuilt.
static void test_train__a_step_whose_loss_is_infinite_leaves_no_trace(void **) {
    std::string failing;
    for (const std::int32_t select : selections) {
        const Rows rows(20, 30, 200);
        const auto model = make_model(shape_of(30, 200, {16})), twin = make_model(shape_of(30, 200, {16}));
        auto o = selecting(select);
        o.shared_negatives = 5;
        Trainer trainer(model, o), other(twin, o);
        const std::vector<float> huge(200 * 16, 3e38f);
        std::vector<float> sound(200 * 16);
        for (int step = 0; step < 6; ++step) {
            trainer.step(rows.all());
            other.step(rows.all());
            model->get_rows("output.weight", 0, 200, sound.data());
            model->set_rows("output.weight", 0, 200, huge.data());
            const dslide_status status = status_of([&] { trainer.step(rows.all()); });
            if (status != DSLIDE_E_DIVERGED) failing += "status " + std::to_string(status) + " ";
            for (const auto &m : {model, twin}) m->set_rows("output.weight", 0, 200, sound.data());
        }
        if (!same_bits(weights_of(*model), weights_of(*twin))) failing += std::to_string(select) + " weights ";
        if (model->label_frequencies().counts != twin->label_frequencies().counts ||
            model->label_frequencies().samples != twin->label_frequencies().samples)
            failing += std::to_string(select) + " counts ";
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_train__too_high_a_rate_ends_as_divergence(void **) {
    std::string failing;
    for (const std::int32_t select : selections)
        for (const std::int32_t optimizer : {DSLIDE_ADAM, DSLIDE_SGD, DSLIDE_ADAGRAD}) {
            const auto model = make_model(shape_of(30, 200, {16, 16}));
            auto o = selecting(select);
            o.optimizer = optimizer;
            o.learning_rate = 1e30f;
            Trainer trainer(model, o);
            const Rows rows(20, 30, 200);
            dslide_status status = DSLIDE_OK;
            std::vector<float> before;
            for (int step = 0; step < 20 && status == DSLIDE_OK; ++step) {
                before = weights_of(*model);
                status = status_of([&] { trainer.step(rows.all()); });
            }
            if (status != DSLIDE_E_DIVERGED || !same_bits(before, weights_of(*model)))
                failing += std::to_string(select) + "/" + std::to_string(optimizer) + " ";
        }
    assert_string_equal(failing.c_str(), "");
}

static void test_train__schedule_begins_with_the_trainer(void **) {
    double first, last, again;
    {
        const Rows rows(40, 20, 30);
        const auto model = make_model(shape_of(20, 30, {8}));
        auto o = selecting(DSLIDE_SELECT_ALL);
        o.schedule = DSLIDE_SCHEDULE_LINEAR;
        o.total_samples = 80;
        {
            Trainer trainer(model, o);
            first = trainer.step(rows.all()).learning_rate;
            last = trainer.step(rows.all()).learning_rate;
        }
        Trainer trainer(model, o);
        again = trainer.step(rows.all()).learning_rate;
    }
    assert_true(std::abs(last / first - 0.5) < 1e-6); // half of the samples are done
    assert_true(again == first);
}

static void test_train__one_trainer_a_model(void **) {
    const auto model = make_model(shape_of(30, 200, {16}));
    auto trainer = std::make_unique<Trainer>(model, selecting(DSLIDE_SELECT_ALL));
    const dslide_status second = status_of([&] { Trainer(model, selecting(DSLIDE_SELECT_ALL)); });
    trainer->step(Rows(5, 30, 200).all());
    const dslide_status still_second = status_of([&] { Trainer(model, selecting(DSLIDE_SELECT_ALL)); });
    trainer.reset();
    const dslide_status next = status_of([&] { Trainer(model, selecting(DSLIDE_SELECT_ALL)); });
    assert_int_equal(second, DSLIDE_E_STATE);
    assert_int_equal(still_second, DSLIDE_E_STATE);
    assert_int_equal(next, DSLIDE_OK);
}

static void test_train__run_reports_what_it_did(void **) {
    Stop stop;
    dslide_epoch_report last{};
    bool stopped;
    const Rows rows(203, 80, 300);
    {
        const auto model = make_model(shape_of(80, 300, {20}));
        Trainer trainer(model, selecting(DSLIDE_SELECT_SIMHASH));
        const auto data = rows.dataset(true), eval = rows.dataset();
        RunOptions o = run_options(3, 64);
        o.eval_data = eval.get();
        o.on_epoch = on_epoch;
        o.user_data = &stop;
        stopped = run(trainer, *data, o, last);
    }
    assert_false(stopped);
    assert_int_equal(stop.reports.size(), 3);
    for (std::size_t e = 0; e < 3; ++e) {
        const dslide_epoch_report &r = stop.reports[e];
        assert_int_equal(r.struct_size, sizeof r);
        assert_int_equal(r.epoch, e + 1);
        assert_int_equal(r.step, 4 * (e + 1));
        assert_int_equal(r.samples, 203);
        assert_int_equal(r.has_metrics, 1);
        assert_int_equal(r.metrics.rows, 203);
        assert_true(r.loss > 0 && r.seconds > 0 && r.active_share > 0 && r.active_share <= 1);
    }
    assert_int_equal(stop.reports[0].is_best, 1);
    assert_memory_equal(&stop.reports[2], &last, sizeof last);
}

static void test_train__run_stops_early_without_a_better_epoch(void **) {
    Stop stop;
    dslide_epoch_report last{};
    {
        const Rows rows(60, 80, 300), unlabelled_like(60, 80, 300, 3, 99);
        const auto model = make_model(shape_of(80, 300, {20}));
        auto options = selecting(DSLIDE_SELECT_ALL);
        options.learning_rate = 1e-30f; // nothing gets better after the first epoch
        Trainer trainer(model, options);
        const auto data = rows.dataset(), eval = unlabelled_like.dataset();
        RunOptions o = run_options(50, 30);
        o.eval_data = eval.get();
        o.early_stop = 3;
        o.on_epoch = on_epoch;
        o.user_data = &stop;
        run(trainer, *data, o, last);
        run(trainer, *data, o, last); // has stopped already
    }
    assert_int_equal(stop.reports.size(), 4); // the best one and three more
    assert_int_equal(last.epoch, 4);
}

static void test_train__run_stopped_between_epochs_goes_on(void **) {
    std::string failing;
    const Rows rows(100, 80, 300);
    const auto whole = make_model(shape_of(80, 300, {20})), parts = make_model(shape_of(80, 300, {20}));
    dslide_epoch_report last{};
    {
        Trainer trainer(whole, selecting(DSLIDE_SELECT_SIMHASH));
        const auto data = rows.dataset(true);
        run(trainer, *data, run_options(4, 16), last);
    }
    {
        Trainer trainer(parts, selecting(DSLIDE_SELECT_SIMHASH));
        const auto data = rows.dataset(true);
        RunOptions o = run_options(4, 16);
        Stop stop;
        stop.after_epoch = 2;
        o.on_epoch = on_epoch;
        o.user_data = &stop;
        if (!run(trainer, *data, o, last) || last.epoch != 2) failing += "not stopped ";
        stop.after_epoch = 1 << 30;
        if (run(trainer, *data, o, last) || last.epoch != 4) failing += "not gone on ";
        dslide_epoch_report untouched{};
        if (run(trainer, *data, o, untouched) || untouched.epoch != 0) failing += "done already ";
    }
    if (!same_bits(weights_of(*whole), weights_of(*parts))) failing += "weights ";
    assert_string_equal(failing.c_str(), "");
}

// Long enough for a report, which comes every tenth of a second.
static void test_train__run_stopped_by_progress_within_an_epoch_goes_on(void **) {
    std::string failing;
    const Scratch scratch;
    const Rows rows(30000, 80, 300);
    const auto whole = make_model(shape_of(80, 300, {20})), parts = make_model(shape_of(80, 300, {20}));
    dslide_epoch_report last{};
    {
        Trainer trainer(whole, selecting(DSLIDE_SELECT_ALL));
        const auto data = rows.dataset(true);
        run(trainer, *data, run_options(1, 1), last);
    }
    {
        Trainer trainer(parts, selecting(DSLIDE_SELECT_ALL));
        const auto data = rows.dataset(true);
        RunOptions o = run_options(1, 1);
        Stop stop;
        stop.after_steps = 1;
        o.on_progress = on_progress;
        o.user_data = &stop;
        o.save_dir = scratch / "run";
        dslide_epoch_report none{};
        if (!run(trainer, *data, o, none)) failing += "not stopped ";
        if (none.epoch != 0) failing += "no epoch was finished ";
        if (stop.progress_calls != 1) failing += "progress ";
        if (trainer.position().rows_in_epoch <= 0 || trainer.position().rows_in_epoch >= 30000) failing += "position ";
        Loaded loaded(scratch / "run"); // a checkpoint was written
        if (loaded.trainer->steps() != trainer.steps()) failing += "checkpoint ";
        const auto again = rows.dataset(true);
        run(*loaded.trainer, *again, run_options(1, 1), none);
        if (!same_bits(weights_of(*whole), weights_of(*loaded.model))) failing += "resumed ";
        run(trainer, *data, run_options(1, 1), last);
    }
    if (!same_bits(weights_of(*whole), weights_of(*parts))) failing += "weights ";
    assert_string_equal(failing.c_str(), "");
}

static void test_train__checkpoints_of_a_run(void **) {
    std::string failing;
    {
        const Scratch scratch;
        const Rows rows(100, 80, 300), other(100, 80, 300, 3, 5);
        const auto model = make_model(shape_of(80, 300, {20}));
        Trainer trainer(model, selecting(DSLIDE_SELECT_ALL));
        const auto data = rows.dataset(), eval = rows.dataset();
        RunOptions o = run_options(4, 20);
        o.eval_data = eval.get();
        o.save_dir = scratch / "run";
        o.save_every = 3;
        Stop stop;
        o.on_epoch = on_epoch;
        o.user_data = &stop;
        dslide_epoch_report last{};
        run(trainer, *data, o, last);
        std::int32_t best = 0;
        for (const auto &r : stop.reports)
            if (r.is_best) best = r.epoch;
        const CheckpointReader latest(scratch / "run", true), best_one(scratch / "run", false);
        if (latest.dir().find("epoch-000004") == std::string::npos) failing += "latest is " + latest.dir();
        if (best_one.dir().find("epoch-00000" + std::to_string(best)) == std::string::npos) failing += "best ";
        const Loaded loaded(scratch / "run");
        if (!same_bits(weights_of(*model), weights_of(*loaded.model))) failing += "weights ";
        std::int64_t kept = 0;
        for (const auto &entry : fs::directory_iterator(scratch / "run"))
            kept += entry.is_directory() && !entry.is_symlink();
        if (kept > 3) failing += "too many kept ";
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_train__run_refuses_data_that_do_not_fit(void **) {
    const auto model = make_model(shape_of(80, 300, {20}));
    Trainer trainer(model, selecting(DSLIDE_SELECT_ALL));
    dslide_epoch_report last{};
    const auto wide = Rows(5, 81, 300).dataset(), many = Rows(5, 80, 301).dataset(), narrow = Rows(5, 7, 9).dataset();
    const dslide_status wide_status = status_of([&] { run(trainer, *wide, run_options(1, 5), last); }),
                        many_status = status_of([&] { run(trainer, *many, run_options(1, 5), last); }),
                        narrow_status = status_of([&] { run(trainer, *narrow, run_options(1, 500), last); });
    assert_int_equal(wide_status, DSLIDE_E_ARGUMENT);
    assert_int_equal(many_status, DSLIDE_E_ARGUMENT);
    assert_int_equal(narrow_status, DSLIDE_OK); // also a batch larger than the data
    assert_int_equal(last.samples, 5);
}

static void test_train__options_resolve_once(void **) {
    std::string failing;
    for (const std::int64_t outputs : {1, 2, 100, 12326, 670091})
        for (const std::int32_t select : {0, 1, 2, 3, 4, 5}) {
            dslide_trainer_options o{};
            o.struct_size = sizeof o;
            o.select = select;
            const auto shape = resolved(shape_of(10, outputs, {128}));
            const auto once = resolved(o, shape), twice = resolved(once, shape);
            if (std::memcmp(&once, &twice, sizeof once) != 0) failing += "twice ";
            const Plan plan = plan_of(once, shape);
            if (once.select == DSLIDE_SELECT_AUTO) failing += "auto ";
            if (plan.hard_rows < 1 || plan.hard_rows > outputs || plan.candidates < plan.hard_rows ||
                plan.candidates > outputs)
                failing += "plan ";
        }
    assert_string_equal(failing.c_str(), "");
}

static void test_train__options_out_of_range_are_named(void **) {
    using Change = void (*)(dslide_trainer_options &);
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    const std::pair<const char *, Change> cases[] = {
        {"optimizer", [](auto &o) { o.optimizer = 3; }},
        {"loss", [](auto &o) { o.loss = -1; }},
        {"learning_rate", [](auto &o) { o.learning_rate = -1; }},
        {"learning_rate", [](auto &o) { o.learning_rate = nan; }},
        {"learning_rate", [](auto &o) { o.learning_rate = inf; }},
        {"beta1", [](auto &o) { o.beta1 = 1; }},
        {"beta2", [](auto &o) { o.beta2 = nan; }},
        {"epsilon", [](auto &o) { o.epsilon = -1; }},
        {"momentum", [](auto &o) { o.momentum = 1; }},
        {"weight_decay", [](auto &o) { o.weight_decay = -0.1f; }},
        {"decay_mode", [](auto &o) { o.decay_mode = 2; }},
        {"clip_value", [](auto &o) { o.clip_value = -1; }},
        {"clip_row_norm", [](auto &o) { o.clip_row_norm = nan; }},
        {"schedule", [](auto &o) { o.schedule = 4; }},
        {"warmup_samples", [](auto &o) { o.warmup_samples = -1; }},
        {"total_samples", [](auto &o) { o.total_samples = -1; }},
        {"step_samples", [](auto &o) { o.schedule = DSLIDE_SCHEDULE_STEP; }},
        {"step_factor", [](auto &o) { o.step_factor = 1.5f; }},
        {"final_rate", [](auto &o) { o.final_rate = 2; }},
        {"select", [](auto &o) { o.select = 6; }},
        {"active_share", [](auto &o) { o.active_share = 1.01f; }},
        {"active_share", [](auto &o) { o.active_share = nan; }},
        {"tables", [](auto &o) { o.tables = 256; }},
        {"bits", [](auto &o) { o.bits = 25; }},
        {"shared_negatives", [](auto &o) { o.shared_negatives = 201; }},
        {"random_fill", [](auto &o) { o.random_fill = -1; }},
        {"candidate_factor", [](auto &o) { o.candidate_factor = 0.5f; }},
        {"rebuild_first", [](auto &o) { o.rebuild_first = -1; }},
        {"rebuild_growth", [](auto &o) { o.rebuild_growth = 0.9f; }},
        {"rebuild_max", [](auto &o) { o.rebuild_max = -1; }},
        {"rebuild_first", [](auto &o) { o.rebuild_first = 21, o.rebuild_max = 20; }},
        {"candidate_factor", [](auto &o) { o.candidate_factor = 2e30f; }},
        {"frequency_power", [](auto &o) { o.frequency_power = nan; }},
    };
    std::string failing;
    const auto shape = resolved(shape_of(10, 200, {8}));
    for (const auto &[name, change] : cases) {
        dslide_trainer_options o{};
        o.struct_size = sizeof o;
        change(o);
        std::string text;
        if (status_of([&] { resolved(o, shape); }, &text) != DSLIDE_E_ARGUMENT || text.find(name) == std::string::npos)
            failing += std::string(name) + " ";
    }
    dslide_trainer_options o{};
    o.flags = 16;
    if (status_of([&] { resolved(o, shape); }) != DSLIDE_E_UNSUPPORTED) failing += "flags ";
    assert_string_equal(failing.c_str(), "");
}

namespace {

/// A saved trainer, with something in it changed before it is written. Status and text of loading it.
dslide_status load_changed(const std::function<void(Meta &, CheckpointContent &)> &change, std::string &text) {
    const Scratch scratch;
    const Rows rows(40, 30, 200);
    auto o = selecting(DSLIDE_SELECT_SIMHASH);
    o.shared_negatives = 5;
    Trainer trainer(make_model(shape_of(30, 200, {16})), o);
    trainer.step(rows.all());
    trainer.finish_label_counts();
    std::vector<Array<std::int32_t>> kept;
    CheckpointContent content = trainer.content(kept);
    Meta meta(content.meta);
    change(meta, content);
    content.meta = meta.json();
    write_checkpoint(scratch / "c", content);
    return status_of([&] { Loaded(scratch / "c"); }, &text);
}

TensorPart &tensor_of(CheckpointContent &content, const std::string &name) {
    return *std::find_if(content.tensors.begin(), content.tensors.end(), [&](auto &t) { return t.name == name; });
}

} // namespace

static void test_train__a_checkpoint_that_lies_is_a_fault_of_the_file(void **) {
    static const std::int32_t twice[] = {3, 7, 3};
    static const std::int32_t outside[] = {200};
    const auto set = [](const char *key, auto value) {
        return [=](Meta &meta, CheckpointContent &) {
            if constexpr (std::is_floating_point_v<decltype(value)>)
                meta.set_number(key, value);
            else
                meta.set_int(key, value);
        };
    };
    const auto head = [](const std::int32_t *rows, std::int64_t n) {
        return [=](Meta &, CheckpointContent &content) {
            TensorPart &t = tensor_of(content, "tables.head");
            t.cols = t.row_stride = n;
            t.data = rows;
        };
    };
    const struct {
        const char *name;
        std::function<void(Meta &, CheckpointContent &)> change;
    } cases[] = {
        {"trainer.optimizer", set("trainer.optimizer", 9)},
        {"learning_rate", set("trainer.learning_rate", -1.0)},
        {"rebuild_first", set("trainer.rebuild_first", 2000)},
        {"index_base", set("index_base", 7)},
        {"samples_seen", set("samples_seen", -1)},
        {"samples_seen", set("samples_seen", std::numeric_limits<std::int64_t>::max())},
        {"steps", set("steps", -1)},
        {"steps", set("steps", std::numeric_limits<std::int64_t>::max())},
        {"counter", set("first_sample", 1000)},
        {"epochs_done", set("epochs_done", -1)},
        {"rows_in_epoch", set("rows_in_epoch", std::numeric_limits<std::int64_t>::max())},
        {"epochs_since_best", set("epochs_since_best", std::numeric_limits<std::int64_t>::max())},
        {"tables.rebuilds", set("tables.rebuilds", std::numeric_limits<std::int64_t>::max())},
        {"tables.batches", set("tables.batches", std::numeric_limits<std::int64_t>::max())},
        {"label_count_samples", set("label_count_samples", std::numeric_limits<std::int64_t>::max())},
        {"label counts",
         [](Meta &, CheckpointContent &content) {
             static const std::vector<std::int64_t> counts(200, std::numeric_limits<std::int64_t>::max());
             tensor_of(content, "label.counts").data = counts.data();
         }},
        {"hash tables", set("tables.scale", 0.0)},
        {"twice", head(twice, 3)},
        {"tables.head", head(outside, 1)},
        {"label counts",
         [](Meta &, CheckpointContent &content) {
             std::erase_if(content.tensors, [](auto &t) { return t.name == "label.counts"; });
         }},
    };
    std::string failing, text;
    const dslide_status unchanged = load_changed([](Meta &, CheckpointContent &) {}, text);
    for (const auto &c : cases) {
        const dslide_status status = load_changed(c.change, text);
        if (status != DSLIDE_E_FORMAT ||
            (text.find(c.name) == std::string::npos && std::string(c.name) != "trainer.optimizer"))
            failing += std::string(c.name) + ": " + std::to_string(status) + " " + text + "; ";
    }
    assert_int_equal(unchanged, DSLIDE_OK);
    assert_string_equal(failing.c_str(), "");
}

// A stream is counted while it is trained on: in the first epoch, and only then.
static void test_train__a_stream_is_counted_once(void **) {
    std::vector<std::int64_t> counts;
    std::int64_t samples = 0, epochs = 0;
    {
        const std::string text = "0,2 0:1 3:1\n2 1:1\n1,2 2:1 3:0.5\n";
        dslide_dataset_options o{};
        o.struct_size = sizeof o;
        o.mode = DSLIDE_DATASET_STREAMING;
        o.n_features = 4;
        o.n_labels = 3;
        const auto arena = std::make_shared<Arena>(1);
        const auto data = open_text(arena, Input::memory(text.data(), text.size()), o);
        const auto model = make_model(shape_of(4, 3, {8}));
        Trainer trainer(model, selecting(DSLIDE_SELECT_ALL));
        RunOptions options;
        options.epochs = 3;
        options.batch_size = 2;
        dslide_epoch_report last{};
        run(trainer, *data, options, last);
        counts = model->label_frequencies().counts;
        samples = model->label_frequencies().samples;
        epochs = last.epoch;
    }
    assert_int_equal(epochs, 3);
    assert_int_equal(samples, 3);
    assert_true((counts == std::vector<std::int64_t>{1, 1, 3}));
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_train__bits_do_not_depend_on_threads),
        cmocka_unit_test(test_train__resume_equals_going_on),
        cmocka_unit_test(test_train__run_taken_up_within_an_epoch),
        cmocka_unit_test(test_train__weight_two_is_twice_and_weight_zero_is_absent),
        cmocka_unit_test(test_train__weight_zero_is_absent_when_rows_are_sampled),
        cmocka_unit_test(test_train__nothing_to_learn_changes_nothing),
        cmocka_unit_test(test_train__edge_shapes_learn),
        cmocka_unit_test(test_train__extreme_choices_of_rows_and_tables),
        cmocka_unit_test(test_train__hard_rows_start_when_told),
        cmocka_unit_test(test_train__bf16_scores_stay_near_fp32),
        cmocka_unit_test(test_train__sampling_all_rows_is_the_dense_network),
        cmocka_unit_test(test_train__dense_updates_of_all_rows_equal_the_dense_network),
        cmocka_unit_test(test_train__lazy_updates_leave_untouched_rows_alone),
        cmocka_unit_test(test_train__divergence_is_told_and_leaves_no_trace),
        cmocka_unit_test(test_train__a_step_whose_loss_is_infinite_leaves_no_trace),
        cmocka_unit_test(test_train__a_checkpoint_that_lies_is_a_fault_of_the_file),
        cmocka_unit_test(test_train__a_stream_is_counted_once),
        cmocka_unit_test(test_train__too_high_a_rate_ends_as_divergence),
        cmocka_unit_test(test_train__schedule_begins_with_the_trainer),
        cmocka_unit_test(test_train__one_trainer_a_model),
        cmocka_unit_test(test_train__run_reports_what_it_did),
        cmocka_unit_test(test_train__run_stops_early_without_a_better_epoch),
        cmocka_unit_test(test_train__run_stopped_between_epochs_goes_on),
        cmocka_unit_test(test_train__run_stopped_by_progress_within_an_epoch_goes_on),
        cmocka_unit_test(test_train__checkpoints_of_a_run),
        cmocka_unit_test(test_train__run_refuses_data_that_do_not_fit),
        cmocka_unit_test(test_train__options_resolve_once),
        cmocka_unit_test(test_train__options_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
