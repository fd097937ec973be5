#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills a program that saves checkpoints, again and again, and looks at what is left.

    kill_loop.py CHECKPOINT_TOOL [--rounds N] [--seed N] [--dir DIR] [--aside]

After each kill `latest` and `best` must load, hold the content of their generation, and be no older than the last save that was
acknowledged before the kill.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TIME_LIMIT = 60  # seconds for a child to answer


def acknowledged(text, before):
    """Generations of the last whole lines "saved N" and "saved N best"."""
    latest, best = before
    for line in text.split('\n')[:-1]:  # what follows the last line end was cut by the kill
        words = line.split()
        latest = int(words[1])
        if words[2:] == ['best']:
            best = latest
    return latest, best


def run_and_kill(command, root, first, seconds):
    """Starts the loop, kills it so long after its first save; its output."""
    output = tempfile.TemporaryFile(mode='w+', dir=os.path.dirname(root))
    process = subprocess.Popen([*command, root, str(first)], stdout=output)
    deadline = time.monotonic() + TIME_LIMIT
    while os.fstat(output.fileno()).st_size == 0 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.0005)
    time.sleep(seconds)
    still_ran = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait(TIME_LIMIT)
    output.seek(0)
    text = output.read()
    output.close()
    return text if still_ran else None


def newest(tool, root):
    result = subprocess.run([tool, 'newest', root], capture_output=True, text=True, timeout=TIME_LIMIT)
    words = result.stdout.split()
    if result.returncode != 0 or len(words) != 4:
        return None, result.stderr.strip()
    return (int(words[1]), int(words[3])), ''


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('tool')
    parser.add_argument('--rounds', type=int, default=100)
    parser.add_argument('--seed', type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument('--dir', help='where to work; in memory if not given and possible')
    parser.add_argument('--aside', action='store_true', help='as on a file system that cannot exchange two names')
    options = parser.parse_args()
    print(f'seed {options.seed}', flush=True)
    chance = random.Random(options.seed)
    base = options.dir or ('/dev/shm' if os.access('/dev/shm', os.W_OK) else None)
    work = tempfile.mkdtemp(prefix='dslide-kill-', dir=base)
    root = os.path.join(work, 'run')
    command = [options.tool, 'loop-aside' if options.aside else 'loop']
    known, saves, mid_save = (0, 0), 0, 0
    for number in range(1, options.rounds + 1):
        text = run_and_kill(command, root, known[0] + 1, chance.uniform(0, 0.03))
        if text is None:
            sys.exit(f'round {number}: the saving program ended by itself')
        saves += text.count('\n')
        told = acknowledged(text, known)
        mid_save += any(name.endswith('.dslide.tmp') for name in os.listdir(root))
        found, error = newest(options.tool, root)
        # `best` falls back to `latest` before the first best one was saved.
        if found is None or found[0] < told[0] or found[1] < told[1]:
            sys.exit(f'round {number}: acknowledged latest {told[0]} and best {told[1]}, found {found}: {error}; see {work}')
        known = found[0], told[1]
    subprocess.run([options.tool, 'newest', root], check=True, stdout=subprocess.DEVNULL, timeout=TIME_LIMIT)
    left = [name for name in os.listdir(root) if name.startswith('step-') and '.' not in name]
    print(f'{options.rounds} kills, {mid_save} of them inside a save, {saves} saves; {len(left)} checkpoints are left')
    shutil.rmtree(work)
    if mid_save == 0:
        sys.exit('no kill came inside a save: the test proves nothing')


if __name__ == '__main__':
    main()
