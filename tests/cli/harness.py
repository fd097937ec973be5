# SPDX-License-Identifier: Apache-2.0
"""Runs the dslide command on small made-up data; every run has a time limit."""
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

DSLIDE, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
DATA = os.path.join(ROOT, 'examples', 'data')
SECONDS = 60
LABELS, FEATURES = 30, 80


def run(*arguments, **options):
    """The finished process; text streams unless options say otherwise."""
    options.setdefault('timeout', SECONDS)
    options.setdefault('text', True)
    if 'input' not in options:
        options.setdefault('stdin', subprocess.DEVNULL)
    options.setdefault('stdout', subprocess.PIPE)
    options.setdefault('stderr', subprocess.PIPE)
    return subprocess.run([DSLIDE, *map(str, arguments)], **options)


def make_rows(count, seed):
    """Rows whose labels can be told from their features: label l brings feature l, and noise from FEATURES - LABELS more."""
    random_numbers = random.Random(seed)
    rows = []
    for _ in range(count):
        labels = sorted(random_numbers.sample(range(LABELS), random_numbers.choice([1, 1, 2, 3])))
        noise = random_numbers.sample(range(LABELS, FEATURES), 3)
        features = {f: 1.0 for f in labels} | {f: round(random_numbers.uniform(0.1, 0.5), 3) for f in noise}
        rows.append((labels, sorted(features.items())))
    return rows


def xmc_text(rows, header=True, base=0):
    lines = [f'{len(rows)} {FEATURES} {LABELS}'] if header else []
    for labels, features in rows:
        lines.append(','.join(map(str, labels)) + ' ' + ' '.join(f'{f + base}:{v}' for f, v in features))
    return '\n'.join(lines) + '\n'


def json_lines(path):
    with open(path, encoding='utf-8') as file:
        return [json.loads(line) for line in file]


def read_npy(path):
    """Rows of a two-dimensional little-endian float32 array, by the NumPy format 1.0."""
    with open(path, 'rb') as file:
        data = file.read()
    assert data[:8] == b'\x93NUMPY\x01\x00', data[:8]
    length = struct.unpack('<H', data[8:10])[0]
    assert (10 + length) % 64 == 0 and data[9 + length:10 + length] == b'\n'
    header = eval(data[10:10 + length].decode('ascii'), {'__builtins__': {}})
    assert header['descr'] == '<f4' and header['fortran_order'] is False
    rows, cols = header['shape']
    values = struct.unpack(f'<{rows * cols}f', data[10 + length:])
    return [values[r * cols:(r + 1) * cols] for r in range(rows)]


class CliTest(unittest.TestCase):
    """A directory of its own for each test, with train.txt and test.txt in it."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix='dslide-cli-')
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.test_rows = make_rows(120, seed=2)
        self.train = self.write('train.txt', xmc_text(make_rows(600, seed=1)))
        self.test = self.write('test.txt', xmc_text(self.test_rows))

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        with open(self.path(name), 'w', encoding='utf-8') as file:
            file.write(text)
        return self.path(name)

    def ok(self, *arguments, **options):
        done = run(*arguments, **options)
        self.assertEqual(done.returncode, 0, f'{arguments}\n{done.stdout}\n{done.stderr}')
        return done

    def refused(self, code, *arguments, says='', **options):
        """Exit code, and exactly one line on standard error that begins as all complaints do."""
        done = run(*arguments, **options)
        self.assertEqual(done.returncode, code, f'{arguments}\n{done.stdout}\n{done.stderr}')
        self.assertEqual(len(done.stderr.splitlines()), 1, f'{arguments}\n{done.stderr}')
        self.assertTrue(done.stderr.startswith('dslide'), done.stderr)
        self.assertIn(says, done.stderr)
        return done

    def small_model(self, name='model', *flags):
        """Trains on the made-up data; returns the directory of checkpoints."""
        save = self.path(name)
        self.ok('train', '--train', self.train, '--test', self.test, '--hidden', 16, '--batch', 32, '--epochs', 4, '--lr', 0.02,
                '--threads', 2, '--save', save, *flags)
        return save


def main():
    """Runs the tests of the calling script and prints the line that test counters look for."""
    result = unittest.main(argv=[sys.argv[0], *sys.argv[3:]], exit=False, verbosity=2).result
    failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    print(f'{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped')
    sys.exit(1 if failed else 0)
