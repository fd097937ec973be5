// SPDX-License-Identifier: Apache-2.0
// What a command throws: wrong usage (exit code 2), or anything else that went wrong (exit code 1). One line of text
// each.
#pragma once

#include <stdexcept>

namespace dslide::cli {

constexpr int exit_ok = 0;
constexpr int exit_failure = 1;
constexpr int exit_usage = 2;

class UsageError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Failure : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

} // namespace dslide::cli
