// SPDX-License-Identifier: Apache-2.0
// Ctrl-C while training: the first asks for an orderly end, the second ends the process at once.
#pragma once

namespace dslide::cli {

/// Catches SIGINT and SIGTERM while it lives; outside, they end the process as usual.
class Interruptible {
public:
    Interruptible();
    ~Interruptible();
    Interruptible(const Interruptible &) = delete;
    Interruptible &operator=(const Interruptible &) = delete;
};

/// The signal that asked for an end; 0: none yet.
int interrupt_signal();

/// Makes 0, 1 and 2 valid descriptors, so that a file opened later never becomes standard output or standard error.
void reserve_standard_descriptors();

/// Lets writes to a closed pipe fail instead of ending the process.
void ignore_broken_pipes();

/// Lets writes beyond the limit of `ulimit -f` fail instead of ending the process.
void ignore_file_size_limit();

} // namespace dslide::cli
