// SPDX-License-Identifier: Apache-2.0
#include "cli/values.hpp"

#include "cli/errors.hpp"
#include "cli/options.hpp"

#include <dslide/dslide.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace dslide::cli {

const std::vector<Choice> format_choices = {{"xmc", DSLIDE_FORMAT_XMC}, {"svmlight", DSLIDE_FORMAT_SVMLIGHT}};
const std::vector<Choice> optimizer_choices = {{"adam", DSLIDE_ADAM}, {"sgd", DSLIDE_SGD}, {"adagrad", DSLIDE_ADAGRAD}};
const std::vector<Choice> loss_choices = {{"softmax", DSLIDE_SOFTMAX}, {"bce", DSLIDE_BCE}};
const std::vector<Choice> select_choices = {{"simhash", DSLIDE_SELECT_SIMHASH},
                                            {"dwta", DSLIDE_SELECT_DWTA},
                                            {"exact", DSLIDE_SELECT_EXACT},
                                            {"random", DSLIDE_SELECT_RANDOM}};
const std::vector<Choice> schedule_choices = {{"constant", DSLIDE_SCHEDULE_CONSTANT},
                                              {"linear", DSLIDE_SCHEDULE_LINEAR},
                                              {"cosine", DSLIDE_SCHEDULE_COSINE},
                                              {"step", DSLIDE_SCHEDULE_STEP}};
const std::vector<Choice> decay_choices = {{"l2", DSLIDE_DECAY_L2}, {"decoupled", DSLIDE_DECAY_DECOUPLED}};
const std::vector<Choice> unlabelled_choices = {{"miss", 0}, {"skip", 1}};
const std::vector<Choice> transport_choices = {
    {"self", transport_self}, {"threads", transport_threads}, {"mpi", transport_mpi}};
const std::vector<Choice> payload_choices = {{"fp32", DSLIDE_PAYLOAD_FP32}, {"bf16", DSLIDE_PAYLOAD_BF16}};
const std::vector<Choice> export_choices = {{"npy", export_npy}, {"tsv", export_tsv}};

namespace {

[[noreturn]] void refuse(const std::string &flag, const std::string &expected, const std::string &text) {
    throw UsageError(flag + ": expected " + expected + ", not '" + text + "'");
}

std::string short_text(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
}

template <class Number>
bool parse_all(const std::string &text, Number &value) {
    const char *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && stop == end;
}

} // namespace

std::int64_t whole_number(const std::string &flag, const std::string &text, std::int64_t low, std::int64_t high) {
    std::int64_t value = 0;
    if (!parse_all(text, value) || value < low || value > high)
        refuse(flag, "a whole number from " + std::to_string(low) + " to " + std::to_string(high), text);
    return value;
}

std::string some_text(const std::string &flag, const std::string &text) {
    if (text.empty()) refuse(flag, "a name", text);
    if (text.find('\0') != std::string::npos) throw UsageError(flag + ": expected a name, found a zero byte");
    return text;
}

std::uint64_t seed_number(const std::string &flag, const std::string &text) {
    std::uint64_t value = 0;
    if (!parse_all(text, value)) refuse(flag, "a whole number from 0 to 2^64 - 1", text);
    return value;
}

float number(const std::string &flag, const std::string &text, double low, double high) {
    double value = 0;
    const bool in_range = parse_all(text, value) && value >= low && value <= high;
    const auto narrow = static_cast<float>(value);
    // 0 means "default" in the options structs, so a value too small for a float must not become it.
    if (!in_range || (narrow == 0.0F && value != 0.0))
        refuse(flag, "a number from " + short_text(low) + " to " + short_text(high), text);
    return narrow;
}

std::vector<std::int32_t> whole_numbers(const std::string &flag, const std::string &text, std::int32_t low,
                                        std::int32_t high, std::size_t most) {
    std::vector<std::int32_t> values;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        values.push_back(static_cast<std::int32_t>(whole_number(flag, text.substr(begin, end - begin), low, high)));
        begin = end + 1;
    }
    if (values.size() > most) refuse(flag, "at most " + std::to_string(most) + " numbers", text);
    return values;
}

std::int32_t choose(const std::string &flag, const std::string &text, std::span<const Choice> choices) {
    for (const Choice &choice : choices)
        if (text == choice.name) return choice.value;
    refuse(flag, choice_names(choices), text);
}

std::string choice_names(std::span<const Choice> choices) {
    std::string names;
    for (const Choice &choice : choices) names.append(names.empty() ? "" : "|").append(choice.name);
    return names;
}

const char *choice_name(std::span<const Choice> choices, std::int32_t value) {
    for (const Choice &choice : choices)
        if (choice.value == value) return choice.name;
    return "?";
}

} // namespace dslide::cli
