#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The example programs as their users run them: errors, logs, pictures, and the same numbers on all grids.

usage: examples_test.py EXAMPLES_DIR [--mpiexec PROGRAM] [--full]
"""
import json
import math
import os
import re
import stat
import subprocess
import xml.etree.ElementTree

import cases
from cases import ARGUMENTS, ranks_of, start

TINY = ["--layers", "2", "--hidden", "24", "--heads", "3", "--ctx", "8", "--batch", "5", "--steps", "5",
        "--val-windows", "7", "--sample", "12", "--dtype", "f64"]
GRIDS = ["1x1x1x1", "2x1x1x1", "1x2x1x1", "1x1x2x1", "1x1x1x2", "2x2x1x1", "1x1x1x3", "2x1x2x1"]
FULL_GRIDS = ["2x2x2x1", "1x2x2x2", "2x1x2x2", "2x2x1x2", "8x1x1x1", "1x8x1x1", "1x1x8x1", "1x1x1x8", "3x2x2x1"]


def run(program, *words, before=(), **variables):
    return start(*before, os.path.join(ARGUMENTS.examples_dir, program), *words, timeout=300, environment=variables)


# As in the file of a plan; the network that train_by_plan() and by_hand() train.
SIZES = {"architecture": "gpt2", "activation": "gelu_new", "layers": 2, "hidden": 24, "heads": 3, "kv_heads": 3,
         "head_size": 8, "ffn": 96, "vocab": 256, "context": 64, "positions": 64, "window": 0, "window_layers": 0,
         "gated": False, "qkv_bias": True, "out_bias": True, "mlp_bias": True, "norm": "layer", "norms_per_layer": 2,
         "tied": False, "parallel_residual": False}


class Case(cases.Case):
    def setUp(self):
        super().setUp()
        self.text = self.path("text.txt")
        with open(self.text, "w", encoding="ascii") as file:
            file.writelines(f"{i}: {i * i} and {i * 7919 % 1000}\n" for i in range(300))

    def plan(self, sizes=(), **changes):
        """A plan for two ranks, in the format of `quadrille plan -o`."""
        plan = {"quadrille_plan": 3, "network": "gpt2", "sizes": {**SIZES, **dict(sizes)}, "machine": "laptop",
                "ranks": 2, "grid": [2, 1, 1, 1],
                "order": "yxzd", "layout": "scattered", "recompute": "none", "dtype": "f64", "batch": 5,
                "micro_batch": 2, "sequence": 8, "predicted_secs": 1.5, **changes}
        path = self.path("plan.json")
        self.write(path, json.dumps(plan))
        return path

    def train(self, *words, grid="1x1x1x1", before=None):
        log = self.path("run.jsonl")
        start = ["--local", str(ranks_of(grid))] if before is None else []
        done = run("train", self.text, *TINY, "--grid", grid, *start, "--log", log, *words, before=before or ())
        self.assertEqual(done.returncode, 0, done.err)
        with open(log, encoding="ascii") as file:
            return [line for line in map(json.loads, file) if "loss" in line], done

    def assert_same_losses(self, lines, reference, relative):
        self.assertEqual(len(lines), len(reference))
        for line, expected in zip(lines, reference):
            self.assertEqual(set(line) ^ set(expected) | {"peak_share"}, {"peak_share"})  # known with --machine
            for key in ("loss", "val_loss"):
                if key in expected:
                    self.assertLessEqual(abs(line[key] - expected[key]), relative * expected[key], (line, expected))

    def test_older_name(self):
        """train_gpt is train, and says so."""
        done = [run(program, self.text, *TINY, "--local", "2", "--grid", "2x1x1x1", "--every", "0")
                for program in ("train", "train_gpt")]
        self.assertEqual([one.returncode for one in done], [0, 0], done[1].err)
        self.assertEqual(done[0].stdout, done[1].stdout)
        first, *rest = done[1].err.splitlines()
        self.assertIn("train_gpt is called train now", first)
        losses = [[re.sub(r"  .*tokens/s.*", "", line) for line in lines if line.startswith("step ")]
                  for lines in (done[0].err.splitlines(), rest)]
        self.assertEqual(losses[0], losses[1])
        self.assertGreater(len(losses[0]), 3)

    def complain(self, program, *words, says, before=()):
        done = run(program, *words, before=before)
        talk = done.err.strip()
        self.assertEqual(done.returncode, 2, talk)
        self.assertEqual(done.stdout, "")
        self.assertEqual(talk.count("\n"), 0, talk)
        self.assertTrue(talk.startswith(program + ": "), talk)
        for word in says:
            self.assertIn(word, talk)
        self.assertEqual(os.listdir(self.folder), ["text.txt"])

    def complain_of_plan(self, *words, says, **changes):
        path = self.plan(**changes)
        for program in ("train", "transformer_layer"):
            done = run(program, "--plan", path, "--local", "2", *words)
            talk = done.err.strip()
            self.assertEqual(done.returncode, 2, talk)
            self.assertEqual(talk.count("\n"), 0, talk)
            for word in says:
                self.assertIn(word, talk)

    def train_by_plan(self, *words, before=()):
        log = self.path("run.jsonl")
        done = run("train", self.text, "--layers", "2", "--hidden", "24", "--heads", "3", "--steps", "3",
                   "--val-windows", "7", "--sample", "0", "--log", log, *words, before=before)
        self.assertEqual(done.returncode, 0, done.err)
        with open(log, encoding="ascii") as file:
            return [line for line in map(json.loads, file) if "loss" in line], done.err

    def by_hand(self, *words, grid):
        return self.train("--steps", "3", "--sample", "0", *words, grid=grid)[0]


class Complaints(Case):
    """Bad input: exit code 2, one message with the numbers, no file left behind."""

    def test_grid_and_ranks_differ(self):
        files = ["--log", self.path("a.jsonl"), "--plot", self.path("a.svg")]
        self.complain("train", self.text, "--local", "3", "--grid", "2x2x1x1", *files, says=["4", "3", "--local 4"])
        self.complain("transformer_layer", "--grid", "2x1x1x1", says=["2 ranks", "--local 2"])

    def test_names_of_other_formats(self):
        for name in "a.pt", "a.safetensors.GGUF":
            self.complain("train", self.text, *TINY, "--steps", "0", "--save", self.path(name),
                          says=["--save", " is the ending of another format than safetensors; end the name in"])

    def test_values(self):
        for text, remedy in (("--grid 2x2 --grid 0x1x1x1 --grid 2x2x1x1x1 --grid -1x1x1x1", "such as 2x2x1x1, or auto"),
                             ("--lr fast --lr nan", "a number from 0 to 10"), ("--dtype f8", "f32, f64, bf16 or f16"),
                             ("--layout both", "replicated or scattered"), ("--overlap yes", "on or off"),
                             ("--steps -5", "a whole number from 0 to "),
                             ("--hidden 12.5 --local 0 --batch 0 --micro-batch 0 --ctx 0 --heads 99999999999999999999",
                              "a whole number from 1 to ")):
            for option, value in zip(text.split()[::2], text.split()[1::2]):
                self.complain("train", self.text, option, value, says=[f"{option} '{value}': ", remedy])

    def test_words(self):
        self.complain("train", "--setps=3", says=["'--setps=3' (did you mean --steps?)", "--help"])
        self.complain("train", "--steps", says=["--steps", "value"])
        self.complain("train", self.text, "more", says=["more"])
        self.complain("transformer_layer", "word", says=["word"])

    def test_auto(self):
        for program in ("train", "transformer_layer"):
            self.complain(program, "--grid", "automatic", says=["automatic", "auto", "2x2x1x1"])
            self.complain(program, "--machine", "laptpo", says=["laptpo", "laptop"])
            self.complain(program, "--grid", "auto", "--machine", "laptpo", "--local", "2", says=["laptpo", "laptop"])
            self.complain(program, "--grid", "auto", "--local", "2", "--order", "xyzz", says=["xyzz"])
            self.complain(program, "--grid", "auto", says=["notamachine"], before=("env", "QDR_MACHINE=notamachine"))
        done = run("train", self.text, "--grid", "auto", "--local", "2", "--hidden", "65536", "--layers", "512")
        self.assertEqual(done.returncode, 3, done.err)
        self.assertIn("fits in", done.err)

    def test_order(self):
        self.complain("train", self.text, "--ctx", "8", "--local", "2", "--order", "xyzz", says=["xyzz"])

    def test_recompute_every(self):
        self.complain("train", self.text, "--recompute-every", "2", says=["--recompute-every 2", "has none"])
        self.complain("train", self.text, "--recompute-every", "2", "--recompute", "operations", "--local", "2",
                      says=["has operations", "give --recompute full"])

    def test_heads(self):
        self.complain("train", self.text, "--hidden", "130", says=["130", "4", "use --heads 2"])
        self.complain("transformer_layer", "--hidden", "130", "--heads", "4", says=["130", "132"])

    def test_text(self):
        self.complain("train", self.path("missing.txt"), says=["missing.txt", "No such file"])
        self.complain("train", self.folder, says=["folder"])
        size = os.path.getsize(self.text)
        self.complain("train", self.text, "--ctx", "4096", "--local", "2", says=[str(size), "40970", "shorter"])

    def test_outputs(self):
        nowhere = os.path.join(self.folder, "nowhere", "file")
        self.complain("train", self.text, *TINY, "--log", nowhere, says=["nowhere", "folder"])
        self.complain("train", self.text, *TINY, "--plot", nowhere, says=["nowhere", "folder"])
        self.complain("train", self.text, *TINY, "--plot", self.folder, says=["--plot", "Is a directory"])

    def test_late(self):
        self.complain("train", self.text, "--local", "2", "--late", "2:1", says=["2:1", "RANK:SECONDS"])

    def test_local_ranks_in_each_process(self):
        """Printed once under mpiexec, and always if a launcher indicates that it started several processes."""
        if ARGUMENTS.mpiexec:
            for words in (["train", self.text, "--local", "2", "--log", self.path("log")],
                          ["transformer_layer", "--local", "2"]):
                self.complain(*words, says=["2 processes", "2 local ranks"], before=(ARGUMENTS.mpiexec, "-n", "2"))
        before = ("env", "OMPI_COMM_WORLD_SIZE=3")
        for program in ("linear", "replace_matmul"):
            self.complain(program, says=["Open MPI", "3 processes", "4 local ranks"], before=before)

    def test_said_once_under_mpi(self):
        if not ARGUMENTS.mpiexec:
            self.skipTest("no MPI in this build")
        done = run("train", self.text, "--batch", "0", before=(ARGUMENTS.mpiexec, "-n", "2"))
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.err.count("--batch '0'"), 1)


class Help(Case):
    def test_options_are_listed(self):
        for program, options in (("train", "grid plan machine layout order levels layers hidden heads ctx "
                                               "batch micro-batch steps lr seed dtype overlap log plot local late"),
                                 ("transformer_layer", "grid plan machine layout dtype iterations order local json")):
            done = run(program, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertEqual(done.stderr, "")
            self.assertEqual([option for option in options.split() if "--" + option not in done.out], [])
            self.assertNotRegex(done.out, r"\(default.*\(default")


class Reports(Case):
    """QDR_REPORT=1: rank 0 prints the time of each kind of task, and the model's prediction of it."""

    def report(self, *words, before=(), machine="laptop"):
        done = run("train", self.text, *TINY, "--sample", "0", "--micro-batch", "1", *words,
                   before=("env", "QDR_REPORT=1", "QDR_MACHINE=" + machine, *before))
        self.assertEqual(done.returncode, 0, done.err)
        return done.err

    def rows_of(self, talk, heading):
        """{kind: [numbers]} of one section of a table; one ratio may be a dash."""
        lines = talk.splitlines()
        begin = [i for i, line in enumerate(lines) if line.startswith(heading)]
        self.assertEqual(len(begin), 1, talk)
        rows = {}
        for line in lines[begin[0] + 1:]:
            match = re.fullmatch(r"(\S+(?: \S+)*?) +((?:[\d.]+ +)+)([\d.]+|-)", line)
            if match is None:
                break
            rows[match.group(1)] = [float(word) for word in match.group(2).split()]
        return rows

    def check(self, talk, machine, grid, kinds):
        self.assertIn(f"predicted for {machine} and measured on rank 0 of {ranks_of(grid)}, grid {grid}: ", talk)
        rows = self.rows_of(talk, "kind of task")
        always = {"product NN", "product NT", "product TN", "bias-add", "column-sum", "embed", "embed-sum", "add",
                  "position-add", "position-sum", "norm-moments", "norm-apply", "norm-sums", "norm-backward",
                  "attention", "attention-backward", "activation", "activation-backward", "loss", "loss-backward"}
        self.assertLessEqual(always | set(kinds), set(rows))
        for count, predicted, measured in rows.values():
            self.assertGreater(count, 0)
            self.assertGreaterEqual(predicted, 0)
            self.assertGreaterEqual(measured, 0)
        self.assertEqual(rows["attention"][0], 2)
        self.assertEqual(rows["norm-backward"][0], 5)
        both = self.rows_of(talk, "tasks together")
        self.assertEqual(list(both), ["forward", "backward", "both"])
        for simulated, measured in both.values():
            self.assertTrue(0 < simulated < 1e6 and 0 < measured < 1e6)

    def test_kinds(self):
        self.check(self.report(), "laptop", "1x1x1x1", [])
        talk = self.report("--grid", "2x1x2x1", "--local", "4", "--layout", "scattered")
        self.check(talk, "laptop", "2x1x2x1", ["all-gather x", "reduce-scatter x", "all-gather z", "reduce-scatter z",
                                                "all-gather x stat", "all-reduce x stat"])
        talk = self.report("--grid", "1x2x1x2", "--local", "4", "--dtype", "f32", "--machine", "dgx-h100")
        self.check(talk, "dgx-h100", "1x2x1x2", ["all-reduce y", "all-reduce d", "all-reduce y stat"])

    def test_losses_are_the_same(self):
        plain, done = self.train("--micro-batch", "2", grid="2x1x1x1")
        os.environ["QDR_REPORT"] = "1"
        try:
            measured, reported = self.train("--micro-batch", "2", grid="2x1x1x1")
        finally:
            del os.environ["QDR_REPORT"]
        self.assert_same_losses(measured, plain, 0)
        self.assertIn("kind of task", reported.err)
        self.assertNotIn("kind of task", done.err)

    def test_traced_too(self):
        trace = self.path("trace")
        self.check(self.report(before=("QDR_TRACE=" + trace,)), "laptop", "1x1x1x1", [])
        self.assertGreater(len(json.loads(self.read(trace + ".0"))["traceEvents"]), 100)

    def test_nothing_to_report(self):
        self.assertIn("nothing is reported: machine: ", self.report(machine="notamachine"))

    def test_mpi(self):
        if not ARGUMENTS.mpiexec:
            self.skipTest("no MPI in this build")
        talk = self.report("--grid", "1x1x2x1", before=(ARGUMENTS.mpiexec, "-n", "2"))
        self.check(talk, "laptop", "1x1x2x1", ["all-gather z", "reduce-scatter z"])


class Training(Case):
    def test_log(self):
        lines, done = self.train("--val-every", "2")
        self.assertEqual([line["step"] for line in lines], [1, 2, 3, 4, 5])
        for line in lines:
            measured = line["step"] in (2, 4, 5)
            self.assertEqual("val_loss" in line, measured)
            self.assertTrue(0 < line["loss"] < 10)
            self.assertGreater(line["tokens_per_s"], 0)
        self.assertEqual(len(done.stdout), 1 + 12 + 1, done.stdout)  # the prompt, the sample, a newline

    def test_learning_rate(self):
        """A linear rise, then half a cosine down to 2 % of the maximum."""
        lines, _ = self.train("--steps", "24", "--warmup", "4", "--lr", "0.01")
        for line in lines:
            up, down = line["step"] / 4, (line["step"] - 5) / 20
            expected = up if up <= 1 else 0.02 + 0.98 * (1 + math.cos(math.pi * down)) / 2
            self.assertAlmostEqual(line["lr"], 0.01 * expected, delta=1e-12)
        self.assertLess(lines[-1]["lr"], 0.03 * 0.01)

    def test_learning_rate_of_a_short_run(self):
        """The rise takes at most a quarter of it."""
        for steps, rise in ((8, 2), (11, 2), (3, 0)):
            lines, _ = self.train("--steps", str(steps), "--warmup", "100", "--lr", "0.01")
            for line in lines:
                down = (line["step"] - 1 - rise) / (steps - rise)
                expected = line["step"] / rise if down < 0 else 0.02 + 0.98 * (1 + math.cos(math.pi * down)) / 2
                self.assertAlmostEqual(line["lr"], 0.01 * expected, delta=1e-12)

    def test_all_grids_agree(self):
        reference, done = self.train()
        for grid in GRIDS + (FULL_GRIDS if ARGUMENTS.full else []):
            for layout in ("replicated", "scattered"):
                with self.subTest(grid=grid, layout=layout):
                    lines, other = self.train("--layout", layout, grid=grid)
                    self.assert_same_losses(lines, reference, 1e-9)
                    self.assertEqual(other.stdout, done.stdout)

    def test_orders_and_tied_heads_agree(self):
        reference, _ = self.train("--tie")
        for order in ("xyzd", "dzyx"):
            lines, _ = self.train("--tie", "--order", order, grid="2x2x1x1")
            self.assert_same_losses(lines, reference, 1e-9)

    def test_micro_batches_agree(self):
        reference, _ = self.train()
        for n in ("1", "2", "3", "7"):
            for grid in ("1x1x1x1", "1x1x2x1", "2x1x1x2"):
                with self.subTest(micro_batch=n, grid=grid):
                    lines, _ = self.train("--micro-batch", n, grid=grid)
                    self.assert_same_losses(lines, reference, 1e-9)

    def test_overlap_changes_no_bit(self):
        for dtype in ("f32", "bf16", "f16"):
            for layout in ("replicated", "scattered"):
                with self.subTest(dtype=dtype, layout=layout):
                    words = ("--dtype", dtype, "--layout", layout)
                    with_overlap, _ = self.train(*words, "--overlap", "on", grid="2x2x2x1")
                    without, _ = self.train(*words, "--overlap", "off", grid="2x2x2x1")
                    self.assert_same_losses(with_overlap, without, 0)

    def test_seed_decides(self):
        first, _ = self.train("--seed", "1")
        again, _ = self.train("--seed", "1")
        other, _ = self.train("--seed", "2")
        self.assert_same_losses(first, again, 0)
        self.assertNotEqual(first[0]["loss"], other[0]["loss"])

    def test_picture(self):
        picture = self.path("loss.svg")
        self.train("--plot", picture, grid="1x1x1x2")
        root = xml.etree.ElementTree.parse(picture).getroot()
        self.assertTrue(root.tag.endswith("svg"))
        words = " ".join(root.itertext())
        for word in ("1x1x1x2", "optimizer step", "validation", "text.txt"):
            self.assertIn(word, words)

    def test_picture_behind_a_link(self):
        link, picture, deep = self.path("link.svg"), self.path("deep/loss.svg"), self.path("deep")
        os.mkdir(deep)
        os.symlink("loss.svg", self.path("deep/second.svg"))
        os.symlink("deep/second.svg", link)
        for _ in range(2):  # the file to which the links lead is created, then replaced
            self.train("--plot", link)
            self.assertTrue(os.path.islink(link))
            self.assertFalse(os.path.islink(picture))
            xml.etree.ElementTree.parse(picture)
            self.assertEqual(sorted(os.listdir(deep)), ["loss.svg", "second.svg"])
            self.write(picture, "old")
            os.chmod(picture, 0o640)
        self.train("--plot", link)
        self.assertEqual(os.stat(picture).st_mode & 0o777, 0o640)

    def test_picture_through_a_pipe(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
            self.train("--plot", pipe)
            root = xml.etree.ElementTree.fromstring(reader.communicate()[0])
        self.assertTrue(root.tag.endswith("svg"))
        self.assertTrue(stat.S_ISFIFO(os.lstat(pipe).st_mode))

    def test_full_device(self):
        full = self.path("full")  # a device of our own: the system's is not for experiments
        try:
            os.mknod(full, 0o666 | stat.S_IFCHR, os.stat("/dev/full").st_rdev)
            with open(full, "wb"):
                pass
        except OSError as error:
            self.skipTest(f"no device to be had: {error}")
        for option in ("--plot", "--log"):
            done = run("train", self.text, *TINY, option, full)
            talk = done.err
            self.assertEqual(done.returncode, 1, talk)
            self.assertTrue(talk.splitlines()[-1].startswith(f"train: {option} {full}: "), talk)
            self.assertTrue(stat.S_ISCHR(os.lstat(full).st_mode))
        self.assertEqual(sorted(os.listdir(self.folder)), ["full", "text.txt"])

    def test_f16(self):
        reference, _ = self.train()
        for grid, words in (("1x1x1x1", ()), ("2x1x2x1", ("--layout", "scattered")),
                            ("1x2x1x1", ("--loss-scale", "4096"))):
            self.assert_same_losses(self.train("--dtype", "f16", *words, grid=grid)[0], reference, 2.5e-3)
        usual, same, less = (self.train("--dtype", "f16", "--val-every", "1", *words)[0]
                             for words in ((), ("--loss-scale", "1024"), ("--loss-scale", "2")))
        self.assert_same_losses(usual, same, 0)
        self.assertNotEqual([line["loss"] for line in usual], [line["loss"] for line in less])
        lines, done = self.train("--dtype", "f16", "--loss-scale", "1e9", grid="1x2x2x1")  # overflow: no update happens
        self.assertIn(f"{len(lines)} steps were skipped", done.err)
        self.assert_same_losses(lines, self.train("--dtype", "f16", "--lr", "0", grid="1x2x2x1")[0], 0)

    def test_memory_is_as_asked(self):
        for grid, words in (("1x1x1x1", ()), ("2x2x1x1", ()), ("1x1x2x2", ()), ("1x1x1x1", ("--dtype", "bf16")),
                            ("2x1x2x1", ("--dtype", "bf16")), ("2x1x2x1", ("--dtype", "f16")),
                            ("2x2x1x1", ("--late", "1:0.1"))):
            _, done = self.train(*words, grid=grid)
            line = [line for line in done.err.splitlines() if line.startswith("memory of rank 0")][0]
            words = line.split()
            asked = int(words[words.index("bytes") - 1])
            peak = int(words[words.index("at") - 1])
            self.assertEqual(asked, peak, line)

    def test_sample_is_text(self):
        for seed in range(1, 4):  # at this temperature any byte may be generated
            _, done = self.train("--sample", "3000", "--temperature", "100", "--seed", str(seed), "--steps", "1")
            self.assertIn("2 layers, ", done.err)
            self.assertIn("1 step of 40 tokens", done.err)
            text = done.out
            self.assertEqual(len(text.encode("utf-8")), 3002)
            self.assertTrue(all(letter in "\n\t" or letter.isprintable() or ord(letter) >= 0xa0 for letter in text))
            self.assertTrue(any(ord(letter) >= 0xa0 for letter in text))
            self.assertGreater(text.count("?"), 1000)

    def test_mpi_agrees(self):
        if not ARGUMENTS.mpiexec:
            self.skipTest("no MPI in this build")
        reference, done = self.train()
        for grid in ("2x2x1x1", "1x1x1x2") + (("2x2x2x1", "1x3x1x1") if ARGUMENTS.full else ()):
            for layout in ("replicated", "scattered"):
                with self.subTest(grid=grid, layout=layout):
                    before = (ARGUMENTS.mpiexec, "-n", str(ranks_of(grid)))
                    lines, other = self.train("--layout", layout, grid=grid, before=before)
                    self.assert_same_losses(lines, reference, 1e-9)
                    self.assertEqual(other.stdout, done.stdout)

    def test_a_late_rank_costs_no_processor_time(self):
        if not ARGUMENTS.full:
            self.skipTest("takes seconds; runs with --full")
        before = (ARGUMENTS.mpiexec, "-n", "4") if ARGUMENTS.mpiexec else None
        _, done = self.train("--late", "1:2", grid="2x2x1x1", before=before)
        line = [line for line in done.err.splitlines() if line.startswith("rank 1 was")][0]
        self.assertTrue(all(float(secs) <= 0.2 for secs in line.split(":")[1].split()), line)


class OtherPrograms(Case):
    def test_linear(self):
        done = run("linear")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(done.out.count("\n"), 4)
        for rank, line in enumerate(sorted(done.out.splitlines())):
            self.assertRegex(line, rf"^rank {rank} of 4.*db\[0\] = 8$")

    def test_replace_matmul(self):
        done = run("replace_matmul")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(["in dweight" in line for line in done.out.splitlines()], 4 * [True])

    def test_words_of_short_programs(self):
        for program in ("linear", "replace_matmul"):
            for words, code in ((["--help"], 0), (["--helf"], 2), (["--mpi", "more"], 2), (["--mpi"], 2)):
                done = run(program, *words)
                self.assertEqual(done.returncode, code)
                self.assertIn(f"mpiexec.mpich -n 4 {program} --mpi", done.stderr if code else done.stdout)
                self.assertEqual(done.stdout if code else done.stderr, "")

    def test_warning_about_many_ranks(self):
        words = ["--hidden", "32", "--ctx", "4", "--batch", "1", "--iterations", "1"]
        crowd = 1 + 16 * os.cpu_count()
        if crowd > 200:
            self.skipTest(f"{os.cpu_count()} cores: too many ranks to be too many")
        for n, said in ((2, 0), (crowd, 1)):
            done = run("transformer_layer", "--local", str(n), *words)
            self.assertEqual(done.returncode, 0, done.err)
            self.assertEqual(done.err.count(f"warning: launch: {n} local ranks share"), said)

    def test_cxx(self):
        if not os.path.exists(os.path.join(ARGUMENTS.examples_dir, "link_from_cxx")):
            self.skipTest("no C++ compiler in this build")
        done = run("link_from_cxx")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(sorted(done.out.splitlines()), [f"Y[0,{i}] = {3 * (i + 1)}" for i in range(5)])

    def test_transformer_layer(self):
        for grid in ("1x1x1x1", "2x2x1x1", "1x2x2x1", "2x1x1x2"):
            for layout in ("replicated", "scattered"):
                with self.subTest(grid=grid, layout=layout):
                    done = run("transformer_layer", "--local", str(ranks_of(grid)), "--grid", grid, "--layout", layout,
                               "--hidden", "64", "--heads", "4", "--ctx", "8", "--batch", "8", "--iterations", "2",
                               "--json")
                    self.assertEqual(done.returncode, 0, done.err)
                    result = json.loads(done.stdout)
                    self.assertEqual(result["grid"], grid)
                    times = ("forward_secs", "backward_secs", "forward_gflops", "backward_gflops", "tokens_per_s")
                    self.assertTrue(all(result[key] > 0 for key in times), result)
                    self.assertEqual(result["traffic"] == [], grid == "1x1x1x1")
                    for row in result["traffic"]:
                        if not row["channel"].endswith("stat"):
                            self.assertEqual(row["bytes_sent"], row["bytes_planned"], row)

    def test_numbers_of_transformer_layer(self):
        """Products of N tokens need 24 N H² operations forward, twice as many backward; the rest is a few percent."""
        n, h = 12 * 8, 64
        for grid in ("1x1x1x1", "2x2x1x1", "1x1x2x2", "1x1x3x1"):
            done = run("transformer_layer", "--local", str(ranks_of(grid)), "--grid", grid, "--hidden", str(h),
                       "--heads", "4", "--ctx", "8", "--batch", "12", "--iterations", "3", "--json")
            result = json.loads(done.stdout)
            self.assertEqual((result["ranks"], result["iterations"]), (ranks_of(grid), 3))
            secs = [result[part + "_secs"] for part in ("forward", "backward")]
            self.assertAlmostEqual(result["tokens_per_s"] * sum(secs) / n, 1, delta=1e-9)
            for times, part, taken in zip((24, 48), ("forward", "backward"), secs):
                share = 1e9 * result[part + "_gflops"] * taken / (times * n * h * h)
                self.assertTrue(1 < share < 1.2, (grid, part, share))

    def test_transformer_layer_table(self):
        """Numbers fit each other but for their last digit."""
        done = run("transformer_layer", "--hidden", "32", "--ctx", "8", "--batch", "2", "--iterations", "1")
        self.assertEqual(done.returncode, 0, done.err)
        table = done.out
        forward, backward, both = map(float, re.findall(r"^(?:forward|backward|together) +([\d.]+) ms", table,
                                                        re.MULTILINE))
        self.assertAlmostEqual(forward + backward, both, delta=0.0016)
        tokens_per_s = float(re.search(r"([\d.]+) tokens/s", table)[1])
        self.assertAlmostEqual(tokens_per_s * both / 1e3 / (2 * 8), 1, delta=0.0006 / both + 0.6 / tokens_per_s)

    def test_products_in_fp8(self):
        small = ("--hidden", "32", "--heads", "4", "--ctx", "8", "--batch", "2", "--iterations", "1",
                 "--products", "fp8", "--dtype")
        said = run("transformer_layer", *small, "bf16").out
        self.assertIn("bf16 with fp8 products", said)
        self.assertIn("Y NT fp8 dX NN fp8 dW TN fp8", said)
        self.assertIn("this one is f16", run("transformer_layer", *small, "f16").err)


if __name__ == "__main__":
    cases.main("examples_dir", "--mpiexec", flags=("--full",))
