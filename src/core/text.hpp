// SPDX-License-Identifier: Apache-2.0
// Texts for people: errors and log lines.
#pragma once

#include <cstddef>
#include <locale>
#include <sstream>
#include <string>
#include <string_view>

namespace dslide {

/// The parts one after the other, numbers as in C: the host may have set a C++ locale that groups digits.
template <class... Parts>
std::string joined(const Parts &...parts) {
    std::ostringstream text;
    text.imbue(std::locale::classic());
    (text << ... << parts);
    return text.str();
}

/// Writes the text as one line of UTF-8 with a final zero, in at most `cap` >= 64 bytes: names of files can hold
/// anything. Control characters and bytes that are not UTF-8 become '?'; a text that is too long loses its middle,
/// since the reason stands at its end. Returns the length without the zero. Never allocates.
std::size_t one_line(std::string_view text, char *to, std::size_t cap) noexcept;

} // namespace dslide
