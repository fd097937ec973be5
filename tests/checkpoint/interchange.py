#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library and two Python programs of its format read each other's checkpoints.

    interchange.py CHECKPOINT_TOOL GOLDEN_DIR
"""
import os
import subprocess
import sys
import tempfile

SKIPPED = 77  # meson's exit code for a test that could not run
try:
    import make_checkpoint
    import read_checkpoint
except ImportError as error:
    print(f'skipped: {error} (Debian: python3-xxhash)')
    sys.exit(SKIPPED)
import sample

GOLDEN_GENERATION = 7


def check_read(folder, generation, what):
    meta, tensors, files = read_checkpoint.read_checkpoint(folder)
    assert meta == sample.meta(generation), f'{what}: meta {meta}'
    assert tensors == sample.tensors(generation), f'{what}: tensors'
    assert files == sample.files(generation), f'{what}: files'
    print('ok', what)


def check_safetensors(folder):
    """Each shard by itself, with the official library if it is there."""
    try:
        import numpy
        from safetensors.numpy import load_file
    except ImportError as error:
        print(f'not checked with the safetensors package: {error}')
        return
    weights = []
    for name in sorted(n for n in os.listdir(folder) if n.endswith('.safetensors')):
        weights += [load_file(os.path.join(folder, name)).get('output.weight', numpy.zeros((0, sample.COLS)))]
    expected = numpy.array(sample.tensors(12)['output.weight'][3]).reshape(sample.ROWS, sample.COLS)
    assert numpy.array_equal(numpy.concatenate(weights), expected), 'the safetensors package reads other values'
    print('ok the safetensors package reads each shard')


def main(tool, golden):
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = os.path.join(folder, 'ours'), os.path.join(folder, 'theirs')
        subprocess.run([tool, 'write', ours, '12'], check=True, timeout=60)
        check_read(ours, 12, 'Python reads what the library wrote')
        check_safetensors(ours)
        striped = os.path.join(folder, 'striped')
        subprocess.run([tool, 'write-striped', striped, '15'], check=True, timeout=60)
        check_read(striped, 15, 'Python reads stripes of columns')
        subprocess.run([tool, 'check', striped, '15'], check=True, timeout=60)
        make_checkpoint.write_checkpoint(theirs, 13)
        check_read(theirs, 13, 'Python reads what Python wrote')
        subprocess.run([tool, 'check', theirs, '13'], check=True, timeout=60)
        print('ok the library reads what Python wrote')
        wrong = subprocess.run([tool, 'check', theirs, '14'], stderr=subprocess.DEVNULL, timeout=60)
        assert wrong.returncode == 1, 'the check takes any values'
    check_read(golden, GOLDEN_GENERATION, 'Python reads the golden checkpoint')


if __name__ == '__main__':
    main(*sys.argv[1:3])
