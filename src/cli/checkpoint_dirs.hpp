// SPDX-License-Identifier: Apache-2.0
// Where checkpoints lie: a directory with a manifest, or a directory of such directories with `latest` and `best`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslide::cli {

bool is_checkpoint_dir(const std::string &dir);

/// dir itself if it is a checkpoint, otherwise the checkpoints in it, by name. Throws Failure if there is none.
std::vector<std::string> checkpoints_under(const std::string &dir);

/// What DIR/latest or DIR/best names; "" where there is no such link.
std::string link_target(const std::string &dir, const char *link);

struct NamedSize {
    std::string name;
    std::int64_t bytes;
};
std::vector<NamedSize> files_in(const std::string &dir);

} // namespace dslide::cli
