#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the tests of a meson run, those inside a cmocka program or a script one by one.

    count_tests.py TESTLOG_JSON REPORT

Prints `passed failed skipped`; REPORT gets the failing tests with the end of their output, and why others were skipped.
A program that reports more tests than it passes fails as a whole at least once, as does one that ends by a signal.
"""
import json
import re
import sys


def summary(text):
    """(passed, failed, skipped) as the program itself says, or None."""
    cmocka = re.search(r'\[==========\] .*?(\d+) test\(s\) run\.', text)
    if cmocka:
        # A program may hold several groups, each with its own summary.
        def total(word):
            return sum(int(n) for n in re.findall(r'\[\s*' + word + r'\s*\] (\d+) test\(s\)', text))
        return total('PASSED'), total('FAILED'), total('SKIPPED')
    lines = re.findall(r'^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\b.*$', text, flags=re.M)
    if lines:
        return tuple(int(n or 0) for n in lines[-1])
    return None


def main():
    passed = failed = skipped = 0
    report = []
    for line in open(sys.argv[1], encoding='utf-8', errors='replace'):
        test = json.loads(line)
        text = (test.get('stdout') or '') + (test.get('stderr') or '')
        ok = test['result'] in ('OK', 'EXPECTEDFAIL')
        if test['result'] == 'SKIP':
            skipped += 1
            reason = text.strip().split('\n')[-1] or 'no reason given'
            report.append(f'skipped: {test["name"]}: {reason}')
            continue
        counts = summary(text)
        if counts is None:
            # It may have died half-way: count what it finished.
            finished = len(re.findall(r'^\[       OK \]', text, flags=re.M))
            counts = (1, 0, 0) if ok else (finished, 1, 0)
        if not ok and counts[1] == 0:
            counts = (counts[0], 1, counts[2])
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
        if counts[2]:
            said = r'^.*\[  SKIPPED \] (?!\d+ test).*$|^skipped: .*$|^.* skipped [\'\"].*$'
            reasons = re.findall(said, text, flags=re.M)
            report += [f'skipped: {test["name"]}: {reason}' for reason in dict.fromkeys(reasons)]
        if counts[1]:
            report.append(f'FAILED: {test["name"]} ({test["result"]}, exit code {test.get("returncode")})')
            report += ['    ' + t for t in text.strip().split('\n')[-25:]]
    with open(sys.argv[2], 'w', encoding='utf-8') as f:
        f.write(''.join(r + '\n' for r in report))
    print(passed, failed, skipped)


main()
