#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What train_gpt says of a run to those who read it later: the log of --log, lines in a log file, --eval.

usage: run_log_test.py EXAMPLES_DIR [--mpiexec PROGRAM]
"""
import argparse
import datetime
import json
import math
import os
import random
import re
import subprocess
import sys
import unittest

import checkpoint_test
from checkpoint_test import TINY, Case, words_of

ARGUMENTS = None
CONTEXT, HIDDEN, LAYERS, BATCH = 8, 24, 2, 6  # of TINY


class Logs(Case):
    def log_of(self, *words, grid="1x1x1x1", code=0):
        """The first line and the others."""
        log = self.path("run.jsonl")
        self.said = self.run_words(words_of(grid, self.text, "--log", log, *TINY, *words), code)
        with open(log, encoding="ascii") as file:
            first, *lines = [json.loads(line) for line in file]
        self.assertEqual(list(first), ["run"])
        return first["run"], lines

    def test_the_first_line(self):
        about, lines = self.log_of("--steps", "3", "--seed", "9", "--dtype", "f64", "--layout", "scattered",
                                   grid="2x1x1x2")
        expected = {"program": "train_gpt", "ranks": 4, "grid": "2x1x1x2", "layers": LAYERS, "hidden": HIDDEN,
                    "heads": 3, "context": CONTEXT, "batch": BATCH, "steps": 3, "seed": 9, "dtype": "f64",
                    "layout": "scattered", "continues_after": 0, "codec": "none", "text": "text.txt",
                    "text_bytes": os.path.getsize(self.text)}
        self.assertEqual({key: about[key] for key in expected}, expected)
        self.assertRegex(about["version"], r"^\d+\.\d+\.\d+")
        age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(
            about["started"].replace("Z", "+00:00"))
        self.assertLess(abs(age.total_seconds()), 600)
        # embedding, positions; of each block 12 H² + 13 H; the last norm; the head
        self.assertEqual(about["parameters"], 256 * HIDDEN + CONTEXT * HIDDEN + 2 * HIDDEN + 256 * HIDDEN +
                         LAYERS * (12 * HIDDEN**2 + 13 * HIDDEN))
        self.assertNotIn("again", json.dumps([about, lines]))

    def test_steps(self):
        """On two ranks along d each sends, to sum gradients, half of them twice; the norm does not depend on the
        grid."""
        about, lines = self.log_of("--steps", "4", grid="1x1x1x2")
        gradients = 4 * about["parameters"]
        for line in lines:
            self.assertLessEqual(abs(line["bytes_sent"] - gradients), 0.02 * gradients, line)
            self.assertGreater(line["gradient_norm"], 0)
            self.assertEqual(line["skipped"], 0)
            self.assertGreaterEqual(line["memory_peak"], line["memory"])
            self.assertGreater(line["memory"], 3 * gradients / 2)
        secs = [line["secs"] for line in lines]
        self.assertEqual(secs, sorted(secs))
        alone = self.log_of("--steps", "4", grid="1x1x1x1")[1]
        for line, one in zip(lines, alone):
            self.assertEqual(one["bytes_sent"], 0)
            self.assertAlmostEqual(line["gradient_norm"] / one["gradient_norm"], 1, delta=1e-3)

    def test_skipped_steps_are_counted(self):
        lines = self.log_of("--steps", "3", "--dtype", "f16", "--loss-scale", "1e12")[1]
        self.assertEqual([line["skipped"] for line in lines], [1, 2, 3])
        self.assertEqual({line["gradient_norm"] for line in lines}, {None})

    def test_a_run_without_steps(self):
        """All digits of the validation, which the end of a run of the same weights logs as well."""
        file = self.path("a")
        last = self.log_of("--steps", "2", "--save", file)[1][-1]
        about, lines = self.log_of("--resume", file, "--steps", "0")
        self.assertEqual(about["continues_after"], 2)
        self.assertEqual(len(lines), 1)
        self.assertEqual((lines[0]["step"], lines[0]["val_loss"]), (2, last["val_loss"]))

    def test_steps_that_are_run_again(self):
        """A run that is killed after its last save; joined logs count each step once."""
        file, log = self.path("a"), self.path("run.jsonl")
        whole = {line["step"]: line["loss"] for line in self.log_of("--steps", "9", "--dtype", "f64")[1]}
        os.unlink(log)
        self.log_of("--steps", "9", "--dtype", "f64", "--stop-after", "4", "--save", file)
        os.rename(file, file + ".4")
        os.unlink(log)
        self.log_of("--steps", "9", "--dtype", "f64", "--stop-after", "7", "--save", file)
        with open(log, "a", encoding="ascii") as to:
            to.write('{"step":8,"lo')  # killed in the middle of a line
        for words, marked, until in ((["--stop-after", "1"], [5], 5), ([], [5, 6, 7], 9)):
            about, lines = self.log_of("--dtype", "f64", *words, "--save", self.path("b"), "--resume", file + ".4")
            self.assertEqual((about["continues_after"], about["again_to"]), (4, 7))
            self.assertEqual([line["step"] for line in lines], list(range(5, until + 1)))
            self.assertEqual([line["step"] for line in lines if line.get("again")], marked)
        joined = {}
        for name in (log + ".1", log + ".2", log):
            with open(name, encoding="ascii") as lines:
                for text in lines:
                    if text.endswith("\n"):
                        line = json.loads(text)
                        if "loss" in line:
                            self.assertEqual(line["step"] in joined, "again" in line)
                            joined[line["step"]] = line["loss"]
        self.assertEqual(joined, whole)
        # The last log repeated steps until the 7th, and went on to the 9th.
        about, lines = self.log_of("--dtype", "f64", "--resume", file + ".4")
        self.assertEqual(about["again_to"], 9)
        self.assertEqual([line["step"] for line in lines if line.get("again")], [5, 6, 7, 8, 9])

    def test_the_log_of_another_run_marks_nothing(self):
        file = self.path("a")
        self.log_of("--steps", "3", "--stop-after", "1", "--save", file)
        os.unlink(self.path("run.jsonl"))
        self.log_of("--steps", "9", "--seed", "5")
        self.assertNotIn("again", json.dumps(self.log_of("--resume", file, "--steps", "3")))


class Lines(Case):
    def test_temperature_0_draws_nothing(self):
        """The seed of the sample does not matter then; after 'a' the more frequent byte is written."""
        with open(self.text, "w", encoding="ascii") as file:
            file.write("ab" * 900 + "ac" * 300)
        words = [*TINY, "--steps", "30", "--lr", "0.01", "--sample", "20", "--temperature", "0", "--prompt", "a"]
        self.run_words(words_of("1x1x1x1", self.text, *words, "--save", self.path("a")))
        outs = {subprocess.run(words_of(grid, self.text, *words, "--load", self.path("a"), "--steps", "0", "--seed",
                                        seed), capture_output=True, check=True).stdout
                for seed in ("1", "2", "3") for grid in ("1x1x1x1", "2x1x1x1")}
        self.assertEqual(outs, {b"ab" * 10 + b"a\n"})

    def test_lines_between_validations(self):
        words = [*TINY, "--val-every", "1000000", "--val-windows", "1", "--steps", "3000"]
        for every, least in (("0.02", 3), ("0", 1), (None, 1)):
            said = self.run_words(words_of("1x1x1x1", self.text, *words, *(["--every", every] if every else [])))
            lines = re.findall(r"^step \d+/3000  loss \d+\.\d+  (?:validation \S+  )?\d+ tokens/s  [\d:]+ left$", said,
                               re.MULTILINE)
            self.assertGreaterEqual(len(lines), least, said)
            if least == 1:
                self.assertEqual(len(lines), 1, said)
            self.assertEqual(len([line for line in lines if "validation" in line]), 1, said)


class Evaluating(Case):
    def evaluate(self, *words, grid="1x1x1x1", code=0):
        done = subprocess.run(words_of(grid, *words), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=300, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout) if code == 0 else done.stderr

    def write(self, name, text):
        with open(self.path(name), "wb") as file:
            file.write(text)
        return self.path(name)

    def test_zero_weights(self):
        """All 256 bytes are equally likely: log 256, whatever the length of the last window."""
        for n in (2, 8, 9, 10, 17, 50, 65):
            answer = self.evaluate("--eval", self.write("part", b"x" * n), "--ctx", "8", "--init", "0", "--dtype",
                                   "f64", "--batch", "3")
            self.assertEqual((answer["tokens"], answer["context"], answer["first_byte"]), (n - 1, 8, 0))
            self.assertAlmostEqual(answer["loss"], math.log(256), delta=1e-13)
            self.assertAlmostEqual(answer["perplexity"], 256, delta=1e-10)
            self.assertAlmostEqual(answer["bits_per_byte"], 8, delta=1e-12)

    def test_sums(self):
        """The validation text of 24 windows that follow each other is what training validates. The loss of a text is
        that of its windows one by one; of a window that of its bytes, each after those before it."""
        text = bytes(random.Random(3).choices(b"abcdef \n", k=10 * (24 * 8 + 1)))
        whole, file = self.write("whole", text), self.path("a")
        words = [*TINY[:-4], "--val-windows", "24", "--val-every", "100", "--sample", "0", "--dtype", "f64"]
        self.run_words(words_of("1x1x1x1", whole, *words, "--steps", "20", "--save", file, "--log", self.path("log")))
        with open(self.path("log"), encoding="ascii") as lines:
            expected = json.loads(list(lines)[-1])["val_loss"]
        load = ["--load", file, "--dtype", "f64"]
        for grid, batch in (("1x1x1x1", "1"), ("2x1x1x1", "5"), ("1x1x2x1", "24"), ("1x1x1x2", "7")):
            answer = self.evaluate(whole, "--eval", "val", *load, "--batch", batch, grid=grid)
            self.assertEqual((answer["tokens"], answer["first_byte"]), (24 * 8, len(text) - 193))
            self.assertAlmostEqual(answer["loss"], expected, delta=1e-12)
            self.assertAlmostEqual(answer["perplexity"], math.exp(expected), delta=1e-10)

        def loss_of(part):
            answer = self.evaluate("--eval", self.write("part", part), *load, "--batch", "3")
            self.assertEqual(answer["tokens"], len(part) - 1)
            return answer["loss"] * answer["tokens"]

        windows = [text[at:at + 9] for at in range(0, 24, 8)]
        self.assertAlmostEqual(loss_of(text[:25]), sum(map(loss_of, windows)), delta=1e-10)
        self.assertAlmostEqual(loss_of(text[:20]), sum(map(loss_of, windows[:2])) + loss_of(text[16:20]), delta=1e-10)
        # What follows the end does not matter, and what precedes a byte does.
        by_length = [0] + [loss_of(text[:n]) for n in range(2, 10)]
        self.assertEqual(by_length, sorted(by_length))
        self.assertAlmostEqual(by_length[3], loss_of(text[:4]), delta=1e-10)

    def test_what_does_not_go_together(self):
        self.assertIn("leave out the text", self.evaluate(self.text, "--eval", self.path("a"), code=2))
        self.assertIn("leave out --save", self.evaluate(self.text, "--eval", "val", "--save", self.path("a"), code=2))
        self.assertIn("has 1 byte; --eval needs two", self.evaluate("--eval", self.write("part", b"x"), code=2))
        self.assertIn("No such file", self.evaluate("--eval", self.path("missing"), code=2))


class Manuals(unittest.TestCase):
    def test_manuals_name_options_of_help(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/man")
        for program in ("train_gpt", "transformer_layer"):
            talk = subprocess.run([os.path.join(ARGUMENTS.examples_dir, program), "--help"], check=True,
                                  capture_output=True, text=True).stdout
            with open(os.path.join(folder, program + ".1"), encoding="ascii") as file:
                named = set(re.findall(r"--[a-z-]+", file.read().replace("\\-", "-")))
            self.assertGreater(len(named), 3)
            for option in named - {"--help"}:
                self.assertRegex(talk, rf"(?m)^ +{option}\b", program)


if __name__ == "__main__":
    PARSER = argparse.ArgumentParser()
    PARSER.add_argument("examples_dir")
    PARSER.add_argument("--mpiexec")
    ARGUMENTS, REST = PARSER.parse_known_args()
    checkpoint_test.ARGUMENTS = ARGUMENTS
    unittest.main(argv=[sys.argv[0], *REST])
