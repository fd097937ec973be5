// SPDX-License-Identifier: Apache-2.0
// Log lines go to the host's sink, on the thread that called the library; without a sink they cost nothing.
#pragma once

#include "core/text.hpp"

#include <dslide/base.h>

#include <cstddef>

namespace dslide {

struct LogSink {
    dslide_log_fn function = nullptr;
    void *user_data = nullptr;
    int level = 0;
};
LogSink &log_sink();

template <class... Parts>
void log(int level, const Parts &...parts) {
    const LogSink &sink = log_sink();
    if (!sink.function || level > sink.level) return;
    constexpr std::size_t most_bytes = 1024;
    char line[most_bytes];
    one_line(joined(parts...), line, sizeof line);
    sink.function(sink.user_data, level, line);
}

} // namespace dslide
