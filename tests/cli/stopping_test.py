#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signals that reach train at any time of a run with long validations: the first one saves and ends it, the second
one ends it at once.

usage: stopping_test.py EXAMPLES_DIR [--mpiexec PROGRAM] [--times N] [--seed N]
"""
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import cases
from cases import ARGUMENTS
from checkpoint_test import Case, header_of, words_of

# A step and a save take milliseconds; a validation would take minutes.
LONG = ["--layers", "2", "--hidden", "24", "--heads", "3", "--ctx", "8", "--batch", "2", "--steps", "1000000",
        "--val-every", "3", "--val-windows", "9999999", "--sample", "0"]
ENDED_SECS = 20  # generous: other programs may keep the processors busy


class Stopping(Case):
    def start(self, *words, grid="1x1x1x2", by_mpi=False):
        """A run that has made its model."""
        process = subprocess.Popen(words_of(grid, self.text, *words, by_mpi=by_mpi), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        while "layers, hidden" not in process.stderr.readline():
            self.assertIsNone(process.poll())
        return process

    def end(self, process, code):
        try:
            out, said = process.communicate(timeout=ENDED_SECS)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"still running {ENDED_SECS} s after the signal: {process.communicate()}")
        self.assertEqual(process.returncode, code, said)
        return out, said

    def steps_of(self, path):
        return json.loads(json.loads(header_of(path)[1])["__metadata__"]["note"])["step"]

    def logged(self, path):
        with open(path, encoding="ascii") as file:
            return [line for line in map(json.loads, file) if "step" in line]

    def ranks_of(self, file):
        """The processes of a run under mpiexec that saves to this file."""
        found = subprocess.run(["pgrep", "-f", "train .*" + file], capture_output=True, text=True, check=False)
        return [int(number) for number in found.stdout.split() if self.is_rank(number)]

    def is_rank(self, number):
        """Not of what ended meanwhile, or has not become a program yet."""
        try:
            return os.path.basename(os.readlink(f"/proc/{number}/exe")) == "train"
        except FileNotFoundError:
            return False

    def test_random_times(self):
        chance = random.Random(ARGUMENTS.seed)
        print(f"seed {ARGUMENTS.seed}, {ARGUMENTS.times} times", file=sys.stderr)
        log, file = self.path("run.jsonl"), self.path("a.safetensors")
        for i in range(ARGUMENTS.times):
            number = chance.choice((signal.SIGTERM, signal.SIGINT, signal.SIGUSR1))
            by_mpi = bool(ARGUMENTS.mpiexec) and i % 5 == 4
            process = self.start(*LONG, "--log", log, "--save", file, by_mpi=by_mpi)
            time.sleep(chance.uniform(0, 1))
            process.send_signal(number)
            _, said = self.end(process, 0)
            self.assertIn("stopped; --resume", said)
            lines = self.logged(log)
            self.assertEqual(self.steps_of(file), lines[-1]["step"])
            # Step 3 is validated until the end, or cut and not called validated.
            self.assertLessEqual(lines[-1]["step"], 3)
            self.assertEqual([line for line in lines if "val_loss" in line], [])
            os.unlink(log)
            os.unlink(file)

    def test_a_signal_to_one_rank_only(self):
        if not ARGUMENTS.mpiexec:
            self.skipTest("no mpiexec")
        file = self.path("a.safetensors")
        process = self.start(*LONG, "--save", file, by_mpi=True, grid="1x1x1x3")
        time.sleep(0.5)
        ranks = self.ranks_of(file)
        self.assertEqual(len(ranks), 3)
        os.kill(ranks[-1], signal.SIGUSR1)
        self.end(process, 0)
        self.assertEqual(self.steps_of(file), 3)

    def test_after_the_last_step_and_without_steps(self):
        """Nothing is left to save, or the beginning is."""
        file = self.path("a")
        for words, step in ((["--steps", "1"], 1), (["--steps", "0"], 0)):
            process = self.start(*LONG, *words, "--save", file)
            time.sleep(0.5)
            process.terminate()
            said = self.end(process, 0)[1]
            self.assertIn(f"stopped after all {step} step", said)
            self.assertNotIn("validation loss", said)
            self.assertEqual(self.steps_of(file), step)

    def test_a_run_that_is_long_enough_for_all_steps(self):
        """It ends as any other; one step earlier it stops."""
        file = self.path("a")
        for n, is_whole in (4, True), (3, False):
            said = self.run_words(words_of("1x1x1x2", self.text, *LONG, "--steps", "4", "--val-windows", "1", "--save",
                                           file, "--stop-after", str(n)))
            self.assertEqual(("validation loss" in said, "stopped" in said), (is_whole, not is_whole), said)
            self.assertEqual(self.steps_of(file), n)

    def test_in_the_sample(self):
        process = self.start(*LONG, "--steps", "0", "--val-windows", "1", "--sample", "9999999", "--save",
                             self.path("a"))
        while "memory of rank 0" not in process.stderr.readline():
            self.assertIsNone(process.poll())
        process.terminate()
        out, said = self.end(process, 0)
        self.assertTrue(out.endswith("\n"), out[-9:])
        self.assertIn("sample", said)

    def test_a_reader_who_has_enough(self):
        process = self.start(*LONG, "--steps", "0", "--val-windows", "1", "--sample", "9999999")
        self.assertEqual(len(process.stdout.read(5)), 5)
        process.stdout.close()
        self.assertEqual(process.wait(ENDED_SECS), 128 + signal.SIGPIPE)
        process.stderr.close()

    def test_without_a_file_each_one_ends_it_at_once(self):
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGUSR1:
            process = self.start(*LONG)
            process.send_signal(number)
            self.end(process, -number)

    def test_the_second_one_ends_it_at_once(self):
        """In a step that takes minutes, in which the first one is not heard."""
        big = [*LONG, "--batch", "9999999", "--micro-batch", "1"]
        for second in (signal.SIGTERM, signal.SIGINT):
            process = self.start(*big, "--save", self.path("a"))
            process.terminate()
            time.sleep(0.5)
            self.assertIsNone(process.poll())
            process.send_signal(second)
            self.end(process, -second)
            self.assertFalse(os.path.exists(self.path("a")))

    def test_usr1_asks_for_no_end_at_once(self):
        """However often it comes, the first SIGTERM after it is the first one."""
        process = self.start(*LONG, "--batch", "9999999", "--micro-batch", "1", "--save", self.path("a"))
        for number in signal.SIGUSR1, signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1:
            process.send_signal(number)
            time.sleep(0.5)
            self.assertIsNone(process.poll(), number)
        process.terminate()
        self.end(process, -signal.SIGTERM)

    def test_usr1_until_the_last_moment(self):
        """A run that is complete stays a success while it closes MPI."""
        if not ARGUMENTS.mpiexec:
            self.skipTest("no mpiexec")
        file = self.path("a.safetensors")
        for _ in range(50):
            process = self.start(*LONG, "--steps", "3", "--val-windows", "1", "--save", file, by_mpi=True)
            ranks = self.ranks_of(file)
            if len(ranks) == 2:
                break
            self.end(process, 0)  # before its ranks were found
        self.assertEqual(len(ranks), 2)
        while process.poll() is None:
            for rank in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, signal.SIGUSR1)
            time.sleep(0.001)
        self.end(process, 0)
        self.assertTrue(os.path.exists(file))

    def test_one_rank_without_a_launcher(self):
        """MPICH has its own use for SIGUSR1, and must not see it."""
        for number in (signal.SIGUSR1, signal.SIGTERM):
            file = self.path(str(number))
            words = words_of("1x1x1x1", self.text, *LONG, "--save", file)
            at = words.index("--local")
            process = subprocess.Popen(words[:at] + words[at + 2:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            while "layers, hidden" not in process.stderr.readline():
                self.assertIsNone(process.poll())
            time.sleep(0.5)
            process.send_signal(number)
            self.assertIn("stopped", self.end(process, 0)[1])
            self.assertTrue(os.path.exists(file))

    def test_the_echo_of_timeout_is_no_second_one(self):
        """timeout(1) sends its signal to the process and to the group."""
        words = words_of("1x1x1x2", self.text, *LONG, "--save", self.path("a"))
        done = subprocess.run(["timeout", "-s", "TERM", "1", *words], capture_output=True, timeout=120)
        self.assertEqual((done.returncode, os.path.exists(self.path("a"))), (124, True), done.stderr.decode())
        self.assertIn(b"stopped; --resume", done.stderr)


if __name__ == "__main__":
    cases.main("examples_dir", "--mpiexec", times=5, seed=random.randrange(1 << 30))
