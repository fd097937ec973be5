#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is done with trained models: eval, predict, info, verify, export; and the benchmark.

    test_models.py DSLIDE SOURCE_ROOT
"""
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess

from harness import DSLIDE, FEATURES, LABELS, SECONDS, CliTest, json_lines, main, read_npy, run, xmc_text


class Models(CliTest):
    """One model for all tests of the class."""

    def setUp(self):
        super().setUp()
        self.labels = self.write('labels.txt', ''.join(f'label {l}\n' for l in range(LABELS)))
        self.features = self.write('features.txt', ''.join(f'word{f}\n' for f in range(FEATURES)))
        self.model = self.small_model('model', '--names-labels', self.labels, '--names-features', self.features)

    def predictions(self, top, *flags, input_file=None):
        """A list of (label, score) for each row."""
        done = self.ok('predict', '--model', self.model, '--input', input_file or self.test, '--top', top, *flags)
        return [[(int(l), float(s)) for l, s in (pair.split(':') for pair in line.split(' '))] for line in done.stdout.splitlines()]

    def tensor(self, name, form='npy'):
        out = self.path('tensor')
        self.ok('export', '--model', self.model, '--tensor', name, '--out', out, '--as', form)
        return out

    def test_predict__scores_are_the_logits_of_the_exported_weights(self):
        first, first_bias = read_npy(self.tensor('input.weight')), read_npy(self.tensor('input.bias'))[0]
        last, last_bias = read_npy(self.tensor('output.weight')), read_npy(self.tensor('output.bias'))[0]
        for (_, features), ranked in zip(self.test_rows[:20], self.predictions(LABELS)):
            hidden = [max(0, b + sum(v * first[f][i] for f, v in features)) for i, b in enumerate(first_bias)]
            logits = [b + sum(w * h for w, h in zip(row, hidden)) for row, b in zip(last, last_bias)]
            self.assertEqual(sorted(label for label, _ in ranked), list(range(LABELS)))
            self.assertEqual([s for _, s in ranked], sorted((s for _, s in ranked), reverse=True))
            for label, score in ranked:
                self.assertAlmostEqual(score, logits[label], delta=2e-4 * max(1, abs(logits[label])))

    def test_eval__agrees_with_predict(self):
        path = self.path('eval.json')
        self.ok('eval', '--model', self.model, '--test', self.test, '--k', '1,2,5', '--json', path)
        metrics = json_lines(path)[0]
        ranked = self.predictions(5)
        for k in (1, 2, 5):
            hits = [len({l for l, _ in row[:k]} & set(labels)) for row, (labels, _) in zip(ranked, self.test_rows)]
            self.assertAlmostEqual(metrics[f'p_at_{k}'], sum(hits) / k / len(ranked), places=9)
            recall = sum(h / len(labels) for h, (labels, _) in zip(hits, self.test_rows)) / len(ranked)
            self.assertAlmostEqual(metrics[f'r_at_{k}'], recall, places=9)
        self.assertEqual(metrics['rows'], 120)

    def test_eval__agrees_with_the_best_epoch_of_training(self):
        save, path = self.path('again'), self.path('run.json')
        self.ok('train', '--train', self.train, '--test', self.test, '--hidden', 8, '--epochs', 4, '--lr', 0.05, '--save', save, '--json', path)
        best = json_lines(path)[-1]
        self.ok('eval', '--model', save, '--test', self.test, '--json', path)
        self.assertEqual(json_lines(path)[0]['p_at_1'], best['best_p_at_1'])

    def test_eval__prints_a_table_and_takes_directories_and_checkpoints(self):
        text = self.ok('eval', '--model', self.model, '--test', self.test).stdout
        self.assertEqual([line.split()[0] for line in text.splitlines()], ['k', '1', '3', '5', '120'])
        link = os.path.join(self.model, os.readlink(os.path.join(self.model, 'best')))
        first_lines = [self.ok('eval', '--model', m, '--test', self.test).stdout.splitlines()[:4] for m in (self.model, link)]
        self.assertEqual(first_lines[0], first_lines[1])

    def test_eval__reads_a_pipe_and_the_first_rows_only(self):
        text = xmc_text(self.test_rows)
        self.assertIn('\n120 rows', self.ok('eval', '--model', self.model, '--test', '-', input=text).stdout)
        self.assertIn('\n7 rows', self.ok('eval', '--model', self.model, '--test', self.test, '--eval-rows', 7).stdout)

    def test_eval__unusable_data_exits_1(self):
        self.refused(1, 'eval', '--model', self.model, '--test', self.write('empty.txt', ''))
        wide = self.write('wide.txt', f'1 {FEATURES + 1} {LABELS}\n1 0:1 {FEATURES}:1\n')
        self.refused(1, 'eval', '--model', self.model, '--test', wide)
        self.refused(1, 'predict', '--model', self.model, '--input', wide)

    def test_predict__names_and_features(self):
        lines = self.ok('predict', '--model', self.model, '--input', self.test, '--top', 2, '--names').stdout.splitlines()
        self.assertEqual(len(lines), 120)
        for line, (_, features), ranked in zip(lines, self.test_rows, self.predictions(2)):
            words, *named = line.split('\t')
            self.assertEqual(words.split(), [f'word{f}' for f, _ in features])
            self.assertEqual([n.rsplit(' (', 1)[0] for n in named], [f'label {l}' for l, _ in ranked])

    def test_predict__json(self):
        done = self.ok('predict', '--model', self.model, '--input', self.test, '--top', 3, '--names', '--json', '-')
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([r['row'] for r in rows], list(range(120)))
        for row, ranked in zip(rows, self.predictions(3)):
            self.assertEqual([l['label'] for l in row['labels']], [l for l, _ in ranked])
            self.assertEqual([l['name'] for l in row['labels']], [f'label {l}' for l, _ in ranked])

    def test_predict__batches_and_pipes_change_nothing(self):
        expected = self.predictions(3)
        self.assertEqual(self.predictions(3, '--threads', 1), expected)
        # Products of other block sizes add in another order: last digits differ.
        for row, same in zip(self.predictions(3, '--batch', 7), expected, strict=True):
            self.assertEqual([label for label, _ in row], [label for label, _ in same])
            for (_, score), (_, same_score) in zip(row, same):
                self.assertAlmostEqual(score, same_score, places=4)
        text = xmc_text(self.test_rows, header=False)
        done = self.ok('predict', '--model', self.model, '--input', '/dev/stdin', '--top', 3, input=text)
        self.assertEqual([line.split(':')[0] for line in done.stdout.splitlines()], [str(row[0][0]) for row in expected])

    def test_predict__rows_without_labels(self):
        bare = self.write('bare.txt', ''.join(' ' + ' '.join(f'{f}:{v}' for f, v in features) + '\n' for _, features in self.test_rows))
        self.assertEqual(self.predictions(1, input_file=bare), self.predictions(1))

    def test_predict__top_out_of_range(self):
        self.refused(2, 'predict', '--model', self.model, '--input', self.test, '--top', LABELS + 1, says='30 labels')
        self.assertEqual(len(self.predictions(LABELS)[0]), LABELS)

    def test_predict__ends_quietly_when_its_reader_leaves(self):
        many = self.write('many.txt', xmc_text(self.test_rows * 200, header=False))
        process = subprocess.Popen([DSLIDE, 'predict', '--model', self.model, '--input', many], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.read(10)
        process.stdout.close()
        err = process.stderr.read()
        process.stderr.close()
        self.assertEqual((process.wait(SECONDS), err), (-signal.SIGPIPE, b''))

    def test_predict__takes_the_index_base_from_the_model(self):
        train = self.write('one.txt', xmc_text(self.test_rows, header=False, base=1))
        save = self.path('one')
        self.ok('train', '--train', train, '--index-base', 1, '--hidden', 8, '--epochs', 1, '--save', save)
        first = self.ok('predict', '--model', save, '--input', train).stdout
        self.assertEqual(first, self.ok('predict', '--model', save, '--input', train, '--index-base', 1).stdout)
        zero_based = self.write('zero.txt', xmc_text(self.test_rows, header=False))
        self.assertEqual(first, self.ok('predict', '--model', save, '--input', zero_based, '--index-base', 0).stdout)

    def test_export__npy_and_tsv_hold_the_same_floats(self):
        rows = read_npy(self.tensor('output.weight'))
        with open(self.tensor('output.weight', 'tsv'), encoding='utf-8') as file:
            lines = [line.rstrip('\n').split('\t') for line in file]
        self.assertEqual((len(rows), len(rows[0])), (LABELS, 16))
        self.assertEqual([line[0] for line in lines], [f'label {l}' for l in range(LABELS)])
        as_float = [struct.unpack(f'<{len(line) - 1}f', struct.pack(f'<{len(line) - 1}f', *map(float, line[1:]))) for line in lines]
        self.assertEqual(as_float, rows)
        with open(self.tensor('input.weight', 'tsv'), encoding='utf-8') as file:
            self.assertEqual(file.readline().split('\t')[0], 'word0')

    def test_export__slim_model_predicts_the_same_and_is_smaller(self):
        slim = self.path('slim')
        self.ok('export', '--model', self.model, '--slim', slim)
        with_all = self.predictions(3)
        self.model = slim
        self.assertEqual(self.predictions(3), with_all)
        self.assertIn('slim', self.ok('verify', slim).stdout)

    def test_export__mistakes(self):
        self.refused(1, 'export', '--model', self.model, '--tensor', 'nonsense', '--out', self.path('x'), says='nonsense')
        self.assertFalse(os.path.exists(self.path('x')))
        self.refused(1, 'export', '--model', self.model, '--tensor', 'output.weight', '--out', '/proc/nowhere', says='/proc/nowhere')
        self.refused(1, 'export', '--model', self.model, '--tensor', 'output.weight', '--out', '/dev/full', says='/dev/full')
        self.refused(1, 'export', '--model', self.model, '--slim', self.train)

    def test_export__a_part_is_not_left_behind(self):
        for form in ('npy', 'tsv'):
            out = self.path('part.' + form)
            self.refused(1, 'export', '--model', self.model, '--tensor', 'input.weight', '--out', out, '--as', form,
                         says='File too large', preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)))
            self.assertFalse(os.path.lexists(out))

    def test_verify__good_and_damaged(self):
        lines = self.ok('verify', self.model).stdout.splitlines()
        self.assertTrue(lines and all(line.startswith('OK ') for line in lines), lines)
        latest = os.path.join(self.model, os.readlink(os.path.join(self.model, 'latest')))
        shard = next(os.path.join(latest, n) for n in sorted(os.listdir(latest)) if n.endswith('.safetensors'))
        with open(shard, 'r+b') as file:
            file.seek(-5, os.SEEK_END)
            byte = file.read(1)
            file.seek(-5, os.SEEK_END)
            file.write(bytes([byte[0] ^ 1]))
        done = run('verify', self.model)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)
        self.assertIn('BAD ' + latest, done.stderr)
        self.refused(1, 'eval', '--model', latest, '--test', self.test)
        os.remove(os.path.join(latest, 'manifest.json'))
        self.assertEqual(run('verify', self.model).returncode, 1)

    def test_info__damaged_manifests_are_refused(self):
        damaged = self.path('damaged')
        os.makedirs(damaged)
        start = '{"format":"dslide-checkpoint","meta":{"a":'
        for text in ['', '5', '[]', '{}', '{"tensors":"x"}', start, start + '[' * 100000, start + '[' * 200000 + ']' * 200000 + '}}']:
            with self.subTest(text=text[:60], size=len(text)):
                self.write('damaged/manifest.json', text)
                self.refused(1, 'info', damaged, says='manifest.json')
                self.refused(1, 'info', damaged, '--json', '-', says='manifest.json')
        os.truncate(os.path.join(damaged, 'manifest.json'), 3 << 30)  # sparse
        self.refused(1, 'info', damaged, says='64 MiB')

    def test_info__tells_shape_counters_and_files(self):
        text = self.ok('info', self.model).stdout
        self.assertIn('latest epoch-000004', text)
        self.assertRegex(text, r'best epoch-00000\d')
        self.assertRegex(text, r'output.weight +\S+ \[30,16\]')
        self.assertIn('manifest.json', text)
        self.assertIn('2400', text)  # samples seen: 4 epochs of 600
        done = self.ok('info', os.path.join(self.model, 'latest'), '--json', '-')
        found = json.loads(done.stdout)
        self.assertEqual(found['kind'], 'checkpoint')
        self.assertIn({'name': 'output.weight', 'dtype': 'F32', 'shape': [30, 16]}, found['tensors'])
        self.assertEqual((found['epochs_done'], found['samples_seen'], found['trainer.optimizer']), (4, 2400, 'adam'))
        self.assertGreater(found['bytes'], 4 * (80 * 16 + 30 * 16))

    def test_run_conf__repeats_the_run(self):
        again = self.path('again')
        self.ok('train', '--config', os.path.join(self.model, 'run.conf'), '--save', again)
        self.ok('export', '--model', again + '/latest', '--tensor', 'output.weight', '--out', self.path('b'))
        self.ok('export', '--model', self.model + '/latest', '--tensor', 'output.weight', '--out', self.path('a'))
        self.assertEqual(read_npy(self.path('a')), read_npy(self.path('b')))

    def test_run_conf__keeps_any_file_name(self):
        for name in ['two words', 'trailing ', ' leading', '"quoted"', 'a=b', '#c', 'tab\t']:
            with self.subTest(name=name):
                odd, save = self.path(name), self.path('odd')
                shutil.copy(self.train, odd)
                self.ok('train', '--train', name, '--hidden', 4, '--epochs', 1, '--save', save, cwd=self.dir)
                self.ok('train', '--config', os.path.join(save, 'run.conf'))
                self.ok('train', '--config', self.write('own.conf', f'train = "{odd}"\nhidden = 4\nepochs = 1\n'))
                shutil.rmtree(save)
        shutil.copy(self.train, self.path('line\nend'))
        self.refused(2, 'train', '--train', self.path('line\nend'), '--save', save, says='line end')
        self.assertFalse(os.path.exists(save))

    def test_run_conf__is_not_written_through_a_link(self):
        save, target = self.path('linked'), self.path('target')
        os.makedirs(save)
        os.symlink(target, os.path.join(save, 'run.conf.tmp'))
        self.ok('train', '--train', self.train, '--hidden', 4, '--epochs', 1, '--save', save)
        self.assertFalse(os.path.exists(target))
        self.assertFalse(os.path.islink(os.path.join(save, 'run.conf')))

    def test_run_conf__normalize_of_training_holds_for_later_data(self):
        save = self.path('normalized')
        self.ok('train', '--train', self.train, '--hidden', 8, '--epochs', 1, '--normalize', '--save', save)
        plain = self.ok('predict', '--model', save, '--input', self.test).stdout
        self.assertEqual(plain, self.ok('predict', '--model', save, '--input', self.test, '--normalize').stdout)
        self.assertNotEqual(plain, self.ok('predict', '--model', save, '--input', self.test, '--normalize=false').stdout)


class Bench(CliTest):
    SHAPE = ['--outputs', 2000, '--inputs', 500, '--hidden', 16, '--batch', 64, '--nnz', 10, '--labels', 3, '--steps', 4, '--warm-up', 1]

    def test_bench__reports_a_sane_rate(self):
        path = self.path('bench.json')
        self.ok('bench', *self.SHAPE, '--threads', 2, '--active', 50, '--hash', 'simhash', '--json', path)
        found = json_lines(path)[0]
        self.assertAlmostEqual(found['samples_per_second'], 4 * 64 / found['seconds'], delta=1e-6 * found['samples_per_second'])
        self.assertGreater(found['samples_per_cpu_second'], 0)
        self.assertTrue(0 < found['active_share'] < 0.2 and 0 < found['rows_touched_per_batch'] <= 2000)
        self.assertTrue(0 < found['features_touched_per_batch'] <= 500)
        # Adam: weight and two moments, read and written, 16 floats each.
        self.assertEqual(found['bytes_per_row_moved'], 2 * 3 * 16 * 4)
        shares = [v for k, v in found.items() if k.startswith('share_')]
        self.assertAlmostEqual(sum(shares), 1, places=6)

    def test_bench__same_seed_same_loss(self):
        losses = set()
        for threads in (1, 2):
            path = self.path('bench.json')
            self.ok('bench', *self.SHAPE, '--threads', threads, '--seed', 3, '--json', path)
            losses.add(json_lines(path)[0]['loss'])
        self.assertEqual(len(losses), 1)

    def test_bench__dense_touches_all(self):
        done = self.ok('bench', *self.SHAPE, '--dense')
        self.assertIn('active share 100%', done.stdout)
        self.assertRegex(done.stdout, r'samples per CPU second')

    def test_bench__refuses_a_shape_that_does_not_fit(self):
        self.refused(1, 'bench', '--outputs', 2 ** 31 - 1, '--hidden', 65536, says='memory')


if __name__ == '__main__':
    main()
