#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrong usage, missing files, unwritable targets: one line, the right exit code, before any long work.

    test_usage.py DSLIDE SOURCE_ROOT
"""
import os
import re
import subprocess
import unittest

from harness import DATA, DSLIDE, ROOT, CliTest, main, run

COMMANDS = ['train', 'eval', 'predict', 'info', 'verify', 'export', 'bench']
# What is no value of a flag, by what the help text calls its value.
BAD_VALUES = {'N': ['x', '', '1.5', '-1', '99999999999999999999', '0x10', '1e3'], 'X': ['x', '', 'nan', 'inf', '1e99', '-1', '1,5']}


def flags_of(command):
    """(name, kind of value or '') of each flag in the help text."""
    text = run(command, '--help').stdout
    return [(name, kind or '') for name, kind in re.findall(r'^  (--[a-z0-9-]+)(?: (\S+))?', text, flags=re.M)]


class Usage(CliTest):
    def test_usage__help_names_commands_and_groups_flags(self):
        text = self.ok('--help').stdout
        for command in COMMANDS:
            self.assertRegex(text, rf'(?m)^  {command} ')
        for group in ['Data', 'Model', 'Run', 'Saving', 'Output', 'Active set', 'Optimizer', 'Schedule']:
            self.assertRegex(text, rf'(?m)^  {group} +--')

    def test_usage__version_is_printed(self):
        self.assertRegex(self.ok('--version').stdout, r'^dslide \d+\.\d+\.\d+\n')

    def test_usage__bad_value_of_each_flag_exits_2(self):
        tried = 0
        for command in COMMANDS:
            for flag, kind in flags_of(command):
                for value in BAD_VALUES.get(kind, ['nonsense', ''] if '|' in kind else []):
                    with self.subTest(command=command, flag=flag, value=value):
                        self.refused(2, command, f'{flag}={value}', *(['x'] if command == 'info' else []))
                        tried += 1
                if kind == '' and flag != '--help':
                    with self.subTest(command=command, flag=flag):
                        self.refused(2, command, f'{flag}=maybe', *(['x'] if command in ('info', 'verify') else []))
        self.assertGreater(tried, 250)

    def test_usage__list_flags_refuse_bad_lists(self):
        for value in ['', ',', '1,', '0', '1,,2', '1 2', '70000', '1,2,3,4,5,6,7,8,9']:
            with self.subTest(value=value):
                self.refused(2, 'train', '--hidden', value, says='--hidden')
        for value in ['', '0', '1,0', 'x']:
            with self.subTest(value=value):
                self.refused(2, 'eval', '--k', value, says='--k')

    def test_usage__no_text_is_no_name(self):
        """What a script gives as "$DIR" where DIR was never set: it must not train for hours and save nowhere."""
        for flag in ['train', 'test', 'save', 'resume', 'json', 'names-labels', 'names-features']:
            with self.subTest(flag=flag):
                self.refused(2, 'train', *([] if flag == 'train' else ['--train', self.train]), f'--{flag}', '', says='--' + flag)
                conf = self.write('empty.conf', f'{flag} =\n')
                self.refused(2, 'train', *([] if flag == 'train' else ['--train', self.train]), '--config', conf, says='empty.conf:1: ')
        self.refused(1, 'train', '--train', self.train, '--config', '', says="''")
        self.refused(2, 'export', '--model', self.dir, '--slim', '', says='--slim')

    def test_usage__missing_and_unknown_flags_exit_2(self):
        self.refused(2)
        self.refused(2, 'nonsense')
        self.refused(2, 'train', says='--train')
        self.refused(2, 'train', '--train', says='--train')
        self.refused(2, 'train', '--train', self.train, '--epoch', '3', says='--epoch')
        self.refused(2, 'train', '--train', self.train, '--train', self.train, says='--train')
        self.refused(2, 'train', '--train', self.train, 'stray', says='stray')
        self.refused(2, 'eval', '--test', self.test, says='--model')
        self.refused(2, 'eval', '--model', self.dir, says='--test')
        self.refused(2, 'predict', '--model', self.dir, says='--input')
        self.refused(2, 'info')
        self.refused(2, 'verify')
        self.refused(2, 'export', '--model', self.dir, says='--tensor')
        self.refused(2, 'export', '--model', self.dir, '--tensor', 'output.weight', says='--out')

    def test_usage__flags_that_need_or_exclude_others(self):
        train = ['train', '--train', self.train]
        self.refused(2, *train, '--dense', '--hash', 'simhash', says='--hash')
        self.refused(2, *train, '--dense', '--tables', 4, says='--tables')
        self.refused(2, *train, '--early-stop', 2, says='--test')
        self.refused(2, *train, '--save-every', 2, says='--save')
        self.refused(2, *train, '--schedule', 'step', says='--step-samples')
        self.refused(2, 'bench', '--active', 5, '--active-share', 0.1)
        self.refused(2, 'bench', '--nnz', 9, '--inputs', 8, says='--inputs')

    def test_usage__missing_files_exit_1(self):
        nowhere = self.path('nowhere')
        for arguments in [['train', '--train', nowhere], ['train', '--train', self.train, '--test', nowhere],
                          ['train', '--train', self.train, '--names-labels', nowhere],
                          ['train', '--train', self.train, '--names-features', nowhere],
                          ['train', '--train', self.train, '--resume', nowhere],
                          ['train', '--config', nowhere], ['eval', '--model', nowhere, '--test', self.test],
                          ['predict', '--model', nowhere, '--input', self.test],
                          ['predict', '--model', self.dir, '--input', nowhere],
                          ['info', nowhere], ['verify', nowhere], ['export', '--model', nowhere, '--slim', self.path('s')]]:
            with self.subTest(arguments=arguments):
                self.refused(1, *arguments, says=nowhere)
        self.refused(1, 'train', '--train', self.dir, says='is a directory')

    def test_usage__directory_without_checkpoint_exits_1(self):
        self.refused(1, 'eval', '--model', self.dir, '--test', self.test)
        self.refused(1, 'verify', self.dir, says='not a checkpoint')
        self.refused(1, 'info', self.dir, says='not a checkpoint')
        self.refused(1, 'verify', self.train, says='not a directory')

    def test_usage__unwritable_targets_exit_1_before_the_data_is_read(self):
        broken = self.write('broken.txt', 'this is no data\n')  # reading it would be the complaint
        for target in [os.path.join(self.train, 'x'), self.train, '/proc/nowhere/x']:
            self.refused(1, 'train', '--train', broken, '--save', target, says=target)
            if target != self.train:
                self.refused(1, 'train', '--train', broken, '--json', target, says=target)
        self.refused(2, 'train', '--train', broken, '--tables', 256, says='--tables')

    def test_usage__data_errors_name_file_line_and_column(self):
        broken = self.write('broken.txt', '2 5 3\n0 1:1\n1 2:x\n')
        self.refused(1, 'train', '--train', broken, says='broken.txt:3:')
        self.refused(1, 'info', broken, says='broken.txt:3:')

    def test_usage__closed_or_full_standard_output_is_an_error(self):
        done = run('info', self.train, preexec_fn=lambda: os.close(1), stdout=None)
        self.assertEqual(done.returncode, 1)
        self.assertIn('standard output', done.stderr)
        with open('/dev/full', 'w') as full:
            for arguments in [['info', self.train], ['--help'], ['train', '--help']]:
                done = run(*arguments, stdout=full)
                self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)

    def test_usage__all_standard_streams_closed(self):
        def close_all():
            for descriptor in (0, 1, 2):
                os.close(descriptor)
        done = run('info', self.train, preexec_fn=close_all, stdin=None, stdout=None, stderr=None)
        self.assertEqual(done.returncode, 1)


class Info(CliTest):
    def test_info__counts_of_a_data_file(self):
        counts = {}
        for line in self.ok('info', self.test).stdout.splitlines()[1:]:
            key, value = line.split()
            counts[key] = value
        values = sum(len(features) for _, features in self.test_rows)
        labels = sum(len(labels) for labels, _ in self.test_rows)
        self.assertEqual([counts[k] for k in ['rows', 'features', 'labels', 'feature_values', 'label_values']],
                         ['120', '80', '30', str(values), str(labels)])

    def test_info__reads_a_pipe(self):
        with open(self.test, encoding='utf-8') as file:
            text = file.read()
        for name in ['-', '/dev/stdin']:
            self.assertRegex(self.ok('info', name, input=text).stdout, r'rows +120\n')

    def test_info__example_data(self):
        text = self.ok('info', os.path.join(DATA, 'wordnet-plant-train.txt.gz')).stdout
        self.assertRegex(text, r'rows +5,777\n +features +5,845\n +labels +704\n')


class Documents(unittest.TestCase):
    def test_documents__manual_page_names_every_flag(self):
        with open(os.path.join(ROOT, 'docs', 'man', 'dslide.1'), encoding='utf-8') as file:
            manual = file.read().replace('\\-', '-')
        for command in COMMANDS:
            for flag, _ in flags_of(command):
                if flag != '--help':
                    self.assertRegex(manual, re.escape(flag) + r'(?![a-z0-9-])', f'{command} {flag}')

    def complete(self, *words):
        script = os.path.join(ROOT, 'src', 'cli', 'completions', 'dslide.bash')
        code = f'source "{script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _dslide "$1"; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(['bash', '-c', code, 'bash', DSLIDE, *words], capture_output=True, text=True, timeout=30)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return done.stdout.split()

    def test_documents__bash_completion_completes(self):
        self.assertEqual(self.complete('pre'), ['predict'])
        self.assertEqual(self.complete('train', '--names-'), ['--names-labels', '--names-features'])
        self.assertEqual(self.complete('train', '--optimizer', ''), ['adam', 'sgd', 'adagrad'])
        self.assertEqual(self.complete('train', '--normalize', '--ea'), ['--early-stop'])

    def test_documents__recipes_hold_known_flags(self):
        recipes = os.path.join(ROOT, 'examples', 'recipes')
        names = [n for n in os.listdir(recipes) if n.endswith('.conf')]
        self.assertTrue(names)
        for name in names:
            # Recipes of sets that are not in the tree name no files.
            done = run('train', '--config', os.path.join(recipes, name), '--train=/nowhere/train.txt',
                       '--test=/nowhere/test.txt', '--json=/proc/nowhere/x', cwd=ROOT)
            # All flags were understood if the complaint is about the JSON file or about data that is not here.
            self.assertEqual(done.returncode, 1, f'{name}: {done.stderr}')


if __name__ == '__main__':
    main()
