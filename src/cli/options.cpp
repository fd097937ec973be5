// SPDX-License-Identifier: Apache-2.0
// The only file that knows the argument parser.
#include "cli/options.hpp"

#include "cli/config_file.hpp"
#include "cli/errors.hpp"
#include "cli/flags.hpp"
#include "cli/format.hpp"
#include "cli/host.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>

namespace dslide::cli {

namespace {

/// Flags of a run that say where results go or how this one call behaves: a repetition does not want them.
const std::set<std::string> not_repeated = {"save", "resume", "json", "config", "dry-run", "force", "quiet", "help"};
/// How the training data was read, which a model does not tell and later data most likely shares.
const std::set<std::string> reading_flags = {"format", "label-base", "normalize"};

std::string bare_name(const CLI::Option &option) {
    return option.get_lnames().empty() ? "" : option.get_lnames().front();
}

/// Newer parsers take any text for a flag's value.
std::string is_on_or_off(const std::string &text) {
    static const std::set<std::string> known = {"true", "false", "on", "off", "yes", "no", "1", "0"};
    return known.count(text) > 0 ? "" : "expected true or false, not '" + text + "'";
}

void set_from_config(CLI::App &command, const ConfigEntry &entry) {
    CLI::Option *option = command.get_option_no_throw("--" + entry.key);
    if (option == nullptr || entry.key == "config" || entry.key == "help")
        throw UsageError(entry.where + ": '" + entry.key + "' is no flag of dslide " + command.get_name());
    if (option->count() > 0) return; // what was given earlier wins
    try {
        const bool takes_value = option->get_items_expected_max() > 0;
        if (const std::string wrong = takes_value ? "" : is_on_or_off(entry.value); !wrong.empty())
            throw UsageError("'" + entry.key + "': " + wrong);
        option->add_result(takes_value ? entry.value : option->get_flag_value(entry.key, entry.value));
        option->run_callback();
    } catch (const CLI::Error &error) {
        throw UsageError(entry.where + ": " + error.what());
    } catch (const UsageError &error) {
        throw UsageError(entry.where + ": " + error.what());
    }
}

void apply_saved(CLI::App &command, const std::string &model_dir, const std::set<std::string> &keys) {
    const std::string path = model_dir.empty() ? "" : saved_config_path(model_dir);
    if (path.empty()) return;
    for (const ConfigEntry &entry : read_config(path))
        if (keys.empty() || keys.count(entry.key) > 0) set_from_config(command, entry);
}

std::string one_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

/// The parser puts two empty lines between groups.
std::string without_double_gaps(std::string text) {
    for (std::size_t at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n", at)) text.erase(at, 1);
    return text;
}

/// "Training:" and the names of its flags, wrapped: the overview in `dslide --help`.
std::string flag_overview(const CLI::App &command) {
    constexpr std::size_t width = 96;
    std::string text =
        "Flags of dslide " + command.get_name() + " (explained by dslide " + command.get_name() + " --help):\n";
    for (const std::string &group : command.get_groups()) {
        std::string line = line_text("  %-10s", group.c_str());
        for (const CLI::Option *option :
             command.get_options([&](const CLI::Option *o) { return o->get_group() == group; })) {
            const std::string name = " " + option->get_name();
            if (line.size() + name.size() > width) {
                text += line + "\n";
                line = std::string(12, ' ');
            }
            line += name;
        }
        text += line + "\n";
    }
    return text;
}

class ParserFlags final : public FlagSet {
public:
    explicit ParserFlags(CLI::App &command) : command_(command) {}

    void group(const char *name) override { group_ = name; }
    void value(const char *name, const std::string &kind, const std::string &help,
               std::function<void(const std::string &)> set) override {
        command_.add_option_function<std::string>(name, set, help)->type_name(kind)->group(group_);
    }
    void toggle(const char *name, const std::string &help, std::function<void(bool)> set) override {
        command_
            .add_flag_function(
                name, [set](std::int64_t count) { set(count > 0); }, help)
            ->check(CLI::Validator([](std::string &text) { return is_on_or_off(text); }, ""))
            ->group(group_);
    }
    void positional(const char *name, const std::string &help, std::string &field) override {
        command_.add_option(name, field, help)->required()->type_name("");
    }

private:
    CLI::App &command_;
    std::string group_;
};

} // namespace

struct CommandLine::Parser {
    CLI::App app{"Trains, judges and serves networks with very many outputs, on CPUs.", "dslide"};
    std::map<std::string, std::string> config_paths; ///< by subcommand

    template <class Flags>
    CLI::App &add(const char *name, const char *description, void (*add_flags)(FlagSet &, Flags &), Flags &flags) {
        CLI::App *command = app.add_subcommand(name, description);
        constexpr std::size_t help_column = 36;
        command->get_formatter()->column_width(help_column);
        ParserFlags set(*command);
        add_flags(set, flags);
        command->set_help_flag("--help", "Print this text and stop")->group("General");
        return *command;
    }
    void add_config(CLI::App &command) {
        command
            .add_option("--config", config_paths[command.get_name()],
                        "Take flags not given here from 'key = value' lines")
            ->type_name("FILE")
            ->group("General");
    }
};

CommandLine::CommandLine() : parser_(std::make_unique<Parser>()) {
    CLI::App &app = parser_->app;
    app.set_help_flag("--help", "Print this text and stop");
    app.set_version_flag("--version", std::string("dslide ") + dslide_version() + "\n" + build_info());
    app.require_subcommand(1);

    CLI::App &train_command =
        parser_->add("train", "Train a model on a text file of sparse rows", add_train_flags, train);
    parser_->add_config(train_command);
    parser_->add_config(
        parser_->add("eval", "Judge a model on labelled rows: P@k, R@k, nDCG@k, PSP@k", add_eval_flags, eval));
    parser_->add_config(parser_->add("predict", "Print the best labels of each row", add_predict_flags, predict));
    parser_->add("info", "Tell what a data file or a checkpoint holds", add_info_flags, info);
    parser_->add("verify", "Check structure and checksums of checkpoints", add_verify_flags, verify);
    parser_->add("export", "Write a tensor of a model, or the model without optimizer state", add_export_flags,
                 export_);
    parser_->add_config(
        parser_->add("bench", "Time training steps on random rows of a given shape", add_bench_flags, bench));
    app.footer(flag_overview(train_command) + "\nExit codes: 0 done, 1 failed, 2 wrong usage, 130 ended by Ctrl-C.");
}

CommandLine::~CommandLine() = default;

std::string CommandLine::command() const {
    const auto chosen = parser_->app.get_subcommands();
    return chosen.empty() ? "" : chosen.front()->get_name();
}

std::optional<int> CommandLine::parse(int argc, char **argv) {
    CLI::App &app = parser_->app;
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp &) {
        print(without_double_gaps(app.help()));
        return exit_ok;
    } catch (const CLI::CallForVersion &version) {
        print(std::string(version.what()) + "\n");
        return exit_ok;
    } catch (const CLI::Error &error) {
        throw UsageError(one_line(error.what()));
    } catch (const std::logic_error &) { // what the parser lets through from std::stoll()
        throw UsageError("a flag that takes no value takes =true or =false, nothing else");
    }
    settle(*app.get_subcommands().front());
    return std::nullopt;
}

void CommandLine::settle(CLI::App &chosen) {
    const CLI::Option *config = chosen.get_option_no_throw("--config");
    if (config != nullptr && config->count() > 0)
        for (const ConfigEntry &entry : read_config(parser_->config_paths[chosen.get_name()]))
            set_from_config(chosen, entry);

    std::set<std::string> given;
    for (const CLI::Option *option : chosen.get_options())
        if (option->count() > 0) given.insert(bare_name(*option));
    train.given = bench.given = given;
    eval.index_base_given = predict.index_base_given = given.count("index-base") > 0;

    if (chosen.get_name() == "train") apply_saved(chosen, train.resume, {});
    if (chosen.get_name() == "eval") apply_saved(chosen, eval.model, reading_flags);
    if (chosen.get_name() == "predict") apply_saved(chosen, predict.model, reading_flags);
    for (const CLI::Option *option : chosen.get_options())
        if (option->count() > 0 && not_repeated.count(bare_name(*option)) == 0)
            train.repeatable.emplace_back(bare_name(*option), option->results().back());
}

} // namespace dslide::cli
