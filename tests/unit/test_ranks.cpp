// SPDX-License-Identifier: Apache-2.0
// Training, prediction and evaluation on several ranks against one.
#include "cmocka.hpp"
#undef skip // a macro; Dataset has a member of this name

#include "rank_cases.hpp"
#include "rank_threads.hpp"

#include "core/random.hpp"
#include "data/open.hpp"
#include "model/checkpoint_ranks.hpp"
#include "predict/evaluate.hpp"
#include "train/run.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <unistd.h>

using namespace dslide;

namespace {

/// What training on `ranks` ranks gives, as rank `from` sees it.
Result train(int ranks, const dslide_model_options &shape, const dslide_trainer_options &options, int steps = 100,
             int from = 0, const Cluster::Settings &settings = {}) {
    Result result;
    const auto outcomes = on_ranks(
        ranks,
        [&](const std::shared_ptr<Cluster> &cluster) {
            Result mine = train_on(cluster, shape, options, steps);
            if (cluster->rank() == from) result = std::move(mine);
        },
        settings);
    for (const RankOutcome &outcome : outcomes)
        if (outcome.status != DSLIDE_OK) fail(outcome.status, outcome.text);
    return result;
}

} // namespace

static void test_ranks__forced_active_sets_give_the_weights_of_one_rank(void **) {
    std::string failing;
    {
        for (int kind = 0; kind < 4; ++kind)
            for (const auto &hidden : {std::vector<std::int32_t>{32}, std::vector<std::int32_t>{40, 24}}) {
                const Result start = train(1, shape_of(hidden), forced(kind), 0);
                const Result one = train(1, shape_of(hidden), forced(kind));
                for (const int ranks : {2, 3, 4, 7, 8}) {
                    const Result many = train(ranks, shape_of(hidden), forced(kind), 100, ranks - 1);
                    const double far = difference(one, many, start);
                    if (!(far < 2e-5) || one.rows_touched != many.rows_touched ||
                        std::abs(one.active_share - many.active_share) > 1e-9 || one.top != many.top)
                        failing += "kind " + std::to_string(kind) + ", " + std::to_string(ranks) +
                                   " ranks: " + std::to_string(far) + ", rows " + std::to_string(one.rows_touched) +
                                   " " + std::to_string(many.rows_touched) + "; ";
                }
            }
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_ranks__start_weights_are_those_of_one_rank(void **) {
    std::string failing;
    {
        const Result one = train(1, shape_of({40, 24}), forced(0), 0);
        for (const int ranks : {2, 3, 5, 8, 16, 50})
            if (train(ranks, shape_of({40, 24}), forced(0), 0).weights != one.weights)
                failing += std::to_string(ranks) + " ";
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_ranks__more_ranks_than_classes_or_neurons_are_fine(void **) {
    std::string failing;
    {
        for (const std::int64_t classes : {1, 2, 3, 5}) {
            const Result start = train(1, shape_of({4}, classes), forced(0), 0);
            const Result one = train(1, shape_of({4}, classes), forced(0), 20);
            const Result many = train(7, shape_of({4}, classes), forced(0), 20);
            if (classes > 1 && !(difference(one, many, start) < 2e-5)) failing += std::to_string(classes) + " ";
            if (one.top != many.top) failing += "top " + std::to_string(classes) + " ";
        }
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_ranks__tables_train_as_well_on_any_number_of_ranks(void **) {
    std::string failing;
    {
        dslide_trainer_options o{};
        o.struct_size = sizeof o;
        o.select = DSLIDE_SELECT_SIMHASH;
        o.active_share = 0.2f;
        o.tables = 12;
        o.bits = 4;
        o.rebuild_first = 5;
        o.learning_rate = 0.01f;
        const Result one = train(1, shape_of({32}), o, 200);
        for (const int ranks : {2, 4}) {
            const Result many = train(ranks, shape_of({32}), o, 200);
            if (!(many.losses.back() < 0.5 * many.losses.front()) || !(many.losses.back() < 1.5 * one.losses.back()))
                failing += std::to_string(ranks) + " ranks: " + std::to_string(many.losses.back()) + " against " +
                           std::to_string(one.losses.back()) + "; ";
            if (std::abs(many.active_share - one.active_share) > 0.1 * one.active_share)
                failing += "share " + std::to_string(many.active_share / 200) + " against " +
                           std::to_string(one.active_share / 200) + "; ";
        }
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_ranks__bfloat16_payload_stays_near(void **) {
    double far = 0;
    {
        Cluster::Settings settings;
        settings.bf16_payload = true;
        const Result start = train(1, shape_of({32}), forced(0), 0), one = train(1, shape_of({32}), forced(0), 30);
        far = difference(one, train(3, shape_of({32}), forced(0), 30, 0, settings), start);
    }
    assert_true(far > 1e-6); // it was used
    assert_true(far < 0.05);
}

static void test_ranks__different_batches_are_an_error_on_every_rank(void **) {
    std::string failing;
    {
        const Rows rows(7), others(8);
        const std::vector<float> ones(n_samples, 1.0f), twos(n_samples, 2.0f);
        // The same columns, but for one that belongs to the row after.
        std::vector<std::int64_t> other_ptr = rows.feature_ptr;
        --other_ptr[5];
        const struct {
            const char *name;
            std::function<void(Batch &, Trainer &)> change;
        } cases[] = {
            {"31 rows", [&](Batch &batch, Trainer &) { batch = rows.batch(0, 31); }},
            {"other labels", [&](Batch &batch, Trainer &) { batch.labels = others.batch(0, 32).labels; }},
            {"other features", [&](Batch &batch, Trainer &) { batch.features.row_ptr = other_ptr.data(); }},
            {"other features", [&](Batch &batch, Trainer &) { batch.features.val = nullptr; }},
            {"weights", [&](Batch &batch, Trainer &) { batch.weights = twos.data(); }},
            {"weights", [&](Batch &batch, Trainer &) { batch.weights = nullptr; }},
            {"learning rate", [&](Batch &, Trainer &trainer) { trainer.set_learning_rate(0.5f); }},
        };
        for (const auto &c : cases) {
            const auto outcomes = on_ranks(3, [&](const std::shared_ptr<Cluster> &cluster) {
                Trainer trainer(std::make_shared<Model>(cluster, shape_of({8})), forced(0));
                Batch batch = rows.batch(0, 32);
                batch.weights = ones.data();
                if (cluster->rank() == 1) c.change(batch, trainer);
                trainer.step(batch);
            });
            for (const RankOutcome &o : outcomes)
                if (o.status != DSLIDE_E_ARGUMENT || o.text.find("same") == std::string::npos)
                    failing += std::string(c.name) + ": " + o.text + "; ";
        }
    }
    assert_string_equal(failing.c_str(), "");
}

namespace {

/// A data set that fails in its n-th call of next().
class Failing : public Dataset {
public:
    Failing(std::unique_ptr<Dataset> rows, int calls) : rows_(std::move(rows)), calls_(calls) {}
    dslide_dataset_info info() const override { return rows_->info(); }
    void rewind(std::int64_t epoch, bool in_file_order) override { rows_->rewind(epoch, in_file_order); }
    void skip(std::int64_t rows) override { rows_->skip(rows); }
    Batch next(std::int64_t most) override {
        if (calls_-- == 0) fail(DSLIDE_E_FORMAT, "train.txt:7:1: expected a number");
        return rows_->next(most);
    }

private:
    std::unique_ptr<Dataset> rows_;
    int calls_;
};

std::unique_ptr<Dataset> dataset_of(const Rows &rows) {
    dslide_dataset_options o{};
    o.struct_size = sizeof o;
    o.shuffle = 1;
    const Batch all = rows.batch(0, n_samples);
    return dataset_of_rows(all.features, all.labels, nullptr, o);
}

struct RunResult {
    std::vector<dslide_epoch_report> reports;
    bool stopped = false;
    std::int64_t steps = 0;
};

/// Three epochs with evaluation. Rank `stopper` asks to stop after the second.
RunResult run_on(int ranks, int stopper = -1) {
    RunResult result;
    const Rows rows(7), judged(8);
    struct Host {
        RunResult mine;
        bool stops = false;
    };
    const auto outcomes = on_ranks(ranks, [&](const std::shared_ptr<Cluster> &cluster) {
        Trainer trainer(std::make_shared<Model>(cluster, shape_of({32})), forced(2));
        const auto data = dataset_of(rows), eval = dataset_of(judged);
        Host host;
        host.stops = cluster->rank() == stopper;
        RunOptions options;
        options.epochs = 3;
        options.batch_size = 20;
        options.eval_data = eval.get();
        options.eval = resolved(dslide_eval_options{});
        options.user_data = &host;
        options.on_epoch = [](void *user, const dslide_epoch_report *report) -> std::int32_t {
            auto *h = static_cast<Host *>(user);
            h->mine.reports.push_back(*report);
            return h->stops && report->epoch == 2;
        };
        dslide_epoch_report last{};
        host.mine.stopped = run(trainer, *data, options, last);
        host.mine.steps = trainer.steps();
        if (cluster->rank() == ranks - 1) result = host.mine;
    });
    for (const RankOutcome &outcome : outcomes)
        if (outcome.status != DSLIDE_OK) fail(outcome.status, outcome.text);
    return result;
}

} // namespace

static void test_ranks__a_run_gives_the_reports_of_one_rank(void **) {
    std::string failing;
    {
        const RunResult one = run_on(1);
        for (const int ranks : {2, 3, 8}) {
            const RunResult many = run_on(ranks);
            if (many.reports.size() != 3 || one.reports.size() != 3) {
                failing += "epochs ";
                continue;
            }
            for (std::size_t e = 0; e < 3; ++e) {
                const dslide_epoch_report &a = one.reports[e], &b = many.reports[e];
                if (a.step != b.step || a.samples != b.samples || a.is_best != b.is_best ||
                    std::abs(a.loss - b.loss) > 1e-4 * a.loss || a.rows_touched != b.rows_touched ||
                    std::abs(a.metrics.precision[0] - b.metrics.precision[0]) > 1e-9 ||
                    std::abs(a.metrics.ndcg[2] - b.metrics.ndcg[2]) > 1e-9)
                    failing += std::to_string(ranks) + " ranks, epoch " + std::to_string(e + 1) + ": loss " +
                               std::to_string(a.loss) + " " + std::to_string(b.loss) + "; ";
            }
        }
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_ranks__one_rank_stops_all(void **) {
    bool stopped = false, others_stopped = false;
    std::size_t epochs = 0;
    {
        const RunResult many = run_on(3, 0); // seen from rank 2
        stopped = run_on(1, 0).stopped;
        others_stopped = many.stopped;
        epochs = many.reports.size();
    }
    assert_true(stopped);
    assert_true(others_stopped);
    assert_int_equal(epochs, 2);
}

// Callbacks may predict and save, which takes all ranks: so all report after the same steps.
static void test_ranks__progress_is_reported_by_all_at_once(void **) {
    std::string failing;
    std::vector<std::vector<std::int64_t>> steps(3);
    {
        const Rows rows(7);
        struct Host {
            Trainer &trainer;
            const Rows &rows;
            std::vector<std::int64_t> &steps;
        };
        const auto outcomes = on_ranks(3, [&](const std::shared_ptr<Cluster> &cluster) {
            const int rank = cluster->rank();
            Trainer trainer(std::make_shared<Model>(cluster, shape_of({8})), forced(0));
            const auto data = dataset_of(rows);
            std::this_thread::sleep_for(std::chrono::milliseconds(30 * rank)); // clocks that are not alike
            Host host{trainer, rows, steps[static_cast<std::size_t>(rank)]};
            RunOptions options;
            options.epochs = 1000000;
            options.batch_size = 1;
            options.user_data = &host;
            options.on_progress = [](void *user, const dslide_progress *progress) -> std::int32_t {
                auto *h = static_cast<Host *>(user);
                h->steps.push_back(progress->step);
                std::vector<std::int32_t> top(4);
                h->trainer.model().predict(h->rows.batch(0, 4).features, 1, top.data(), nullptr);
                return h->steps.size() == 5;
            };
            dslide_epoch_report last{};
            run(trainer, *data, options, last);
        });
        for (const RankOutcome &o : outcomes)
            if (o.status != DSLIDE_OK) failing += o.text + "; ";
    }
    assert_string_equal(failing.c_str(), "");
    assert_int_equal(steps[0].size(), 5);
    assert_true(steps[1] == steps[0]);
    assert_true(steps[2] == steps[0]);
}

static void test_ranks__a_reader_that_fails_on_one_rank_ends_the_run_on_all(void **) {
    std::string failing;
    {
        const Rows rows(7);
        for (int bad = 0; bad < 3; ++bad)
            for (const int calls : {0, 3}) {
                const auto outcomes = on_ranks(3, [&](const std::shared_ptr<Cluster> &cluster) {
                    Trainer trainer(std::make_shared<Model>(cluster, shape_of({8})), forced(0));
                    auto data = dataset_of(rows);
                    // Label counts are asked for first; let them come from elsewhere.
                    trainer.set_label_counts(std::vector<std::int64_t>(n_classes, 1), 1);
                    if (cluster->rank() == bad) data = std::make_unique<Failing>(std::move(data), calls);
                    RunOptions options;
                    options.batch_size = 20;
                    dslide_epoch_report last{};
                    run(trainer, *data, options, last);
                });
                for (int r = 0; r < 3; ++r) {
                    const RankOutcome &o = outcomes[static_cast<std::size_t>(r)];
                    if (o.status != (r == bad ? DSLIDE_E_FORMAT : DSLIDE_E_PEER) ||
                        o.text.find("train.txt:7:1") == std::string::npos)
                        failing += std::to_string(o.status) + " " + o.text + "; ";
                }
            }
    }
    assert_string_equal(failing.c_str(), "");
}

namespace {

/// A directory of its own, removed at the end.
class Scratch {
public:
    Scratch() : path_((std::filesystem::temp_directory_path() / "dslide-ranks-XXXXXX").string()) {
        mkdtemp(path_.data());
    }
    ~Scratch() { std::filesystem::remove_all(path_); }
    std::string operator/(const std::string &name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

dslide_trainer_options saved_options(bool tables, std::int64_t classes = n_classes) {
    dslide_trainer_options o = forced(2);
    if (classes < 30) o.shared_negatives = 2, o.random_fill = 1, o.active_share = 0.5f;
    o.optimizer = DSLIDE_ADAM;
    o.learning_rate = 0.01f;
    o.weight_decay = 0.001f;
    if (tables) {
        o.select = DSLIDE_SELECT_SIMHASH;
        o.hard_from = 0;
        o.tables = 8;
        o.bits = 4;
        o.rebuild_first = 4;
    }
    return o;
}

void save_trainer(Exchange &exchange, const Trainer &trainer, const std::string &dir) {
    std::vector<Array<std::int32_t>> scratch;
    CheckpointContent content;
    exchange.local([&] { content = trainer.content(scratch); });
    write_checkpoint(exchange, dir, content);
}

/// Weights, and losses of 20 more steps.
struct Continued {
    std::vector<float> weights;
    std::vector<double> losses;
};

Continued go_on(const std::shared_ptr<Model> &model, Trainer &trainer, const Rows &rows, int from) {
    Continued c;
    for (const char *name :
         {"input.weight", "input.bias", "hidden.1.weight", "hidden.1.bias", "output.weight", "output.bias"}) {
        const TensorPart t = model->tensor(name);
        const std::size_t before = c.weights.size();
        c.weights.resize(before + static_cast<std::size_t>(t.rows * t.cols));
        model->get_rows(name, 0, t.rows, c.weights.data() + before);
    }
    for (int s = from; s < from + 20; ++s)
        c.losses.push_back(trainer.step(rows.batch(s % 3 * 32, 32, model->n_outputs())).loss);
    return c;
}

} // namespace

static void test_ranks__a_checkpoint_of_any_number_of_ranks_loads_on_any_other(void **) {
    std::string failing;
    {
        const Scratch scratch;
        for (const std::int64_t classes : {std::int64_t{3}, n_classes}) {
            const Rows rows(7, classes);
            const auto shape = shape_of({40, 24}, classes);
            for (const bool tables : {false, true})
                for (const int savers : {1, 2, 3, 7}) {
                    const std::string dir =
                        scratch / (std::to_string(classes) + "-" + std::to_string(savers) + (tables ? "t" : ""));
                    Continued saved;
                    const auto saving = on_ranks(savers, [&](const std::shared_ptr<Cluster> &cluster) {
                        const auto model = std::make_shared<Model>(cluster, shape);
                        Trainer trainer(model, saved_options(tables, classes));
                        for (int s = 0; s < 10; ++s) trainer.step(rows.batch(s % 3 * 32, 32, classes));
                        save_trainer(cluster->exchange(), trainer, dir);
                        const Continued mine = go_on(model, trainer, rows, 10);
                        if (cluster->rank() == 0) saved = mine;
                    });
                    for (const RankOutcome &o : saving)
                        if (o.status != DSLIDE_OK) failing += "saving: " + o.text + "; ";
                    if (!failing.empty()) continue;
                    CheckpointReader(dir).verify();
                    for (const int loaders : {1, 2, 4, 7}) {
                        const auto loading = on_ranks(loaders, [&](const std::shared_ptr<Cluster> &cluster) {
                            const CheckpointReader reader(dir);
                            const auto model = std::make_shared<Model>(cluster, reader);
                            Trainer trainer(model, reader);
                            const Continued mine = go_on(model, trainer, rows, 10);
                            const std::string what = std::to_string(savers) + " to " + std::to_string(loaders) +
                                                     (tables ? " with tables" : "") + ": ";
                            if (mine.weights != saved.weights) fail(DSLIDE_E_INTERNAL, what, "weights");
                            for (std::size_t s = 0; s < 20; ++s) {
                                const bool exact = savers == 1 && loaders == 1;
                                // The rows that tables give depend a little on where the ranks' shares are cut.
                                const double bound = exact ? 0 : (tables ? 0.2 : 2e-5) * saved.losses[s];
                                if (std::abs(mine.losses[s] - saved.losses[s]) > bound)
                                    fail(DSLIDE_E_INTERNAL, what, "loss ", s, ": ", mine.losses[s], " ",
                                         saved.losses[s]);
                            }
                        });
                        for (const RankOutcome &o : loading)
                            if (o.status != DSLIDE_OK && failing.size() < 1000) failing += o.text + "; ";
                    }
                }
        }
    }
    assert_string_equal(failing.c_str(), "");
}

static void test_ranks__a_failed_save_leaves_the_older_checkpoint(void **) {
    std::string failing;
    {
        const Scratch scratch;
        const std::string dir = scratch / "c";
        const Rows rows(7);
        for (int bad = 0; bad < 3; ++bad) {
            std::vector<float> kept;
            const auto outcomes = on_ranks(3, [&](const std::shared_ptr<Cluster> &cluster) {
                Exchange &exchange = cluster->exchange();
                const auto model = std::make_shared<Model>(cluster, shape_of({16}));
                Trainer trainer(model, saved_options(false));
                trainer.step(rows.batch(0, 32));
                save_trainer(exchange, trainer, dir);
                trainer.step(rows.batch(32, 32));
                FileCalls calls = system_calls(); // this rank's disk is full from now on
                if (cluster->rank() == bad) {
                    calls.write = [](int, const void *, std::size_t) -> ssize_t {
                        errno = ENOSPC;
                        return -1;
                    };
                }
                SaveOptions options;
                options.calls = &calls;
                std::vector<Array<std::int32_t>> held;
                std::string text;
                try {
                    write_checkpoint(exchange, dir, trainer.content(held), options);
                } catch (const Error &e) {
                    text = e.what();
                }
                if (text.find("No space left") == std::string::npos) fail(DSLIDE_E_INTERNAL, "no error: ", text);
                const Model loaded(cluster, CheckpointReader(dir));
                if (loaded.samples_seen != 32) fail(DSLIDE_E_INTERNAL, "another checkpoint");
            });
            for (const RankOutcome &o : outcomes)
                if (o.status != DSLIDE_OK) failing += std::to_string(bad) + ": " + o.text + "; ";
            std::int64_t entries = 0;
            for (const auto &entry : std::filesystem::directory_iterator(scratch / ".")) entries += entry.exists();
            if (entries != 1) failing += "leftovers; ";
        }
    }
    assert_string_equal(failing.c_str(), "");
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks__forced_active_sets_give_the_weights_of_one_rank),
        cmocka_unit_test(test_ranks__start_weights_are_those_of_one_rank),
        cmocka_unit_test(test_ranks__more_ranks_than_classes_or_neurons_are_fine),
        cmocka_unit_test(test_ranks__tables_train_as_well_on_any_number_of_ranks),
        cmocka_unit_test(test_ranks__bfloat16_payload_stays_near),
        cmocka_unit_test(test_ranks__different_batches_are_an_error_on_every_rank),
        cmocka_unit_test(test_ranks__a_run_gives_the_reports_of_one_rank),
        cmocka_unit_test(test_ranks__one_rank_stops_all),
        cmocka_unit_test(test_ranks__progress_is_reported_by_all_at_once),
        cmocka_unit_test(test_ranks__a_checkpoint_of_any_number_of_ranks_loads_on_any_other),
        cmocka_unit_test(test_ranks__a_failed_save_leaves_the_older_checkpoint),
        cmocka_unit_test(test_ranks__a_reader_that_fails_on_one_rank_ends_the_run_on_all),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
