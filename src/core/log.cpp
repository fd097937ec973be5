// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"

namespace dslide {

LogSink &log_sink() {
    static LogSink sink;
    return sink;
}

} // namespace dslide
