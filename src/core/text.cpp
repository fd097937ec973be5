// SPDX-License-Identifier: Apache-2.0
#include "core/text.hpp"

#include <cstring>

namespace dslide {
namespace {

constexpr std::string_view gap = " ... ";

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Length of the character that the text begins with, by table 3-7 of the Unicode standard; 0: it is none.
std::size_t character_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(0);
    if (first < 0x80) return 1;
    const std::size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (length == 0 || text.size() < length) return 0;
    for (std::size_t i = 1; i < length; ++i)
        if (!continues(text[i])) return 0;
    const unsigned char second = byte(1);
    const bool too_long = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    const bool surrogate = first == 0xed && second > 0x9f, too_high = first == 0xf4 && second > 0x8f;
    return too_long || surrogate || too_high ? 0 : length;
}

char *copy_characters(std::string_view text, char *to) {
    while (!text.empty()) {
        const std::size_t length = character_length(text);
        const auto first = static_cast<unsigned char>(text[0]);
        constexpr unsigned char first_printable = 0x20, del = 0x7f;
        if (length == 0 || first < first_printable || first == del) {
            *to++ = '?';
            text.remove_prefix(1);
        } else {
            std::memcpy(to, text.data(), length);
            to += length;
            text.remove_prefix(length);
        }
    }
    return to;
}

} // namespace

std::size_t one_line(std::string_view text, char *to, std::size_t cap) noexcept {
    char *end = to;
    if (text.size() < cap) {
        end = copy_characters(text, to);
    } else {
        const std::size_t room = cap - 1 - gap.size();
        std::size_t head = room / 2, tail = text.size() - (room - head);
        while (head > 0 && continues(text[head])) --head;
        while (tail < text.size() && continues(text[tail])) ++tail;
        end = copy_characters(text.substr(0, head), to);
        end = copy_characters(gap, end);
        end = copy_characters(text.substr(tail), end);
    }
    *end = '\0';
    return static_cast<std::size_t>(end - to);
}

} // namespace dslide
