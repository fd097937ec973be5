// SPDX-License-Identifier: Apache-2.0
#include "cli/format.hpp"

#include "cli/errors.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace dslide::cli {

std::string with_commas(std::int64_t count) {
    std::string text = std::to_string(count);
    const std::ptrdiff_t first_digit = count < 0 ? 1 : 0;
    for (auto place = static_cast<std::ptrdiff_t>(text.size()) - 3; place > first_digit; place -= 3)
        text.insert(static_cast<std::size_t>(place), ",");
    return text;
}

std::string bytes_text(std::int64_t bytes) {
    static constexpr const char *units[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < std::size(units); ++unit) value /= 1000.0;
    return line_text(unit == 0 || value >= 99.95 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

std::string duration_text(double seconds) {
    const auto whole = static_cast<long long>(std::llround(std::clamp(seconds, 0.0, 1e9)));
    const long long hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
    return hours > 0 ? line_text("%lld:%02lld:%02lld", hours, minutes, rest) : line_text("%lld:%02lld", minutes, rest);
}

std::string loss_text(double loss) {
    constexpr double longest = 1e5;
    return line_text(std::fabs(loss) < longest ? "%.4f" : "%.4g", loss);
}

std::string decimals(double value, int digits) { return line_text("%.*f", digits, value); }

std::string significant(double value, int digits) { return line_text("%.*g", digits, value); }

std::string line_text(const char *format, ...) {
    char text[512];
    std::va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return std::string(text, std::min(static_cast<std::size_t>(std::max(length, 0)), sizeof text - 1));
}

void print(const std::string &text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
        throw Failure(std::string("cannot write to standard output: ") + std::strerror(errno));
}

void flush_output() {
    if (std::fflush(stdout) != 0)
        throw Failure(std::string("cannot write to standard output: ") + std::strerror(errno));
}

void print_note(const std::string &text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
}

} // namespace dslide::cli
