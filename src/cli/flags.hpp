// SPDX-License-Identifier: Apache-2.0
// How subcommands declare their flags: name, range, help text, and the field that takes the value.
#pragma once

#include "cli/options.hpp"
#include "cli/values.hpp"

#include <functional>
#include <string>

namespace dslide::cli {

/// Implemented by the argument parser. Names come with their dashes; `kind` is what help texts call the value.
class FlagSet {
public:
    virtual ~FlagSet() = default;
    virtual void group(const char *name) = 0; ///< of the flags declared from here on
    virtual void value(const char *name, const std::string &kind, const std::string &help,
                       std::function<void(const std::string &text)> set) = 0;
    virtual void toggle(const char *name, const std::string &help, std::function<void(bool on)> set) = 0;
    virtual void positional(const char *name, const std::string &help, std::string &field) = 0;

    void text(const char *name, const std::string &kind, std::string &field, const std::string &help) {
        value(name, kind, help,
              [&field, flag = std::string(name)](const std::string &text) { field = some_text(flag, text); });
    }
    template <class Whole>
    void whole(const char *name, Whole &field, std::int64_t low, std::int64_t high, const std::string &help) {
        value(name, "N", help, [=, &field, flag = std::string(name)](const std::string &text) {
            field = static_cast<Whole>(whole_number(flag, text, low, high));
        });
    }
    void real(const char *name, float &field, double low, double high, const std::string &help) {
        value(name, "X", help, [=, &field, flag = std::string(name)](const std::string &text) {
            field = number(flag, text, low, high);
        });
    }
    void choice(const char *name, std::int32_t &field, const std::vector<Choice> &choices, const std::string &help) {
        value(name, choice_names(choices), help, [&field, &choices, flag = std::string(name)](const std::string &text) {
            field = choose(flag, text, choices);
        });
    }
    void toggle(const char *name, bool &field, const std::string &help) {
        toggle(name, help, [&field](bool on) { field = on; });
    }
};

void add_train_flags(FlagSet &set, TrainFlags &flags);
void add_eval_flags(FlagSet &set, EvalFlags &flags);
void add_predict_flags(FlagSet &set, PredictFlags &flags);
void add_info_flags(FlagSet &set, InfoFlags &flags);
void add_verify_flags(FlagSet &set, VerifyFlags &flags);
void add_export_flags(FlagSet &set, ExportFlags &flags);
void add_bench_flags(FlagSet &set, BenchFlags &flags);

/// Flags that training and the benchmark share.
void add_selection_flags(FlagSet &set, dslide_trainer_options &options, bool &dense);
void add_optimizer_flags(FlagSet &set, dslide_trainer_options &options);
void add_threads_flag(FlagSet &set, std::int32_t &threads);
void add_rank_flags(FlagSet &set, RankFlags &flags);
/// DSLIDE_SELECT_ALL for --dense; refuses flags that contradict it.
void settle_selection(dslide_trainer_options &options, bool dense, const std::set<std::string> &given);

} // namespace dslide::cli
