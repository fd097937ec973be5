#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `dslide train` with the PyTorch rival: CPU seconds of training to a target precision, in one run.

    compare.py SETTING --data DIR [--dslide PATH] [--threads 1] [--plot FILE.png]

SETTING is a670k, small or wordnet. DIR holds SETTING_train.txt and SETTING_test.txt; for a670k and small they are made
there if they are missing. Both sides train one after the other with the same thread count, on the same rows, and are
judged on the same test rows after each epoch; only their training counts, not reading, evaluation or saving. The rival
has the best learning rate and negatives that were found for it.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass
class Setting:
    epochs: int    # of the rival
    target: float  # P@1
    hidden: int
    rival: list    # options of torch_rival.py
    synthetic: list = None  # sizes for make_synthetic.py; None: the rows cannot be made


SETTINGS = {
    "a670k": Setting(3, 0.45, 128, ["--sampled", "loguniform", "--negatives", "3350", "--rate", "3e-3"],
                     ["--n-train", "100000", "--n-test", "5120", "--dim", "135909", "--labels", "670091"]),
    "small": Setting(2, 0.55, 128, ["--sampled", "uniform", "--negatives", "1000", "--rate", "5e-3"],
                     ["--n-train", "50000", "--n-test", "5120", "--dim", "20000", "--labels", "10000"]),
    "wordnet": Setting(8, 0.67, 256, ["--sampled", "uniform", "--negatives", "1000", "--rate", "1e-3"]),
}
EVALUATION_ROWS = 5120


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("--data", required=True, type=pathlib.Path, help="directory of the rows")
    parser.add_argument("--dslide", type=pathlib.Path, default=ROOT / "build/src/cli/dslide", help="the command")
    parser.add_argument("--config", type=pathlib.Path, help="recipe of dslide; default: examples/recipes/SETTING.conf")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, help="of both; default: the recipe's and the setting's")
    parser.add_argument("--target", type=float, help="P@1 to reach; default: the setting's")
    parser.add_argument("--plot", type=pathlib.Path, help="write P@1 against CPU seconds as PNG")
    parser.add_argument("--json", type=pathlib.Path, help="write both sides' epochs and the summary as JSON")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def ensure_data(options, setting):
    files = [options.data / f"{options.setting}_{split}.txt" for split in ("train", "test")]
    if not all(file.exists() for file in files):
        if setting.synthetic is None:
            sys.exit(f"{files[0]} or {files[1].name} is missing")
        subprocess.run([sys.executable, HERE / "make_synthetic.py", "--out", options.data, "--name", options.setting,
                        *setting.synthetic], check=True)
    return files


def epochs_of(lines):
    """Epoch lines of either side, with CPU seconds and samples summed up."""
    epochs, cpu_seconds, samples = [], 0.0, 0
    for line in lines:
        record = json.loads(line)
        if record.get("event") != "epoch":
            continue
        cpu_seconds += record["cpu_seconds"]
        samples += record["samples"]
        epochs.append(dict(epoch=record["epoch"], p_at_1=record["p_at_1"], cpu_seconds=cpu_seconds, samples=samples))
    return epochs


def run_rival(options, setting, epochs):
    command = [sys.executable, HERE / "torch_rival.py", options.data / options.setting, "--hidden", setting.hidden,
               "--epochs", epochs, "--threads", options.threads, "--eval-rows", EVALUATION_ROWS, "--seed", options.seed,
               *setting.rival]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    return epochs_of(done.stdout.splitlines())


def run_dslide(options, files, epochs):
    config = options.config or ROOT / "examples" / "recipes" / f"{options.setting}.conf"
    with tempfile.TemporaryDirectory() as directory:
        report = os.path.join(directory, "report.jsonl")
        command = [options.dslide, "train", "--config", config, "--train", files[0], "--test", files[1],
                   *(["--epochs", epochs] if epochs else []), "--threads", options.threads, "--eval-rows", EVALUATION_ROWS,
                   "--seed", options.seed, "--quiet", "--json", report]
        # Recipes name files of the tree.
        subprocess.run(list(map(str, command)), check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        with open(report) as lines:
            return epochs_of(lines)


def seconds_to(target, epochs):
    """CPU seconds until P@1 reaches the target, on straight lines between epochs; None if it never does."""
    before = dict(cpu_seconds=0.0, p_at_1=0.0)
    for epoch in epochs:
        if epoch["p_at_1"] >= target:
            share = (target - before["p_at_1"]) / (epoch["p_at_1"] - before["p_at_1"])
            return before["cpu_seconds"] + share * (epoch["cpu_seconds"] - before["cpu_seconds"])
        before = epoch
    return None


def summary(target, epochs):
    last = epochs[-1]
    return dict(cpu_seconds_to_target=seconds_to(target, epochs), best_p_at_1=max(e["p_at_1"] for e in epochs),
                samples_per_cpu_second=last["samples"] / last["cpu_seconds"])


def print_summary(options, target, sides):
    print(f"{options.setting}, {options.threads} thread{'s' if options.threads > 1 else ''}, target P@1 {target}")
    print(f"{'':10}{'CPU s to target':>16}{'samples / CPU s':>17}{'best P@1':>10}   P@1 by epoch")
    for name, (epochs, result) in sides.items():
        to_target = result["cpu_seconds_to_target"]
        print(f"{name:10}{'never' if to_target is None else f'{to_target:.2f}':>16}"
              f"{result['samples_per_cpu_second']:17,.0f}{result['best_p_at_1']:10.4f}   "
              + " ".join(f"{e['p_at_1']:.3f}" for e in epochs))
    ours, theirs = sides["dslide"][1], sides["torch"][1]
    if None not in (ours["cpu_seconds_to_target"], theirs["cpu_seconds_to_target"]):
        print(f"CPU seconds to the target, torch / dslide: "
              f"{theirs['cpu_seconds_to_target'] / ours['cpu_seconds_to_target']:.2f}")
    speed = ours["samples_per_cpu_second"] / theirs["samples_per_cpu_second"]
    print(f"samples a CPU second, dslide / torch: {speed:.2f}")


def plot(options, target, sides):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for name, (epochs, _) in sides.items():
        axes.plot([0, *(e["cpu_seconds"] for e in epochs)], [0, *(e["p_at_1"] for e in epochs)], marker="o", label=name)
    axes.axhline(target, color="grey", linestyle=":", label=f"target {target}")
    axes.set(title=f"{options.setting}, {options.threads} thread(s)", xlabel="CPU seconds of training", ylabel="P@1")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(options.plot, dpi=120, bbox_inches="tight")


def main():
    options = parse_arguments()
    setting = SETTINGS[options.setting]
    # Paths may be given relative to here, but dslide runs at the top of the tree, as recipes want it.
    options.dslide, options.data = options.dslide.resolve(), options.data.resolve()
    options.config = options.config and options.config.resolve()
    files = ensure_data(options, setting)
    target = options.target or setting.target
    runs = {"dslide": run_dslide(options, files, options.epochs),
            "torch": run_rival(options, setting, options.epochs or setting.epochs)}
    sides = {name: (run, summary(target, run)) for name, run in runs.items()}
    print_summary(options, target, sides)
    if options.json:
        options.json.write_text(json.dumps({name: dict(epochs=run, **result) for name, (run, result) in sides.items()}))
    if options.plot:
        plot(options, target, sides)


if __name__ == "__main__":
    main()
