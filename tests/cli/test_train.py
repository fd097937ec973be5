#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dslide train: what it learns, reports and saves; resuming, interruption, settings files, pipes.

    test_train.py DSLIDE SOURCE_ROOT
"""
import gzip
import os
import pty
import re
import resource
import select
import shutil
import signal
import subprocess
import time

from harness import DATA, DSLIDE, LABELS, SECONDS, CliTest, json_lines, main, make_rows, run, xmc_text

EPOCH_FIELDS = ['event', 'epoch', 'samples', 'seconds', 'cpu_seconds', 'samples_per_second', 'loss', 'p_at_1', 'p_at_3', 'p_at_5',
                'active_share', 'rows_touched_per_batch', 'bytes_sent', 'peak_rss_bytes', 'read_seconds', 'eval_seconds',
                'save_seconds']


def heed_interrupts():
    """In the child: whoever runs the tests in the background has SIGINT ignored, and so would have what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class WeightsTest(CliTest):
    def exported(self, model):
        """The bytes of all weights."""
        out, text = self.path('tensor'), b''
        for tensor in ['input.weight', 'input.bias', 'output.weight', 'output.bias']:
            self.ok('export', '--model', model, '--tensor', tensor, '--out', out, '--as', 'npy')
            with open(out, 'rb') as file:
                text += file.read()
        return text

    def start(self, *arguments):
        return subprocess.Popen([DSLIDE, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts)

    def start_endless(self, save):
        """A training that runs until it is stopped, past its first epoch."""
        process = self.start('train', '--train', self.train, '--hidden', 8, '--epochs', 10 ** 9, '--save', save)
        self.addCleanup(process.kill)
        for line in process.stderr:
            if line.startswith('epoch 1/'):
                return process
        self.fail('ended before its first epoch')


class Train(WeightsTest):
    def test_train__learns_and_prints_choices(self):
        done = self.ok('train', '--train', self.train, '--test', self.test, '--hidden', 16, '--batch', 32, '--epochs', 5, '--lr', 0.02)
        self.assertIn('600 rows, 80 features, 30 labels', done.stderr)
        # 80 x 16 + 16 + 30 x 16 + 30
        self.assertIn('1,806 parameters', done.stderr)
        for word in ['active set', 'memory', 'optimizer', 'threads']:
            self.assertIn(word, done.stderr)
        self.assertEqual(len(re.findall(r'(?m)^epoch \d/5 ', done.stderr)), 5)
        self.assertNotIn('\r', done.stderr)
        precision = float(re.search(r'P@1 ([0-9.]+)', done.stdout).group(1))
        self.assertGreater(precision, 0.8)
        self.assertEqual(len(done.stdout.splitlines()), 1)

    def test_train__quiet_prints_the_result_alone(self):
        done = self.ok('train', '--train', self.train, '--hidden', 8, '--epochs', 1, '--quiet')
        self.assertEqual((done.stderr, len(done.stdout.splitlines())), ('', 1))

    def test_train__terminal_gets_a_bar(self):
        try:
            leader, follower = pty.openpty()
        except OSError as refusal:  # a container without /dev/pts
            self.skipTest(f'no terminal to be had: {refusal}')
        process = subprocess.Popen([DSLIDE, 'train', '--train', self.train, '--test', self.test, '--hidden', '256', '--batch', '1',
                                    '--epochs', '6'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=follower)
        os.close(follower)
        text, deadline = b'', time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if select.select([leader], [], [], 0.1)[0]:
                try:
                    text += os.read(leader, 65536)
                except OSError:  # the other side is closed
                    break
        os.close(leader)
        self.assertEqual(process.wait(SECONDS), 0)
        shown = text.decode()
        for pattern in [r'\repoch|\r\x1b\[Kepoch', r'\[#*\.*\] +\d+%', r'samples/s', r'loss', r'P@1', r'active', r'left \d+:\d\d']:
            self.assertRegex(shown, pattern)

    def test_train__json_lines_hold_all_fields(self):
        path = self.path('run.json')
        self.ok('train', '--train', self.train, '--test', self.test, '--hidden', 8, '--epochs', 3, '--threads', 2, '--json', path,
                '--save', self.path('save'))
        lines = json_lines(path)
        self.assertEqual([line['event'] for line in lines], ['settings', 'epoch', 'epoch', 'epoch', 'result'])
        settings = lines[0]
        self.assertEqual([settings[k] for k in ['threads', 'epochs', 'hidden', 'optimizer', 'train_rows', 'train_features', 'train_labels']],
                         [2, 3, [8], 'adam', 600, 80, 30])
        for number, epoch in enumerate(lines[1:-1], 1):
            for field in EPOCH_FIELDS:
                self.assertIn(field, epoch)
            self.assertEqual((epoch['epoch'], epoch['samples'], epoch['bytes_sent']), (number, 600, 0))
            self.assertTrue(0 <= epoch['p_at_1'] <= 1 and 0 < epoch['active_share'] <= 1 and epoch['seconds'] > 0)
            self.assertTrue(0 < epoch['rows_touched_per_batch'] <= 30)
            self.assertAlmostEqual(epoch['samples_per_second'], 600 / epoch['seconds'], delta=1e-6 * 600 / epoch['seconds'])
            self.assertGreater(epoch['peak_rss_bytes'], 1 << 20)
        self.assertEqual(lines[-1]['outcome'], 'finished')
        self.assertEqual(lines[-1]['samples'], 1800)

    def test_train__json_on_standard_output_stands_alone(self):
        done = self.ok('train', '--train', self.train, '--hidden', 8, '--epochs', 1, '--json', '-')
        self.assertEqual(len(done.stdout.splitlines()), 3)
        self.assertTrue(all(line.startswith('{"event":') for line in done.stdout.splitlines()))
        self.assertIn('"p_at_1":null', done.stdout)

    def test_train__dense_touches_every_row(self):
        path = self.path('run.json')
        self.ok('train', '--train', self.train, '--hidden', 8, '--epochs', 1, '--dense', '--json', path)
        settings, epoch = json_lines(path)[:2]
        self.assertEqual((settings['select'], epoch['active_share'], epoch['rows_touched_per_batch']), ('all', 1, 30))

    def test_train__every_selection_optimizer_and_loss_runs(self):
        for flags in [['--hash', 'simhash', '--tables', 4, '--bits', 3], ['--hash', 'dwta', '--tables', 4, '--bits', 3],
                      ['--hash', 'exact', '--active-share', 0.2], ['--hash', 'random', '--active-share', 0.2],
                      ['--optimizer', 'sgd', '--momentum', 0.9], ['--optimizer', 'adagrad'], ['--loss', 'bce'],
                      ['--schedule', 'cosine', '--warmup', 100], ['--schedule', 'step', '--step-samples', 300],
                      ['--weight-decay', 0.01, '--decay', 'decoupled', '--clip-value', 1, '--clip-row-norm', 1],
                      ['--hidden', '12,10'], ['--dense-updates'], ['--shared-negatives', 0, '--hash', 'simhash'], ['--normalize'],
                      ['--random-fill', 3, '--hash', 'simhash', '--correction', '--no-centring']]:
            with self.subTest(flags=flags):
                hidden = [] if '--hidden' in flags else ['--hidden', 8]
                self.ok('train', '--train', self.train, '--test', self.test, *hidden, '--epochs', 1, *flags)

    def test_train__same_seed_same_bits_other_seed_other_bits(self):
        weights = []
        for name, seed in [('a', 7), ('b', 7), ('c', 8)]:
            save = self.path(name)
            self.ok('train', '--train', self.train, '--hidden', 8, '--epochs', 1, '--seed', seed, '--threads', 2, '--save', save)
            weights.append(self.exported(save))
        self.assertEqual(weights[0], weights[1])
        self.assertNotEqual(weights[0], weights[2])

    def test_train__reads_pipes(self):
        with open(self.train, 'rb') as file:
            text = file.read()
        for name in ['-', '/dev/stdin']:
            for data in [text, gzip.compress(text)]:
                done = self.ok('train', '--train', name, '--hidden', 8, '--epochs', 2, input=data, text=False)
                self.assertIn(b'600 rows', done.stderr)

    def test_train__streams(self):
        path = self.path('run.json')
        self.ok('train', '--train', self.train, '--stream', '--hidden', 8, '--epochs', 2, '--no-shuffle', '--json', path)
        streamed = [line['loss'] for line in json_lines(path)[1:3]]
        self.ok('train', '--train', self.train, '--hidden', 8, '--epochs', 2, '--no-shuffle', '--json', path)
        self.assertEqual(streamed, [line['loss'] for line in json_lines(path)[1:3]])
        with open(self.train, encoding='utf-8') as file:
            text = file.read()
        self.ok('train', '--train', '-', '--stream', '--hidden', 8, '--epochs', 1, input=text)
        self.refused(2, 'train', '--train', '/dev/stdin', '--stream', '--epochs', 2, says='one epoch', input=text)
        self.refused(2, 'train', '--train', self.train, '--stream', '--schedule', 'linear', says='--total-samples')

    def test_train__dry_run_trains_and_writes_nothing(self):
        save = self.path('save')
        done = self.ok('train', '--train', self.train, '--hidden', 8, '--save', save, '--dry-run')
        self.assertIn('memory', done.stdout)
        self.assertEqual((done.stderr, os.path.exists(save)), ('', False))

    def test_train__refuses_what_memory_cannot_hold(self):
        done = self.refused(1, 'train', '--train', self.train, '--hidden', 65536, '--n-labels', 2 ** 31 - 1, '--n-features', 2 ** 31 - 1,
                            says='memory')
        self.assertIn('weights', done.stderr)

    def test_train__wide_rows_are_refused_or_dropped(self):
        self.refused(1, 'train', '--train', self.train, '--n-features', 50, '--epochs', 1)
        headless = self.write('headless.txt', xmc_text(make_rows(200, seed=3), header=False))
        done = self.ok('train', '--train', headless, '--n-features', 50, '--n-labels', 20, '--drop-wide', '--hidden', 8, '--epochs', 1)
        self.assertIn('features dropped', done.stderr)
        self.assertIn('labels dropped', done.stderr)

    def test_train__divergence_is_told_and_saves_nothing(self):
        path, save = self.path('run.json'), self.path('save')
        done = run('train', '--train', self.train, '--hidden', 8, '--optimizer', 'sgd', '--lr', 1e20, '--epochs', 3, '--json', path,
                   '--save', save, '--quiet')
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)
        result = json_lines(path)[-1]
        self.assertEqual((result['event'], result['outcome']), ('result', 'failed'))
        self.assertIn(result['error'], done.stderr)
        self.assertFalse(os.path.lexists(os.path.join(save, 'latest')))

    def test_train__survives_a_reader_that_leaves(self):
        save = self.path('save')
        process = self.start('train', '--train', self.train, '--hidden', 8, '--epochs', 3, '--save', save)
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(process.wait(SECONDS), 1)  # its result could not be printed
        self.ok('verify', save)
        self.assertTrue(os.path.isdir(os.path.join(save, 'epoch-000003')))

    def test_train__says_that_it_replaces_an_earlier_run(self):
        save = self.path('save')
        arguments = ['train', '--train', self.train, '--hidden', 8, '--epochs', 1, '--save', save]
        self.assertNotIn('replaced', self.ok(*arguments).stderr)
        self.assertIn('replaced', self.ok(*arguments).stderr)
        self.assertNotIn('replaced', self.ok('train', '--resume', save, '--save', save, '--epochs', 2).stderr)

    def test_train__file_size_limit_is_an_error_not_a_signal(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        save = self.path('limited')
        self.refused(1, 'train', '--train', self.train, '--hidden', 32, '--epochs', 1, '--quiet', '--save', save, says='File too large',
                     preexec_fn=limit)
        self.assertEqual(os.listdir(save), ['run.conf'])

    def test_train__full_disk_under_json_is_told_at_the_end(self):
        save = self.path('save')
        done = run('train', '--train', self.train, '--hidden', 8, '--epochs', 2, '--save', save, '--json', '/dev/full')
        self.assertEqual(done.returncode, 1)
        self.assertIn('/dev/full', done.stderr)
        self.ok('verify', save)


class Config(CliTest):
    def settings(self, *arguments):
        path = self.path('settings.json')
        self.ok('train', '--train', self.train, '--hidden', 8, '--epochs', 1, *arguments, '--json', path)
        return json_lines(path)[0]

    def test_config__command_line_wins(self):
        conf = self.write('run.conf', '# a comment\n\nbatch = 17\nlr = 0.25\noptimizer = "sgd"\nnormalize = true\n')
        found = self.settings('--config', conf, '--lr', '0.5')
        self.assertEqual([found[k] for k in ['batch', 'learning_rate', 'optimizer', 'normalize']], [17, 0.5, 'sgd', True])
        self.assertFalse(self.settings('--normalize=false', '--config', conf)['normalize'])

    def test_config__mistakes_name_file_and_line(self):
        for text, says in [('batch = 8\nnonsense = 1\n', 'run.conf:2: '), ('batch\n', 'run.conf:1: '), ('batch = x\n', 'run.conf:1: --batch'),
                           ('batch = 1\nbatch = 2\n', 'run.conf:2: '), ('config = x\n', 'run.conf:1: '),
                           ('normalize = maybe\n', 'run.conf:1: '), (' = 3\n', 'run.conf:1: ')]:
            with self.subTest(text=text):
                self.refused(2, 'train', '--train', self.train, '--config', self.write('run.conf', text), says=says)

    def test_config__what_is_no_settings_file_is_refused_in_bounded_memory(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        bounded = {} if os.environ.get('ASAN_OPTIONS') else {'preexec_fn': limit}
        self.refused(1, 'train', '--train', self.train, '--config', '/dev/zero', says='/dev/zero', **bounded)
        self.refused(1, 'train', '--train', self.train, '--config', '/proc/self/mem', says='/proc/self/mem')
        self.refused(1, 'train', '--train', self.train, '--config', self.dir, says='is a directory')

    def test_config__recipe_trains(self):
        root = os.path.dirname(os.path.dirname(DATA))
        done = self.ok('train', '--config', 'examples/recipes/wordnet-plant.conf', '--epochs', 4, cwd=root)
        # The reference file counts 69.70 % for nearest neighbours; a network that learns passes half of it at once.
        self.assertGreater(float(re.search(r'P@1 ([0-9.]+)', done.stdout).group(1)), 0.35)


class Resume(WeightsTest):
    def run_epochs(self, save, epochs, *flags):
        self.ok('train', '--train', self.train, '--test', self.test, '--hidden', 8, '--batch', 32, '--threads', 2, '--save', save,
                '--epochs', epochs, *flags)

    def test_resume__equals_an_uninterrupted_run(self):
        for name, flags in [('dense', ['--dense']), ('hash', ['--hash', 'simhash', '--tables', 4, '--bits', 3, '--rebuild-first', 5])]:
            with self.subTest(name):
                whole, parts = self.path(name + '-whole'), self.path(name + '-parts')
                self.run_epochs(whole, 3, *flags)
                self.run_epochs(parts, 1, *flags)
                done = self.ok('train', '--resume', parts, '--save', parts, '--epochs', 3)
                self.assertEqual(re.findall(r'(?m)^epoch (\d)/3', done.stderr), ['2', '3'])
                self.assertEqual(self.exported(whole + '/latest'), self.exported(parts + '/latest'))

    def test_resume__takes_new_rate_epochs_and_batch(self):
        save, path = self.path('save'), self.path('run.json')
        self.run_epochs(save, 1)
        self.ok('train', '--resume', save, '--epochs', 2, '--lr', 0.5, '--batch', 64, '--json', path)
        settings = json_lines(path)[0]
        self.assertEqual([settings[k] for k in ['learning_rate', 'batch', 'epochs', 'epochs_done']], [0.5, 64, 2, 1])

    def test_resume__keeps_what_is_not_given(self):
        save, path = self.path('save'), self.path('run.json')
        self.run_epochs(save, 1, '--optimizer', 'sgd', '--momentum', 0.5, '--lr', 0.25)
        self.ok('train', '--resume', save, '--epochs', 2, '--json', path)
        settings = json_lines(path)[0]
        self.assertEqual([settings[k] for k in ['optimizer', 'momentum', 'learning_rate', 'batch', 'hidden']], ['sgd', 0.5, 0.25, 32, [8]])

    def test_resume__refuses_contradictions(self):
        save = self.path('save')
        self.run_epochs(save, 1, '--hash', 'simhash', '--tables', 4, '--bits', 3)
        for flags in [['--hidden', 16], ['--hidden', '8,8'], ['--optimizer', 'sgd'], ['--loss', 'bce'], ['--hash', 'dwta'], ['--dense'],
                      ['--tables', 5], ['--bits', 4], ['--beta1', 0.5], ['--schedule', 'linear'], ['--weight-decay', 0.1],
                      ['--n-labels', 31], ['--total-samples', 5], ['--dense-updates'], ['--seed', 99], ['--input-scale', 1]]:
            with self.subTest(flags=flags):
                self.refused(2, 'train', '--resume', save, '--epochs', 3, *flags, says=flags[0] + ' contradicts')
        self.refused(2, 'train', '--resume', save, '--epochs', 1, says='--epochs')
        dense = self.path('dense')
        self.run_epochs(dense, 1, '--dense')
        for flags in [['--hash', 'simhash'], ['--tables', 4], ['--active-share', 0.5]]:
            self.refused(2, 'train', '--resume', dense, '--epochs', 3, *flags, says=flags[0] + ' contradicts')
        self.ok('train', '--resume', save, '--epochs', 2, '--hidden', 8, '--tables', 4, '--optimizer', 'adam')

    def test_resume__names_come_with_the_checkpoint(self):
        save, names = self.path('save'), self.write('labels.txt', ''.join(f'label {l}\n' for l in range(LABELS)))
        self.run_epochs(save, 1, '--names-labels', names)
        os.remove(names)
        self.ok('train', '--resume', save, '--epochs', 2, '--save', save)
        self.assertIn('label ', self.ok('predict', '--model', save, '--input', self.test, '--names').stdout)

    def test_resume__takes_up_an_epoch_in_its_middle(self):
        """Killed after a checkpoint between epochs, a run ends with the weights it would have had."""
        whole, parts = self.path('whole'), self.path('parts')
        flags = ['--hash', 'simhash', '--tables', 4, '--bits', 3, '--rebuild-first', 5, '--save-every', 7]
        self.run_epochs(whole, 2, *flags)
        self.run_epochs(parts, 2, *flags)
        steps = sorted(n for n in os.listdir(parts) if n.startswith('step-'))
        self.assertTrue(steps, os.listdir(parts))
        # What a kill -9 after the last of these would have left.
        for name in os.listdir(parts):
            if name not in (steps[-1], 'run.conf'):
                path = os.path.join(parts, name)
                shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)
        os.symlink(steps[-1], os.path.join(parts, 'latest'))
        self.ok('train', '--resume', parts, '--save', parts)
        self.assertEqual(self.exported(whole + '/latest'), self.exported(parts + '/latest'))

    def test_resume__needs_optimizer_state(self):
        save, slim = self.path('save'), self.path('slim')
        self.run_epochs(save, 1)
        self.ok('export', '--model', save, '--slim', slim)
        self.refused(1, 'train', '--train', self.train, '--resume', slim, '--epochs', 2)


class Interrupt(WeightsTest):
    def test_interrupt__saves_and_exits_130(self):
        save = self.path('save')
        process = self.start_endless(save)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn('interrupted', out)
        self.ok('verify', save)
        self.ok('eval', '--model', save, '--test', self.test)
        last = [int(n) for n in re.findall(r'(?m)^epoch (\d+)/', err)][-1] if re.search(r'(?m)^epoch', err) else 1
        self.ok('train', '--resume', save, '--epochs', last + 2)

    def test_interrupt__resumed_in_the_middle_equals_uninterrupted(self):
        slow, whole = self.path('slow'), self.path('whole')
        flags = ['train', '--train', self.train, '--hidden', 64, '--batch', 4, '--hash', 'simhash', '--tables', 4, '--bits', 3,
                 '--epochs', 10 ** 6]
        process = self.start(*flags, '--save', slow)
        self.addCleanup(process.kill)
        for line in process.stderr:
            if line.startswith('epoch 2/'):
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 130)
        done = max([2] + [int(n) for n in re.findall(r'(?m)^epoch (\d+)/', err)])
        self.ok('train', '--resume', slow, '--save', slow, '--epochs', done + 2)
        self.ok(*flags[:-1], done + 2, '--save', whole)
        self.assertEqual(self.exported(slow + '/latest'), self.exported(whole + '/latest'))

    def test_interrupt__terminate_exits_143(self):
        process = self.start_endless(self.path('save'))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 143)

    def test_interrupt__without_save_says_so(self):
        process = self.start('train', '--train', self.train, '--hidden', 8, '--epochs', 10 ** 9)
        self.addCleanup(process.kill)
        process.stderr.readline()
        for line in process.stderr:
            if line.startswith('epoch 1/'):
                break
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 130)
        self.assertIn('not saved', out)

    def test_interrupt__ignored_from_the_start_stays_ignored(self):
        """As a shell runs commands in the background, and nohup does for another signal."""
        process = subprocess.Popen([DSLIDE, 'train', '--train', self.train, '--hidden', '8', '--epochs', '1000000000'],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        self.addCleanup(process.kill)
        for line in process.stderr:
            if line.startswith('epoch 1/'):
                break
        process.send_signal(signal.SIGINT)
        later = [next(process.stderr) for _ in range(3)]
        self.assertTrue(all(line.startswith('epoch ') for line in later), later)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 143)

    def test_interrupt__before_training_ends_at_once(self):
        read_end, write_end = os.pipe()
        process = subprocess.Popen([DSLIDE, 'train', '--train', '-'], stdin=read_end, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   preexec_fn=heed_interrupts)
        self.addCleanup(os.close, write_end)
        os.close(read_end)
        time.sleep(1)  # it now waits for data that never come
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, -signal.SIGINT)


if __name__ == '__main__':
    main()
