# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint of sample.hpp holds, by its generation: independent of how it is stored."""
ROWS, COLS = 40, 3


def tensors(generation):
    """name -> (dtype, rows, cols, values)"""
    return {
        'output.weight': ('F32', ROWS, COLS, [generation + 0.25 * i for i in range(ROWS * COLS)]),
        'counts': ('I64', 3, 1, [generation, -1, 2**40]),
        'tables': ('I32', 1, 2, [generation, -2]),
        'flags': ('U8', 1, 3, [generation % 256, 255, 7]),
    }


def files(_generation):
    return {'labels.txt': 'cat\nd\u00f6g\n'.encode(), 'note.txt': b''}


def meta(generation):
    return {'full': True, 'samples_seen': 10 * generation, 'steps': generation}
