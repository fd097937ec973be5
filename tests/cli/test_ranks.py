#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dslide on several ranks: threads of one process, and processes under mpirun.

    test_ranks.py DSLIDE SOURCE_ROOT
"""
import os
import shutil
import subprocess

from harness import DSLIDE, SECONDS, CliTest, json_lines, main, make_rows, xmc_text

MPI = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1', 'OMPI_MCA_rmaps_base_oversubscribe': '1',
       'OMPI_MCA_plm_rsh_agent': '/bin/false', 'OMPI_MCA_hwloc_base_binding_policy': 'none',
       'PRTE_MCA_rmaps_default_mapping_policy': ':oversubscribe', 'PRTE_MCA_hwloc_default_binding_policy': 'none'}


class Ranks(CliTest):
    def epochs(self, *arguments):
        out = self.path('out.json')
        self.ok('train', '--train', self.train, '--test', self.test, '--hidden', 16, '--batch', 32, '--lr', 0.02,
                '--threads', 1, '--json', out, *(['--epochs', 3] if '--epochs' not in arguments else []), *arguments)
        return [line for line in json_lines(out) if line['event'] == 'epoch']

    def test_ranks__train_as_one(self):
        for choice in (['--dense'], ['--hash', 'random', '--active-share', 1]):
            one = self.epochs(*choice)
            for ranks in (2, 5, 40):  # 40: more than labels and neurons
                many = self.epochs(*choice, '--ranks', ranks)
                self.assertEqual(len(many), 3)
                for a, b in zip(one, many):
                    self.assertAlmostEqual(a['loss'], b['loss'], delta=1e-4)
                    self.assertAlmostEqual(a['p_at_1'], b['p_at_1'], delta=0.01)
                    self.assertEqual(a['rows_touched_per_batch'], b['rows_touched_per_batch'])
                    self.assertEqual(a['bytes_sent'], 0)
                    self.assertGreater(b['bytes_sent'], 0)
                    self.assertGreater(b['bytes_sent_all'], b['bytes_sent'])
                    # 80 x 16 + 16 + 30 x 16 + 30 parameters, 19 steps
                    self.assertEqual(b['bytes_dense_allreduce'], int(2 * (ranks - 1) / ranks * 4 * 1806 * 19))
                    self.assertAlmostEqual(b['traffic_reduction'], 1 - b['bytes_sent'] / b['bytes_dense_allreduce'])
                    self.assertGreaterEqual(b['imbalance_seconds'], 1)
                    self.assertGreaterEqual(b['imbalance_rows'], 1)
                    self.assertGreater(b['wait_seconds_all'], 0)

    def test_ranks__rank_0_alone_prints(self):
        done = self.ok('train', '--train', self.train, '--hidden', 8, '--epochs', 2, '--ranks', 3)
        self.assertEqual(len(done.stdout.splitlines()), 1)
        self.assertEqual(done.stderr.count('epoch 2/2'), 1)

    def test_ranks__an_error_is_one_line(self):
        bad = self.write('bad.txt', '2 3 2\n0 0:1\n1 0:x\n')
        done = self.refused(1, 'train', '--train', bad, '--ranks', 3, says='bad.txt:3')
        self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_ranks__a_pipe_is_not_shared(self):
        """Each rank would read a part of it, or wait for ever."""
        pipe = self.path('pipe')
        os.mkfifo(pipe)
        self.refused(2, 'train', '--train', pipe, '--ranks', 2, says='pipe')
        self.refused(2, 'train', '--train', self.train, '--test', pipe, '--ranks', 2, says='pipe')
        self.refused(2, 'train', '--train', '-', '--ranks', 2, says='pipe', input=xmc_text(make_rows(9, seed=1)))
        self.ok('train', '--train', '-', '--hidden', 4, '--epochs', 1, '--ranks', 1, input=xmc_text(make_rows(9, seed=1)))

    def test_ranks__bfloat16_payload_halves_the_bytes(self):
        fp32 = self.epochs('--dense', '--ranks', 2)[-1]['bytes_sent']
        bf16 = self.epochs('--dense', '--ranks', 2, '--payload', 'bf16')[-1]['bytes_sent']
        self.assertLess(bf16, 0.75 * fp32)  # the loss and headers stay as they are

    def test_ranks__save_and_resume_on_other_numbers_of_ranks(self):
        straight = self.epochs('--dense', '--save', self.path('straight'))
        for first, second in ((2, 1), (1, 3), (3, 2)):
            save = self.path(f'save-{first}-{second}')
            begun = self.epochs('--dense', '--ranks', first, '--epochs', 1, '--save', save)
            rest = self.epochs('--resume', save, '--ranks', second, '--save', save)
            self.assertEqual([e['epoch'] for e in begun + rest], [1, 2, 3])
            for a, b in zip(straight, begun + rest):
                self.assertAlmostEqual(a['loss'], b['loss'], delta=1e-4)
            self.ok('verify', save)
            one = self.ok('eval', '--model', save, '--test', self.test).stdout.splitlines()[1]
            many = self.ok('eval', '--model', save, '--test', self.test, '--ranks', 4).stdout.splitlines()[1]
            self.assertEqual(one, many)

    def test_ranks__contradictions(self):
        self.refused(2, 'train', '--train', self.train, '--ranks', 2, '--transport', 'mpi', says='--ranks contradicts')
        self.refused(2, 'train', '--train', self.train, '--ranks', 257, says='--ranks')

    def test_ranks__over_mpi(self):
        starter = shutil.which('mpirun')
        module = os.environ.get('DSLIDE_TEST_MPI_DIR', '')
        if not starter or not module:
            self.skipTest('no mpirun, or no module for MPI was built')
        out = self.path('out.json')
        one = self.epochs('--dense')
        command = [starter, '-n', '2', DSLIDE, 'train', '--train', self.train, '--test', self.test, '--hidden', '16', '--batch',
                   '32', '--epochs', '3', '--lr', '0.02', '--threads', '1', '--json', out, '--dense']
        environment = dict(os.environ, **MPI)
        environment['LD_LIBRARY_PATH'] = module + ':' + environment.get('LD_LIBRARY_PATH', '')
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 1)
        many = [line for line in json_lines(out) if line['event'] == 'epoch']
        self.assertAlmostEqual(one[-1]['loss'], many[-1]['loss'], delta=1e-4)
        self.assertGreater(many[-1]['bytes_sent'], 0)


if __name__ == '__main__':
    main()
