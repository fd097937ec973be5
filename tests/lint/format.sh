#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Are the C and C++ sources as .clang-format says? Releases of clang-format differ, so only release 14 judges.
set -eu
cd "$(dirname "$0")/../.."
tool=
for candidate in clang-format-14 clang-format; do
    if command -v $candidate >/dev/null 2>&1 && $candidate --version | grep -q 'version 14\.'; then
        tool=$candidate
        break
    fi
done
[ -n "$tool" ] || { echo "clang-format 14 is not installed"; exit 77; }
for top in include src tests examples bindings; do
    [ ! -d $top ] || find $top -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.hpp'
done |
    xargs "$tool" --dry-run --Werror
