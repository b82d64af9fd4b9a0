#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What train says of a run to those who read it later: the log of --log, lines in a log file, --eval.

usage: run_log_test.py EXAMPLES_DIR [--mpiexec PROGRAM]
"""
import datetime
import json
import math
import os
import random
import re
import statistics
import subprocess
import xml.etree.ElementTree

import cases
from cases import ARGUMENTS
from checkpoint_test import TINY, Case, words_of

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
        expected = {"program": "train", "ranks": 4, "grid": "2x1x1x2", "layers": LAYERS, "hidden": HIDDEN,
                    "heads": 3, "context": CONTEXT, "batch": BATCH, "steps": 3, "seed": 9, "dtype": "f64",
                    "layout": "scattered", "continues_after": 0, "codec": "none", "text": "text.txt",
                    "sequences_per_forward": BATCH,
                    "n_tokens": os.path.getsize(self.text)}
        self.assertEqual({key: about[key] for key in expected}, expected)
        self.assertRegex(about["version"], r"^\d+\.\d+\.\d+")
        age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(
            about["started"].replace("Z", "+00:00"))
        self.assertLess(abs(age.total_seconds()), 600)
        # embedding, positions; of each block 12 H² + 13 H; the last norm; the head
        self.assertEqual(about["parameters"], 256 * HIDDEN + CONTEXT * HIDDEN + 2 * HIDDEN + 256 * HIDDEN +
                         LAYERS * (12 * HIDDEN**2 + 13 * HIDDEN))
        self.assertNotIn("again", json.dumps([about, lines]))

    def test_numbers_of_threads(self):
        """The same parameters, state and losses, bit by bit; of kernels and products that are large enough to be
        divided."""
        for dtype in ("f32", "bf16"):
            results = []
            for n_threads in ("1", "2", "8"):
                file = self.path("saved")
                _, lines = self.log_of("--threads", n_threads, "--dtype", dtype, "--hidden", "192", "--heads", "6",
                                       "--ctx", "128", "--steps", "2", "--save", file)
                with open(file, "rb") as saved:
                    results.append((saved.read(), [line.get("loss") for line in lines]))
            self.assertEqual(len(results[0][1]), 2)
            self.assertTrue(results[0] == results[1] == results[2], dtype)

    def test_the_first_line_of_another_plan(self):
        """Gradients are in 2 parts along d, the optimizer's state in 4."""
        file = self.path("a")
        self.log_of("--steps", "2", "--tie", "--save", file)
        about, _ = self.log_of("--resume", file, "--steps", "3", "--levels", "2,4", "--order", "dzyx", "--overlap",
                               "off", "--tie", "--micro-batch", "2", grid="2x1x1x4")
        expected = {"ranks": 8, "threads": 1, "order": "dzyx", "overlap": "off", "tied": True, "vocab": 256,
                    "gradient_parts": 2, "optimizer_parts": 4, "sequences_per_forward": 2 * 4, "resumed": file,
                    "older_log": self.path("run.jsonl.1"), "continues_after": 2, "steps": 3, "sequences": 2 * BATCH}
        self.assertEqual({key: about[key] for key in expected}, expected)
        self.assertNotIn("step", about)
        self.assertEqual(about["parameters"], 256 * HIDDEN + CONTEXT * HIDDEN + 2 * HIDDEN +
                         LAYERS * (12 * HIDDEN**2 + 13 * HIDDEN))

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

    def test_memory(self):
        """That of the largest rank is asked for after a step, which needs one number for a while."""
        lines = self.log_of("--steps", "6", "--vocab", "257", grid="1x3x1x1")[1]
        self.assertEqual({line["memory_peak"] - line["memory"] for line in lines}, {8})
        self.assertEqual(len({line["memory"] for line in lines}), 1)
        self.assertIn(f"memory at most {1e-6 * lines[-1]['memory_most']:.1f} MB", self.said)
        alone = self.log_of("--steps", "1", "--vocab", "257", grid="1x1x1x1")[1][0]
        self.assertEqual(alone["memory_most"], alone["memory"])
        for line in lines:  # before or after it has been asked for
            self.assertIn(line["memory_most"] - lines[0]["memory_most"], (0, 8))
            self.assertLess(line["memory_most"], alone["memory"])

    def test_waiting(self):
        """For a rank that is late the others wait in nearly all of a step; a rank alone waits for nobody."""
        steps = ["--steps", "4", "--val-every", "1"]
        late = self.log_of(*steps, "--late", "1:1", grid="1x1x1x2")[1][2]["exposed"]
        self.assertTrue(0.2 < late < 0.6, late)  # of two ranks one waits
        self.assertRegex(self.said, r"exposed communication \d+\.\d% of the steps' time on average, at most \d+\.\d%; ")
        self.assertTrue(all(line["exposed"] < 0.1 for line in self.log_of(*steps)[1]))

    def test_shares_of_a_peak(self):
        """Of a machine: tokens times 6 flops for each weight of a product, and 12·l·s·h for attention."""
        flops = 6 * (LAYERS * 12 * HIDDEN**2 + 256 * HIDDEN) + 12 * LAYERS * CONTEXT * HIDDEN
        for grid, dtype, peak in (("1x1x1x1", "f32", 1e11), ("1x2x1x1", "f64", 2 * 5e10), ("1x1x1x2", "f16", 2e11)):
            about, lines = self.log_of("--steps", "9", "--machine", "laptop", "--dtype", dtype, grid=grid)
            self.assertEqual((about["peak_of"], about["peak_flops"]), ("laptop", peak))
            self.assertIn(f"peak: {1e-9 * about['peak_flops']:.4g} GFLOP/s, that of ", self.said)
            self.assertIn("% of the peak; ", self.said)
            for line in lines:
                self.assertAlmostEqual(line["peak_share"] * about["peak_flops"] / flops / line["tokens_per_s"], 1,
                                       delta=1 / line["tokens_per_s"])
        for n_tokens, is_known in ((0.9e10 / flops, False), (1.1e10 / flops, True)):  # measuring is more work, or less
            about, lines = self.log_of("--steps", str(round(n_tokens / BATCH / CONTEXT)), "--stop-after", "1", "--save",
                                        self.path("stopped.safetensors"))
            self.assertEqual(about.get("peak_of"), "products at the start" if is_known else None)
            self.assertEqual(about.get("peak_flops", 0) > 0, is_known)
            self.assertEqual([line.get("peak_share", 0) > 0 for line in lines], [is_known] * len(lines))
            self.assertEqual("at which products of f32 ran on all ranks at the start" in self.said, is_known)

    def test_speed(self):
        """A step's tokens in its time, which is a part of what passes from line to line."""
        lines = self.log_of("--steps", "100")[1]
        passed = [after["secs"] - before["secs"] for before, after in zip(lines, lines[1:])]
        for line, most in zip(lines[1:], passed):  # whole numbers, rounded down
            self.assertLess(BATCH * CONTEXT / (line["tokens_per_s"] + 1), most)
        # The median: one pause of a busy machine between two lines may be longer than all steps together.
        parts = [BATCH * CONTEXT / line["tokens_per_s"] / most for line, most in zip(lines[1:], passed)]
        self.assertGreater(statistics.median(parts), 0.5)

    def test_speed_of_a_continued_run(self):
        """Its own steps and their time count alone: in the lines of steps, in the report, and in the picture."""
        file, picture = self.path("a"), self.path("loss.svg")
        self.log_of("--steps", "60", "--save", file)
        lines = self.log_of("--resume", file, "--steps", "63", "--every", "0.0001", "--plot", picture)[1]
        speed = re.search(r": (\d+) tokens in \S+ \((\d+) tokens/s\)", self.said)
        self.assertEqual(int(speed[1]), 3 * BATCH * CONTEXT)
        secs = [BATCH * CONTEXT / line["tokens_per_s"] for line in lines]
        told = re.findall(r"^step (\d+)/63 .* (\d+) tokens/s", self.said, re.MULTILINE)
        self.assertEqual([step for step, _ in told], ["61", "62", "63"])
        for n, (_, tokens_per_s) in enumerate(told, 1):
            self.assertAlmostEqual(int(tokens_per_s) * sum(secs[:n]) / (n * BATCH * CONTEXT), 1,
                                   delta=2 / min(line["tokens_per_s"] for line in lines) + 1e-6)
        self.assertEqual(told[-1][1], speed[2])
        self.assertIn(f", {speed[2]} tokens/s<", self.read(picture))

    def points_of(self, picture):
        """Of the three curves, as steps and losses by the marks of the axes."""
        root = xml.etree.ElementTree.parse(picture).getroot()
        texts = [(float(text.get("x")), float(text.get("y")), text.text) for text in root if text.tag.endswith("text")]
        steps = [(x, float(word.replace(",", ""))) for x, y, word in texts if y == 477]
        losses = [(y - 4.5, float(word)) for x, y, word in texts if x == 62]

        def scale(marks):
            (at, value), (to, last) = marks[0], marks[-1]
            return lambda place: value + (place - at) * (last - value) / (to - at)
        step_at, loss_at = scale(steps), scale(losses)
        curves = [[tuple(map(float, point.split(","))) for point in line.get("points").split()]
                  for line in root if line.tag.endswith("polyline")]
        for x, y in sum(curves, []):
            self.assertTrue(72 <= x <= 812 and 108 <= y <= 458, (x, y))
        return [[(step_at(x), loss_at(y)) for x, y in curve] for curve in curves], max(x for x, _ in curves[0])

    def test_picture_of_a_continued_run(self):
        """Of more steps than are drawn: pairs of steps, and means of 2 * 17 + 1 of them."""
        file, picture, first, n = self.path("a"), self.path("loss.svg"), 20, 1301
        self.log_of("--steps", str(first), "--save", file)
        lines = self.log_of("--resume", file, "--steps", str(first + n), "--val-every", "400", "--plot", picture)[1]
        losses = [line["loss"] for line in lines]
        (raw, means, validations), last = self.points_of(picture)
        self.assertEqual(last, 812)  # the right end
        wanted = [(first + i + 1.5, sum(losses[i:i + 2]) / 2) for i in range(0, n - 1, 2)] + [(first + n, losses[-1])]
        halves = [min(i, n - 1 - i, n // 80 + 1) for i in range(n)]
        smooth = [(first + i + 1, sum(losses[i - half:i + half + 1]) / (2 * half + 1))
                  for i, half in enumerate(halves) if i % 2 == 0]
        measured = [(line["step"], line["val_loss"]) for line in lines if "val_loss" in line]
        self.assertEqual([step for step, _ in measured], [400, 800, 1200, 1321])
        for drawn, expected in (raw, wanted), (means, smooth), (validations, measured):
            self.assertEqual(len(drawn), len(expected))
            for (step, loss), (right_step, right_loss) in zip(drawn, expected):
                self.assertAlmostEqual(step, right_step, delta=0.3)
                self.assertAlmostEqual(loss, right_loss, delta=0.004 * (max(losses) - min(losses)))

    def test_many_validations(self):
        """More than are drawn: the last one counts."""
        lines = self.log_of("--layers", "1", "--ctx", "1", "--batch", "1", "--val-windows", "1", "--val-every", "1",
                            "--steps", "4100")[1]
        told = re.search(r"validation loss (\d\.\d{4}) nats per byte after 4100 steps", self.said)
        self.assertEqual(told[1], f"{lines[-1]['val_loss']:.4f}")
        self.assertNotEqual(told[1], f"{lines[4095]['val_loss']:.4f}")

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

    def test_long_logs_mark_steps(self):
        """Of more bytes than their last lines are read from."""
        file, log = self.path("a"), self.path("run.jsonl")
        self.log_of("--steps", "80", "--stop-after", "1", "--save", file)
        self.log_of("--resume", file)
        self.assertGreater(os.path.getsize(log), 2 * 8192)
        about, lines = self.log_of("--resume", file, "--stop-after", "5", "--save", self.path("b"))
        self.assertEqual((about["again_to"], [line.get("again") for line in lines]), (80, 5 * [True]))

    def test_the_log_of_another_run_marks_nothing(self):
        """Another seed, size or text."""
        file, log, other = self.path("a"), self.path("run.jsonl"), self.path("other.txt")
        with open(self.text, "rb") as text, open(other, "wb") as copy:
            copy.write(text.read()[:-1])
        self.log_of("--steps", "3", "--stop-after", "1", "--save", file)
        for words, marks in (((), True), (("--seed", "5"), False), (("--hidden", "12"), False),
                             (("--layers", "1"), False), (("--layers", "3"), False), ((other,), False)):
            text = words[0] if words == (other,) else self.text
            os.unlink(log)
            self.run_words(words_of("1x1x1x1", text, "--log", log, *TINY, "--steps", "9",
                                    *(word for word in words if word != other)))
            about, lines = self.log_of("--resume", file, "--steps", "3")
            self.assertEqual(("again_to" in about, "again" in lines[0]), (marks, marks), words)


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

    def test_a_prompt_that_is_longer_than_the_context(self):
        """The model sees its last bytes; the same are written behind them."""
        self.run_words(words_of("1x1x1x1", self.text, *TINY, "--steps", "30", "--lr", "0.01", "--save", self.path("a")))
        prompts = "5678: 90", "1234: 5678: 90", "elsewhere 5678: 90", "4678: 90"
        outs = [subprocess.run(words_of("1x1x1x1", self.text, "--load", self.path("a"), "--steps", "0", "--sample",
                                        "40", "--prompt", prompt), capture_output=True, check=True).stdout.decode()
                for prompt in prompts]
        for prompt, out in zip(prompts, outs):
            self.assertTrue(out.startswith(prompt), out)
        rest = [out[len(prompt):] for prompt, out in zip(prompts, outs)]
        self.assertEqual(rest[0], rest[1])
        self.assertEqual(rest[0], rest[2])
        self.assertNotEqual(rest[0], rest[3])

    def test_the_seed_draws_the_sample(self):
        """Of an untrained model, which draws nearly any byte; ranks and grids do not matter."""
        words = ["--load", self.path("a"), "--dtype", "f64", "--steps", "0", "--sample", "200", "--temperature", "1"]
        self.run_words(words_of("1x1x1x1", self.text, *TINY, "--steps", "0", "--save", self.path("a")))
        first, again, other = (subprocess.run(words_of(grid, self.text, *words, "--seed", seed), capture_output=True,
                                              check=True).stdout
                               for grid, seed in (("1x1x1x1", "1"), ("2x1x1x2", "1"), ("1x1x1x1", "2")))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertGreater(len(set(first)), 40)

    def test_lines_between_validations(self):
        words = [*TINY, "--val-every", "1000000", "--val-windows", "1", "--steps", "3000"]
        for every, least in (("0.02", 3), ("0", 1), (None, 1)):
            said = self.run_words(words_of("1x1x1x1", self.text, *words, *(["--every", every] if every else [])))
            lines = re.findall(r"^step \d+/3000  loss \d+\.\d+  (?:val \d+\.\d+  )?\d+ tokens/s  [\d:]+ left  "
                               r"peak \d+%  exposed \d+%  \d+\.\d MB$", said, re.MULTILINE)
            self.assertGreaterEqual(len(lines), least, said)
            if least == 1:
                self.assertEqual(len(lines), 1, said)
            self.assertEqual(len([line for line in lines if "val" in line]), 1, said)


class Evaluating(Case):
    def evaluate(self, *words, grid="1x1x1x1", code=0):
        done = subprocess.run(words_of(grid, *words), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=300, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        if code != 0:
            return done.stderr
        answer = json.loads(done.stdout)
        n = -(-answer["tokens"] // answer["context"])
        self.assertIn(f" parameters; the loss of {n} window{'s' * (n != 1)} of up to {answer['context']} tokens\n",
                      done.stderr)
        return answer

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

    def test_windows_of_validations(self):
        """256 of the 300 that fit while a run goes on, and all of them at its end."""
        text = self.write("long", bytes(random.Random(4).choices(b"abcdef \n", k=10 * (300 * 8 + 1))))
        file, log = self.path("a"), self.path("log")
        losses = {}
        for windows in None, "256", "300":
            words = [*TINY[:-6], "--sample", "0", "--val-every", "1", "--steps", "2", "--dtype", "f64"]
            if windows:
                words += ["--val-windows", windows]
            self.run_words(words_of("1x1x1x1", text, *words, "--save", file, "--log", log))
            with open(log, encoding="ascii") as lines:
                losses[windows] = [line["val_loss"] for line in map(json.loads, lines) if "val_loss" in line]
        self.assertEqual(losses[None], [losses["256"][0], losses["300"][1]])
        self.assertNotEqual(losses["256"][0], losses["300"][0])
        self.assertNotEqual(losses["256"][1], losses["300"][1])
        answer = self.evaluate(text, "--eval", "val", "--load", file, "--dtype", "f64", "--batch", "7")
        self.assertAlmostEqual(answer["loss"], losses[None][1], delta=1e-12)

    def test_two_windows_of_a_validation(self):
        """They are the first and the last of the last tenth: what lies between does not matter."""
        plain = b"a" * 5000

        def loss_of(text):
            log = self.path("log")
            self.run_words(words_of("1x1x1x1", self.write("text", text), *TINY[:-6], "--sample", "0", "--steps", "0",
                                    "--dtype", "f64", "--val-windows", "2", "--log", log))
            with open(log, encoding="ascii") as lines:
                return [line["val_loss"] for line in map(json.loads, lines) if "val_loss" in line][0]

        expected = loss_of(plain)
        self.assertNotEqual(loss_of(plain[:-1] + b"b"), expected)
        self.assertNotEqual(loss_of(plain[:4501] + b"b" + plain[4502:]), expected)
        self.assertEqual(loss_of(plain[:4520] + b"b" * 400 + plain[4920:]), expected)

    def test_what_does_not_go_together(self):
        self.assertIn("leave out the text", self.evaluate(self.text, "--eval", self.path("a"), code=2))
        self.assertIn("leave out --save", self.evaluate(self.text, "--eval", "val", "--save", self.path("a"), code=2))
        self.assertIn("has 1 token, but 2 are needed", self.evaluate("--eval", self.write("part", b"x"), code=2))
        self.assertIn("No such file", self.evaluate("--eval", self.path("missing"), code=2))


class Manuals(cases.Case):
    def test_manuals_name_options_of_help(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/man")
        for program in ("train", "transformer_layer"):
            talk = subprocess.run([os.path.join(ARGUMENTS.examples_dir, program), "--help"], check=True,
                                  capture_output=True, text=True).stdout
            named = set(re.findall(r"--[a-z-]+", self.read(os.path.join(folder, program + ".1")).replace("\\-", "-")))
            self.assertGreater(len(named), 3)
            for option in named - {"--help"}:
                self.assertRegex(talk, rf"(?m)^ +{option}\b", program)


if __name__ == "__main__":
    cases.main("examples_dir", "--mpiexec")
