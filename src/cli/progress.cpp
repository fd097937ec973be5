// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.hpp"

#include "cli/format.hpp"

#include <algorithm>
#include <sys/ioctl.h>
#include <unistd.h>

namespace dslide::cli {

namespace {

constexpr const char *clear_line = "\r\033[K";

std::size_t terminal_width() {
    constexpr std::size_t usual_width = 80;
    winsize size = {};
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : usual_width;
}

std::string bar(double share, std::size_t width) {
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(width));
    return "[" + std::string(filled, '#') + std::string(width - filled, '.') + "]";
}

/// The numbers beside the bar; `narrow` leaves out what a reader can do without.
std::string numbers_text(const dslide_progress &progress, bool narrow) {
    std::string text = line_text(narrow ? " %.0f/s" : "  %.0f samples/s", progress.samples_per_second);
    const std::string gap = narrow ? " " : "  ";
    text += gap + "loss " + loss_text(progress.loss);
    if (progress.last_precision_at_1 >= 0)
        text += gap + "P@1 " + decimals(progress.last_precision_at_1, narrow ? 3 : 4);
    text += gap + "active " + significant(100.0 * progress.active_share, 3) + "%";
    if (progress.seconds_left >= 0) text += gap + "left " + duration_text(progress.seconds_left);
    return text;
}

std::string bar_line(const dslide_progress &progress, std::size_t width) {
    constexpr std::size_t widest_bar = 30, frame = 2;
    std::string line = line_text("epoch %d/%d ", progress.epoch, progress.epochs);
    if (progress.samples_of_epoch <= 0)
        return line + with_commas(progress.samples_in_epoch) + " samples" + numbers_text(progress, true);
    const double share = std::clamp(
        static_cast<double>(progress.samples_in_epoch) / static_cast<double>(progress.samples_of_epoch), 0.0, 1.0);
    const std::string percent = line_text(" %3.0f%%", 100.0 * share);
    const auto room_beside = [&](const std::string &numbers) {
        const std::size_t taken = line.size() + percent.size() + numbers.size() + frame;
        return taken < width ? std::min(width - taken, widest_bar) : 0;
    };
    constexpr std::size_t smallest_bar = 5;
    std::string numbers = numbers_text(progress, false);
    if (room_beside(numbers) < smallest_bar) numbers = numbers_text(progress, true);
    const std::size_t room = room_beside(numbers);
    return line + (room >= smallest_bar ? bar(share, room) : "") + percent + numbers;
}

std::string metrics_text(const dslide_metrics &metrics) {
    std::string text;
    for (std::int32_t i = 0; i < metrics.n_cutoffs; ++i)
        text += line_text("  P@%d %.4f", metrics.k[i], metrics.precision[i]);
    return text;
}

} // namespace

ProgressDisplay::ProgressDisplay(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

void ProgressDisplay::show(const dslide_progress &progress) {
    if (quiet_ || !terminal_) return;
    // One column stays free: a full line would wrap on some terminals and could not be cleared.
    const std::size_t width = terminal_width() - 1;
    print_note(clear_line + bar_line(progress, width).substr(0, width));
    drawn_ = true;
}

void ProgressDisplay::finish_epoch(const dslide_epoch_report &report, std::int32_t epochs) {
    if (quiet_) return;
    clear();
    const double rate = report.seconds > 0 ? static_cast<double>(report.samples) / report.seconds : 0.0;
    std::string line =
        line_text("epoch %d/%d  %lld samples  %.2f s  %.0f samples/s  loss %s", report.epoch, epochs,
                  static_cast<long long>(report.samples), report.seconds, rate, loss_text(report.loss).c_str());
    if (report.has_metrics != 0) line += metrics_text(report.metrics) + (report.is_best != 0 ? " (best)" : "");
    line += line_text("  active %.3g%%  rows/batch %.0f  cpu %.2f s  read %.2f s  eval %.2f s\n",
                      100.0 * report.active_share, report.rows_touched, report.cpu_seconds, report.read_seconds,
                      report.eval_seconds);
    print_note(line);
}

void ProgressDisplay::clear() {
    if (drawn_) print_note(clear_line);
    drawn_ = false;
}

} // namespace dslide::cli
