#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command quadrille as its users run it: results compared with NumPy on many grids, bad input, help, versions, the
man page.

usage: quadrille_test.py QUADRILLE MAN_PAGE [--mpiexec PROGRAM] [--full]
Exits with 77 (skipped) where there is no NumPy.
"""
import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
import time
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: no NumPy; install python3-numpy")
    sys.exit(77)

import cases
from cases import ARGUMENTS

GRIDS = ["1x1x1x1", "2x1x1x1", "1x2x1x1", "1x1x2x1", "1x1x1x2", "2x2x1x1", "1x3x2x1", "2x1x1x3", "2x2x2x2"]
FULL_GRIDS = ["3x2x2x1", "1x2x3x2", "4x1x2x1", "1x1x5x1", "5x1x1x1", "1x5x1x1", "1x1x1x7", "2x3x2x1"]
MPI_GRIDS = ["1x1x1x1", "2x1x1x1", "2x2x1x1", "1x1x2x2"]
SHAPES = [(12, 16, 8), (7, 5, 3), (1, 9, 2), (3, 1, 1), (17, 2, 11), (0, 4, 3)]  # M, K, N
RESULTS = ["y", "dx", "dw", "db"]


def ranks_of(grid):
    product = 1
    for side in grid.split("x"):
        product *= int(side)
    return product


def run(*words, before=(), environment=None):
    done = subprocess.run([*before, ARGUMENTS.quadrille, *words], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=120, env=environment)
    done.out, done.err = done.stdout.decode(), done.stderr.decode()
    return done


def expected(x, w, b, dy):
    """Results in f64 (longdouble for f64 inputs) and, for each element, the sum of the absolute values of its terms."""
    wide = np.longdouble if x.dtype == np.float64 else np.float64
    x, w, b, dy = (a.astype(wide) for a in (x, w, b, dy))
    values = {"y": x @ w.T + b, "dx": dy @ w, "dw": dy.T @ x, "db": dy.sum(0)}
    x, w, b, dy = (np.abs(a) for a in (x, w, b, dy))
    return values, {"y": x @ w.T + b, "dx": dy @ w, "dw": dy.T @ x, "db": dy.sum(0)}


class Case(cases.Case):
    def setUp(self):
        super().setUp()
        self.out = self.path("deep/er/out")
        self.random = np.random.default_rng(1)

    def save(self, name, array):
        np.save(self.path(name + ".npy"), array)

    def make(self, shape, dtype, bias=True):
        """Writes the inputs of a layer; returns them and the options that name them."""
        m, k, n = shape
        arrays = [self.random.uniform(-1, 1, size).astype(dtype) for size in ((m, k), (n, k), (n,), (m, n))]
        if not bias:
            arrays[2][:] = 0
        for name, array in zip(("x", "w", "b", "dy"), arrays):
            self.save(name, array)
        return arrays, self.words(bias)

    def words(self, bias=True):
        words = [word for name in ("x", "w", "dy") for word in ("--" + name, self.path(name + ".npy"))]
        return words + (["--b", self.path("b.npy")] if bias else []) + ["--out", self.out]

    def assert_results(self, arrays, where):
        x, w = arrays[0], arrays[1]
        values, magnitudes = expected(*arrays)
        lengths = {"y": x.shape[1] + 1, "dx": w.shape[0], "dw": x.shape[0], "db": x.shape[0]}
        unit = 2.0 ** (-53 if x.dtype == np.float64 else -24)
        for name in RESULTS:
            got = np.load(os.path.join(self.out, name + ".npy"))
            stored = np.float32 if x.dtype == np.float16 and name in ("dw", "db") else x.dtype
            self.assertEqual((got.dtype, got.shape), (stored, values[name].shape), where)
            # docs/numerics.md, with a margin for 64 ranks; NumPy's own error is 2^-11 (longdouble) or 2^-29 of it
            depth = (lengths[name] + 66) * unit
            bound = 1.001 * depth / (1 - depth) * magnitudes[name]
            if stored == np.float16: # partial sums, their sum and the bias are rounded
                bound += 3.01 * 2.0 ** -11 * magnitudes[name] + 66 * 2.0 ** -25
            self.assertTrue(bool(np.all(np.abs(got - values[name]) <= bound)), f"{name} is wrong: {where}")
        self.assertEqual(sorted(os.listdir(self.out)), sorted(name + ".npy" for name in RESULTS))

    def assert_refused(self, done, *parts, code=2):
        self.assertEqual(done.returncode, code, done.err)
        self.assertEqual(done.out, "")
        self.assertEqual(len(done.err.strip().splitlines()), 1, done.err)
        self.assertTrue(done.err.startswith("quadrille: "), done.err)
        for part in parts:
            self.assertIn(part, done.err)
        self.assertFalse(os.path.exists(self.out) and os.listdir(self.out))


class Linear(Case):
    def check(self, shape, dtype, grid, layout, transposed, bias=True, order=None, before=None):
        arrays, words = self.make(shape, dtype, bias)
        words += ["--grid", grid, "--layout", layout] + ["--transposed"] * transposed
        words += ["--order", order] if order else []
        words += [] if before else ["--local", str(ranks_of(grid))]
        done = run("linear", *words, before=before or ())
        where = f"{shape} {dtype} {' '.join(words)}"
        self.assertEqual(done.returncode, 0, done.err + where)
        self.assertEqual(done.out + done.err, "", where)
        self.assert_results(arrays, where)

    def test_local(self):
        grids = GRIDS + (FULL_GRIDS if ARGUMENTS.full else [])
        shapes = SHAPES + ([(40, 33, 27), (64, 64, 64)] if ARGUMENTS.full else [])
        for i, grid in enumerate(grids):
            for j, (layout, transposed) in enumerate(itertools.product(("replicated", "scattered"), (0, 1))):
                picked = shapes if ARGUMENTS.full else [shapes[k % len(shapes)] for k in (i + j, i + j + 3)]
                for k, shape in enumerate(picked):
                    with self.subTest(grid=grid, layout=layout, transposed=transposed, shape=shape):
                        self.check(shape, ("f4", "f8", "f2")[(i + j + k) % 3], grid, layout, transposed,
                                   bias=(i + k) % 3 > 0)

    def test_orders(self):
        for order in ("dzyx", "yzxd", "zxdy"):
            with self.subTest(order=order):
                self.check((9, 10, 7), "f8", "2x1x3x2", "scattered", 0, order=order)

    def test_random(self):
        """Shapes, grids, layouts, orders and types at random; QDR_TEST_SEED repeats them."""
        seed = int(os.environ.get("QDR_TEST_SEED", time.time()))
        print(f"QDR_TEST_SEED={seed}", flush=True)
        draw = random.Random(seed)
        for i in range(300 if ARGUMENTS.full else 20):
            grid = [1, 1, 1, 1]
            for _ in range(draw.randrange(4)):
                axis, factor = draw.randrange(4), draw.choice((2, 2, 3, 5))
                if math.prod(grid) * factor <= 16:
                    grid[axis] *= factor
            shape = [draw.choice((draw.randint(1, 9), draw.randint(1, 200))) for _ in range(3)]
            if draw.randrange(20) == 0:
                shape[0] = 0
            order = "".join(draw.sample("xyzd", 4))
            with self.subTest(seed=seed, number=i):
                self.check(tuple(shape), draw.choice(("f2", "f4", "f8")), "x".join(map(str, grid)),
                           draw.choice(("replicated", "scattered")), draw.randrange(2), draw.random() < 0.7, order)

    @unittest.skipUnless("--mpiexec" in sys.argv, "no mpiexec")
    def test_mpi(self):
        for i, grid in enumerate(MPI_GRIDS + (["2x2x2x1", "1x3x1x1"] if ARGUMENTS.full else [])):
            with self.subTest(grid=grid):
                self.check(SHAPES[i % 3], ("f4", "f8")[i % 2], grid, ("scattered", "replicated")[i // 2 % 2], i % 2,
                           before=[ARGUMENTS.mpiexec, "-n", str(ranks_of(grid))])

    def test_same_bits_again(self):
        arrays, words = self.make((19, 23, 17), "f4")
        bits = []
        for _ in range(2):
            self.assertEqual(run("linear", *words, "--grid", "2x1x3x1", "--local", "6").returncode, 0)
            bits.append([np.load(os.path.join(self.out, name + ".npy")).tobytes() for name in RESULTS])
        self.assertEqual(bits[0], bits[1])

    def test_versions_of_the_format(self):
        arrays, words = self.make((6, 5, 4), "f8")
        for version in ((1, 0), (2, 0), (3, 0)):
            with open(self.path("x.npy"), "wb") as file:
                np.lib.format.write_array(file, arrays[0], version=version)
            done = run("linear", *words, "--grid", "2x1x1x1", "--local", "2")
            self.assertEqual(done.returncode, 0, done.err)
            self.assert_results(arrays, f"version {version}")

    def test_results_overwrite_old_ones(self):
        self.check((4, 4, 4), "f4", "1x1x1x1", "replicated", 0)
        self.check((5, 3, 2), "f8", "2x1x1x1", "replicated", 0)

    def test_results_behind_links(self):
        os.makedirs(self.out)
        self.write("elsewhere", "old")
        link = os.path.join(self.out, "dx.npy")
        os.symlink("../../../elsewhere", link)
        self.check((5, 3, 2), "f8", "2x1x1x1", "replicated", 0)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(np.load(self.path("elsewhere")).shape, (5, 3))


class BadInput(Case):
    """Every mistake: exit code 2, one message, no files."""

    def refuse(self, words, *parts, grid="2x1x1x1", local="2"):
        words = [*words, "--grid", grid, "--local", local]
        self.assert_refused(run("linear", *words), *parts)

    def test_files(self):
        good = [self.random.uniform(-1, 1, size).astype("f4") for size in ((6, 5), (4, 5), (4,), (6, 4))]
        cases = [
            ("x", good[0][0, 0].reshape(()), "single number"), ("x", good[0].reshape(1, 6, 5), "3 dimensions"),
            ("x", good[0].ravel(), "[30]", "[M, K]"), ("x", np.asfortranarray(good[0]), "np.ascontiguousarray"),
            ("x", good[0].astype(">f4"), "big-endian"), ("x", good[0].astype("i8"), "<i8"),
            ("x", good[0].astype("f2"), "f16", "f32"), ("x", good[0].astype("c8"), "<c8"),
            ("x", good[0].astype("f8"), "f64", "f32"), ("w", good[1].astype("f8"), "f64", "f32"),
            ("w", good[1][:, :4], "[6, 5]", "[4, 4]"), ("dy", good[3][:5], "[5, 4]", "[6, 5]"),
            ("dy", good[3][:, :3], "[6, 3]", "[4, 5]"), ("b", good[2][:3], "[3]", "[4, 5]"),
            ("b", good[2].reshape(1, 4), "[1, 4]"), ("w", good[1][:0], "[0, 5]"),
        ]
        for name, array, *parts in cases:
            with self.subTest(name=name, parts=parts):
                for each, value in zip(("x", "w", "b", "dy"), good):
                    self.save(each, value)
                with open(self.path(name + ".npy"), "wb") as file:
                    np.lib.format.write_array(file, array if array.flags.f_contiguous else np.ascontiguousarray(array))
                self.refuse(self.words(), *parts)

    def test_bytes(self):
        _, words = self.make((6, 5, 4), "f4")
        whole = self.read_bytes("w.npy")
        for data, part in ((whole[:-1], "truncated"), (whole + b"\0", "1 bytes too many"), (b"", "is empty"),
                           (b"hello, world", "not a NumPy file"), (b"PK\3\4" + whole, "archive"),
                           (whole[:40], "header"), (whole[:8] + b"\xff\xff" + whole[10:], "65535"),
                           (whole[:6] + b"\x09" + whole[7:], "version 9")):
            with self.subTest(part=part):
                self.write("w.npy", data)
                self.refuse(words, "w.npy", part)
        os.unlink(self.path("w.npy"))
        self.refuse(words, "w.npy cannot be opened")
        os.mkdir(self.path("w.npy"))
        self.refuse(words, "not a regular file")

    def test_options(self):
        _, words = self.make((6, 5, 4), "f4")
        full = [*words, "--grid", "2x1x1x1", "--local", "2"]
        self.assertEqual(run("linear", *full).returncode, 0)
        for name in RESULTS:
            os.unlink(os.path.join(self.out, name + ".npy"))
        for bad, *parts in ((["--grid", "2x2"], "2x2", "GXxGYxGZxGD"), (["--grid", "0x1x1x2"], "0x1x1x2"),
                            (["--grid", "-1x-2x1x1"], "-1x-2x1x1"), (["--grid", "2x1x1x1x1"], "2x1x1x1x1"),
                            (["--grid", "99999999999999999999x1x1x1"], "1024"),
                            (["--grid", "2x2x1x1"], "--local 2", "--local 4"), (["--order", "xyz"], "xyz"),
                            (["--order", "xxyz"], "xxyz"), (["--layout", "diagonal"], "diagonal"),
                            (["--local", "0"], "'0'"), (["--local", "two"], "'two'"),
                            (["--colour", "red"], "--colour", "--help"), (["--transposed=1"], "takes no value"),
                            (["-q"], "-q"), (["extra"], "extra"), (["--x"], "needs a value"),
                            (["--out", ""], "--out"), (["--out", self.path("x.npy")], "not a folder"),
                            (["--out", self.path("x.npy/out")], "cannot be reached")):
            with self.subTest(bad=bad):
                self.assert_refused(run("linear", *full, *bad), *parts)
        for missing in ("--x", "--w", "--dy", "--grid", "--out"):
            with self.subTest(missing=missing):
                at = full.index(missing)
                self.assert_refused(run("linear", *full[:at], *full[at + 2:]), missing)

    def test_results_that_are_no_files(self):
        _, words = self.make((6, 5, 4), "f4")
        os.makedirs(self.out)
        place = os.path.join(self.out, "dw.npy")
        for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("nowhere", path)):
            make(place)
            mode = os.lstat(place).st_mode
            done = run("linear", *words, "--grid", "2x1x1x1", "--local", "2")
            self.assertEqual((done.returncode, done.out), (2, ""), done.err)
            self.assertIn("dw.npy in it is not a regular file", done.err)
            self.assertEqual((os.listdir(self.out), os.lstat(place).st_mode), (["dw.npy"], mode))
            (os.rmdir if os.path.isdir(place) else os.unlink)(place)

    def test_rank_count_without_mpiexec(self):
        _, words = self.make((6, 5, 4), "f4")
        self.assert_refused(run("linear", *words, "--grid", "2x1x1x1"), "2 ranks", "1 was", "mpiexec")

    def test_local_ranks_in_each_process(self):
        _, words = self.make((6, 5, 4), "f4")
        for launcher in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"):
            for command in (["linear", *words, "--grid", "2x1x1x1", "--local", "2"], ["verify", "-n", "2"]):
                done = run(*command, before=["env", launcher + "=3"])
                self.assert_refused(done, "3 processes", "2 local ranks", launcher + "=3")
        torchrun = ["env", "RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=3"]
        done = run("linear", *words, "--grid", "1x1x1x1", before=torchrun)
        self.assertEqual((done.returncode, done.out), (1, ""), done.err)
        self.assertIn("torchrun, or a launcher like it, started 3 ranks (WORLD_SIZE=3), but each believes it is alone",
                      done.err)

    @unittest.skipUnless("--mpiexec" in sys.argv, "no mpiexec")
    def test_once_under_mpi(self):
        _, words = self.make((6, 5, 4), "f4")
        before = [ARGUMENTS.mpiexec, "-n", "3"]
        self.assert_refused(run("linear", *words, "--grid", "2x1x1x1", "--local", "2", before=before), "3 processes")
        self.assert_refused(run("verify", "-n", "2", before=before), "3 processes")
        self.assert_refused(run("linear", *words, "--grid", "2x1x1x1", before=before), "2 ranks", "3 were")
        self.assert_refused(run("linear", *words, "--grid", "3x1x1", before=before), "3x1x1")
        self.assert_refused(run("linear", *words, "--grid", "3x1x1x1", "--tiger", before=before), "--tiger")
        os.unlink(self.path("dy.npy"))
        self.assert_refused(run("linear", *words, "--grid", "3x1x1x1", before=before), "dy.npy")

    @unittest.skipUnless("--mpiexec" in sys.argv, "no mpiexec")
    def test_file_that_one_rank_lacks(self):
        """As on a node without the shared folder: rank 0 prints the words of the rank that failed."""
        _, words = self.make((6, 5, 4), "f4")
        lacking = [word.replace("x.npy", "elsewhere.npy") for word in words]
        for ranks in (2, 3):
            command = ["linear", *words, "--grid", f"{ranks}x1x1x1"]
            before = [ARGUMENTS.mpiexec, "-n", str(ranks - 1), ARGUMENTS.quadrille, *command, ":", "-n", "1"]
            done = run("linear", *lacking, "--grid", f"{ranks}x1x1x1", before=before)
            self.assert_refused(done, "elsewhere.npy")

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_folder_that_cannot_be_written(self):
        _, words = self.make((6, 5, 4), "f4")
        os.mkdir(self.path("deep"), 0o500)
        done = run("linear", *words, "--grid", "2x1x1x1", "--local", "2")
        self.assert_refused(done, "cannot be created", code=1)

    def test_device_full(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            done = subprocess.run([ARGUMENTS.quadrille, "--help"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"standard output", done.stderr)


class Command(Case):
    def test_versions(self):
        done = run("--version", "--json")
        self.assertEqual(done.returncode, 0, done.err)
        versions = json.loads(done.out)
        self.assertEqual(set(versions), {"quadrille", "mpi", "blas", "onednn", "hwloc", "zfp", "compiler"})
        self.assertTrue(all(isinstance(version, str) and version for version in versions.values()))
        text = run("--version").out
        for name, version in versions.items():
            self.assertIn(name, text)
            self.assertIn(version, text)

    def test_unknown(self):
        self.assert_refused(run("lineal"), "'lineal'", "linear", "verify")
        self.assert_refused(run("--colour"), "--colour", "quadrille --help")
        self.assert_refused(run("verify", "--colour"), "--colour", "quadrille verify --help")
        self.assert_refused(run(), "quadrille --help")
        self.assert_refused(run("paln"), "'paln' (did you mean plan?)")
        self.assert_refused(run("plan", "gpt2", "--mchine", "laptop"), "'--mchine' (did you mean --machine?)")
        self.assert_refused(run("linear", "--layuot=scattered"), "'--layuot=scattered' (did you mean --layout?)")
        self.assert_refused(run("bench", "linear", "--row"), "option '--row'", "needs a value")
        self.assert_refused(run("verify", "--xyzzyx"), "unknown or ambiguous option '--xyzzyx'; see")
        self.assert_refused(run("help", "lineal"), "lineal")
        self.assert_refused(run("--json"), "--version")

    def test_values_that_are_refused(self):
        """The option is named as it was typed, and numbers are written out."""
        self.assert_refused(run("plan", "gpt2", "-n", "0"), "-n '0': a whole number from 1 to 1048576")
        self.assert_refused(run("plan", "gpt2", "--ranks=0"), "--ranks '0': a whole number from 1 to 1048576")
        self.assert_refused(run("plan", "gpt2", "-o", ""), ": -o: its FILE is empty")
        self.assert_refused(run("doctor", "--timeout", "2e6"), "--timeout '2e6': a number from 0 to 1000000 is needed")

    def test_unknown_names(self):
        for command, words, says in (("plan", ["llama-70b", "-n", "4", "--machine", "laptop"],
                                      "nearest: llama-2-70b, llama-3-70b"),
                                     ("plan", ["gpt2", "-n", "4", "--machine", "H100"],
                                      "nearest: dgx-h100, grand-teton"),
                                     ("mem", ["gtp2"], "nearest: gpt2 (")):
            with self.subTest(words=words):
                self.assert_refused(run(command, *words), says)
        done = run("plan", "gpt2", "-n", "4", "--machine", "nope")
        self.assert_refused(done, '"nope"', "quadrille list machines")
        self.assertNotIn("nearest", done.err)
        self.assert_refused(run("mem", "bert"), '"bert"', "quadrille list models")
        words = ["plan", "gpt2", "-n", "4", "--machine", "laptop", "--software"]
        self.assert_refused(run(*words, "nemmo"), '"nemmo"', "nearest: nemo", "quadrille list software")
        self.assert_refused(run("mem", "gpt2", "--software", "nemo"), "need --machine")
        setting = ["plan", "gpt2", "-n", "4", "--machine", "laptop", "--set"]
        self.assert_refused(run(*setting, "f32.mots=1"), "did you mean 'f32.most'?")
        done = run(*setting, "foo=1")
        self.assert_refused(done, "no key 'foo'; docs/model.md")
        self.assertNotIn("did you mean", done.err)
        self.assert_refused(run("bench"), "no benchmark is named", "coll, layer or linear")
        self.assert_refused(run("bench", "foo"), "unknown benchmark 'foo'", "coll, layer or linear")

    def test_machine_based_on_an_unknown_one(self):
        """The search for similar names of machines finds the same file again."""
        os.mkdir(self.path("machines"))
        self.write("machines/mine.json", '{"based_on": "nothing-known"}')
        done = run("plan", "gpt2", "-n", "4", "--machine", "mine",
                   environment={**os.environ, "QDR_DATA_PATH": self.folder})
        self.assert_refused(done, "nothing-known")

    def test_list(self):
        for what, name, key in (("models", "llama-2-70b", "params"), ("machines", "dgx-h100", "ranks_per_node"),
                                ("software", "nemo", "products")):
            with self.subTest(what=what):
                text, data = run("list", what), run("list", what, "--json")
                self.assertEqual((text.returncode, text.err, data.returncode, data.err), (0, "", 0, ""))
                rows = json.loads(data.out)
                self.assertIn(name, [row["name"] for row in rows])
                self.assertEqual(len(text.out.splitlines()), len(rows) + 1)
                for row in rows:
                    self.assertIn(row["name"], text.out)
                    self.assertTrue(row[key])
        model = next(row for row in json.loads(run("list", "models", "--json").out) if row["name"] == "llama-2-70b")
        self.assertEqual(model["params"], json.loads(run("mem", "llama-2-70b", "--json").out)["params"])
        self.assert_refused(run("list"), "models, machines or software")
        self.assert_refused(run("list", "operations"), "cannot list 'operations'")
        self.assert_refused(run("list", "modles"), "did you mean models?")

    def test_help(self):
        for words in (["--help"], ["help"], ["-h"]):
            self.assertIn("linear", run(*words).out)
        for command in ("linear", "verify"):
            for words in ([command, "--help"], ["help", command], [command, "-n", "--help"]):
                done = run(*words)
                self.assertEqual(done.returncode, 0, done.err)
                self.assertIn("Examples:\n", done.out)

    def test_verify(self):
        done = run("verify", "-n", "4", "--cases", "2", "--seed", "5")
        self.assertEqual(done.returncode, 0, done.err + done.out)
        lines = done.out.splitlines()
        self.assertEqual(len(lines), 1 + 10 * 2 * 4)  # header; 10 grids of 4 ranks, 2 layouts, 4 types
        self.assertTrue(all(line.endswith(" ok") for line in lines[1:]), done.out)
        self.assertEqual(run("verify", "-n", "4", "--cases", "2", "--seed", "5").out, done.out)

    def test_little_address_space(self):
        """If memory is too small for BLAS, which retries forever, an error is reported before BLAS is called."""
        limit = ("sh", "-c", 'ulimit -v "$0" && exec "$@"')
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        if run("--version", before=(*limit, str(64 << 20))).returncode:
            self.skipTest("this build cannot live with a limit (a sanitizer)")
        codes = []
        for mib in range(256, 1792, 128):
            done = run("verify", "-n", "2", before=(*limit, str(mib << 10)), environment=environment)
            codes.append(done.returncode)
            if done.returncode == 3:
                self.assertRegex(done.err, r"MiB.*(ulimit -v|address space|memory)")
            else:
                self.assertEqual((done.returncode, done.err), (0, ""), mib)
        self.assertEqual((codes[0], codes[-1]), (3, 0))

    def test_verify_refuses(self):
        for bad in (["-n", "0"], ["-n", "65"], ["-n", "x"], ["--seed", "-1"], ["--dtype", "f8"], ["--cases", "0"],
                    ["more"]):
            with self.subTest(bad=bad):
                self.assert_refused(run("verify", *bad), bad[-1])

    def test_man_page_has_the_options_of_help(self):
        page = self.read(ARGUMENTS.man_page).replace("\\-", "-").replace("\\~", " ")
        sections = dict(re.findall(r"^\.SH (.+?)\n(.*?)(?=^\.SH |\Z)", page, re.S | re.M))
        for section in ("OPTIONS", "BENCH", "BENCH COLL", "BENCH LAYER", "BENCH LINEAR", "CALIBRATE",
                        "CKPT CONVERT", "CKPT DIFF", "CKPT LS", "CKPT VERIFY", "DOCTOR", "ENV", "LINEAR", "LIST",
                        "PREDICT", "TOPO", "TRACE", "VERIFY"):
            words = [] if section == "OPTIONS" else section.lower().split()
            text = sections[section] + (sections["BENCH"] if section.startswith("BENCH ") else "")
            in_help = re.findall(r"^  (?:-\w, |    )--([\w-]+)", run(*words, "--help").out.split("Examples:")[0], re.M)
            in_page = re.findall(r"^\.TP\n.*?--([\w-]+)", text, re.M)
            self.assertEqual(sorted(in_help), sorted(in_page), section)
            self.assertGreater(len(in_help), 1)

    def test_man_page_is_clean(self):
        try:
            done = subprocess.run(["groff", "-man", "-ww", "-Tascii", ARGUMENTS.man_page], capture_output=True)
        except FileNotFoundError:
            self.skipTest("no groff")
        self.assertEqual((done.returncode, done.stderr), (0, b""))


if __name__ == "__main__":
    cases.main("quadrille", "man_page", "--mpiexec", flags=("--full",))
