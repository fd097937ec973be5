#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lazily updated rows and the exact selection against numpy in double precision.

    lazy_updates.py PATH_OF_libdslide.so

A sample's active rows are its labels and, up to the share asked for, the rows with the highest logits. Rows of the
output layer that no sample has active and features that the batch lacks keep weights and moments; Adam's bias
correction counts all steps.
"""
import sys

from dslide_ctypes import Library, Model, Trainer, constant, np
from random_rows import random_batch

N_INPUTS, HIDDEN, N_OUTPUTS, BATCH, STEPS, DISTINCT_BATCHES = 150, 24, 200, 8, 40, 10
BETA1, BETA2, EPSILON, MOMENTUM = 0.9, 0.999, 1e-8, 0.75
BOUND = 5e-5  # norm of the difference relative to the distance moved


class LazyRule:
    """An update rule over the rows of a tensor that a step touches; L2 or decoupled decay of weights."""

    def __init__(self, optimizer, rate, decay, decoupled):
        self.optimizer, self.rate, self.decay, self.decoupled, self.state = optimizer, rate, decay, decoupled, {}

    def update(self, name, values, gradient, rows, step):
        first, second = self.state.setdefault(name, (np.zeros_like(values), np.zeros_like(values)))
        decay = self.decay if name.endswith(".weight") else 0
        g = gradient[rows] + (0 if self.decoupled else decay * values[rows])
        if self.decoupled:
            values[rows] *= 1 - self.rate * decay
        if self.optimizer == "ADAM":
            first[rows] = BETA1 * first[rows] + (1 - BETA1) * g
            second[rows] = BETA2 * second[rows] + (1 - BETA2) * g * g
            m, v = first[rows] / (1 - BETA1 ** step), second[rows] / (1 - BETA2 ** step)
            values[rows] -= self.rate * m / (np.sqrt(v) + EPSILON)
        elif self.optimizer == "SGD":
            first[rows] = MOMENTUM * first[rows] + g
            values[rows] -= self.rate * first[rows]
        else:
            second[rows] += g * g
            values[rows] -= self.rate * g / (np.sqrt(second[rows]) + EPSILON)


def active_rows(z, y, kept):
    """Of each sample `kept` rows: its labels, and of the others those with the highest logits."""
    score = np.where(y > 0, np.inf, z)
    active = np.zeros(z.shape, bool)
    np.put_along_axis(active, np.argsort(-score, axis=1, kind="stable")[:, :kept], True, axis=1)
    return active


def output_gradient(loss, z, y, active):
    if loss == "BCE":
        return np.where(active, 1 / (1 + np.exp(-z)) - (y > 0), 0) / len(z)
    e = np.where(active, np.exp(z - z.max(1, keepdims=True)), 0)
    return (e / e.sum(1, keepdims=True) - y / y.sum(1, keepdims=True)) / len(z)


def reference_step(weights, rule, loss, x, y, kept, step):
    """Updates the weights in place; returns the share of active rows and the touched rows of the output layer."""
    w_in, b_in = weights["input.weight"], weights["input.bias"]
    w_out, b_out = weights["output.weight"], weights["output.bias"]
    h = np.maximum(x @ w_in + b_in, 0)
    z = h @ w_out.T + b_out
    active = active_rows(z, y, kept)
    g_out = output_gradient(loss, z, y, active)
    g_hidden = (g_out @ w_out) * (h > 0)
    touched, features = np.flatnonzero(active.any(0)), np.flatnonzero((x != 0).any(0))
    rule.update("output.weight", w_out, g_out.T @ h, touched, step)
    rule.update("output.bias", b_out.T, g_out.sum(0)[:, None], touched, step)
    rule.update("input.weight", w_in, x.T @ g_hidden, features, step)
    rule.update("input.bias", b_in, g_hidden.sum(0, keepdims=True), [0], step)
    return active.mean(), len(touched), len(features)


def check(library, cluster, optimizer, loss, decay, decoupled, share):
    rate = {"ADAM": 3e-3, "SGD": 0.3 if loss == "SOFTMAX" else 0.05, "ADAGRAD": 0.03}[optimizer]
    model = Model(library, cluster, N_INPUTS, [HIDDEN], N_OUTPUTS, output_scale=0.2, seed=23)
    trainer = Trainer(model, optimizer=constant(optimizer), loss=constant(loss), learning_rate=rate,
                      momentum=MOMENTUM if optimizer == "SGD" else 0, weight_decay=decay,
                      decay_mode=constant("DECAY_DECOUPLED" if decoupled else "DECAY_L2"),
                      select=constant("SELECT_EXACT"), active_share=share, shared_negatives=-1)
    start = model.weights()
    weights = {name: values.astype(float) for name, values in start.items()}
    kept, rule = trainer.info().hard_rows, LazyRule(optimizer, rate, decay, decoupled)
    assert kept == round(share * N_OUTPUTS), f"{kept} rows kept of {N_OUTPUTS}, asked for a share of {share}"
    rng = np.random.default_rng(29)
    batches = [random_batch(rng, BATCH, N_INPUTS, N_OUTPUTS, labels=(1, 4)) for _ in range(DISTINCT_BATCHES)]
    for step in range(1, STEPS + 1):
        x, y = batches[step % DISTINCT_BATCHES]
        stats = trainer.step(x, y)
        active, touched, features = reference_step(weights, rule, loss, x.dense(), y.dense(), kept, step)
        found = stats.active_share, stats.rows_touched, stats.features_touched
        assert abs(found[0] - active) < 1e-12 and found[1:] == (touched, features), \
            f"step {step}: active share, rows, features {found}, expected {(active, touched, features)}"
    final = model.weights()
    trainer.free()
    model.free()
    assert touched < N_OUTPUTS and features < N_INPUTS, "every row was touched: nothing was lazy"
    return max(np.linalg.norm(final[name] - weights[name]) / np.linalg.norm(weights[name] - start[name])
               for name in weights)


def main():
    library = Library(sys.argv[1])
    cluster = library.cluster(threads=2)
    print(f"distance to numpy in double precision after {STEPS} steps, as a share of the distance moved "
          f"(bound {BOUND:g})")
    count = failed = 0
    for optimizer in ("ADAM", "SGD", "ADAGRAD"):
        for loss in ("SOFTMAX", "BCE"):
            for decay, decoupled in ((0, False), (0.01, False), (0.01, True)):
                apart = check(library, cluster, optimizer, loss, decay, decoupled, share=0.05)
                kind = f" decay {decay} {'decoupled' if decoupled else 'L2'}" if decay else ""
                print(f"  {optimizer:8}{loss:8}{kind:24}{apart:.1e}", flush=True)
                failed += not apart <= BOUND
                count += 1
    print(f"{count - failed} passed, {failed} failed")
    assert not failed, "beyond the bound"


if __name__ == "__main__":
    main()
