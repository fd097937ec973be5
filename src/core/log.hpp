// SPDX-License-Identifier: Apache-2.0
// Log lines go to the host's sink, on the thread that called the library; without a sink they cost nothing.
#pragma once

#include <dslide/base.h>

#include <sstream>

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
    std::ostringstream line;
    (line << ... << parts);
    sink.function(sink.user_data, level, line.str().c_str());
}

} // namespace dslide
