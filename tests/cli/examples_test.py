#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The example programs from outside: complaints, logs, pictures, and equal numbers on all grids.

usage: examples_test.py EXAMPLES_DIR [--mpiexec PROGRAM] [--full]
"""
import argparse
import json
import math
import os
import stat
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ARGUMENTS = None
TINY = ["--layers", "2", "--hidden", "24", "--heads", "3", "--ctx", "8", "--batch", "5", "--steps", "5",
        "--val-windows", "7", "--sample", "12", "--dtype", "f64"]
GRIDS = ["1x1x1x1", "2x1x1x1", "1x2x1x1", "1x1x2x1", "1x1x1x2", "2x2x1x1", "1x1x1x3", "2x1x2x1"]
FULL_GRIDS = ["2x2x2x1", "1x2x2x2", "2x1x2x2", "2x2x1x2", "8x1x1x1", "1x8x1x1", "1x1x8x1", "1x1x1x8", "3x2x2x1"]


def ranks_of(grid):
    product = 1
    for side in grid.split("x"):
        product *= int(side)
    return product


def run(program, *words, before=()):
    command = [*before, os.path.join(ARGUMENTS.examples_dir, program), *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.text = self.path("text.txt")
        with open(self.text, "w", encoding="ascii") as file:
            for i in range(300):
                file.write(f"{i}: {i * i} and {i * 7919 % 1000}\n")

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def train(self, *words, grid="1x1x1x1", before=None):
        log = self.path("run.jsonl")
        start = ["--local", str(ranks_of(grid))] if before is None else []
        done = run("train_gpt", self.text, *TINY, "--grid", grid, *start, "--log", log, *words, before=before or ())
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        with open(log, encoding="ascii") as file:
            return [json.loads(line) for line in file], done

    def assert_same_losses(self, lines, reference, relative):
        self.assertEqual(len(lines), len(reference))
        for line, expected in zip(lines, reference):
            self.assertEqual(set(line), set(expected))
            for key in ("loss", "val_loss"):
                if key in expected:
                    self.assertLessEqual(abs(line[key] - expected[key]), relative * expected[key], (line, expected))


class Complaints(Case):
    """Bad input: exit code 2, one sentence with the numbers, no file left behind."""

    def complain(self, program, *words, says, before=()):
        done = run(program, *words, before=before)
        talk = done.stderr.decode().strip()
        self.assertEqual(done.returncode, 2, talk)
        self.assertEqual(done.stdout, b"")
        self.assertEqual(talk.count("\n"), 0, talk)
        self.assertTrue(talk.startswith(program + ": "), talk)
        for word in says:
            self.assertIn(word, talk)
        self.assertEqual(os.listdir(self.folder.name), ["text.txt"])

    def test_grid_and_ranks_differ(self):
        outputs = ["--log", self.path("a.jsonl"), "--plot", self.path("a.svg")]
        self.complain("train_gpt", self.text, "--local", "3", "--grid", "2x2x1x1", *outputs, says=["4", "3", "--local 4"])
        self.complain("transformer_layer", "--grid", "2x1x1x1", says=["2 ranks", "--local 2"])

    def test_values(self):
        for words in (["--grid", "2x2"], ["--grid", "0x1x1x1"], ["--grid", "2x2x1x1x1"], ["--grid", "-1x1x1x1"],
                      ["--steps", "0"], ["--steps", "-5"], ["--hidden", "12.5"], ["--lr", "fast"], ["--lr", "nan"],
                      ["--layout", "both"], ["--dtype", "f16"], ["--overlap", "yes"], ["--local", "0"],
                      ["--batch", "0"], ["--micro-batch", "0"], ["--ctx", "0"], ["--heads", "99999999999999999999"]):
            self.complain("train_gpt", self.text, *words, says=[words[0], words[1], "give"])

    def test_words(self):
        self.complain("train_gpt", "--no-such-thing", says=["--no-such-thing", "--help"])
        self.complain("train_gpt", "--steps", says=["--steps", "value"])
        self.complain("train_gpt", self.text, "more", says=["more"])
        self.complain("transformer_layer", "word", says=["word"])

    def test_order(self):
        self.complain("train_gpt", self.text, "--ctx", "8", "--local", "2", "--order", "xyzz", says=["xyzz"])

    def test_heads(self):
        self.complain("train_gpt", self.text, "--hidden", "130", says=["130", "4", "132"])
        self.complain("transformer_layer", "--hidden", "130", "--heads", "4", says=["130", "132"])

    def test_text(self):
        self.complain("train_gpt", self.path("missing.txt"), says=["missing.txt", "No such file"])
        self.complain("train_gpt", self.folder.name, says=["directory"])
        size = os.path.getsize(self.text)
        self.complain("train_gpt", self.text, "--ctx", "4096", "--local", "2", says=[str(size), "40970", "shorter"])

    def test_outputs(self):
        nowhere = os.path.join(self.folder.name, "nowhere", "file")
        self.complain("train_gpt", self.text, *TINY, "--log", nowhere, says=["nowhere", "folder"])
        self.complain("train_gpt", self.text, *TINY, "--plot", nowhere, says=["nowhere", "folder"])
        self.complain("train_gpt", self.text, *TINY, "--plot", self.folder.name, says=["picture", "Is a directory"])

    def test_late(self):
        self.complain("train_gpt", self.text, "--local", "2", "--late", "2:1", says=["2:1", "RANK:SECONDS"])

    def test_local_ranks_in_each_process(self):
        """Said once under mpiexec, and in any case where a launcher says that it started several."""
        if ARGUMENTS.mpiexec:
            for program, *words in (["train_gpt", self.text, "--local", "2", "--log", self.path("log")],
                                    ["transformer_layer", "--local", "2"]):
                self.complain(program, *words, says=["2 processes", "2 local ranks"], before=(ARGUMENTS.mpiexec, "-n", "2"))
        before = ("env", "OMPI_COMM_WORLD_SIZE=3")
        for program in ("linear", "replace_matmul"):
            self.complain(program, says=["Open MPI", "3 processes", "4 local ranks"], before=before)

    def test_said_once_under_mpi(self):
        if not ARGUMENTS.mpiexec:
            self.skipTest("no MPI in this build")
        before = (ARGUMENTS.mpiexec, "-n", "2")
        done = run("train_gpt", self.text, "--steps", "0", before=before)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.decode().count("--steps 0"), 1)


class Help(Case):
    def test_options_are_listed(self):
        for program, options in (("train_gpt", ["grid", "layout", "order", "layers", "hidden", "heads", "ctx", "batch",
                                                "micro-batch", "steps", "lr", "seed", "dtype", "overlap", "log", "plot",
                                                "local", "late"]),
                                 ("transformer_layer", ["grid", "layout", "dtype", "iterations", "order", "local",
                                                        "json"])):
            done = run(program, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertEqual(done.stderr, b"")
            for option in options:
                self.assertIn("--" + option, done.stdout.decode())


class Training(Case):
    def test_log(self):
        lines, done = self.train("--val-every", "2")
        self.assertEqual([line["step"] for line in lines], [1, 2, 3, 4, 5])
        for line in lines:
            measured = line["step"] in (2, 4, 5)
            self.assertEqual(set(line), {"step", "loss", "tokens_per_s", "lr"} | ({"val_loss"} if measured else set()))
            self.assertTrue(0 < line["loss"] < 10)
            self.assertGreater(line["tokens_per_s"], 0)
        self.assertEqual(len(done.stdout), 1 + 12 + 1, done.stdout)  # the prompt, the sample, a newline

    def test_learning_rate(self):
        """A straight line up, then half a cosine down to 2 % of the highest."""
        lines, _ = self.train("--steps", "24", "--warmup", "4", "--lr", "0.01")
        for line in lines:
            up, down = line["step"] / 4, (line["step"] - 5) / 20
            expected = up if up <= 1 else 0.02 + 0.98 * (1 + math.cos(math.pi * down)) / 2
            self.assertAlmostEqual(line["lr"], 0.01 * expected, delta=1e-12)
        self.assertLess(lines[-1]["lr"], 0.03 * 0.01)

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
        for dtype in ("f32", "bf16"):
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
        for _ in range(2):  # the file that the links lead to is made, then replaced
            self.train("--plot", link)
            self.assertTrue(os.path.islink(link))
            self.assertFalse(os.path.islink(picture))
            xml.etree.ElementTree.parse(picture)
            self.assertEqual(sorted(os.listdir(deep)), ["loss.svg", "second.svg"])
            with open(picture, "w", encoding="ascii") as file:
                file.write("old")
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
        full = self.path("full")  # one of our own: the system's is not for experiments
        try:
            os.mknod(full, 0o666 | stat.S_IFCHR, os.stat("/dev/full").st_rdev)
            with open(full, "wb"):
                pass
        except OSError as error:
            self.skipTest(f"no device to be had: {error}")
        for option, word in (("--plot", "picture"), ("--log", "log")):
            done = run("train_gpt", self.text, *TINY, option, full)
            talk = done.stderr.decode()
            self.assertEqual(done.returncode, 1, talk)
            self.assertTrue(talk.splitlines()[-1].startswith(f"train_gpt: {word} {full}: "), talk)
            self.assertTrue(stat.S_ISCHR(os.lstat(full).st_mode))
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["full", "text.txt"])

    def test_memory_is_as_asked(self):
        for grid, words in (("1x1x1x1", ()), ("2x2x1x1", ()), ("1x1x2x2", ()), ("1x1x1x1", ("--dtype", "bf16")),
                            ("2x1x2x1", ("--dtype", "bf16")), ("2x2x1x1", ("--late", "1:0.1"))):
            _, done = self.train(*words, grid=grid)
            line = [line for line in done.stderr.decode().splitlines() if line.startswith("memory of rank 0")][0]
            words = line.split()
            asked = int(words[words.index("bytes") - 1])
            peak = int(words[words.index("bytes", words.index("bytes") + 1) - 1])
            self.assertEqual(asked, peak, line)

    def test_sample_is_text(self):
        for seed in range(1, 4):  # so hot that any byte may come
            _, done = self.train("--sample", "3000", "--temperature", "100", "--seed", str(seed), "--steps", "1")
            self.assertIn("2 layers, ", done.stderr.decode())
            self.assertIn("1 step of 40 tokens", done.stderr.decode())
            text = done.stdout.decode("utf-8", errors="strict")
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
        line = [line for line in done.stderr.decode().splitlines() if line.startswith("rank 1 came")][0]
        for secs in line.split(":")[1].split():
            self.assertLessEqual(float(secs), 0.2, line)


class OtherPrograms(Case):
    def test_linear(self):
        done = run("linear")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        lines = sorted(done.stdout.decode().splitlines())
        self.assertEqual(len(lines), 4)
        for rank, line in enumerate(lines):
            self.assertTrue(line.startswith(f"rank {rank} of 4"), line)
            self.assertTrue(line.endswith("db[0] = 8"), line)

    def test_replace_matmul(self):
        done = run("replace_matmul")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        lines = done.stdout.decode().splitlines()
        self.assertEqual(len(lines), 4)
        for line in lines:
            self.assertIn("in dweight", line)

    def test_words_of_short_programs(self):
        for program in ("linear", "replace_matmul"):
            for words, code in ((["--help"], 0), (["--helf"], 2), (["--mpi", "more"], 2)):
                done = run(program, *words)
                self.assertEqual(done.returncode, code)
                self.assertIn(f"{program} --mpi", (done.stderr if code else done.stdout).decode())
                self.assertEqual(done.stdout if code else done.stderr, b"")

    def test_warning_about_many_ranks(self):
        words = ["--hidden", "32", "--ctx", "4", "--batch", "1", "--iterations", "1"]
        crowd = 1 + 16 * os.cpu_count()
        if crowd > 200:
            self.skipTest(f"{os.cpu_count()} cores: too many ranks to be too many")
        for n, said in ((2, 0), (crowd, 1)):
            done = run("transformer_layer", "--local", str(n), *words)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.assertEqual(done.stderr.decode().count(f"warning: launch: {n} local ranks share"), said)

    def test_cxx(self):
        if not os.path.exists(os.path.join(ARGUMENTS.examples_dir, "link_from_cxx")):
            self.skipTest("no C++ compiler in this build")
        done = run("link_from_cxx")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertEqual(sorted(done.stdout.decode().splitlines()), [f"Y[0,{i}] = {3 * (i + 1)}" for i in range(5)])

    def test_transformer_layer(self):
        for grid in ("1x1x1x1", "2x2x1x1", "1x2x2x1", "2x1x1x2"):
            for layout in ("replicated", "scattered"):
                with self.subTest(grid=grid, layout=layout):
                    done = run("transformer_layer", "--local", str(ranks_of(grid)), "--grid", grid, "--layout", layout,
                               "--hidden", "64", "--heads", "4", "--ctx", "8", "--batch", "8", "--iterations", "2", "--json")
                    self.assertEqual(done.returncode, 0, done.stderr.decode())
                    result = json.loads(done.stdout)
                    self.assertEqual(result["grid"], grid)
                    for key in ("forward_secs", "backward_secs", "forward_gflops", "backward_gflops", "tokens_per_s"):
                        self.assertGreater(result[key], 0)
                    self.assertEqual(result["traffic"] == [], grid == "1x1x1x1")
                    for row in result["traffic"]:
                        if not row["channel"].endswith("stat"):
                            self.assertEqual(row["bytes_sent"], row["bytes_planned"], row)

    def test_transformer_layer_table(self):
        done = run("transformer_layer", "--hidden", "32", "--ctx", "8", "--batch", "2", "--iterations", "1")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.assertIn("tokens/s", done.stdout.decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("examples_dir")
    parser.add_argument("--mpiexec")
    parser.add_argument("--full", action="store_true")
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
