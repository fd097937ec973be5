// SPDX-License-Identifier: Apache-2.0
// The `meta` object of a checkpoint: settings and counters by name, as flat JSON.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dslide {

/// Counters of a file may be so large: they can still be added to, and be added up.
constexpr std::int64_t most_count = std::int64_t{1} << 60;

/// A getter throws Error(DSLIDE_E_FORMAT) with the key where it is missing or of another type.
class Meta {
public:
    Meta();
    /// Parses; throws Error(DSLIDE_E_FORMAT) if it is not a JSON object.
    explicit Meta(const std::string &json);
    ~Meta();
    Meta(Meta &&) noexcept;
    Meta &operator=(Meta &&) noexcept;

    void set_bool(const std::string &key, bool value);
    void set_int(const std::string &key, std::int64_t value);
    void set_uint(const std::string &key, std::uint64_t value);
    void set_number(const std::string &key, double value); ///< finite; read back bit for bit
    void set_ints(const std::string &key, const std::vector<std::int64_t> &values);

    bool has(const std::string &key) const;
    bool get_bool(const std::string &key) const;
    std::int64_t get_int(const std::string &key) const;
    std::int64_t get_count(const std::string &key) const; ///< 0 .. most_count
    std::uint64_t get_uint(const std::string &key) const;
    double get_number(const std::string &key) const;
    std::vector<std::int64_t> get_ints(const std::string &key) const;

    std::string json() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace dslide
