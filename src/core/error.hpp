// SPDX-License-Identifier: Apache-2.0
// The one exception type of the core; src/capi turns it into a status code.
#pragma once

#include "core/text.hpp"

#include <dslide/base.h>

#include <exception>
#include <string>
#include <utility>

namespace dslide {

class Error : public std::exception {
public:
    Error(dslide_status status, std::string text) : status_(status), text_(std::move(text)) {}
    dslide_status status() const noexcept { return status_; }
    const char *what() const noexcept override { return text_.c_str(); }

private:
    dslide_status status_;
    std::string text_;
};

/// Joins the parts to one line and throws it: fail(DSLIDE_E_ARGUMENT, "column ", c, " >= n_cols ", n).
template <class... Parts>
[[noreturn]] void fail(dslide_status status, const Parts &...parts) {
    throw Error(status, joined(parts...));
}

} // namespace dslide
