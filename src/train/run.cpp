// SPDX-License-Identifier: Apache-2.0
#include "train/run.hpp"

#include "core/clock.hpp"
#include "core/error.hpp"
#include "model/checkpoint_ranks.hpp"
#include "predict/evaluate.hpp"

#include <algorithm>
#include <cstdio>
#include <sys/resource.h>

namespace dslide {
namespace {

constexpr double seconds_between_reports = 0.1;
constexpr double seconds_of_rate = 2; ///< samples_per_second looks back about so far

std::int64_t peak_rss_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

std::string numbered(const char *kind, int digits, std::int64_t number) {
    char name[64];
    std::snprintf(name, sizeof name, "%s-%0*lld", kind, digits, static_cast<long long>(number));
    return name;
}

class Run {
public:
    Run(Trainer &trainer, Dataset &data, const RunOptions &options)
        : trainer_(trainer), data_(data), options_(options), store_(options.save_dir) {}

    bool go(dslide_epoch_report &last);

private:
    void start();
    void count_labels();
    bool train_epoch(dslide_epoch_report &report);
    void judge(dslide_epoch_report &report);
    void compare_ranks(dslide_epoch_report &report, std::int64_t steps, std::int64_t rows);
    bool is_report_due() const { return since_report_.seconds() >= seconds_between_reports; }
    bool progress(const dslide_epoch_report &report);
    void save(const std::string &name, bool is_best);
    Exchange &exchange() { return trainer_.model().cluster().exchange(); }

    Trainer &trainer_;
    Dataset &data_;
    const RunOptions &options_;
    CheckpointStore store_;
    std::int64_t rows_ = -1;
    double last_precision_ = -1;
    Stopwatch since_report_;
    double rate_seconds_ = 0, rate_samples_ = 0, rate_ = 0; ///< of the window that samples_per_second is taken over
};

void Run::start() {
    if (!options_.save_dir.empty()) store_.prepare();
    rows_ = data_.info().n_rows;
    if (rows_ == 0) fail(DSLIDE_E_FORMAT, "the training set has no row");
    const dslide_dataset_info info = data_.info();
    if (info.n_features > trainer_.model().n_inputs())
        fail(DSLIDE_E_ARGUMENT, "the rows have ", info.n_features, " features, the model takes ",
             trainer_.model().n_inputs());
    if (info.n_labels > trainer_.model().n_outputs())
        fail(DSLIDE_E_ARGUMENT, "the rows have ", info.n_labels, " labels, the model has ",
             trainer_.model().n_outputs(), " outputs");
    const dslide_trainer_options &o = trainer_.options();
    if ((o.schedule == DSLIDE_SCHEDULE_LINEAR || o.schedule == DSLIDE_SCHEDULE_COSINE) && o.total_samples == 0) {
        if (rows_ < 0)
            fail(DSLIDE_E_ARGUMENT, "total_samples must be set: the number of rows of a stream is not known");
        trainer_.set_total_samples(rows_ * options_.epochs);
    }
    // A stream is counted as it goes by, in its first epoch.
    if (rows_ >= 0 && !trainer_.knows_label_counts()) count_labels();
}

void Run::count_labels() {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(trainer_.model().n_outputs()));
    std::int64_t samples = 0;
    data_.rewind(0, true);
    for (;;) {
        const Batch batch = data_.next(4096);
        if (batch.size() == 0) break;
        const CsrRows &labels = batch.labels;
        for (std::int64_t e = labels.row_ptr[0]; e < labels.row_ptr[labels.n_rows]; ++e)
            ++counts[static_cast<std::size_t>(labels.col[e])];
        samples += batch.size();
    }
    trainer_.set_label_counts(std::move(counts), samples);
}

bool Run::go(dslide_epoch_report &last) {
    exchange().local([&] { start(); });
    RunPosition &position = trainer_.position();
    bool stop = trainer_.agree(Call::trainer_run, {}, {}).stop;
    while (!stop && position.epochs_done < options_.epochs) {
        if (options_.early_stop > 0 && position.epochs_since_best >= options_.early_stop) break;
        dslide_epoch_report report{};
        report.struct_size = sizeof report;
        report.metrics.struct_size = sizeof report.metrics;
        report.epoch = static_cast<std::int32_t>(position.epochs_done + 1);
        stop = train_epoch(report);
        const bool cut_off = position.rows_in_epoch > 0;
        if (cut_off) { // stopped in its middle
            if (!options_.save_dir.empty()) save(numbered("step", 9, trainer_.steps()), false);
            break;
        }
        ++position.epochs_done;
        trainer_.finish_label_counts();
        if (options_.eval_data)
            judge(report);
        else
            report.is_best = 1;
        report.peak_rss_bytes = peak_rss_bytes();
        if (!options_.save_dir.empty()) {
            const Stopwatch watch;
            save(numbered("epoch", 6, position.epochs_done), report.is_best != 0);
            report.save_seconds += watch.seconds();
        }
        last = report;
        stop |= options_.on_epoch && options_.on_epoch(options_.user_data, &report) != 0;
        stop = trainer_.agree(Call::trainer_run, {}, {stop, false}).stop;
    }
    return stop;
}

void Run::judge(dslide_epoch_report &report) {
    RunPosition &position = trainer_.position();
    report.metrics = evaluate(trainer_.model(), *options_.eval_data, options_.eval);
    report.eval_seconds = report.metrics.seconds;
    report.has_metrics = 1;
    // The best is chosen by the first cut-off, 1 by default.
    last_precision_ = report.metrics.precision[0];
    report.is_best = last_precision_ > position.best_precision;
    position.epochs_since_best = report.is_best ? 0 : position.epochs_since_best + 1;
    if (report.is_best) position.best_precision = last_precision_;
}

// Returns whether a callback of any rank asked to stop; position.rows_in_epoch is 0 if the epoch was finished all the
// same.
bool Run::train_epoch(dslide_epoch_report &report) {
    RunPosition &position = trainer_.position();
    exchange().local([&] {
        data_.rewind(position.epochs_done);
        if (position.rows_in_epoch > 0) data_.skip(position.rows_in_epoch);
    });
    double loss_sum = 0, active_sum = 0, rows_sum = 0;
    std::int64_t steps = 0;
    const std::int64_t rows_before = trainer_.own_rows_touched();
    bool stop = false;
    for (;;) {
        Stopwatch watch;
        Batch batch;
        if (!stop) exchange().local([&] { batch = data_.next(options_.batch_size); });
        report.read_seconds += watch.lap();
        const RunWishes wishes = trainer_.agree(Call::trainer_run, batch, {stop, is_report_due()});
        stop = wishes.stop;
        const bool all_rows_done = rows_ >= 0 && position.rows_in_epoch >= rows_;
        if (stop && !all_rows_done) return true;
        if (batch.size() == 0) break;
        const double cpu_before = process_cpu_seconds();
        const std::int64_t steps_before = trainer_.steps();
        const double waited = exchange().total_traffic().wait_seconds;
        const dslide_step_stats stats = trainer_.agreed_step(batch);
        report.wait_seconds += exchange().total_traffic().wait_seconds - waited;
        report.cpu_seconds += process_cpu_seconds() - cpu_before;
        report.seconds += watch.lap();
        ++steps;
        position.rows_in_epoch += batch.size();
        report.samples += batch.size();
        loss_sum += stats.loss * static_cast<double>(batch.size());
        active_sum += stats.active_share * static_cast<double>(batch.size());
        rows_sum += static_cast<double>(stats.rows_touched);
        report.rebuild_seconds += stats.seconds_rebuild;
        report.bytes_sent += stats.bytes_sent;
        report.learning_rate = stats.learning_rate;
        const auto samples = static_cast<double>(report.samples);
        report.loss = loss_sum / samples;
        report.active_share = active_sum / samples;
        report.rows_touched = rows_sum / static_cast<double>(steps);
        report.step = stats.step;
        if (options_.save_every > 0 && !options_.save_dir.empty() && stats.step > steps_before &&
            stats.step % options_.save_every == 0) {
            save(numbered("step", 9, stats.step), false);
            report.save_seconds += watch.lap();
        }
        if (exchange().alone() ? is_report_due() : wishes.report) {
            since_report_.lap();
            stop = options_.on_progress && progress(report);
        }
    }
    compare_ranks(report, steps, trainer_.own_rows_touched() - rows_before);
    position.rows_in_epoch = 0;
    return stop;
}

// Sums over ranks, and how evenly the work fell to them.
void Run::compare_ranks(dslide_epoch_report &report, std::int64_t steps, std::int64_t rows) {
    struct Share {
        std::int64_t bytes_sent, rows;
        double seconds, wait_seconds;
    };
    const std::vector<Share> all =
        exchange().agree(Call::trainer_run, Share{report.bytes_sent, rows, report.seconds, report.wait_seconds});
    const auto ranks = static_cast<double>(all.size());
    double busiest = 0, computing = 0, most_rows = 0, all_rows = 0;
    for (const Share &share : all) {
        report.bytes_sent_all += share.bytes_sent;
        report.wait_seconds_all += share.wait_seconds;
        busiest = std::max(busiest, share.seconds - share.wait_seconds);
        computing += share.seconds - share.wait_seconds;
        most_rows = std::max(most_rows, static_cast<double>(share.rows));
        all_rows += static_cast<double>(share.rows);
    }
    report.imbalance_seconds = computing > 0 ? busiest * ranks / computing : 1;
    report.imbalance_rows = all_rows > 0 ? most_rows * ranks / all_rows : 1;
    const double bytes_a_step = 2 * (ranks - 1) / ranks * 4 * static_cast<double>(trainer_.model().n_parameters());
    report.bytes_dense_allreduce = static_cast<std::int64_t>(bytes_a_step * static_cast<double>(steps));
}

bool Run::progress(const dslide_epoch_report &report) {
    dslide_progress p{};
    p.struct_size = sizeof p;
    p.epoch = report.epoch;
    p.epochs = options_.epochs;
    p.step = report.step;
    p.samples_in_epoch = trainer_.position().rows_in_epoch;
    p.samples_of_epoch = rows_;
    p.loss = report.loss;
    p.active_share = report.active_share;
    p.rows_touched = report.rows_touched;
    p.seconds = report.seconds;
    if (report.seconds < rate_seconds_) rate_seconds_ = rate_samples_ = 0; // another epoch
    if (rate_ == 0 || report.seconds - rate_seconds_ >= seconds_of_rate) {
        rate_ = (static_cast<double>(report.samples) - rate_samples_) / (report.seconds - rate_seconds_);
        rate_seconds_ = report.seconds;
        rate_samples_ = static_cast<double>(report.samples);
    }
    p.samples_per_second = rate_;
    p.seconds_left = -1;
    if (rows_ >= 0) {
        const auto done =
            static_cast<double>(trainer_.position().epochs_done * rows_ + trainer_.position().rows_in_epoch);
        p.seconds_left = (static_cast<double>(rows_) * options_.epochs - done) / rate_;
    }
    p.last_precision_at_1 = last_precision_;
    return options_.on_progress(options_.user_data, &p) != 0;
}

void Run::save(const std::string &name, bool is_best) {
    std::vector<Array<std::int32_t>> scratch;
    CheckpointContent content;
    exchange().local([&] { content = trainer_.content(scratch); });
    dslide::save(exchange(), store_, name, content, is_best);
}

} // namespace

bool run(Trainer &trainer, Dataset &data, const RunOptions &options, dslide_epoch_report &last) {
    return Run(trainer, data, options).go(last);
}

} // namespace dslide
