#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks of the C ABI, apart from what its functions do.
#
#   check.sh CHECK BUILD_DIR     BUILD_DIR: a gcc release build of the library
#   check.sh --list              names of the checks
#
# Exit code 0: passed; 77: skipped, with the reason as the last line; anything else: failed.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/abi
python=/usr/bin/python3
[ -x "$python" ] || python=python3

checks="headers_alone_gcc headers_alone_clang symbols_are_declared symbols_are_exported only_those_are_exported
symbol_version addresses_c addresses_cpp options_init_equals_zero layout_is_listed
other_sizes old_program needed_libraries soname_and_flags mpi_modules mpi_header
no_avx_outside_simd no_shared_inline_avx install_tree install_pkg_config install_pkg_config_moved install_cmake
install_cmake_moved abidiff_last_tag"
if [ "${1:-}" = --list ]; then
    for c in $checks; do echo "$c"; done
    exit 0
fi
[ $# = 2 ] || { echo "usage: $0 CHECK BUILD_DIR" >&2; exit 2; }
check=$1
build=$(cd "$2" && pwd)
lib=$build/src/capi/libdslide.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CC=${CC:-gcc} CXX=${CXX:-g++}

# Fails, and shows them, if any lines come in. ("! grep" would not do: set -e looks past it.)
no_lines() { if grep .; then return 1; fi; }
skip() { echo "$*"; exit 77; }
need_tool() { command -v "$1" >/dev/null 2>&1 || skip "$1 is not installed"; }

# Each public header, included first and alone, in each language and standard.
headers_alone() {
    bad=0
    for header in "$root"/include/dslide/*.h; do
        name=dslide/$(basename "$header")
        [ "$name" = dslide/mpi.h ] && continue
        printf '#include <%s>\n#include <%s>\nint dslide_header_alone;\n' "$name" "$name" >"$work/h.c"
        cp "$work/h.c" "$work/h.cpp"
        for std in c99 c11; do
            "$1" -std=$std -pedantic-errors -Wall -Wextra -Werror -I"$root/include" -fsyntax-only "$work/h.c" ||
                { echo "$name as $std"; bad=1; }
        done
        for std in c++98 c++11 c++17 c++20; do
            "$2" -std=$std -pedantic-errors -Wall -Wextra -Werror -I"$root/include" -fsyntax-only "$work/h.cpp" ||
                { echo "$name as $std"; bad=1; }
        done
    done
    return $bad
}
headers_alone_gcc() { headers_alone gcc g++; }
headers_alone_clang() { need_tool clang; headers_alone clang clang++; }

exported() { nm -D --defined-only --with-symbol-versions "$lib" | awk '{print $3}'; }

# The list in the repository is what a reviewer sees change, so it must be complete.
symbols_are_declared() {
    "$python" "$here/declared.py" "$root/include" >"$work/declared"
    diff -u "$here/dslide.symbols" "$work/declared"
}
symbols_are_exported() {
    exported | sed 's/@.*//' | sort >"$work/exported"
    comm -23 "$here/dslide.symbols" "$work/exported" >"$work/missing"
    [ ! -s "$work/missing" ] || { echo "listed, not exported:"; cat "$work/missing"; return 1; }
}
only_those_are_exported() {
    exported | grep -v '^DSLIDE_0' | sed 's/@.*//' | sort >"$work/exported"
    comm -13 "$here/dslide.symbols" "$work/exported" >"$work/extra"
    [ ! -s "$work/extra" ] || { echo "exported, not listed:"; cat "$work/extra"; return 1; }
}
symbol_version() {
    exported | grep -v '^DSLIDE_0' >"$work/exported"
    [ -s "$work/exported" ] || { echo "nothing is exported"; return 1; }
    grep -v '@@DSLIDE_0$' "$work/exported" | no_lines
}

run_linked() { LD_LIBRARY_PATH=$build/src/capi timeout 60 "$@"; }

addresses_c() {
    "$python" "$here/declared.py" "$root/include" --program >"$work/a.c"
    $CC -std=c99 -Wall -Werror -I"$root/include" "$work/a.c" -o "$work/a" -L"$build/src/capi" -ldslide
    run_linked "$work/a"
}
addresses_cpp() {
    "$python" "$here/declared.py" "$root/include" --program >"$work/a.cpp"
    $CXX -std=c++98 -Wall -Werror -I"$root/include" "$work/a.cpp" -o "$work/a" -L"$build/src/capi" -ldslide
    run_linked "$work/a"
}

options_init_equals_zero() {
    for options in $("$python" "$here/declared.py" "$root/include" --options); do
        grep -q "${options}_init" "$here/options_equal.c" || { echo "options_equal.c does not test $options"; return 1; }
    done
    $CC -std=c11 -Wall -Wextra -Werror -I"$root/include" "$here/options_equal.c" -o "$work/a" -L"$build/src/capi" -ldslide
    run_linked "$work/a"
}

layout_is_listed() {
    [ "$(getconf LONG_BIT)" = 64 ] || skip "the list is of machines with 64-bit pointers"
    "$python" "$here/layout.py" "$root/include" --program >"$work/a.c"
    $CC -std=c99 -Wall -Werror -I"$root/include" "$work/a.c" -o "$work/a"
    "$work/a" >"$work/printed"
    "$python" "$here/layout.py" "$here/layout.txt" "$work/printed"
}

# Programs whose structs have other sizes than the library's.
other_sizes() {
    for options in $("$python" "$here/declared.py" "$root/include" --options); do
        grep -q "{\"$options\"," "$here/other_sizes.c" || { echo "other_sizes.c does not test $options"; return 1; }
    done
    for result in $(grep -ho 'set by the caller: sizeof(dslide_[a-z_]*' "$root"/include/dslide/*.h | sed 's/.*(//'); do
        grep -q "{\"$result\"," "$here/other_sizes.c" || { echo "other_sizes.c does not test $result"; return 1; }
    done
    $CC -std=c99 -Wall -Wextra -Werror -I"$root/include" "$here/other_sizes.c" -o "$work/a" -L"$build/src/capi" -ldslide
    run_linked "$work/a" "$work/checkpoint"
}
old_program() {
    $CC -std=c99 -Wall -Wextra -Werror "$here/old_program.c" -o "$work/a" -L"$build/src/capi" -ldslide
    run_linked "$work/a"
}

# Nothing of the command or the tests may be needed to load the library, nor any MPI.
needed_libraries() {
    readelf -d "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$work/needed"
    [ -s "$work/needed" ]
    grep -Ev '^(libtbb\.so\.12|libdnnl\.so\.[0-9.]+|libhwy\.so\.1|libz\.so\.1|libzstd\.so\.1|liblzma\.so\.5|libxxhash\.so\.0|libstdc\+\+\.so\.6|libgcc_s\.so\.1|libgomp\.so\.1|libm\.so\.6|libc\.so\.6|ld-linux-.*)$' \
        "$work/needed" | no_lines
}
soname_and_flags() {
    readelf -d "$lib" >"$work/dynamic"
    abi=$(sed -n 's/^#define DSLIDE_ABI_VERSION \([0-9]*\).*/\1/p' "$root/include/dslide/base.h")
    grep -q "(SONAME).*\[libdslide.so.$abi\]" "$work/dynamic" || { echo "SONAME is not libdslide.so.$abi"; return 1; }
    # oneTBB's workers may still be inside the library when a host calls dlclose()
    grep -q NODELETE "$work/dynamic" || { echo "not linked with -z nodelete"; return 1; }
    grep -E 'RPATH|RUNPATH|TEXTREL' "$work/dynamic" | no_lines
    readelf -lW "$lib" | grep 'GNU_STACK.*RWE' | no_lines
}

# What is built for each MPI that is found.
mpi_modules() {
    abi=$(sed -n 's/^#define DSLIDE_ABI_VERSION \([0-9]*\).*/\1/p' "$root/include/dslide/base.h")
    seen=0
    for kind in openmpi mpich; do
        module=$build/src/exchange/mpi/libdslide-mpi-$kind.so.$abi
        [ -e "$module" ] || continue
        seen=$((seen + 1))
        [ "$(nm -D --defined-only "$module" | awk '{print $3}')" = dslide_mpi_module_get ] ||
            { echo "$module exports another symbol than dslide_mpi_module_get"; return 1; }
        readelf -d "$module" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$work/needed"
        grep -q '^libmpi' "$work/needed" || { echo "$module needs no MPI"; return 1; }
        grep -Ev '^(libmpi[a-z]*\.so\.[0-9]+|libc\.so\.6|ld-linux-.*)$' "$work/needed" | no_lines
    done
    [ $seen -gt 0 ] || skip "neither Open MPI nor MPICH was found when the library was built"
}
mpi_header() {
    seen=0
    printf '#include <dslide/mpi.h>\n#include <dslide/mpi.h>\nint dslide_header_alone;\n' >"$work/h.c"
    cp "$work/h.c" "$work/h.cpp"
    for package in ompi-c mpich; do
        pkg-config --exists $package || continue
        seen=$((seen + 1))
        flags="-pedantic-errors -Wall -Wextra -Werror -I$root/include -fsyntax-only -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX"
        flags="$flags $(pkg-config --cflags $package | sed 's/-I */-isystem /g')"
        for std in c99 c11; do $CC -std=$std $flags "$work/h.c"; done
        for std in c++98 c++11 c++20; do $CXX -std=$std $flags "$work/h.cpp"; done
    done
    [ $seen -gt 0 ] || skip "neither Open MPI nor MPICH is installed"
}

# Code that every x86-64 CPU runs must hold no VEX or EVEX instruction; the kernels of src/simd are chosen at run time.
vex='[[:space:]](v[a-z][a-z0-9]*|k(mov|and|or|not|xor|test|shift)[a-z]*)[[:space:]].*%([xyz]mm[0-9]|k[0-7])'
no_avx_outside_simd() {
    [ "$(uname -m)" = x86_64 ] || skip "not an x86-64 machine"
    bad=0 seen=0
    for object in $(find "$build/src" -name '*.o' ! -name 'simd_*' ! -path '*/cli/*'); do
        seen=$((seen + 1))
        if objdump -d --no-show-raw-insn "$object" | grep -Eq "$vex"; then
            echo "AVX instructions in $object"
            bad=1
        fi
    done
    for object in $(find "$build/src" -name 'simd_plain*.o' -o -name 'simd_dispatch*.o'); do
        # Highway's SCALAR and SSE targets may live here; the plain twins and the choice itself must run anywhere
        if objdump -d --no-show-raw-insn "$object" | grep -Eq "$vex"; then
            echo "AVX instructions in $object"
            bad=1
        fi
    done
    [ "$seen" -gt 0 ] || { echo "no objects below $build/src"; return 1; }
    return $bad
}
# An inline function compiled with AVX in src/simd would be merged by the linker with its plain copies elsewhere.
no_shared_inline_avx() {
    [ "$(uname -m)" = x86_64 ] || skip "not an x86-64 machine"
    for object in $(find "$build/src" -name '*.o' ! -name 'simd_*' ! -path '*/cli/*'); do
        nm --defined-only "$object" | awk '$2 == "W" || $2 == "V" {print $3}'
    done | sort -u >"$work/weak_elsewhere"
    bad=0
    for object in $(find "$build/src" -name 'simd_*.o'); do
        nm --defined-only "$object" | awk '$2 == "W" || $2 == "V" {print $3}' | sort -u >"$work/weak_here"
        comm -12 "$work/weak_here" "$work/weak_elsewhere" >"$work/shared"
        [ -s "$work/shared" ] || continue
        objdump -d --no-show-raw-insn "$object" | awk -v vex="$vex" '
            /^[0-9a-f]+ <.*>:$/ { name = $2; gsub(/[<>:]/, "", name); next }
            $0 ~ vex { hot[name] = 1 }
            END { for (n in hot) print n }' | sort -u >"$work/hot"
        comm -12 "$work/shared" "$work/hot" >"$work/risky"
        [ ! -s "$work/risky" ] || { echo "$object:"; cat "$work/risky"; bad=1; }
    done
    return $bad
}

# The tree that a user gets: installed to the prefix that the build was configured for.
prefix=$(meson introspect --buildoptions "$build" | "$python" -c '
import json, sys
print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
install_tree() {
    case $prefix in "$root"/build*) ;; *) skip "the build is configured for $prefix; not installing there" ;; esac
    rm -rf "$prefix"
    meson install -C "$build" --no-rebuild >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
    for file in include/dslide/dslide.h lib/libdslide.so lib/pkgconfig/dslide.pc lib/cmake/dslide/dslide-config.cmake \
        lib/cmake/dslide/dslide-config-version.cmake; do
        [ -e "$prefix/$file" ] || { echo "not installed: $file"; return 1; }
    done
    [ "$(readlink -f "$prefix/lib/libdslide.so")" != "$prefix/lib/libdslide.so" ] || { echo "no version links"; return 1; }
    for header in "$root"/include/dslide/*.h; do
        cmp "$header" "$prefix/include/dslide/$(basename "$header")"
    done
    # The core's static library, tests and examples stay at home.
    find "$prefix" -name '*.a' -o -name 'test_*' -o -name '*.hpp' | no_lines
}

sample_pkg_config() { # sample_pkg_config PREFIX
    need_tool pkg-config
    PKG_CONFIG_PATH=$1/lib/pkgconfig
    export PKG_CONFIG_PATH
    flags=$(pkg-config --cflags --libs dslide)
    for variable in includedir:include libdir:lib; do
        place=$(readlink -f "$(pkg-config --variable="${variable%:*}" dslide)")
        [ "$place" = "$(readlink -f "$1/${variable#*:}")" ] || { echo "dslide.pc points to $place"; return 1; }
    done
    # A user without the -dev packages of oneTBB or oneDNN must be able to link.
    [ -z "$(pkg-config --print-requires --print-requires-private dslide)" ] || { echo "dslide.pc requires others"; return 1; }
    [ "$(pkg-config --modversion dslide)" = "$(sed -n "s/^ *version: '\([0-9.]*\)',.*/\1/p" "$root/meson.build" | head -n 1)" ]
    # shellcheck disable=SC2086
    $CC -std=c99 -Wall -Werror "$here/outside/sample.c" $flags -o "$work/sample"
    LD_LIBRARY_PATH=$1/lib timeout 60 "$work/sample"
}
sample_cmake() { # sample_cmake PREFIX
    need_tool cmake
    cmake -G Ninja -S "$here/outside" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$1" -DCMAKE_BUILD_TYPE=Release >"$work/log" 2>&1 &&
        cmake --build "$work/cmake" >>"$work/log" 2>&1 || { cat "$work/log"; return 1; }
    timeout 60 "$work/cmake/sample_c"
    timeout 60 "$work/cmake/sample_cpp"
    # A release that has not come out yet must be refused.
    if cmake -G Ninja -S "$here/outside" -B "$work/cmake2" -DCMAKE_PREFIX_PATH="$1" -DWANTED=99.0 >"$work/log" 2>&1; then
        echo "find_package(dslide 99.0) succeeded"
        return 1
    fi
}
need_tree() { [ -e "$prefix/lib/pkgconfig/dslide.pc" ] || { echo "run install_tree first"; return 1; }; }
moved() { cp -a "$prefix" "$work/moved" && echo "$work/moved"; }

install_pkg_config() { need_tree; sample_pkg_config "$prefix"; }
install_pkg_config_moved() { need_tree; sample_pkg_config "$(moved)"; }
install_cmake() { need_tree; sample_cmake "$prefix"; }
install_cmake_moved() { need_tree; sample_cmake "$(moved)"; }

# The last release's library against this one. A field appended to an options struct is no break: struct_size tells.
abidiff_last_tag() {
    need_tool abidiff
    need_tool git
    tag=$(git -C "$root" describe --tags --abbrev=0 2>/dev/null) || skip "no tag: no release to compare with"
    git -C "$root" archive "$tag" | (mkdir "$work/old" && tar -x -C "$work/old")
    meson setup "$work/old-build" "$work/old" -Dtests=false -Dcli=false -Dbuildtype=release -Ddebug=true >"$work/log" 2>&1 &&
        meson compile -C "$work/old-build" >>"$work/log" 2>&1 || { tail -n 40 "$work/log"; return 1; }
    meson setup "$work/new-build" "$root" -Dtests=false -Dcli=false -Dbuildtype=release -Ddebug=true >"$work/log" 2>&1 &&
        meson compile -C "$work/new-build" >>"$work/log" 2>&1 || { tail -n 40 "$work/log"; return 1; }
    status=0
    abidiff --suppressions "$here/abidiff.suppr" --headers-dir1 "$work/old/include" --headers-dir2 "$root/include" \
        "$work/old-build/src/capi/libdslide.so" "$work/new-build/src/capi/libdslide.so" >"$work/diff" 2>&1 || status=$?
    # bit 3 (8): an incompatible change; bits 0 and 1: abidiff itself failed; bit 2 (4): any change, also an added call
    [ $((status & 11)) = 0 ] || { cat "$work/diff"; return 1; }
}

$check
