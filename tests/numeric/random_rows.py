# SPDX-License-Identifier: Apache-2.0
"""Random sparse batches for the numeric tests."""
from dslide_ctypes import Csr, np


def random_rows(rng, counts, n_cols, values=None):
    """Rows of so many distinct columns each, in no order; values(size) draws the stored values."""
    col = np.concatenate([rng.permutation(n_cols)[:count] for count in counts] or [[]])
    return Csr(np.concatenate([[0], np.cumsum(counts)]), col, n_cols, values and values(len(col)))


def random_batch(rng, n_rows, n_inputs, n_outputs, features=(1, 12), labels=(0, 5), label_values=False):
    """A batch; row sizes are drawn from the two ranges, ends included."""
    x = random_rows(rng, rng.integers(features[0], features[1] + 1, n_rows), n_inputs, rng.standard_normal)
    y = random_rows(rng, rng.integers(labels[0], labels[1] + 1, n_rows), n_outputs,
                    (lambda size: rng.uniform(0.25, 3, size)) if label_values else None)
    return x, y
