#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predictions and evaluations of whole models against numpy.

    evaluation.py PATH_OF_libdslide.so

Weights and features are small whole numbers, so that logits are exact in either arithmetic and equal ones are many: the
order of the predictions, lower id first among equals, must be the same to the last place.
"""
import ctypes
import sys

from dslide_ctypes import Library, Model, Trainer, constant, np, structure
from metrics_reference import BOUND, NAMES, places_of, reference
from random_rows import random_rows

FLOAT_PROPENSITIES = 1e-6  # A and B are floats in the options


def whole_numbers(rng, low, high, shape):
    return rng.integers(low, high + 1, shape).astype(np.float32)


def random_case(rng):
    n_outputs = int(rng.choice([1, 5, 40, 300, 1500]))
    n_labels = n_outputs + int(rng.choice([0, 0, 4]))  # some sets have classes that the model lacks
    n_rows = int(rng.choice([1, 7, 150 if n_outputs < 1000 else 20]))
    x = random_rows(rng, rng.integers(0, 8, n_rows), 30, lambda size: whole_numbers(rng, -2, 2, size) + 0.5)
    y = random_rows(rng, rng.integers(0, min(n_labels, 6) + 1, n_rows), n_labels)
    samples = int(rng.choice([3, 1000, 10 ** 6]))
    return dict(n_outputs=n_outputs, x=x, y=y, truth=y.dense() > 0, samples=samples,
                counts=rng.integers(0, samples + 1, n_outputs), cutoffs=rng.integers(1, rng.choice([4, 60]), 5),
                a=float(rng.choice([0, 0.5])), b=float(rng.choice([0, 2.5])), skip=bool(rng.integers(2)))


def make_model(library, cluster, rng, n_outputs):
    hidden = [6, 5] if rng.random() < 0.5 else [20]
    model = Model(library, cluster, 30, hidden, n_outputs)
    for name in model.tensor_names():
        model.set(name, whole_numbers(rng, -2, 2, model.shape(name)))
    return model


def logits(model, x):
    weights = {name: values.astype(float) for name, values in model.weights().items()}
    h = np.maximum(x @ weights["input.weight"] + weights["input.bias"], 0)
    for layer in range(1, model.n_hidden):
        h = np.maximum(h @ weights[f"hidden.{layer}.weight"].T + weights[f"hidden.{layer}.bias"], 0)
    return h @ weights["output.weight"].T + weights["output.bias"]


def check_predictions(model, case, places):
    k = min(case["n_outputs"], 10)
    rows = len(case["truth"])
    found, scores = np.empty((rows, k), np.int64), np.empty((rows, k), np.float32)
    view = case["x"].view()
    model.library.call("model_predict", model.handle, ctypes.byref(view), ctypes.c_int32(k),
                       ctypes.c_void_p(found.ctypes.data), ctypes.c_void_p(scores.ctypes.data))
    expected = np.argsort(places, axis=1)[:, :k]
    assert (found == expected).all(), "predictions differ"
    assert (scores == np.take_along_axis(case["scores"], expected, axis=1)).all(), "scores differ"


def evaluate(library, cluster, model, case):
    options = library.options("eval", n_cutoffs=len(case["cutoffs"]), batch_size=64, propensity_a=case["a"],
                              propensity_b=case["b"], unlabelled=int(case["skip"]))
    options.k[:len(case["cutoffs"])] = case["cutoffs"].tolist()
    x, y, metrics = case["x"].view(), case["y"].view(), structure("metrics")
    dataset = library.create("dataset_from_views", cluster, ctypes.byref(x), ctypes.byref(y), None, None)
    library.call("model_evaluate", model.handle, dataset, ctypes.byref(options), ctypes.byref(metrics))
    library.c.dslide_dataset_free(dataset)
    found = np.array([list(values)[:metrics.n_cutoffs] for values in
                      (metrics.precision, metrics.recall, metrics.ndcg, metrics.psp, metrics.coverage)]).T
    return found, [metrics.rows, metrics.rows_without_label, metrics.labels_out_of_range]


def set_label_counts(model, case):
    trainer = Trainer(model, select=constant("SELECT_ALL"))
    counts = np.ascontiguousarray(case["counts"], np.int64)
    model.library.call("trainer_set_label_counts", trainer.handle, ctypes.c_void_p(counts.ctypes.data),
                       ctypes.c_int64(len(counts)), ctypes.c_int64(case["samples"]))
    trainer.free()


def main():
    library = Library(sys.argv[1])
    cluster, rng = library.cluster(threads=2), np.random.default_rng(31)
    n_cases, worst = 0, np.zeros(len(NAMES))
    while n_cases < 40:
        case = random_case(rng)
        if not case["truth"].any():
            continue  # no row to judge can be an error
        model = make_model(library, cluster, rng, case["n_outputs"])
        case["scores"] = logits(model, case["x"].dense())
        check_predictions(model, case, places_of(case["scores"]))
        set_label_counts(model, case)
        (expected, expected_counters), (found, counters) = reference(case), evaluate(library, cluster, model, case)
        assert counters == expected_counters, f"case {n_cases}: counters {counters}, expected {expected_counters}"
        worst = np.maximum(worst, abs(found - expected).max(0))
        model.free()
        n_cases += 1
    bounds = np.array([FLOAT_PROPENSITIES if name == "PSP" else BOUND for name in NAMES])
    print(f"largest difference over {n_cases} random models:")
    for name, difference, bound in zip(NAMES, worst, bounds):
        print(f"  {name:8} {difference:.2g} (bound {bound:g})")
    assert (worst < bounds).all()
    print(f"{n_cases} passed, 0 failed")


if __name__ == "__main__":
    main()
