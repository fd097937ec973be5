// SPDX-License-Identifier: Apache-2.0
// JSON objects, one a line, for programs that read what a command did.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace dslide::cli {

/// An object whose keys keep their order. Numbers that are not finite become null, bytes that are not UTF-8 U+FFFD.
class JsonObject {
public:
    JsonObject();
    explicit JsonObject(const std::string &event);
    ~JsonObject();
    JsonObject(JsonObject &&) noexcept;

    JsonObject &set(const char *key, const std::string &value);
    JsonObject &set(const char *key, const char *value);
    JsonObject &set(const char *key, double value);
    JsonObject &set(const char *key, std::int64_t value);
    JsonObject &set(const char *key, std::int32_t value);
    JsonObject &set(const char *key, std::uint64_t value);
    JsonObject &set(const char *key, bool value);
    JsonObject &set(const char *key, const std::vector<std::int32_t> &value);
    JsonObject &set_null(const char *key);
    JsonObject &set_parsed(const char *key, const std::string &json); ///< JSON text; a string where it is none
    JsonObject &append(const char *key, JsonObject value);            ///< to the list under key
    std::string text() const;

private:
    struct Content;
    std::unique_ptr<Content> content_;
};

/// Where the lines go; does nothing with an empty path. "-" is standard output.
class JsonLines {
public:
    explicit JsonLines(const std::string &path); ///< throws Failure if the file cannot be written
    ~JsonLines();
    JsonLines(const JsonLines &) = delete;
    JsonLines &operator=(const JsonLines &) = delete;

    /// Appends a line and flushes it. A failure is kept for finish(): a full disk must not end a long training.
    void write(const JsonObject &object);
    /// Throws Failure if a line was lost.
    void finish();

private:
    std::string path_;
    std::FILE *file_ = nullptr;
    int error_ = 0;
};

/// A JSON text to look into, by keys from the outside in; places in lists are keys "0", "1", ... Values come as JSON
/// text, strings without their quotes; what is not there is "" or empty.
class JsonDocument {
public:
    explicit JsonDocument(const std::string &text); ///< throws Failure if it is not JSON
    ~JsonDocument();
    JsonDocument(JsonDocument &&) noexcept;

    std::string at(const std::vector<std::string> &keys) const;
    std::size_t size(const std::vector<std::string> &keys) const;
    std::vector<std::pair<std::string, std::string>> entries(const std::vector<std::string> &keys) const;

private:
    struct Content;
    std::unique_ptr<Content> content_;
};

} // namespace dslide::cli
