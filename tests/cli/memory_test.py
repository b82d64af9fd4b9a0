#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One allocation after the other fails, once, in `train --resume` and `--load` on two ranks and in `quadrille ckpt
convert`: the program ends with a sentence about memory, or does what it does without the failure, to the last bit. A
random sample; with --full, each of them. Local: the ranks are threads of one process. Processes: those of mpiexec; the
allocation is one of rank 0 or of rank 1, and the other one must end as well.

usage: memory_test.py EXAMPLES_DIR COMMAND PRELOAD [--mpiexec PROGRAM] [--samples N | --full] [Local | Processes]
"""
import collections
import json
import os
import random
import re
import subprocess
import time

import cases
from cases import ARGUMENTS

SIZES = ["--layers", "1", "--hidden", "24", "--heads", "4", "--ctx", "16", "--batch", "4", "--seed", "7", "--lr",
         "0.0123456789012345", "--warmup", "3"]
RANKS = ["--grid", "1x1x1x2", "--threads", "1", "--sample", "0", "--val-windows", "2"]


LIMIT_SECS, SPARE_SECS = 20, 10
REMEDY = re.compile("(memory|allocat).*; (use|free) ")


class Case(cases.Case):
    def setUp(self):
        super().setUp()
        self.text, self.saved = self.path("text"), self.path("saved.safetensors")
        with open(self.text, "w", encoding="ascii") as file:
            file.writelines(f"{i}: {i * i} and {i * 7919 % 1000}\n" for i in range(300))
        done = self.run_words([*self.trainer(), *SIZES, "--steps", "6", "--stop-after", "3", "--save", self.saved])
        self.assertEqual(done.returncode, 0, done.stderr)

    def trainer(self, by_mpi=False):
        start = [ARGUMENTS.mpiexec, "-n", "2"] if by_mpi else []
        return [*start, os.path.join(ARGUMENTS.examples_dir, "train"), self.text, *RANKS,
                *([] if by_mpi else ["--local", "2"])]

    def run_words(self, words, **variables):
        variables = {"OPENBLAS_NUM_THREADS": "1", "QDR_TIMEOUT": str(LIMIT_SECS), **variables}
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_SECS + SPARE_SECS,
                              check=False, encoding="utf-8", env=os.environ | variables)

    def losses(self):
        with open(self.path("log"), encoding="ascii") as file:
            return [(line["step"], line["loss"], line.get("lr")) for line in map(json.loads, file) if "loss" in line]

    def converted(self):
        return self.read_bytes("out.safetensors")

    def sweep(self, words, results, outputs, **variables):
        count = self.path("count")
        variables["LD_PRELOAD"] = ARGUMENTS.preload
        self.assertEqual(self.run_words(words, QDR_TEST_COUNT_MEMORY=count, **variables).returncode, 0)
        expected = results()
        n = int(self.read(count))
        self.assertGreater(n, 100)
        seed = int(os.environ.get("QDR_TEST_SEED", time.time()))
        numbers = range(1, n + 1) if ARGUMENTS.full else \
            random.Random(seed).sample(range(1, n + 1), min(n, ARGUMENTS.samples))
        print(f"{self.id()}: {n} allocations, QDR_TEST_SEED={seed}", flush=True)
        codes, silent = collections.Counter(), []
        for number in numbers:
            for name in outputs:
                if os.path.exists(self.path(name)):
                    os.unlink(self.path(name))
            done = self.run_words(words, QDR_TEST_NO_MEMORY=str(number), **variables)
            codes[done.returncode] += 1
            with self.subTest(allocation=number):
                self.assertIn(done.returncode, (0, 3), done.stderr)
                if done.returncode == 0:
                    self.assertEqual(results(), expected, done.stderr)
                elif len(set(filter(REMEDY.search, done.stderr.splitlines()))) != 1:
                    silent.append((number, done.stderr))
        print(f"{self.id()}: exit codes {dict(codes)}", flush=True)
        self.assertEqual(silent, [])

    def resume(self, by_mpi=False):
        return [*self.trainer(by_mpi), "--resume", self.saved, "--log", self.path("log")]

    def load(self, by_mpi=False):
        return [*self.trainer(by_mpi), "--load", self.saved, "--steps", "2", "--log", self.path("log")]


class Local(Case):
    def test_resume(self):
        self.sweep(self.resume(), self.losses, ["log"])

    def test_load(self):
        self.sweep(self.load(), self.losses, ["log"])

    def test_convert(self):
        self.sweep([ARGUMENTS.command, "ckpt", "convert", self.saved, self.path("out.safetensors"), "--dtype", "f64"],
                   self.converted, ["out.safetensors"])

    def test_convert_to_and_from(self):
        """A config.json is written, and read."""
        convert, model = [ARGUMENTS.command, "ckpt", "convert"], self.path("hf/model.safetensors")
        os.mkdir(self.path("hf"))
        self.sweep([*convert, self.saved, model, "--to", "gpt2"],
                   lambda: (self.read_bytes("hf/model.safetensors"), self.read_bytes("hf/config.json")),
                   ["hf/model.safetensors", "hf/config.json"])
        self.assertEqual(self.run_words([*convert, self.saved, model, "--to", "gpt2"]).returncode, 0)
        self.sweep([*convert, self.path("hf"), self.path("out.safetensors")], self.converted, ["out.safetensors"])

    def test_the_cause_is_said_once(self):
        """Of what a thread lacks, or the process of rank 1 alone."""
        count = self.path("count")
        for by_mpi in (False, True) if ARGUMENTS.mpiexec else (False,):
            words = [*self.trainer(by_mpi), "--resume", self.saved]
            variables = {"LD_PRELOAD": ARGUMENTS.preload, **({"QDR_TEST_MEMORY_RANK": "1"} if by_mpi else {})}
            done = self.run_words(words, QDR_TEST_COUNT_MEMORY=count, **variables)
            self.assertEqual(done.returncode, 0, done.stderr)
            n = int(self.read(count))
            for number in range(n // 8, n, n // 8):
                done = self.run_words(words, QDR_TEST_NO_MEMORY=str(number), **variables)
                said = re.findall(r"^train: (?:rank \d+: )?(.*memory.*)$", done.stderr, re.MULTILINE)
                with self.subTest(by_mpi=by_mpi, allocation=number):
                    self.assertEqual(len(said), 0 if done.returncode == 0 else 1, done.stderr)


class Processes(Case):
    def fail_on(self, rank, words):
        mark = f"QDR_TEST_MARK={os.getpid()}-{time.monotonic_ns()}"
        self.sweep(words, self.losses, ["log"], QDR_TEST_MEMORY_RANK=rank, **dict([mark.split("=")]))
        self.assertEqual([name for name in filter(str.isdigit, os.listdir("/proc")) if is_marked(name, mark)], [])

    def test_resume_rank_0(self):
        self.fail_on("0", self.resume(by_mpi=True))

    def test_resume_rank_1(self):
        self.fail_on("1", self.resume(by_mpi=True))

    def test_load_rank_0(self):
        self.fail_on("0", self.load(by_mpi=True))

    def test_load_rank_1(self):
        self.fail_on("1", self.load(by_mpi=True))


def is_marked(process, mark):
    try:
        with open(f"/proc/{process}/environ", "rb") as environ:
            return mark.encode() in environ.read().split(b"\0")
    except OSError:
        return False


if __name__ == "__main__":
    cases.main("examples_dir", "command", "preload", "--mpiexec", flags=("--full",), samples=40)
