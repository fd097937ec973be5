#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed on random batches of the Amazon-670K shape, by source of the active rows.

    speed.py BUILD_DIR [--repeats N] [--threads 1,2]

Runs `dslide bench` in turn for each setting, N times, and prints medians: samples per CPU second and per second, rows
touched a batch, and the share of the machine's memory bandwidth (triad) that the update of the touched rows alone moves:
weights and two moments read and written. Needs a build with -Dbench=true.
"""
import argparse
import json
import pathlib
import statistics
import subprocess

SETTINGS = [
    ("2,000 private rows by hash tables", ["--active", "2000", "--candidate-factor", "1", "--tables", "20"]),
    ("2,000 private rows, uniform", ["--active", "2000", "--hash", "random"]),
    # Shared rows are drawn with replacement: 3,400 draws from these labels give about 2,000 distinct rows.
    ("100 by hash tables, the rest shared", ["--active", "3400", "--shared-negatives", "3300", "--tables", "20"]),
    ("shared alone", ["--active", "3400", "--shared-negatives", "3400"]),
]


def bench(build, threads, flags):
    command = [str(build / "src/cli/dslide"), "bench", "--threads", str(threads), "--steps", "10", "--json", "-", *flags]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    return json.loads(output.splitlines()[-1])


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("build", type=pathlib.Path)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--threads", default="1")
    options = arguments.parse_args()
    for threads in map(int, options.threads.split(",")):
        triad = float(subprocess.run([str(options.build / "tests/bench/triad"), str(threads)], check=True,
                                     capture_output=True, text=True, timeout=120).stdout)
        print(f"{threads} thread(s), triad {triad:.1f} GB/s")
        runs = [[] for _ in SETTINGS]
        for _ in range(options.repeats):  # in turn, so that a slow minute of the machine hits all settings
            for results, (_, flags) in zip(runs, SETTINGS):
                results.append(bench(options.build, threads, flags))
        for results, (name, _) in zip(runs, SETTINGS):
            median = {key: statistics.median(run[key] for run in results)
                      for key, value in results[0].items() if isinstance(value, (int, float))}
            moved = (median["rows_touched_per_batch"] + median["features_touched_per_batch"]) * median["bytes_per_row_moved"]
            share = moved * median["steps"] / median["seconds"] / (triad * 1e9)
            print(f"  {name:36} {median['samples_per_cpu_second']:9,.0f} samples/CPU-s {median['samples_per_second']:9,.0f}/s "
                  f"{median['rows_touched_per_batch']:9,.0f} rows a batch, {100 * share:3.0f} % of triad, "
                  f"active {median['active_share'] * results[0]['outputs']:,.0f}, {median['peak_rss_bytes'] / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
