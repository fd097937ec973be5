#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs every test of every kind.
#
#   sh tests/run.sh             everything of a merge
#   sh tests/run.sh --full      also what takes long: the thread sanitizer with a oneTBB built for it, and fuzzing
#   sh tests/run.sh --only GROUP...    packages lint release suites abi docs ffi asan clang tsan fuzz
#
# Builds go to build-test/ (TEST_BUILD names another folder). The last line is `N passed, N failed, N skipped`.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$PWD
exec </dev/null

full=no only=
while [ $# -gt 0 ]; do
    case $1 in
    --full) full=yes ;;
    --only) shift; only=" $* "; break ;;
    *) echo "usage: $0 [--full] [--only GROUP...]" >&2; exit 2 ;;
    esac
    shift
done

build=${TEST_BUILD:-$root/build-test}
mkdir -p "$build/logs"
: >"$build/skipped"
passed=0 failed=0 skipped=0
start=$(date +%s)
fuzz_seconds=${FUZZ_SECONDS:-60}
jobs=$(nproc 2>/dev/null || echo 2)
python=/usr/bin/python3 # where the distribution's meson lives; another python3 may come first in PATH

elapsed() { echo $(($(date +%s) - start)); }
wanted() { case $only in '') true ;; *" $1 "*) true ;; *) false ;; esac; }
group() { echo; echo "== $1 ($(elapsed) s)"; }
why_skipped() { skipped=$((skipped + $1)); shift; echo "   skipped: $*"; echo "$*" >>"$build/skipped"; }

# check SECONDS NAME COMMAND...: one test. Exit code 77 means skipped, for the reason in its last line.
check() {
    limit=$1 name=$2
    shift 2
    log=$build/logs/$(echo "$name" | tr -c 'A-Za-z0-9_.\n-' '_').log
    code=0
    timeout -k 10 "$limit" "$@" >"$log" 2>&1 || code=$?
    case $code in
    0) passed=$((passed + 1)); echo "   ok      $name" ;;
    77) why_skipped 1 "$name: $(tail -n 1 "$log")" ;;
    *)
        failed=$((failed + 1))
        [ $code = 124 ] && echo "stopped after $limit s" >>"$log"
        echo "   FAILED  $name (exit code $code)"
        tail -n 30 "$log" | sed 's/^/           | /'
        return 1
        ;;
    esac
}

# suites NAME BUILD SECONDS MESON_TEST_ARGUMENTS...: the tests of a build, each counted.
suites() {
    what=$1 where=$2 limit=$3
    shift 3
    log=$build/logs/suites_$(echo "$what" | tr -c 'A-Za-z0-9_.\n-' '_')
    rm -f "$where/meson-logs/testlog.json"
    timeout -k 10 "$limit" meson test -C "$where" --no-rebuild --num-processes "$jobs" "$@" >"$log.log" 2>&1
    code=$?
    if [ ! -s "$where/meson-logs/testlog.json" ]; then
        # meson says so when no suite of the name has a test
        if [ $code = 0 ] || grep -q 'No tests defined\|No suitable tests' "$log.log"; then
            case $what in *others) ;; *) why_skipped 1 "$what: no test yet" ;; esac
            return 0
        fi
        failed=$((failed + 1))
        echo "   FAILED  $what: meson test ended with $code"
        tail -n 20 "$log.log" | sed 's/^/           | /'
        return 1
    fi
    counts=$("$python" tests/count_tests.py "$where/meson-logs/testlog.json" "$log.report") || counts="0 1 0"
    # shellcheck disable=SC2086
    set -- $counts
    # A run cut short by the time limit has no entry for the tests that did not end.
    if [ $code = 124 ]; then
        set -- "$1" $(($2 + 1)) "$3"
        echo "   FAILED  $what: stopped after $limit s"
    elif [ $code != 0 ] && [ "$2" = 0 ]; then
        set -- "$1" 1 "$3"
        tail -n 20 "$log.log"
    fi
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    echo "   $what: $1 passed, $2 failed, $3 skipped"
    sed -n '/^skipped: /s/^skipped: //p' "$log.report" >>"$build/skipped"
    sed 's/^/      /' "$log.report"
}

# compile NAME SECONDS FOLDER OPTIONS...: two tests: is it configured, does it build.
compile() {
    what=$1 most=$2 folder=$3
    shift 3
    again=
    [ -e "$folder/build.ninja" ] && again=--reconfigure
    check 240 "$what: configure" meson setup $again "$folder" "$root" --prefix "$build/prefix" --libdir lib "$@" &&
        check "$most" "$what: compile" ninja -C "$folder" -j "$jobs"
}

install_packages() {
    group "packages"
    check 900 "packages that the build needs" sh tests/install-deps.sh build test || finish
    optional="mpi numeric lint docs ffi fuzz"
    [ $full = yes ] && optional="$optional tsan"
    # One go for all; if a release lacks one, what is left out makes its own tests be skipped.
    # shellcheck disable=SC2086
    timeout 900 sh tests/install-deps.sh $optional >"$build/logs/packages.log" 2>&1 || for some in $optional; do
        timeout 600 sh tests/install-deps.sh "$some" >"$build/logs/packages.log" 2>&1 ||
            why_skipped 1 "packages: $some: $(tail -n 1 "$build/logs/packages.log")"
    done
}

run_lint() {
    group "rules of the sources"
    for rule in $("$python" tests/lint/check_sources.py . --list); do
        check 60 "lint: $rule" "$python" tests/lint/check_sources.py . "$rule"
    done
    check 120 "lint: format" sh tests/lint/format.sh
    for script in tests/*.sh tests/*/*.sh examples/*.sh; do
        [ -e "$script" ] && check 10 "lint: sh -n $script" sh -n "$script"
    done
}

run_release() {
    group "release build with gcc"
    CC=${CC:-gcc} CXX=${CXX:-g++} compile "gcc release" 1500 "$build/release" -Dbuildtype=release -Dwerror=true
}
run_suites() {
    group "tests of the release build"
    for suite in unit capi cli mpi numeric examples kill fuzz; do
        suites "release, $suite" "$build/release" 900 --suite "$suite"
    done
    suites "release, others" "$build/release" 900 --no-suite unit --no-suite capi --no-suite cli --no-suite mpi --no-suite numeric \
        --no-suite examples --no-suite kill --no-suite fuzz --no-suite ffi
}

run_abi() {
    group "C ABI"
    for name in $(sh tests/abi/check.sh --list); do
        limit=120
        [ "$name" = abidiff_last_tag ] && limit=900
        check $limit "abi: $name" sh tests/abi/check.sh "$name" "$build/release"
    done
}

run_docs() {
    group "reference manual"
    if command -v doxygen >/dev/null 2>&1; then
        check 120 "docs: configure" sh -c 'rm -rf "$1" && meson setup "$1" . -Dtests=false -Dcli=false -Ddocs=true' sh \
            "$build/docs" && check 300 "docs: Doxygen without warnings" ninja -C "$build/docs" docs/html
    else
        why_skipped 1 "docs: doxygen is not installed"
    fi
}

# Programs in other languages, and the bindings: a binding's run-tests.sh gets the installed tree and the data, and exits
# with 77 to be skipped.
run_ffi() {
    group "programs in other languages"
    suites "ffi" "$build/release" 900 --suite ffi
    for script in bindings/*/run-tests.sh; do
        [ -e "$script" ] || continue
        [ -e "$build/prefix/lib/pkgconfig/dslide.pc" ] || sh tests/abi/check.sh install_tree "$build/release"
        mkdir -p "$build/bindings"
        check 600 "$(dirname "$script")" env DSLIDE_PREFIX="$build/prefix" DSLIDE_DATA="$root/examples/data" \
            DSLIDE_WORK="$build/bindings" PKG_CONFIG_PATH="$build/prefix/lib/pkgconfig" \
            LD_LIBRARY_PATH="$build/prefix/lib" sh "$script"
    done
}

run_asan() {
    group "address and undefined-behaviour sanitizers"
    # Also the build of a machine without MPI.
    compile "gcc asan+ubsan" 1500 "$build/asan" -Dbuildtype=debugoptimized -Doptimization=1 -Db_sanitize=address,undefined \
        -Db_lundef=false -Dcli=false -Dmpi=disabled || return
    export ASAN_OPTIONS=detect_stack_use_after_return=1
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    for suite in unit capi fuzz; do
        suites "asan+ubsan, $suite" "$build/asan" 1200 --suite "$suite" --timeout-multiplier 4
    done
    unset ASAN_OPTIONS UBSAN_OPTIONS
}

run_clang() {
    group "clang build"
    if ! command -v clang++ >/dev/null 2>&1; then
        why_skipped 1 "clang: not installed"
        return
    fi
    CC=clang CXX=clang++ compile "clang" 1500 "$build/clang" -Dbuildtype=debug -Dwerror=true # only its warnings are asked for
}

run_tsan() {
    group "thread sanitizer"
    # Debian's oneTBB is not instrumented: its hand-overs would be reported as races, so it is built for the purpose.
    check 1200 "oneTBB for the thread sanitizer" sh tests/tsan-onetbb.sh "$build/onetbb" || return
    LD_LIBRARY_PATH=$build/onetbb/lib PKG_CONFIG_PATH=$build/onetbb/lib/pkgconfig
    export LD_LIBRARY_PATH PKG_CONFIG_PATH TSAN_OPTIONS="halt_on_error=0:exitcode=66"
    compile "gcc tsan" 1500 "$build/tsan" -Dbuildtype=debugoptimized -Doptimization=1 -Db_sanitize=thread \
        -Db_lundef=false -Dcli=false &&
        for suite in unit capi; do
            suites "tsan, $suite" "$build/tsan" 1800 --suite "$suite" --timeout-multiplier 10
        done
    unset LD_LIBRARY_PATH PKG_CONFIG_PATH TSAN_OPTIONS
}

run_fuzz() {
    group "fuzzing with libFuzzer"
    if ! command -v clang++ >/dev/null 2>&1; then
        why_skipped 1 "fuzz: clang is not installed"
        return
    fi
    CC=clang CXX=clang++ compile "clang fuzz" 1500 "$build/fuzz" -Dbuildtype=debugoptimized -Dfuzz=true -Dcli=false \
        -Db_sanitize=address,undefined -Db_lundef=false || return
    for fuzzer in "$build"/fuzz/tests/fuzz/fuzz_*; do
        [ -x "$fuzzer" ] && [ -f "$fuzzer" ] || continue
        target=${fuzzer##*/fuzz_}
        corpus=$build/corpus/$target # grows from run to run
        mkdir -p "$corpus"
        check $((fuzz_seconds + 120)) "fuzz: $target for $fuzz_seconds s" "$fuzzer" -max_total_time=$fuzz_seconds \
            -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$build/logs/" "$corpus" "tests/fuzz/seeds/$target"
    done
}

finish() {
    echo
    [ ! -s "$build/skipped" ] || { echo "skipped, and why:"; sort -u "$build/skipped" | sed 's/^/   /'; }
    echo "$(elapsed) s; logs: $build/logs"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
    exit
}

wanted packages && install_packages
wanted lint && run_lint
if wanted release; then run_release || finish; fi
wanted suites && run_suites
wanted abi && run_abi
wanted docs && run_docs
wanted ffi && run_ffi
wanted asan && run_asan
wanted clang && run_clang
# Groups of --full alone
case $full$only in yes | *' tsan '*) run_tsan ;; esac
case $full$only in yes | *' fuzz '*) run_fuzz ;; esac
finish
