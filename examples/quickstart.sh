#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a bare Debian or Ubuntu machine to a trained model, in one command:
#
#   sh examples/quickstart.sh
#
# Installs the packages that are missing (root or sudo), builds the library and the `dslide` command in
# build-quickstart/, trains one network twice on the WordNet verbs - with hash tables that choose the active rows, and
# with all rows - and compares them; then loads the saved model and predicts. Run it again whenever you like.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
build=${QUICKSTART_BUILD:-$root/build-quickstart}
data=$root/examples/data
runs=$build/runs

say() { printf '\n== %s\n' "$*"; }
quietly() { # quietly LOG COMMAND...: shows the end of the log if it fails
    log=$1
    shift
    "$@" >"$log" 2>&1 </dev/null || {
        tail -n 40 "$log" >&2
        echo "failed: $*" >&2
        exit 1
    }
}

say "packages"
sh tests/install-deps.sh build
echo "all there"

say "build"
mkdir -p "$build"
[ -e "$build/build.ninja" ] || quietly "$build/setup.log" meson setup "$build" "$root" -Dbuildtype=release -Dtests=false
quietly "$build/compile.log" ninja -C "$build"
dslide=$build/src/cli/dslide
"$dslide" --version

# Same network, same seed, same data; only the choice of the active rows differs.
rm -rf "$runs"
mkdir -p "$runs"
train() { # train NAME FLAGS...
    name=$1
    shift
    "$dslide" train --train "$data/wordnet-verb-train.txt.gz" --test "$data/wordnet-verb-test.txt.gz" \
        --names-labels "$data/wordnet-verb-labels.txt.gz" --names-features "$data/wordnet-verb-features.txt.gz" \
        --hidden 128 --epochs 10 --batch 256 --seed 1 --save "$runs/$name" --json "$runs/$name.json" "$@"
}
say "training: hash tables choose the active rows"
train sampled --hash simhash
say "training: all rows are active (full softmax)"
train dense --dense

say "side by side, on the test set"
/usr/bin/python3 examples/compare_runs.py "sampled=$runs/sampled.json" "full softmax=$runs/dense.json"

say "the saved model"
"$dslide" verify "$runs/sampled"
"$dslide" eval --model "$runs/sampled" --test "$data/wordnet-verb-test.txt.gz" --k 1,3,5

say "predictions of the loaded model, for three unseen verbs"
gzip -dc "$data/wordnet-verb-test.txt.gz" | sed -n '2p;1200p;2400p' >"$runs/three.txt"
"$dslide" predict --model "$runs/sampled" --input "$runs/three.txt" --top 5 --names

say "next"
echo "the command:  $dslide --help"
echo "a C program:  examples/01_train.c"
