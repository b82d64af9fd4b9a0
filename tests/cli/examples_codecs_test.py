#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training with codecs, as users run it.

usage: examples_codecs_test.py EXAMPLES_DIR
"""
import json
import math
import re

import cases
import ckpt_files
import examples_test


PAIR = [*examples_test.TINY, "--local", "2", "--grid", "2x1x1x1"]


class Codecs(examples_test.Case):
    """Of messages between two ranks, in training."""

    def losses(self, *words, **variables):
        """By step, and what was said."""
        log = self.path("run.jsonl")
        done = examples_test.run("train", self.text, *PAIR, "--dtype", "f32", "--sample", "0", "--log", log, *words,
                                 **variables)
        self.assertEqual(done.returncode, 0, done.err)
        with open(log, encoding="ascii") as file:
            return [line["loss"] for line in map(json.loads, file) if "loss" in line], done.err

    def test_after(self):
        without, _ = self.losses()
        coded, _ = self.losses("--codec", "int4,inside,least=1")
        late, said = self.losses("--codec", "int4,inside,least=1", "--codec-after", "3")
        by_variable, _ = self.losses("--codec-after", "3", QDR_CODEC="int4,inside,least=1")
        self.assertEqual(late[:3], without[:3])
        self.assertNotEqual(coded[0], without[0])
        self.assertNotEqual(late[3], without[3])
        self.assertEqual(by_variable, late)
        self.assertRegex(said, r"codecs: rank 0 sent \S+ MB instead of")

    def test_after_counts_the_steps_of_all_runs(self):
        """A run that is stopped before, at, and after the step from which on messages are coded."""
        file = self.path("a")
        words = ["--codec", "int4,inside,least=1", "--codec-after", "3", "--val-every", "9"]
        whole, _ = self.losses(*words)
        for n in 2, 3, 4:
            begun, _ = self.losses(*words, "--stop-after", str(n), "--save", file)
            rest, _ = self.losses(*words, "--resume", file)
            self.assertEqual(begun + rest, whole, n)

    def test_guard(self):
        """Without learning, losses differ by their batches only; the limit lies in the middle of the largest step of
        their rise in a run that has none."""
        still = ["--lr", "0", "--steps", "90", "--codec", "int4,inside,least=1"]
        unguarded, said = self.losses(*still, "--codec-guard", "100")
        self.assertNotIn("going on", said)
        means = [sum(unguarded[i - 50:i]) / 50 for i in range(50, 91)]
        rises = [mean - min(means[:i + 1]) for i, mean in enumerate(means)]
        highest = [max(rises[:i + 1]) for i in range(len(rises) - 1)]  # the last rise cannot show what follows
        width, number = max((highest[i] - highest[i - 1], i) for i in range(1, len(highest)))
        self.assertGreater(width, 1e-4, rises)  # far more than a rounding
        most, at = highest[number] - width / 2, 50 + number
        guarded, said = self.losses(*still, "--codec-guard", repr(most))
        found = re.search(r"--codec-guard: after step (\d+) the mean loss of 50 steps is (\S+), more than (\S+) above "
                          r"the least, (\S+); going on with --codec safe", said)
        self.assertTrue(found, said)
        self.assertEqual(int(found[1]), at)
        self.assertAlmostEqual(float(found[2]), means[number], delta=1e-4)
        self.assertAlmostEqual(float(found[3]), most, delta=1e-5 * most)
        self.assertAlmostEqual(float(found[4]), min(means[:number + 1]), delta=1e-4)
        self.assertEqual(guarded[:at], unguarded[:at])
        self.assertNotEqual(guarded[at], unguarded[at])

    def test_guard_goes_on_with_codecs(self):
        """Those that are safe, for messages of the same lengths and ranks: each step sends as many bytes."""
        sent = {}
        for codec, guard in (("int4", ["--codec-guard", "1e-9"]), ("safe", []), ("none", [])):
            words = codec if codec == "none" else codec + ",inside,least=1"
            _, said = self.losses("--lr", "0", "--steps", "90", "--val-every", "99", "--codec", words, *guard)
            self.assertEqual("going on with --codec safe" in said, bool(guard), said)
            with open(self.path("run.jsonl"), encoding="ascii") as file:
                sent[codec] = [line["bytes_sent"] for line in map(json.loads, file) if "loss" in line]
        self.assertEqual(sent["int4"][-1], sent["safe"][-1])
        self.assertLess(sent["int4"][0], sent["safe"][0])
        self.assertLess(sent["safe"][-1], sent["none"][-1])

    def test_guard_of_a_loss_that_is_not_finite(self):
        """Of logits that f16 does not have: sums of weights of 60000."""
        saved, wild = self.path("saved.safetensors"), self.path("wild.safetensors")
        words = [self.text, *PAIR, "--sample", "0"]
        done = examples_test.run("train", *words, "--dtype", "f32", "--steps", "0", "--save", saved)
        self.assertEqual(done.returncode, 0, done.err)
        tensors = {name: tensor for name, tensor in ckpt_files.read(saved)[0].items() if "optimizer." not in name}
        kind, shape, data = tensors["head.weight"]
        weights = [math.copysign(6e4, value) for value in ckpt_files.unpack(kind, data)]
        ckpt_files.write(wild, {**tensors, "head.weight": (kind, shape, ckpt_files.pack(kind, weights))})
        words += ["--load", wild, "--dtype", "f16", "--steps", "2"]
        alone = examples_test.run("train", *words)
        self.assertIn("the loss of step 1 is not a finite number", alone.err)
        done = examples_test.run("train", *words, "--codec", "int8,inside,least=1", "--codec-guard", "1")
        self.assertIn("after step 1 the loss is not a finite number; going on with --codec safe", done.err)

    def test_nothing_is_coded(self):
        self.complain("train", self.text, "--codec-after", "3", says=["--codec-after: nothing is coded", "hybrid"])
        self.complain("train", self.text, "--codec-guard", "1", says=["--codec-guard: nothing is coded", "hybrid"])

    def test_one_node(self):
        """One line where codecs have nothing to do."""
        one_node = "codecs: all 2 ranks are on one node, so nothing is coded; add ,inside to code inside nodes\n"
        single = "codecs: a single rank sends nothing, so nothing is coded\n"
        block = ["--hidden", "16", "--heads", "2", "--ctx", "8", "--batch", "2", "--iterations", "1"]
        for words, variables, line in (
                (["--local", "2", "--codec", "hybrid"], {}, one_node),
                (["--local", "2"], {"QDR_CODEC": "int8"}, one_node), (["--codec", "hybrid,inside"], {}, single),
                (["--local", "2", "--codec", "hybrid,inside"], {}, ""), (["--local", "2", "--codec", "none"], {}, "")):
            for program, given in (("train", [self.text, *examples_test.TINY, "--dtype", "f32", "--steps", "1"]),
                                   ("transformer_layer", block)):
                done = examples_test.run(program, *given, *words, **variables)
                self.assertEqual(done.returncode, 0, done.err)
                said = [text for text in done.err.splitlines(True) if "nothing is coded" in text]
                self.assertEqual("".join(said), line, (program, words, variables))
        later, said = self.losses("--codec", "hybrid", "--codec-after", "1")
        self.assertTrue(later)
        self.assertEqual(said.count(one_node), 1, said)

    def test_report_and_trace(self):
        name = self.path("trace.json")
        _, said = self.losses("--codec", "int8/64,inside,least=1", QDR_REPORT="1", QDR_TRACE=name)
        self.assertRegex(said, r"\nall-reduce x int8/64 +\d+ ")
        self.assertNotRegex(said, r"\nall-reduce x +\d")
        events = [event["args"] for event in json.loads(self.read(name + ".0"))["traceEvents"] if event["ph"] == "X"]
        coded = [event for event in events if "plain_bytes" in event]
        self.assertTrue(coded)
        for event in coded:
            self.assertEqual(event["stream"], "x reduce")
            self.assertTrue(0.25 < event["bytes"] / event["plain_bytes"] < 0.5, event)
            self.assertGreater(event["codec_us"], 0)

    def test_checked_gradients(self):
        words = ("--codec", "aggressive,inside,least=1", "--grid", "1x1x1x2", "--steps", "40")
        plain, _ = self.losses(*words)
        checked, said = self.losses(*words, QDR_CODEC_CHECK="1")
        self.assertEqual(checked, plain)
        rows = [line.split() for line in said.splitlines() if " int4/128+hadamard+feedback " in line]
        self.assertIn("embedding", [row[0] for row in rows])
        for row in rows:
            self.assertTrue(0.05 < float(row[-2]) < 0.3 and float(row[-1]) <= 1, row)

    def test_checked(self):
        plain, _ = self.losses("--codec", "aggressive,inside,least=1")
        checked, said = self.losses("--codec", "aggressive,inside,least=1", QDR_CODEC_CHECK="1")
        self.assertEqual(checked, plain)
        self.assertIn("codecs, checked on rank 0 of 2", said)
        rows = [line.split() for line in said.splitlines() if re.search(r" int8/64 ", line)]
        self.assertEqual({row[0] for row in rows if row[3] == "activation"},
                         {"block0.qkv", "block0.fc", "block1.qkv", "block1.fc", "head"})
        for row in rows:
            self.assertIn(row[3], ("activation", "activation-gradient"))
            self.assertTrue(0.002 < float(row[-2]) < 0.01 and float(row[-1]) <= 1, row)


if __name__ == "__main__":
    cases.main("examples_dir")
