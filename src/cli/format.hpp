// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace dslide::cli {

std::string with_commas(std::int64_t count); ///< 1,234,567
std::string bytes_text(std::int64_t bytes);  ///< 1.2 GB (powers of 1,000)
std::string duration_text(double seconds);   ///< 1:02:03
std::string loss_text(double loss);          ///< four decimals, or few digits of a diverging one
std::string decimals(double value, int digits);
std::string significant(double value, int digits);
/// printf into a string; for lines of several numbers.
[[gnu::format(printf, 1, 2)]] std::string line_text(const char *format, ...);

/// Writes all of text to standard output. Throws Failure if that fails.
void print(const std::string &text);
/// Throws Failure if something printed did not reach standard output.
void flush_output();
/// Writes to standard error, at once; a failure there is nobody's business.
void print_note(const std::string &text);

} // namespace dslide::cli
