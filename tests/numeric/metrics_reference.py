#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges random rankings with dense rows-by-labels matrices and compares with the library's accumulator.

    metrics_reference.py PATH_OF_judge_cases
"""
import subprocess
import sys

from skipping import module_or_skip

np = module_or_skip("numpy")

NAMES = ("P", "R", "nDCG", "PSP", "coverage")
BOUND = 1e-12  # sums of at most a few hundred doubles of order 1


def random_case(rng):
    n_outputs = int(rng.integers(1, 40))
    n_labels = n_outputs + int(rng.integers(0, 2)) * int(rng.integers(1, 6))  # with ids that the model lacks
    n_rows = int(rng.integers(1, 60))
    truth = rng.random((n_rows, n_labels)) < rng.choice([0.02, 0.1, 0.5])
    scores = rng.integers(0, rng.choice([3, 1000]), (n_rows, n_outputs)).astype(float)  # few values: many ties
    cutoffs = rng.integers(1, rng.choice([4, 60]), rng.integers(1, 17))
    samples = int(rng.choice([1, 2, 3, 1000, 10 ** 6]))
    counts = rng.integers(0, samples + 1, n_outputs) if rng.random() < 0.8 else np.array([], int)
    a, b = (0, 0) if rng.random() < 0.5 else (float(rng.choice([0.5, 0.25, 1])), float(rng.choice([0.5, 2.5])))
    return dict(n_outputs=n_outputs, truth=truth, scores=scores, cutoffs=cutoffs, samples=samples, counts=counts,
                a=a, b=b, skip=bool(rng.integers(2)))


def places_of(scores):
    """Place of each label in its row's ranking, from 1: higher score first, lower id first among equals."""
    places = np.empty(scores.shape, int)
    for row, score in enumerate(scores):
        ahead = (score[None, :] > score[:, None]).sum(1)
        equal = np.tril(score[None, :] == score[:, None], -1).sum(1)
        places[row] = 1 + ahead + equal
    return places


def reference(case):
    truth, (n_rows, n_labels) = case["truth"], case["truth"].shape
    place = np.full((n_rows, n_labels), np.inf)
    place[:, :case["n_outputs"]] = places_of(case["scores"])
    labelled = truth.any(1)
    judged = labelled if case["skip"] else np.ones(n_rows, bool)
    size = np.maximum(truth.sum(1), 1)
    inverse = np.zeros(n_labels)
    if len(case["counts"]):
        a, b = case["a"] or 0.55, case["b"] or 1.5
        counts = np.zeros(n_labels)
        counts[:case["n_outputs"]] = case["counts"]
        c = max(np.log(case["samples"]) - 1, 0) * (b + 1) ** a
        propensity = 1 / (1 + c * np.exp(-a * np.log(counts + b)))
        inverse = 1 / propensity
    lines = []
    for k in case["cutoffs"]:
        hit = truth & (place <= k)
        gain = np.where(hit, 1 / np.log2(np.where(hit, place, 1) + 1), 0).sum(1)
        ideal = np.array([(1 / np.log2(np.arange(2, min(k, n) + 2))).sum() for n in size])
        best = np.sort(truth * inverse, axis=1)[:, ::-1][:, :k].sum()
        there = truth.any(0)
        per_row = np.stack([hit.sum(1) / k, hit.sum(1) / size, gain / ideal])
        means = per_row[:, judged].mean(1) if judged.any() else np.zeros(3)
        lines.append([*means, (hit * inverse).sum() / best if best else 0,
                      hit.any(0)[there].mean() if there.any() else 0])
    counters = [int(judged.sum()), int((~labelled).sum()), int(truth[:, case["n_outputs"]:].sum())]
    return np.array(lines), counters


def ours(program, case):
    def listed(values):
        return " ".join(map(str, [len(values), *values]))

    depth = min(case["n_outputs"], max(case["cutoffs"]))
    text = [f"{case['n_outputs']} {int(case['skip'])} {case['a']} {case['b']} {case['samples']}",
            listed(case["counts"]), listed(case["cutoffs"]), str(len(case["truth"]))]
    for place, row in zip(places_of(case["scores"]), case["truth"]):
        text += [listed(np.argsort(place)[:depth]), listed(np.flatnonzero(row))]
    out = subprocess.run([program], input="\n".join(text), capture_output=True, text=True, check=True, timeout=60)
    lines = [line.split() for line in out.stdout.splitlines()]
    return np.array(lines[:-1], float), list(map(int, lines[-1]))


def main():
    rng = np.random.default_rng(20160813)
    n_cases, worst = 200, np.zeros(len(NAMES))
    for number in range(n_cases):
        case = random_case(rng)
        (expected, expected_counters), (found, counters) = reference(case), ours(sys.argv[1], case)
        assert counters == expected_counters, f"case {number}: counters {counters}, expected {expected_counters}"
        assert found.shape == expected.shape, f"case {number}: shape {found.shape}, expected {expected.shape}"
        worst = np.maximum(worst, abs(found - expected).max(0))
    print(f"largest difference over {n_cases} random cases (bound {BOUND:g}):")
    for name, difference in zip(NAMES, worst):
        print(f"  {name:8} {difference:.2g}")
    assert (worst < BOUND).all()
    print(f"{n_cases} passed, 0 failed")


if __name__ == "__main__":
    main()
