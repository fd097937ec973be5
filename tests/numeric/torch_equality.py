#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights after 100 steps against PyTorch's dense network, from the same start, on the same batches.

    torch_equality.py PATH_OF_libdslide.so

With all rows active the library must be the dense network, whichever path selects them, and with dense updates its
rules must be the textbook ones. PyTorch runs twice: in double precision, which we are compared with, and in float, as a
yardstick of what rounding does to such a run. Differences are norms relative to the distance that training has moved
the tensor from its start.
"""
import itertools
import sys

from dslide_ctypes import ALL_ROWS, Library, Model, Trainer, constant, np
from learning_rates import SCHEDULES, WARM_UP_SAMPLES, schedule_options, warm_up
from random_rows import random_batch
from skipping import module_or_skip

torch = module_or_skip("torch")
F = torch.nn.functional

N_INPUTS, N_OUTPUTS, BATCH, STEPS, DISTINCT_BATCHES = 120, 90, 16, 100, 10
BOUND = 5e-5  # relative to the distance moved
RATES = {"ADAM": 3e-3, "SGD": 0.3, "ADAGRAD": 0.03}
SGD_RATE_OF_BCE = 0.03  # its gradient is a sum over all classes
MOMENTUM = 0.75
SELECTIONS = ("ALL", "SIMHASH", "EXACT")


class Case:
    """One setting of the run; what is not named is the default."""

    def __init__(self, optimizer="ADAM", loss="SOFTMAX", hidden=(24,), sample_weights=False, label_values=False,
                 min_labels=1, dense_updates=True, schedule=None, momentum=MOMENTUM, **options):
        self.optimizer, self.loss, self.hidden = optimizer, loss, list(hidden)
        self.sample_weights, self.label_values, self.min_labels = sample_weights, label_values, min_labels
        self.dense_updates, self.schedule, self.options = dense_updates, schedule, options
        self.momentum = momentum if optimizer == "SGD" else 0

    def batches(self):
        """A few batches again and again, so that there is something to learn."""
        rng, made = np.random.default_rng(17), []
        for _ in range(DISTINCT_BATCHES):
            x, y = random_batch(rng, BATCH, N_INPUTS, N_OUTPUTS, labels=(self.min_labels, 4),
                                label_values=self.label_values)
            weights = rng.choice([0, 0.5, 1, 3], BATCH).astype(np.float32)
            made.append((x, y, weights if self.sample_weights else None))
        return itertools.islice(itertools.cycle(made), STEPS)

    def full_rate(self):
        return SGD_RATE_OF_BCE if (self.optimizer, self.loss) == ("SGD", "BCE") else RATES[self.optimizer]

    def rate(self, step):
        share = 1
        if self.schedule:
            share = SCHEDULES[self.schedule][1](step * BATCH) * warm_up(step * BATCH)
        return self.full_rate() * share


def torch_loss(case, z, y, weights):
    w = torch.ones(len(z), dtype=z.dtype) if weights is None else torch.tensor(weights, dtype=z.dtype)
    if case.loss == "BCE":
        per_sample = F.binary_cross_entropy_with_logits(z, y, reduction="none").sum(1)
    else:
        w = w * (y.sum(1) > 0)
        target = y / y.sum(1, keepdim=True).clamp(min=1e-30)
        per_sample = -(F.log_softmax(z, 1) * target).sum(1)
    return (w * per_sample).sum() / w.sum()


def torch_optimizer(case, tensors):
    decay = case.options.get("weight_decay", 0)
    decoupled = case.options.get("decay_mode", 0) == constant("DECAY_DECOUPLED")
    groups = [dict(params=[t for name, t in tensors.items() if name.endswith(".weight")], weight_decay=decay),
              dict(params=[t for name, t in tensors.items() if name.endswith(".bias")], weight_decay=0)]
    rate = case.full_rate()
    if case.optimizer == "ADAM":
        return (torch.optim.AdamW if decoupled else torch.optim.Adam)(groups, lr=rate)
    assert not decoupled, "PyTorch has decoupled decay for Adam alone"
    if case.optimizer == "SGD":
        return torch.optim.SGD(groups, lr=rate, momentum=case.momentum)
    return torch.optim.Adagrad(groups, lr=rate, eps=1e-8)


def clip(case, tensors):
    value, norm = case.options.get("clip_value", 0), case.options.get("clip_row_norm", 0)
    for name, t in tensors.items():
        if value:
            t.grad.clamp_(-value, value)
        if norm:  # a row is a neuron's or feature's weights; the bias of an output row is a row of its own
            rows = t.grad.T if name == "output.bias" else t.grad
            rows.mul_((norm / rows.norm(dim=1, keepdim=True).clamp(min=1e-30)).clamp(max=1))


def torch_run(case, start, dtype):
    """Final tensors and the loss of each step."""
    torch.set_num_threads(1)
    tensors = {name: torch.tensor(values, dtype=dtype, requires_grad=True) for name, values in start.items()}
    optimizer, losses = torch_optimizer(case, tensors), []
    for step, (x, y, weights) in enumerate(case.batches()):
        h = torch.relu(torch.tensor(x.dense(), dtype=dtype) @ tensors["input.weight"] + tensors["input.bias"])
        for layer in range(1, len(case.hidden)):
            h = torch.relu(h @ tensors[f"hidden.{layer}.weight"].T + tensors[f"hidden.{layer}.bias"])
        z = h @ tensors["output.weight"].T + tensors["output.bias"]
        loss = torch_loss(case, z, torch.tensor(y.dense(), dtype=dtype), weights)
        optimizer.zero_grad()
        loss.backward()
        clip(case, tensors)
        for group in optimizer.param_groups:
            group["lr"] = case.rate(step)
        optimizer.step()
        losses.append(float(loss.detach()))
    return {name: t.detach().numpy().astype(float) for name, t in tensors.items()}, np.array(losses)


def make_model(library, cluster, case):
    return Model(library, cluster, N_INPUTS, case.hidden, N_OUTPUTS, output_scale=0.1, seed=11)


def our_run(library, cluster, case, select):
    model = make_model(library, cluster, case)
    values = dict(case.options)
    if case.schedule:
        values.update(schedule_options(SCHEDULES[case.schedule][0]), warmup_samples=WARM_UP_SAMPLES)
    trainer = Trainer(model, optimizer=constant(case.optimizer), loss=constant(case.loss), momentum=case.momentum,
                      learning_rate=case.full_rate(), select=constant("SELECT_" + select),
                      flags=constant("TRAINER_DENSE_UPDATES") if case.dense_updates else 0, **ALL_ROWS, **values)
    losses = []
    for step, (x, y, weights) in enumerate(case.batches()):
        stats = trainer.step(x, y, weights)
        losses.append(stats.loss)
        assert abs(stats.learning_rate - case.rate(step)) < 1e-6 * case.full_rate(), f"rate {stats.learning_rate}"
        assert stats.active_share == 1, f"step {step + 1}: only {stats.active_share} of the rows were active"
    final = model.weights()
    trainer.free()
    model.free()
    return final, np.array(losses)


def distance(found, expected, start):
    """The largest over the tensors, relative to what training moved."""
    def norm(a, b):
        return np.linalg.norm(np.asarray(a, float) - np.asarray(b, float))
    return max(norm(found[name], expected[name]) / norm(expected[name], start[name]) for name in start)


def all_cases():
    for optimizer, loss, hidden in itertools.product(RATES, ("SOFTMAX", "BCE"), ((24,), (24, 17))):
        yield f"{optimizer} {loss} hidden {hidden}", Case(optimizer, loss, hidden), SELECTIONS
    for loss in ("SOFTMAX", "BCE"):
        yield f"{loss} sample weights", Case(loss=loss, sample_weights=True), SELECTIONS
        yield f"{loss} rows without labels", Case(loss=loss, min_labels=0), SELECTIONS
        yield f"{loss} label weights", Case(loss=loss, label_values=True), SELECTIONS
    for optimizer in RATES:
        yield f"{optimizer} L2 decay", Case(optimizer, weight_decay=0.01, hidden=(24, 17)), ("ALL",)
        yield f"{optimizer} clipped by value", Case(optimizer, clip_value=1e-3, hidden=(24, 17)), ("ALL",)
        yield f"{optimizer} clipped by row norm", Case(optimizer, clip_row_norm=2e-3, hidden=(24, 17)), ("ALL",)
    decoupled = Case(weight_decay=0.1, decay_mode=constant("DECAY_DECOUPLED"), hidden=(24, 17))
    yield "ADAM decoupled decay", decoupled, ("ALL",)
    for schedule in SCHEDULES:
        yield f"schedule {schedule}, warm-up", Case(schedule=schedule), ("ALL",)
    yield "ADAGRAD, lazy is dense", Case("ADAGRAD", dense_updates=False), ("ALL",)
    yield "SGD without momentum, lazy is dense", Case("SGD", dense_updates=False, momentum=0), ("ALL",)


def main():
    library = Library(sys.argv[1])
    cluster, count, failed = library.cluster(threads=2), 0, []
    print(f"distance to PyTorch in double precision after {STEPS} steps, as a share of the distance moved "
          f"(bound {BOUND:g})")
    print(f"{'':40}{'torch float':>12}" + "".join(f"{select:>10}" for select in SELECTIONS))
    for name, case, selections in all_cases():
        model = make_model(library, cluster, case)
        start = model.weights()
        model.free()
        expected, losses = torch_run(case, start, torch.float64)
        line = f"{name:40}{distance(torch_run(case, start, torch.float32)[0], expected, start):12.1e}"
        for select in selections:
            final, our_losses = our_run(library, cluster, case, select)
            apart = distance(final, expected, start)
            line += f"{apart:10.1e}"
            count += 1
            if not apart <= BOUND or not np.allclose(our_losses, losses, rtol=1e-4):
                failed.append(f"{name}, {select}: weights {apart:.3g}, losses {abs(our_losses / losses - 1).max():.3g}")
        print(line, flush=True)
    print(f"{count - len(failed)} passed, {len(failed)} failed")
    assert not failed, "\n".join(["beyond the bound:", *failed])


if __name__ == "__main__":
    main()
