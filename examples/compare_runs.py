#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the results of training runs side by side, from what `dslide train --json FILE` wrote.

    compare_runs.py NAME=FILE NAME=FILE...

Each run is shown at its best epoch by P@1; seconds are those of training up to and with that epoch, and in all.
"""
import json
import sys


def epochs_of(path):
    with open(path, encoding='utf-8') as lines:
        return [e for e in map(json.loads, lines) if e.get('event') == 'epoch']


def column(name, epochs):
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
        f'{sum(e["samples"] for e in epochs) / total:,.0f}' if total > 0 else '-',
        f'{100 * at_best["active_share"]:.2f} %',
        f'{at_best["rows_touched_per_batch"]:,.0f}',
    ]


ROWS = ['', 'P@1', 'P@3', 'P@5', 'best epoch', 'seconds to it', 'seconds in all', 'samples/s', 'active rows a sample',
        'distinct rows a batch']


def main():
    columns = [ROWS]
    for argument in sys.argv[1:]:
        name, path = argument.split('=', 1)
        epochs = epochs_of(path)
        if not epochs:
            sys.exit(f'{path}: no epoch was finished')
        columns.append(column(name, epochs))
    widths = [max(len(text) for text in c) for c in columns]
    for row, texts in enumerate(zip(*columns)):
        print('  ' + '  '.join(t.ljust(w) if i == 0 else t.rjust(w) for i, (t, w) in enumerate(zip(texts, widths))).rstrip())
        if row == 0:
            print('  ' + '-' * (sum(widths) + 2 * (len(widths) - 1)))


main()
