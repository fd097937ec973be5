#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same network in PyTorch, the rival that dslide is compared with.

    torch_rival.py PREFIX [--sampled uniform|loguniform --negatives 1000] [--hidden 128] [--rate 1e-3] [--epochs 3]

PREFIX names PREFIX_train and PREFIX_test, as .npz of make_synthetic.py or as .txt in the XMC format. Sparse input, a
hidden ReLU layer, softmax with a target spread evenly over a row's labels, Adam. Without --sampled every class takes
part and every weight moves. With it the batch's labels meet negatives shared by the batch, the logits are corrected by
the logarithm of the probability of being drawn, and lazy Adam moves only the rows that took part.

Prints one JSON object an epoch. Seconds are those of the steps alone: reading and evaluation are left out.
"""
import argparse
import json
import os
import sys
import time

import numpy as np

EVALUATION_ROWS = 128  # at a time


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prefix")
    parser.add_argument("--sampled", choices=["uniform", "loguniform"], help="draw negatives so; default: all classes")
    parser.add_argument("--negatives", type=int, default=1000, help="negatives a batch")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--eval-rows", type=int, default=5120, help="judge on so many test rows")
    parser.add_argument("--max-batches", type=int, default=0, help="batches an epoch; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


class Rows:
    """CSR rows of features x and labels y."""

    def __init__(self, prefix, split):
        path = f"{prefix}_{split}"
        arrays = np.load(path + ".npz") if os.path.exists(path + ".npz") else read_xmc(path + ".txt")
        self.x_ptr, self.x_idx, self.x_val = arrays["x_ptr"], arrays["x_idx"].astype(np.int64), arrays["x_val"]
        self.y_ptr, self.y_idx = arrays["y_ptr"], arrays["y_idx"].astype(np.int64)
        self.n_rows, self.n_features, self.n_labels = map(int, arrays["dims"])


def read_xmc(path):
    features, values, labels = [], [], []
    with open(path) as file:
        dims = np.array(file.readline().split(), np.int64)
        for line in file:
            label_text, _, feature_text = line.partition(" ")
            pairs = np.array(feature_text.replace(":", " ").split(), np.float64)  # may be empty
            features.append(pairs[0::2].astype(np.int64))
            values.append(pairs[1::2].astype(np.float32))
            labels.append(np.array([int(label) for label in label_text.split(",") if label], np.int64))

    def offsets(lists):
        return np.concatenate([[0], np.cumsum([len(one) for one in lists])])

    return dict(x_ptr=offsets(features), x_idx=np.concatenate(features), x_val=np.concatenate(values),
                y_ptr=offsets(labels), y_idx=np.concatenate(labels), dims=dims)


def places_of(ptr, rows):
    """Lengths of the rows, where they start once they are put together, and the places of their entries."""
    length = ptr[rows + 1] - ptr[rows]
    begin = np.concatenate([[0], np.cumsum(length)])
    return length, begin[:-1], np.arange(begin[-1]) + np.repeat(ptr[rows] - begin[:-1], length)


class Negatives:
    """Draws negatives and knows how likely a class is to be among them."""

    def __init__(self, options, train, rng):
        self.rng, self.count, self.n_labels = rng, options.negatives, train.n_labels
        self.by_frequency = np.argsort(-np.bincount(train.y_idx, minlength=train.n_labels), kind="stable")
        rank = np.arange(train.n_labels)
        self.is_uniform = options.sampled == "uniform"
        if self.is_uniform:
            share = np.full(train.n_labels, 1 / train.n_labels)
        else:  # P(rank) = ln((rank + 2) / (rank + 1)) / ln(n_labels + 1)
            share = np.log1p(1 / (rank + 1)) / np.log1p(train.n_labels)
        self.log_inclusion = np.empty(train.n_labels, np.float32)
        self.log_inclusion[self.by_frequency] = np.log(-np.expm1(self.count * np.log1p(-share)))

    def draw(self):
        if self.is_uniform:
            return self.rng.integers(0, self.n_labels, self.count)
        rank = np.expm1(self.rng.random(self.count) * np.log1p(self.n_labels)).astype(np.int64)
        return self.by_frequency[np.minimum(rank, self.n_labels - 1)]


class Rival:
    def __init__(self, torch, options, train, rng):
        torch.manual_seed(options.seed)
        self.torch, self.train = torch, train
        sparse = options.sampled is not None
        self.negatives = Negatives(options, train, rng) if sparse else None
        self.input = torch.nn.EmbeddingBag(train.n_features, options.hidden, mode="sum", sparse=sparse)
        self.input_bias = torch.nn.Parameter(torch.zeros(options.hidden))
        self.output = torch.nn.Embedding(train.n_labels, options.hidden, sparse=sparse)
        self.output_bias = torch.nn.Embedding(train.n_labels, 1, sparse=sparse)
        torch.nn.init.normal_(self.input.weight, 0, options.hidden ** -0.5)
        torch.nn.init.normal_(self.output.weight, 0, 0.01)
        torch.nn.init.zeros_(self.output_bias.weight)
        rows = [self.input.weight, self.output.weight, self.output_bias.weight]
        if sparse:
            self.optimizers = [torch.optim.SparseAdam(rows, lr=options.rate),
                               torch.optim.Adam([self.input_bias], lr=options.rate)]
        else:
            self.optimizers = [torch.optim.Adam([*rows, self.input_bias], lr=options.rate)]

    def hidden(self, data, rows):
        _, begin, at = places_of(data.x_ptr, rows)
        tensor = self.torch.from_numpy
        summed = self.input(tensor(data.x_idx[at]), tensor(begin), per_sample_weights=tensor(data.x_val[at]))
        return self.torch.relu(summed + self.input_bias)

    def logits(self, h):
        return h @ self.output.weight.t() + self.output_bias.weight.t()

    def sampled_logits(self, h, labels):
        """Logits of the classes that take part, and the columns in which the labels stand."""
        classes = np.unique(np.concatenate([labels, self.negatives.draw()]))
        index = self.torch.from_numpy(classes)
        correction = self.torch.from_numpy(self.negatives.log_inclusion[classes])
        z = h @ self.output(index).t() + self.output_bias(index).t() - correction
        return z, np.searchsorted(classes, labels)

    def step(self, rows):
        tensor = self.torch.from_numpy
        length, _, at = places_of(self.train.y_ptr, rows)
        labels, h = self.train.y_idx[at], self.hidden(self.train, rows)
        z, column = self.sampled_logits(h, labels) if self.negatives else (self.logits(h), labels)
        owner = np.repeat(np.arange(len(rows)), length)
        target = tensor((1 / np.repeat(length, length)).astype(np.float32))
        log_share = self.torch.log_softmax(z, 1)[tensor(owner), tensor(column)]
        loss = -(log_share * target).sum() / len(rows)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return float(loss)

    def precision_at_1(self, test, n_rows):
        hits = 0
        with self.torch.no_grad():
            for first in range(0, n_rows, EVALUATION_ROWS):
                rows = np.arange(first, min(first + EVALUATION_ROWS, n_rows))
                best = self.logits(self.hidden(test, rows)).argmax(1).tolist()
                hits += sum(b in test.y_idx[test.y_ptr[r]:test.y_ptr[r + 1]] for r, b in zip(rows, best))
        return hits / n_rows


def limit_threads(threads):
    """OpenMP and OpenBLAS read these when they are loaded, and numpy has loaded them: start over with them set. Idle
    threads of OpenBLAS would count as CPU time."""
    wanted = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


def main():
    options = parse_arguments()
    limit_threads(options.threads)
    import torch
    torch.set_num_threads(options.threads)
    train, test = Rows(options.prefix, "train"), Rows(options.prefix, "test")
    rng = np.random.default_rng(options.seed)
    rival = Rival(torch, options, train, rng)
    n_batches = -(-train.n_rows // options.batch)
    for epoch in range(1, options.epochs + 1):
        order, loss, samples = rng.permutation(train.n_rows), 0.0, 0
        wall, cpu = time.perf_counter(), time.process_time()
        for b in range(min(options.max_batches or n_batches, n_batches)):
            rows = order[b * options.batch:(b + 1) * options.batch]
            loss += rival.step(rows) * len(rows)
            samples += len(rows)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(json.dumps(dict(event="epoch", epoch=epoch, samples=samples, loss=loss / samples, seconds=wall,
                              cpu_seconds=cpu, p_at_1=rival.precision_at_1(test, min(options.eval_rows, test.n_rows)))),
              flush=True)


if __name__ == "__main__":
    main()
