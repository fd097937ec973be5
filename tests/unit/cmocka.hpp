// SPDX-License-Identifier: Apache-2.0
// cmocka for C++ tests. Its macro fail() would hide dslide::fail().
#pragma once

#include <cmath>
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>

extern "C" {
#include <cmocka.h>
}
#undef fail
