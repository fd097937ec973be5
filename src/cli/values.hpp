// SPDX-License-Identifier: Apache-2.0
// From the text of a flag to its value. Every function throws UsageError with a line that names the flag and its range.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dslide::cli {

struct Choice {
    const char *name;
    std::int32_t value;
};

std::int64_t whole_number(const std::string &flag, const std::string &text, std::int64_t low, std::int64_t high);
/// Refuses no text at all, as "$DIR" gives it where nobody set DIR: an empty field means that the flag is not given.
std::string some_text(const std::string &flag, const std::string &text);
std::uint64_t seed_number(const std::string &flag, const std::string &text);
float number(const std::string &flag, const std::string &text, double low, double high);
std::vector<std::int32_t> whole_numbers(const std::string &flag, const std::string &text, std::int32_t low,
                                        std::int32_t high, std::size_t most);
std::int32_t choose(const std::string &flag, const std::string &text, std::span<const Choice> choices);

/// "adam|sgd|adagrad": how help texts name the choices.
std::string choice_names(std::span<const Choice> choices);
const char *choice_name(std::span<const Choice> choices, std::int32_t value);

extern const std::vector<Choice> format_choices, optimizer_choices, loss_choices, select_choices, schedule_choices,
    decay_choices, unlabelled_choices, export_choices, transport_choices, payload_choices;

} // namespace dslide::cli
