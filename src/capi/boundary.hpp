// SPDX-License-Identifier: Apache-2.0
// The only place where C++ errors become status codes, and where callers' options are read.
#pragma once

#include "core/error.hpp"

#include <dslide/base.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>

namespace dslide::capi {

/// Keeps the text for dslide_last_error() and returns the status; never allocates.
dslide_status record(dslide_status status, const char *text) noexcept;

struct Boundary {};
template <class Body>
dslide_status operator+(Boundary, Body &&body) noexcept {
    try {
        body();
        return DSLIDE_OK;
    } catch (const Error &e) {
        return record(e.status(), e.what());
    } catch (const std::bad_alloc &) {
        return record(DSLIDE_E_MEMORY, "out of memory");
    } catch (const std::exception &e) {
        return record(DSLIDE_E_INTERNAL, e.what());
    } catch (...) {
        return record(DSLIDE_E_INTERNAL, "unknown exception");
    }
}
#define DSLIDE_BOUNDARY ::dslide::capi::Boundary{} + [&]

/// The object behind a pointer parameter, or E_ARGUMENT with the parameter's name.
template <class T>
T *need(T *pointer, const char *name) {
    if (!pointer) fail(DSLIDE_E_ARGUMENT, name, " is NULL");
    return pointer;
}

/// No public struct comes near it; a size above is a struct_size that was never set, and is not to be believed.
constexpr std::size_t most_struct_bytes = 4096;

inline void check_struct_size(std::size_t size, const char *name, const char *hint) {
    if (size < sizeof(std::uint32_t) || size > most_struct_bytes)
        fail(DSLIDE_E_ARGUMENT, name, ".struct_size is ", size, "; ", hint);
}

/// All defaults into a caller's options struct of `size` bytes, which may be another size than this library's sizeof: a
/// program built with older headers has something else of its own behind them.
template <class T>
void init_options(T *options, std::size_t size) noexcept {
    if (!options) return;
    std::memset(static_cast<void *>(options), 0, size);
    if (size >= sizeof options->struct_size) options->struct_size = static_cast<std::uint32_t>(size);
}

/// A caller's options struct as this library's: shorter ones are filled up with 0 (the default of every field), longer
/// ones must be 0 in the part this library does not know. NULL gives `defaults`.
template <class T>
T read_options(const T *given, const T &defaults, const char *name) {
    if (!given) return defaults;
    const std::size_t size = given->struct_size;
    check_struct_size(size, name, "call its _init first");
    T options{};
    std::memcpy(&options, given, size < sizeof(T) ? size : sizeof(T));
    const char *bytes = reinterpret_cast<const char *>(given);
    for (std::size_t i = sizeof(T); i < size; ++i)
        if (bytes[i] != 0)
            fail(DSLIDE_E_UNSUPPORTED, name, " has a field that this library does not know (byte ", i, ")");
    if constexpr (requires { options.reserved; }) // a later library may give it a meaning
        if (options.reserved != 0)
            fail(DSLIDE_E_UNSUPPORTED, name, ".reserved is ", options.reserved, ", which means nothing here");
    options.struct_size = sizeof(T);
    return options;
}

/// Of an options struct as read_options() gives it, by which ranks compare theirs.
template <class T>
std::uint64_t digest(const T &options) {
    std::uint64_t hash = sizeof options;
    const auto *bytes = reinterpret_cast<const unsigned char *>(&options);
    for (std::size_t i = 0; i < sizeof options; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ULL; // FNV-1a
    return hash;
}

/// Refuses a struct for results that has no size; to be called before the work is done.
template <class T>
void check_result(const T *out, const char *name) {
    check_struct_size(need(out, name)->struct_size, name, "set it to the struct's sizeof");
}

/// The result for the caller: as much of it as the caller's struct has room for, its struct_size kept.
template <class T>
void write_result(const T &result, T *out, const char *name) {
    check_result(out, name);
    const auto size = out->struct_size;
    std::memcpy(out, &result, size < sizeof(T) ? size : sizeof(T));
    out->struct_size = size;
}

/// Text to a caller's buffer, by the rules of base.h.
void write_text(std::string_view text, char *buf, std::size_t cap, std::size_t *out_len);

} // namespace dslide::capi
