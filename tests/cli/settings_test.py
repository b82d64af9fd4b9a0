#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs whose ranks are told different things: all end within seconds with one sentence that names the option and
both values. tests/dist/test_settings.c has every option; here are those that broke runs, and each program once.

usage: settings_test.py EXAMPLES QUADRILLE --mpiexec MPIEXEC
"""
import os
import re
import subprocess

import cases
from cases import ARGUMENTS

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SMALL = ("--layers", "1", "--hidden", "16", "--heads", "2", "--ctx", "16", "--sample", "0", "--threads", "1")
LINEAR = ("--x", "x.npy", "--w", "w.npy", "--dy", "dy.npy", "--out", "out", "--grid", "2x1x1x1")
OF_TRAIN = (("--lr", "0.01", "0.001"), ("--steps", "8", "9"), ("--val-every", "2", "4"), ("--val-windows", "4", "5"),
            ("--save", "a.safetensors", None), ("--save-every", "2", "3"), ("--codec-after", "1", "2"),
            ("--warmup", "1", "2"), ("--local", None, "2"), ("--help", "", None))


class Settings(cases.Case):
    def start(self, program, common, name, values, odd, ranks):
        """All ranks have values[0], rank `odd` has values[1]; None: not given, "": an option without a value."""
        words = [ARGUMENTS.mpiexec]
        for rank in range(ranks):
            value = values[rank == odd]
            given = [] if value is None else [name, value] if value else [name]
            words += [":"] * (rank > 0) + ["-n", "1", *program, *common, *given]
        return subprocess.run(words, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                              env=os.environ | {"QDR_TIMEOUT": "20"}, check=False)

    def assert_named(self, program, common, option, odd, ranks):
        name, *values = option
        shown = ["given" if value == "" else value or "not given" for value in values]
        if odd == 0:
            shown.reverse()
        done = self.start(program, common, name, values, odd, ranks)
        said = done.stderr.decode()
        lines = [line for line in said.splitlines() if "give every rank the same" in line]
        self.assertEqual(done.returncode, 2, said)
        self.assertEqual(len(lines), 1, said)
        self.assertTrue(lines[0].endswith(f": {name} is {shown[0]} on rank 0 and {shown[1]} on rank {odd or 1}; "
                                          "give every rank the same"), said)
        self.assertEqual(os.listdir(self.folder), [])

    def test_training(self):
        program = [os.path.join(ARGUMENTS.examples, "train")]
        for i, option in enumerate(OF_TRAIN):
            with self.subTest(option=option[0]):
                common = SMALL if option[0] != "--save-every" else (*SMALL, "--save", "b.safetensors")
                self.assert_named(program, common, option, i % 2, 2)
        self.assert_named(program, SMALL, OF_TRAIN[0], 2, 4)

    def test_programs(self):
        for program, common, option in ((["transformer_layer"], (), ("--iterations", "2", "3")),
                                        (["quadrille", "bench", "coll"], (), ("--iterations", "2", "3")),
                                        (["quadrille", "calibrate"], ("-o", "here.json"), ("--quick", "", None)),
                                        (["quadrille", "linear"], LINEAR, ("--order", "xyzd", "yxzd")),
                                        (["quadrille", "topo"], (), ("--json", "", None))):
            path = ARGUMENTS.quadrille if program[0] == "quadrille" else os.path.join(ARGUMENTS.examples, program[0])
            with self.subTest(program=program):
                self.assert_named([path, *program[1:]], common, option, 1, 2)

    def test_commands(self):
        bench = [ARGUMENTS.quadrille, "bench"]
        said = self.start(bench, (), "coll", ("", None), 1, 2).stderr.decode()
        self.assertIn("no benchmark is named", said)
        words = [ARGUMENTS.mpiexec, "-n", "1", *bench, "coll", ":", "-n", "1", *bench, "linear"]
        done = subprocess.run(words, capture_output=True, timeout=60, check=False)
        self.assertIn("the command is bench coll on rank 0 and bench linear on rank 1", done.stderr.decode())

    def test_a_rank_that_is_refused(self):
        """Where one rank alone cannot read its options, the reason is printed, by rank 0."""
        program = [os.path.join(ARGUMENTS.examples, "train")]
        said = self.start(program, SMALL, "--lr", ("0.1", "abc"), 1, 2).stderr.decode()
        self.assertIn("train: --lr 'abc': a number from 0 to 10", said)

    def test_programs_start_ranks_by_one_function(self):
        """Which compares options; but for doctor, whose ranks are threads that have none."""
        callers = {"src/common/ranks.c", "src/doctor/try.c"}
        for folder, _, names in os.walk(os.path.join(ROOT, "src")):
            for name in names:
                path = os.path.join(folder, name)
                calls = re.findall(r"\bqdr_launch\(|\bqdr_context_create_mpi\(", self.read(path))
                if calls and name.endswith(".c"):
                    self.assertIn(os.path.relpath(path, ROOT), callers)


if __name__ == "__main__":
    cases.main("examples", "quadrille", "--mpiexec")
