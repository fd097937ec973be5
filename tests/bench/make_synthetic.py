#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Extreme-classification data of any size that a network can learn; the same arguments give the same bytes.

    make_synthetic.py --out DIR --name NAME --n-train N --n-test N --dim D --labels C [--seed 1]

writes DIR/NAME_train.txt and DIR/NAME_test.txt in the XMC text format and, unless --no-npz, the same rows as CSR arrays
in DIR/NAME_train.npz and DIR/NAME_test.npz.

Labels have a popularity that falls with their rank as (rank + shift)^-zipf. Neighbours in rank form clusters. A label
has characteristic features: half are its cluster's, half its own. A row has a head label drawn by popularity and
further labels from the same cluster or by popularity. Its tokens are characteristic features of its labels, or noise
from a Zipf background. A feature's value is (1 + ln tf) * idf, and rows have length 1. Labels and features depend on
the seed alone, so that the test rows come from the distribution of the training rows.
"""
import argparse
import os
import time

import numpy as np

ROWS_A_CHUNK = 20000
UNIT = 10000  # values are written with four decimals, so they are kept as whole multiples of 1/UNIT


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="directory")
    parser.add_argument("--name", required=True, help="start of the files' names")
    parser.add_argument("--n-train", type=int, required=True, help="training rows")
    parser.add_argument("--n-test", type=int, required=True, help="test rows")
    parser.add_argument("--dim", type=int, required=True, help="features")
    parser.add_argument("--labels", type=int, required=True, help="labels")
    parser.add_argument("--nnz", type=float, default=75, help="features a row, about")
    parser.add_argument("--labels-per-sample", type=float, default=5, help="labels a row, about")
    parser.add_argument("--zipf", type=float, default=1.0, help="exponent of the labels' popularity")
    parser.add_argument("--shift", type=float, default=50, help="flattens the most popular labels")
    parser.add_argument("--chars", type=int, default=16, help="characteristic features of a label")
    parser.add_argument("--cluster", type=int, default=8, help="labels of a cluster")
    parser.add_argument("--sib", type=float, default=0.6, help="share of further labels from the head label's cluster")
    parser.add_argument("--noise", type=float, default=0.5, help="share of background tokens")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-npz", action="store_true", help="text files only")
    return parser.parse_args()


def offsets(lengths):
    return np.concatenate([[0], np.cumsum(lengths)])


def cumulative(weights):
    total = np.cumsum(weights)
    return total / total[-1]


class World:
    """What train and test rows share: popularity of labels and features, and which feature speaks for which label."""

    def __init__(self, options):
        # The order of the draws is part of the format: another order is another data set.
        rng = np.random.default_rng([options.seed, 0])
        n_features, n_labels = options.dim, options.labels
        self.options = options
        self.shared_chars = options.chars // 2
        self.popularity = cumulative((np.arange(n_labels) + options.shift) ** -options.zipf)
        self.label_of_rank = rng.permutation(n_labels).astype(np.int32)
        n_clusters = -(-n_labels // options.cluster)
        self.of_cluster = rng.integers(0, n_features, (n_clusters, self.shared_chars), dtype=np.int32)
        self.of_label = rng.integers(0, n_features, (n_labels, options.chars - self.shared_chars), dtype=np.int32)
        self.background = cumulative((np.arange(n_features) + 20.0) ** -0.9)
        self.feature_of_rank = rng.permutation(n_features).astype(np.int32)
        share = np.maximum(np.diff(self.background, prepend=0), 1e-12)
        self.idf = np.empty(n_features, np.float32)
        self.idf[self.feature_of_rank] = (1 + np.log(1 / share) / 4).astype(np.float32)

    def draw_labels(self, rng, n):
        """Offsets and label ranks of n rows; a rank may stand twice in a row."""
        o, n_labels = self.options, self.options.labels
        count = np.clip(1 + rng.poisson(1.17 * (o.labels_per_sample - 1), n), 1, int(4 * o.labels_per_sample) + 1)
        begin = offsets(count)
        head = np.searchsorted(self.popularity, rng.random(n)).astype(np.int64)
        rank = np.searchsorted(self.popularity, rng.random(begin[-1])).astype(np.int64)
        is_sibling = rng.random(begin[-1]) < o.sib
        first_of_cluster = np.repeat(head // o.cluster * o.cluster, count)
        rank = np.where(is_sibling, first_of_cluster + rng.integers(0, o.cluster, begin[-1]), rank)
        rank[begin[:-1]] = head
        return count, begin, np.minimum(rank, n_labels - 1)

    def draw_tokens(self, rng, count, begin, rank):
        """Row and feature of each token."""
        o, n = self.options, len(count)
        rows = np.repeat(np.arange(n), np.maximum(rng.poisson(o.nnz * 1.24, n), 4))
        label = rank[begin[rows] + (rng.random(rows.size) * count[rows]).astype(np.int64)]
        char = rng.integers(0, o.chars, rows.size)
        signal = np.where(char < self.shared_chars,
                          self.of_cluster[label // o.cluster, np.minimum(char, self.shared_chars - 1)],
                          self.of_label[label, np.maximum(char - self.shared_chars, 0)])
        at = np.searchsorted(self.background, rng.random(rows.size))
        noise = self.feature_of_rank[np.minimum(at, o.dim - 1)]
        return rows, np.where(rng.random(rows.size) < o.noise, noise, signal).astype(np.int64)

    def weigh(self, rows, features, n):
        """CSR of the rows' features, values in units of 1/UNIT and at least 1."""
        key, tf = np.unique(rows * self.options.dim + features, return_counts=True)
        row, feature = key // self.options.dim, (key % self.options.dim).astype(np.int32)
        value = (1 + np.log(tf)) * self.idf[feature]
        value = value / np.sqrt(np.bincount(row, value * value, minlength=n))[row]
        return (offsets(np.bincount(row, minlength=n)), feature,
                np.maximum(np.rint(value * UNIT), 1).astype(np.int64))

    def chunk(self, rng, n):
        count, begin, rank = self.draw_labels(rng, n)
        x_ptr, x_idx, x_val = self.weigh(*self.draw_tokens(rng, count, begin, rank), n)
        key = np.unique(np.repeat(np.arange(n), count) * self.options.labels + self.label_of_rank[rank])
        row, label = key // self.options.labels, (key % self.options.labels).astype(np.int32)
        return x_ptr, x_idx, x_val, offsets(np.bincount(row, minlength=n)), label


class TextWriter:
    """XMC text; the pieces of "feature:value" are formatted once."""

    def __init__(self, n_features):
        self.features = np.array([f"{i}:" for i in range(n_features)], dtype=object)
        self.values = np.array([f"{i / UNIT:.4f}" for i in range(UNIT + 1)], dtype=object)

    def write(self, file, chunk):
        x_ptr, x_idx, x_val, y_ptr, y_idx = chunk
        tokens, labels = (self.features[x_idx] + self.values[x_val]).tolist(), y_idx.tolist()
        for x0, x1, y0, y1 in zip(x_ptr, x_ptr[1:], y_ptr, y_ptr[1:]):
            file.write(",".join(map(str, labels[y0:y1])) + " " + " ".join(tokens[x0:x1]) + "\n")


def join_offsets(parts):
    """One array of offsets of the chunks' arrays."""
    return offsets(np.concatenate([np.diff(part) for part in parts]))


def write_split(world, writer, split, n, stream):
    start, options, chunks = time.time(), world.options, []
    rng = np.random.default_rng([options.seed, stream])
    path = os.path.join(options.out, f"{options.name}_{split}")
    with open(path + ".txt", "w") as file:
        file.write(f"{n} {options.dim} {options.labels}\n")
        for first in range(0, n, ROWS_A_CHUNK):
            chunks.append(world.chunk(rng, min(ROWS_A_CHUNK, n - first)))
            writer.write(file, chunks[-1])
    x_ptr, x_idx, x_val, y_ptr, y_idx = zip(*chunks)
    arrays = dict(x_ptr=join_offsets(x_ptr), x_idx=np.concatenate(x_idx),
                  x_val=np.concatenate(x_val).astype(np.float32) / UNIT,
                  y_ptr=join_offsets(y_ptr), y_idx=np.concatenate(y_idx),
                  dims=np.array([n, options.dim, options.labels]))
    if not options.no_npz:
        np.savez(path + ".npz", **arrays)
    frequency = np.bincount(arrays["y_idx"], minlength=options.labels)
    print(f"{split}: {n} rows, {arrays['x_ptr'][-1] / n:.1f} features and {arrays['y_ptr'][-1] / n:.2f} labels a row, "
          f"{np.count_nonzero(frequency)} labels seen, the most frequent {frequency.max()} times "
          f"({time.time() - start:.1f} s)")


def main():
    options = parse_arguments()
    os.makedirs(options.out, exist_ok=True)
    world, writer = World(options), TextWriter(options.dim)
    write_split(world, writer, "train", options.n_train, 1)
    write_split(world, writer, "test", options.n_test, 2)


if __name__ == "__main__":
    main()
