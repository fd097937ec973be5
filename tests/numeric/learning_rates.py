#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The learning rate that each step reports against the schedules' formulas.

    learning_rates.py PATH_OF_libdslide.so
"""
import math
import sys

from dslide_ctypes import Library, Model, Trainer, constant, np
from random_rows import random_batch

RATE = 0.0625

# Of the samples seen before the step, s: the share of the rate that is used.
SCHEDULES = {
    "constant": (dict(), lambda s: 1),
    "linear": (dict(schedule="LINEAR", total_samples=400, final_rate=0.25), lambda s: 1 - 0.75 * min(1, s / 400)),
    "linear to 0": (dict(schedule="LINEAR", total_samples=400), lambda s: 1 - min(1, s / 400)),
    "cosine": (dict(schedule="COSINE", total_samples=300, final_rate=0.125),
               lambda s: 0.125 + 0.875 * (1 + math.cos(math.pi * min(1, s / 300))) / 2),
    "step": (dict(schedule="STEP", step_samples=90, step_factor=0.25), lambda s: 0.25 ** (s // 90)),
    "step, default factor": (dict(schedule="STEP", step_samples=90), lambda s: 0.5 ** (s // 90)),
}
WARM_UP_SAMPLES = 100


def warm_up(s):
    """Rises linearly and is never 0: the first sample counts as one of WARM_UP_SAMPLES + 1 shares."""
    return min(1, (s + 1) / (WARM_UP_SAMPLES + 1))


def schedule_options(values):
    values = dict(values)
    if "schedule" in values:
        values["schedule"] = constant("SCHEDULE_" + values["schedule"])
    return values


def check(library, cluster, values, expected, warm):
    model = Model(library, cluster, 20, [8], 10)
    values = schedule_options(values)
    if warm:
        values["warmup_samples"] = WARM_UP_SAMPLES
    trainer = Trainer(model, learning_rate=RATE, select=constant("SELECT_ALL"), **values)
    rng, samples, worst = np.random.default_rng(5), 0, 0.0
    for _ in range(40):
        rows = int(rng.integers(1, 25))  # batch sizes vary: schedules go by samples, not by steps
        stats = trainer.step(*random_batch(rng, rows, 20, 10, labels=(1, 3)))
        rate = RATE * expected(samples) * (warm_up(samples) if warm else 1)
        worst = max(worst, abs(stats.learning_rate - rate) / RATE)
        samples += rows
        assert stats.samples_seen == samples, f"{stats.samples_seen} samples seen, not {samples}"
    assert samples > 420, "the schedules did not reach their ends"
    trainer.free()
    model.free()
    return worst


def main():
    library = Library(sys.argv[1])
    cluster = library.cluster()
    bound = 1e-6  # the options are floats
    for name, (values, expected) in SCHEDULES.items():
        for warm in (False, True):
            worst = check(library, cluster, values, expected, warm)
            print(f"{name + ', warm-up' * warm:32} largest difference {worst:.2g} of the rate (bound {bound:g})")
            assert worst <= bound
    print(f"{2 * len(SCHEDULES)} passed, 0 failed")


if __name__ == "__main__":
    main()
