#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of each layer and loss against central differences of the loss in double precision.

    gradient_check.py PATH_OF_libdslide.so

A step of plain SGD moves a weight by rate * gradient, so (before - after) / rate is the gradient at `before`, whatever
the rate; 1 loses fewest digits. The loss below is written from the definitions in trainer.h and knows no gradient.
"""
import itertools
import sys

from dslide_ctypes import ALL_ROWS, Library, Model, Trainer, constant, np
from random_rows import random_batch

N_INPUTS, N_OUTPUTS, DIFFERENCE = 9, 13, 1e-5
ROUNDING = 2.0 ** -24  # of a float


def forward(weights, x):
    """The logits, and the values that the ReLUs see."""
    h, before_relu = x, []
    layers = 1 + sum(name.startswith("hidden.") and name.endswith(".weight") for name in weights)
    for layer in range(layers):
        name = f"hidden.{layer}" if layer else "input"
        w = weights[name + ".weight"]
        z = h @ (w.T if layer else w) + weights[name + ".bias"]
        before_relu.append(z)
        h = np.maximum(z, 0)
    return h @ weights["output.weight"].T + weights["output.bias"], before_relu


def softmax_loss(z, y, sample_weight):
    labelled = y.sum(1) > 0
    z, y, w = z[labelled], y[labelled], sample_weight[labelled]
    largest = z.max(1, keepdims=True)
    log_sum = largest[:, 0] + np.log(np.exp(z - largest).sum(1))
    per_sample = log_sum - (z * y).sum(1) / y.sum(1)
    return (w * per_sample).sum() / w.sum()


def bce_loss(z, y, sample_weight):
    per_sample = (np.logaddexp(0, z) - z * y).sum(1)
    return (sample_weight * per_sample).sum() / sample_weight.sum()


LOSSES = {"SOFTMAX": softmax_loss, "BCE": bce_loss}


def numeric_gradient(loss, weights, x, y, sample_weight):
    gradient = {}
    for name, values in weights.items():
        gradient[name] = np.zeros_like(values)
        for place in np.ndindex(values.shape):
            start = values[place]
            around = []
            for sign in (1, -1):
                values[place] = start + sign * DIFFERENCE
                around.append(loss(forward(weights, x)[0], y, sample_weight))
            values[place] = start
            gradient[name][place] = (around[0] - around[1]) / (2 * DIFFERENCE)
    return gradient


def doubles(model):
    return {name: values.astype(float) for name, values in model.weights().items()}


def draw_biases(rng, model, x, extreme):
    """Sets random biases that leave all neurons away from their kinks, where there is no gradient; returns the weights.

    Extreme: all logits near -1000 but one near +80, so that exp() of a logit that is not first reduced by the largest
    overflows or vanishes."""
    for _ in range(100):
        for name in model.tensor_names():
            if name.endswith(".bias"):
                model.set(name, rng.normal(0, 0.3, model.shape(name)))
        if extreme:
            model.set("output.bias", [[80 if label == 4 else -1000 for label in range(N_OUTPUTS)]])
        weights = doubles(model)
        if min(abs(z).min() for z in forward(weights, x)[1]) > 20 * DIFFERENCE:
            return weights
    raise AssertionError("no biases without a neuron on its kink")


def check(library, cluster, loss, hidden, labels, select, extreme, weighted, seed):
    rng = np.random.default_rng(seed)
    model = Model(library, cluster, N_INPUTS, hidden, N_OUTPUTS, output_scale=0.5, seed=seed)
    x, y = random_batch(rng, 6, N_INPUTS, N_OUTPUTS, (1, 5), (labels, labels), label_values=weighted)
    before = draw_biases(rng, model, x.dense(), extreme)
    sample_weight = rng.uniform(0.5, 2, 6) if weighted else np.ones(6)
    sample_weight = sample_weight.astype(np.float32).astype(float)

    trainer = Trainer(model, optimizer=constant("SGD"), learning_rate=1, loss=constant(loss),
                      select=constant("SELECT_" + select), **ALL_ROWS)
    stats = trainer.step(x, y, sample_weight if weighted else None)
    after = doubles(model)
    trainer.free()
    model.free()

    arguments = before, x.dense(), y.dense(), sample_weight
    expected_loss = LOSSES[loss](forward(before, arguments[1])[0], *arguments[2:])
    assert abs(stats.loss - expected_loss) <= 1e-5 * max(1, abs(expected_loss)), \
        f"loss {stats.loss}, expected {expected_loss}"
    worst = 0.0
    for name, expected in numeric_gradient(LOSSES[loss], *arguments).items():
        found = before[name] - after[name]
        # What a float may lose: the subtraction from a weight of this size, the sums behind the gradient, and the
        # differences' own error, of the rounding of a loss of this size in double precision.
        scale = abs(before[name]) + abs(after[name]) + 16 * abs(expected).max() + 1
        bound = 4 * ROUNDING * scale + 4e-16 * abs(expected_loss) / DIFFERENCE + DIFFERENCE ** 2 * 10
        excess = abs(found - expected) / bound
        worst = max(worst, excess.max())
        assert excess.max() <= 1, f"{name}: off by {abs(found - expected).max():.3g}, bound {bound.max():.3g}"
    return worst


def check_unlabelled(library, cluster, hidden):
    """Softmax has no loss and no gradient without labels."""
    model = Model(library, cluster, N_INPUTS, hidden, N_OUTPUTS, output_scale=0.5)
    before = model.weights()
    trainer = Trainer(model, optimizer=constant("SGD"), learning_rate=1, select=constant("SELECT_ALL"))
    x, y = random_batch(np.random.default_rng(3), 4, N_INPUTS, N_OUTPUTS, (1, 5), (0, 0))
    stats = trainer.step(x, y)
    assert stats.loss == 0, stats.loss
    for name, values in model.weights().items():
        assert (values == before[name]).all(), f"{name} moved without a label"


def main():
    library = Library(sys.argv[1])
    cluster = library.cluster()
    cases = itertools.product(LOSSES, ([6], [6, 5], [6, 5, 4]), (0, 1, 5), ("ALL", "SIMHASH", "EXACT"), (False, True),
                              (False, True))
    worst, count = {}, 0
    for loss, hidden, labels, select, extreme, weighted in cases:
        if loss == "SOFTMAX" and labels == 0:
            continue
        name = f"{loss} hidden {hidden} labels {labels} {select}{' extreme' * extreme}{' weighted' * weighted}"
        try:
            share = check(library, cluster, loss, hidden, labels, select, extreme, weighted, seed=count + 1)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        worst[loss] = max(worst.get(loss, 0), share)
        count += 1
    for hidden in ([6], [6, 5]):
        check_unlabelled(library, cluster, hidden)
        count += 1
    print(f"{count} cases; largest difference as a share of the bound of float rounding:")
    for loss, share in worst.items():
        print(f"  {loss:8} {share:.2f}")
    print(f"{count} passed, 0 failed")


if __name__ == "__main__":
    main()
