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
python=/usr/bin/python3 # the one that meson brought

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

# Same network, same seed, same data; only the choice of the active rows differs. Its 1,830 labels are few: a network
# this small trains in seconds either way, so that the precision can be compared. Time is compared further down.
rm -rf "$runs"
mkdir -p "$runs"
verb=$data/wordnet-verb
train() { # train NAME FLAGS...
    name=$1
    shift
    "$dslide" train --train "$verb-train.txt.gz" --test "$verb-test.txt.gz" --names-labels "$verb-labels.txt.gz" \
        --names-features "$verb-features.txt.gz" --hidden 128 --epochs 6 --batch 64 --lr 0.003 --seed 1 \
        --save "$runs/$name" --json "$runs/$name.json" "$@"
}
say "training: hash tables choose the active rows"
train sampled --hash simhash --active-share 0.04
say "training: all rows are active (full softmax)"
train dense --dense

say "side by side, judged on unseen verbs with exact scores"
"$python" examples/compare_runs.py "sampled=$runs/sampled.json" "full softmax=$runs/dense.json"
echo "  (nearest neighbours reach P@1 43.57 %, one logistic regression a label 44.50 %: examples/data/README.md)"

say "the saved model: checked, loaded, judged"
"$dslide" verify "$runs/sampled"
"$dslide" eval --model "$runs/sampled" --test "$verb-test.txt.gz" --k 1,3,5

say "predictions of the loaded model for unseen verbs, from the words of their definitions and lemmas (n:)"
gzip -dc "$verb-test.txt.gz" | sed -n '2p;600p;1200p;1800p;2400p' >"$runs/rows.txt"
"$dslide" predict --model "$runs/sampled" --input "$runs/rows.txt" --top 5 --names >"$runs/predictions.txt"
gzip -dc "$verb-labels.txt.gz" | awk -v rows="$runs/rows.txt" -v predictions="$runs/predictions.txt" '
    { name[NR - 1] = $0 }
    END {
        while ((getline line < predictions) > 0) {
            getline row < rows
            split(row, parts, " ")
            n = split(parts[1], labels, ",")
            n_fields = split(line, fields, "\t")
            printf "  words:     %s\n  predicted: ", fields[1]
            for (i = 2; i <= n_fields; ++i) printf "%s%s", fields[i], i < n_fields ? ", " : "\n"
            printf "  true:      "
            for (i = 1; i <= n; ++i) printf "%s%s", name[labels[i]], i < n ? ", " : "\n\n"
        }
    }'

say "time of a training step when there are 200,000 labels (made-up rows, hidden width 128, batch 256)"
"$dslide" bench --outputs 200000 --inputs 50000 --steps 5 --batch 256 --active-share 0.001 --json "$runs/wide.json" >"$runs/wide.log" 2>&1
"$dslide" bench --outputs 200000 --inputs 50000 --steps 5 --batch 256 --dense --json "$runs/wide-dense.json" >"$runs/wide-dense.log" 2>&1
"$python" examples/compare_runs.py --steps "sampled=$runs/wide.json" "full softmax=$runs/wide-dense.json"

say "next"
echo "the command:  $dslide --help"
echo "a C program:  examples/01_train.c"
