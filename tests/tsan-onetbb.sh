#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the distribution's own oneTBB source for the thread sanitizer. The machine's apt settings stay as they are.
#
#   sh tests/tsan-onetbb.sh PREFIX     a finished build there is kept
set -eu
prefix=$1
[ -e "$prefix/lib/pkgconfig/tbb.pc" ] && exit 0
sh "$(dirname "$0")/install-deps.sh" build tsan
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/parts" "$work/lists/partial" "$work/cache/archives/partial" "$work/source"
# A private list of the source archive behind the binary packages that this machine uses.
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $codename" | head -n 1)
case $(. /etc/os-release && echo "$ID") in
debian) components=main keyring=/usr/share/keyrings/debian-archive-keyring.gpg ;;
*) components="main universe" keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg ;;
esac
printf 'Types: deb-src\nURIs: %s\nSuites: %s\nComponents: %s\nSigned-By: %s\n' "$uri" "$codename" "$components" \
    "$keyring" >"$work/parts/source.sources"
private="-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=$work/parts -o Dir::State::Lists=$work/lists
    -o Dir::Cache=$work/cache -o APT::Sandbox::User=root"
# shellcheck disable=SC2086
apt-get $private -qq update
# shellcheck disable=SC2086
(cd "$work/source" && apt-get $private -qq source onetbb) >"$work/log" 2>&1
cmake -G Ninja -S "$(echo "$work"/source/onetbb-*/)" -B "$work/build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTBB_TEST=OFF \
    -DTBB_STRICT=OFF -DTBB_SANITIZE=thread -DTBBMALLOC_BUILD=OFF -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
ninja -C "$work/build" tbb >"$work/log" 2>&1 || { tail -n 40 "$work/log"; exit 1; }
cmake --install "$work/build" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
[ -e "$prefix/lib/pkgconfig/tbb.pc" ]
