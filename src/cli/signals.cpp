// SPDX-License-Identifier: Apache-2.0
#include "cli/signals.hpp"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

namespace dslide::cli {

namespace {

volatile std::sig_atomic_t caught = 0;
struct sigaction previous_interrupt, previous_terminate;

void on_signal(int number) {
    if (caught != 0) _exit(128 + number);
    caught = number;
    const int saved_errno = errno;
    constexpr std::string_view text = "\nstopping after this step; once more to leave at once\n";
    // Nothing can be done if standard error is gone, but the compiler insists on a use of the result.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    errno = saved_errno;
}

/// A signal ignored from the start stays so: a shell sets SIGINT like this for what it runs in the background.
void take(int number, struct sigaction &previous) {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(number, nullptr, &previous);
    if (previous.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
}

} // namespace

Interruptible::Interruptible() {
    take(SIGINT, previous_interrupt);
    take(SIGTERM, previous_terminate);
}

Interruptible::~Interruptible() {
    sigaction(SIGINT, &previous_interrupt, nullptr);
    sigaction(SIGTERM, &previous_terminate, nullptr);
}

int interrupt_signal() { return caught; }

void reserve_standard_descriptors() {
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
        if (fcntl(descriptor, F_GETFD) != -1) continue;
        // The wrong direction on purpose: using the descriptor fails, as it did when it was closed.
        if (open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) != descriptor) return;
    }
}

void ignore_broken_pipes() { std::signal(SIGPIPE, SIG_IGN); }

void ignore_file_size_limit() { std::signal(SIGXFSZ, SIG_IGN); }

} // namespace dslide::cli
