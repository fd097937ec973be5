// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_dirs.hpp"
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/format.hpp"
#include "cli/host.hpp"

namespace dslide::cli {

namespace {

std::string found_text(const std::string &dir, const dslide_checkpoint_info &info) {
    return "OK " + dir + ": " + (info.is_full != 0 ? "full" : "slim") +
           line_text(", format %d, ", info.format_version) + with_commas(info.n_tensors) +
           line_text(" tensors in %d shards, ", info.n_shards) + bytes_text(info.bytes) + ", " +
           with_commas(info.samples_seen) + " samples\n";
}

} // namespace

int run_verify(const VerifyFlags &flags) {
    need_model_dir(flags.dir);
    int code = exit_ok;
    for (const std::string &dir : checkpoints_under(flags.dir)) {
        dslide_checkpoint_info info = {};
        info.struct_size = sizeof info;
        if (dslide_checkpoint_verify(dir.c_str(), &info) == DSLIDE_OK) {
            print(found_text(dir, info));
            continue;
        }
        print_note(std::string("dslide verify: BAD ") + dir + ": " + dslide_last_error() + "\n");
        code = exit_failure;
    }
    return code;
}

} // namespace dslide::cli
