#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian or Ubuntu packages that the project needs, if any is missing. Quick and silent when none is.
#
#   sh tests/install-deps.sh GROUP...      GROUP: build test mpi numeric lint docs ffi fuzz tsan
#   sh tests/install-deps.sh --print GROUP...    only names what is missing
set -eu

packages_of() {
    case $1 in
    build) echo "gcc g++ meson ninja-build pkg-config libtbb-dev libdnnl-dev libhwy-dev zlib1g-dev libzstd-dev" \
        "liblzma-dev libxxhash-dev nlohmann-json3-dev libfast-float-dev libcli11-dev" ;;
    test) echo "libcmocka-dev python3 binutils cmake xz-utils" ;;
    mpi) echo "libopenmpi-dev openmpi-bin libmpich-dev mpich" ;;
    numeric) echo "python3-numpy python3-torch python3-xxhash" ;;
    lint) echo "clang clang-format abigail-tools git" ;;
    docs) echo "doxygen" ;;
    ffi) echo "golang-go rustc python3" ;;
    fuzz) echo "clang libclang-rt-dev" ;;
    tsan) echo "cmake dpkg-dev" ;;
    *) echo "$0: no group is called $1" >&2; exit 2 ;;
    esac
}

print_only=no
if [ "${1:-}" = --print ]; then print_only=yes; shift; fi
[ $# -gt 0 ] || { echo "usage: $0 [--print] GROUP..." >&2; exit 2; }

wanted=
for group; do wanted="$wanted $(packages_of "$group")"; done

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    echo "$0: not a Debian or Ubuntu machine; please install what these packages hold:$wanted" >&2
    exit 0 # the build itself will say what it misses
fi

missing=
for package in $wanted; do
    case " $missing " in *" $package "*) continue ;; esac
    case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true) in
    installed) ;;
    *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0
if [ $print_only = yes ]; then echo "$missing"; exit 0; fi

as_root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "$0: missing:$missing; neither root nor sudo" >&2; exit 1; }
    as_root=sudo
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=400 -o Acquire::Retries=3 -qq "$@" \
        >>"$log" 2>&1 </dev/null
}
echo "installing:$missing"
# The lists of a fresh machine are empty or old: refresh them first.
# shellcheck disable=SC2086
apt update && apt install -y --no-install-recommends $missing || {
    cat "$log" >&2
    echo "$0: could not install:$missing" >&2
    exit 1
}
