// SPDX-License-Identifier: Apache-2.0
// dslide: the command. Parses, calls one subcommand, and turns what goes wrong into one line and an exit code.
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/format.hpp"
#include "cli/host.hpp"
#include "cli/ranks.hpp"
#include "cli/signals.hpp"

#include <dslide/dslide.h>

#include <exception>

namespace {

using namespace dslide::cli;

void print_log_line(void *, std::int32_t, const char *line) {
    print_note(std::string("dslide: warning: ") + line + "\n");
}

int dispatch(CommandLine &line) {
    const std::string command = line.command();
    if (command == "train") return run_train(line.train);
    if (command == "eval") return run_eval(line.eval);
    if (command == "predict") return run_predict(line.predict);
    if (command == "info") return run_info(line.info);
    if (command == "verify") return run_verify(line.verify);
    if (command == "export") return run_export(line.export_);
    return run_bench(line.bench);
}

int complain(const CommandLine &line, const std::string &text, const std::string &hint = "") {
    const std::string command = line.command();
    if (is_first_process()) print_note("dslide" + (command.empty() ? "" : " " + command) + ": " + text + hint + "\n");
    return hint.empty() ? exit_failure : exit_usage;
}

} // namespace

int main(int argc, char **argv) {
    reserve_standard_descriptors();
    ignore_file_size_limit();
    CommandLine line;
    try {
        if (const auto code = line.parse(argc, argv)) {
            flush_output();
            return *code;
        }
        check(dslide_set_log(print_log_line, nullptr, DSLIDE_LOG_WARNING));
        const int code = dispatch(line);
        flush_output();
        return code;
    } catch (const UsageError &error) {
        const std::string command = line.command();
        return complain(line, error.what(), " (see dslide " + (command.empty() ? "" : command + " ") + "--help)");
    } catch (const std::bad_alloc &) {
        return complain(line, "out of memory");
    } catch (const std::exception &error) {
        return complain(line, error.what());
    }
}
