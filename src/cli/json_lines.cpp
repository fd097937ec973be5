// SPDX-License-Identifier: Apache-2.0
#include "cli/json_lines.hpp"

#include "cli/errors.hpp"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>

namespace dslide::cli {

struct JsonObject::Content {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
};

JsonObject::JsonObject() : content_(std::make_unique<Content>()) {}
JsonObject::JsonObject(const std::string &event) : JsonObject() { set("event", event); }
JsonObject::~JsonObject() = default;
JsonObject::JsonObject(JsonObject &&) noexcept = default;

JsonObject &JsonObject::set(const char *key, const std::string &value) {
    content_->json[key] = value;
    return *this;
}
JsonObject &JsonObject::set(const char *key, const char *value) { return set(key, std::string(value)); }
JsonObject &JsonObject::set(const char *key, double value) {
    content_->json[key] = value;
    return *this;
}
JsonObject &JsonObject::set(const char *key, std::int64_t value) {
    content_->json[key] = value;
    return *this;
}
JsonObject &JsonObject::set(const char *key, std::int32_t value) { return set(key, static_cast<std::int64_t>(value)); }
JsonObject &JsonObject::set(const char *key, std::uint64_t value) {
    content_->json[key] = value;
    return *this;
}
JsonObject &JsonObject::set(const char *key, bool value) {
    content_->json[key] = value;
    return *this;
}
JsonObject &JsonObject::set(const char *key, const std::vector<std::int32_t> &value) {
    content_->json[key] = value;
    return *this;
}
JsonObject &JsonObject::set_null(const char *key) {
    content_->json[key] = nullptr;
    return *this;
}
JsonObject &JsonObject::set_parsed(const char *key, const std::string &json) {
    auto value = nlohmann::ordered_json::parse(json, nullptr, false);
    if (value.is_discarded()) return set(key, json);
    content_->json[key] = std::move(value);
    return *this;
}
JsonObject &JsonObject::append(const char *key, JsonObject value) {
    content_->json[key].push_back(std::move(value.content_->json));
    return *this;
}

std::string JsonObject::text() const {
    return content_->json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

JsonLines::JsonLines(const std::string &path) : path_(path) {
    if (path.empty()) return;
    file_ = path == "-" ? stdout : std::fopen(path.c_str(), "we");
    if (file_ == nullptr) throw Failure("cannot write '" + path + "': " + std::strerror(errno));
}

JsonLines::~JsonLines() {
    if (file_ != nullptr && file_ != stdout) std::fclose(file_);
}

void JsonLines::write(const JsonObject &object) {
    if (file_ == nullptr || error_ != 0) return;
    const std::string line = object.text() + "\n";
    const bool written = std::fwrite(line.data(), 1, line.size(), file_) == line.size() && std::fflush(file_) == 0;
    if (!written) error_ = errno;
}

void JsonLines::finish() {
    if (error_ != 0) throw Failure("cannot write '" + path_ + "': " + std::strerror(error_));
}

struct JsonDocument::Content {
    nlohmann::json json;

    /// Null where there is nothing under these keys.
    nlohmann::json find(const std::vector<std::string> &keys) const {
        nlohmann::json place = json;
        for (const std::string &key : keys) {
            const nlohmann::json::json_pointer step("/" + key);
            if (!place.is_structured() || !place.contains(step)) return nullptr;
            place = nlohmann::json(place.at(step));
        }
        return place;
    }
};

namespace {

std::string plain_text(const nlohmann::json &value) {
    if (value.is_null()) return "";
    return value.is_string() ? value.get<std::string>() : value.dump();
}

} // namespace

JsonDocument::JsonDocument(const std::string &text) : content_(std::make_unique<Content>()) {
    constexpr int most_depth = 32; // of manifests; printing is recursive
    bool too_deep = false;
    const auto keep = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json &) {
        too_deep |= depth > most_depth;
        return !too_deep;
    };
    content_->json = nlohmann::json::parse(text, keep, false);
    if (too_deep) throw Failure("nested too deep");
    if (content_->json.is_discarded()) throw Failure("not JSON");
}

JsonDocument::~JsonDocument() = default;
JsonDocument::JsonDocument(JsonDocument &&) noexcept = default;

std::string JsonDocument::at(const std::vector<std::string> &keys) const { return plain_text(content_->find(keys)); }

std::size_t JsonDocument::size(const std::vector<std::string> &keys) const { return content_->find(keys).size(); }

std::vector<std::pair<std::string, std::string>> JsonDocument::entries(const std::vector<std::string> &keys) const {
    std::vector<std::pair<std::string, std::string>> list;
    const nlohmann::json place = content_->find(keys);
    if (place.is_object())
        for (const auto &[key, value] : place.items()) list.emplace_back(key, plain_text(value));
    return list;
}

} // namespace dslide::cli
