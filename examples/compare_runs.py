#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the results of training runs side by side, from what `dslide train --json FILE` wrote.

    compare_runs.py NAME=FILE NAME=FILE...            each at its best epoch by P@1
    compare_runs.py --steps NAME=FILE NAME=FILE...    steps timed by `dslide bench --json FILE`
"""
import json
import sys


EPOCH_ROWS = ['', 'P@1', 'P@3', 'P@5', 'best epoch', 'seconds up to it', 'seconds in all', 'CPU seconds in all', 'samples/s',
              'active rows a sample', 'distinct rows a batch']
STEP_ROWS = ['', 'seconds a step', 'CPU seconds a step', 'samples/s', 'active rows a sample', 'distinct rows a batch']


def events(path, kind):
    with open(path, encoding='utf-8') as lines:
        found = [e for e in map(json.loads, lines) if e.get('event') == kind]
    if not found:
        sys.exit(f'{path}: holds no "{kind}"')
    return found


def epoch_column(name, path):
    epochs = events(path, 'epoch')
    best = max(range(len(epochs)), key=lambda i: epochs[i]['p_at_1'])
    at_best = epochs[best]
    total = sum(e['seconds'] for e in epochs)
    return [
        name,
        f'{100 * at_best["p_at_1"]:.2f} %',
        f'{100 * at_best["p_at_3"]:.2f} %',
        f'{100 * at_best["p_at_5"]:.2f} %',
        f'{best + 1} of {len(epochs)}',
        f'{sum(e["seconds"] for e in epochs[:best + 1]):.2f}',
        f'{total:.2f}',
        f'{sum(e["cpu_seconds"] for e in epochs):.2f}',
        f'{sum(e["samples"] for e in epochs) / total:,.0f}',
        f'{100 * at_best["active_share"]:.2f} %',
        f'{at_best["rows_touched_per_batch"]:,.0f}',
    ]


def step_column(name, path):
    run = events(path, 'bench')[-1]
    return [
        name,
        f'{run["seconds"] / run["steps"]:.3f}',
        f'{run["cpu_seconds"] / run["steps"]:.3f}',
        f'{run["samples_per_second"]:,.0f}',
        f'{100 * run["active_share"]:.2f} %',
        f'{run["rows_touched_per_batch"]:,.0f}',
    ]


def main():
    runs = sys.argv[1:]
    rows, column = EPOCH_ROWS, epoch_column
    if runs[:1] == ['--steps']:
        runs, rows, column = runs[1:], STEP_ROWS, step_column
    columns = [rows] + [column(*run.split('=', 1)) for run in runs]
    widths = [max(map(len, c)) for c in columns]
    for number, texts in enumerate(zip(*columns)):
        cells = [t.ljust(w) if i == 0 else t.rjust(w) for i, (t, w) in enumerate(zip(texts, widths))]
        print('  ' + '  '.join(cells).rstrip())
        if number == 0:
            print('  ' + '-' * (sum(widths) + 2 * (len(widths) - 1)))


main()
