#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`quadrille bench` as its users run it: all formats, all grids, numbers that must be consistent, planted errors, bad
input.

usage: bench_test.py QUADRILLE PLANTED [--mpiexec PROGRAM]
PLANTED is the same command with collectives that spoil one element of each rank.
"""
import csv
import json
import os
import struct
import subprocess
import sys
import unittest

import cases
from cases import ARGUMENTS, start

KINDS = ["all-gather", "reduce-scatter", "all-reduce", "broadcast", "all-to-all", "send-recv"]
BOTH = ("all-gather", "reduce-scatter")  # are measured out of place and in place
SHORT = ("--iterations", "4", "--warmup", "1")
SHAPE = ("-m", "24", "-n", "20", "-k", "16", "--threads", "1", *SHORT)
LAYER = ("--hidden", "24", "--heads", "6", "--context", "5", "--sequences", "4", "--threads", "1", *SHORT)


def run(*words, before=(), program=None, environment=()):
    return start(*before, program or ARGUMENTS.quadrille, "bench", *words, environment=environment)


def bus_factor(kind, n):
    return {"all-reduce": 2 * (n - 1) / n, "broadcast": 1, "send-recv": 1}.get(kind, (n - 1) / n)


class Case(cases.Case):
    def rows(self, *words, **how):
        """The JSON object of the output, and its rows."""
        done = run(*words, "--json", **how)
        self.assertEqual((done.returncode, done.err), (0, ""))
        result = json.loads(done.out)
        self.assertGreater(len(result["rows"]), 0)
        return result, result["rows"]

    def table(self, *words):
        done = run(*words)
        self.assertEqual((done.returncode, done.err), (0, ""))
        return done.out.splitlines()

    def assert_times(self, row, prefix=""):
        self.assertTrue(0 < row[prefix + "min_secs"] <= row[prefix + "median_secs"] <= row[prefix + "p90_secs"], row)

    def assert_near(self, a, b, relative=1e-6):
        self.assertLessEqual(abs(a - b), relative * max(abs(a), abs(b)))


class Coll(Case):
    def check(self, row):
        self.assert_times(row)
        self.assertEqual(row["size_bytes"], row["count"] * {"f32": 4, "f64": 8, "bf16": 2, "f16": 2}[row["type"]])
        self.assert_near(row["algbw_gbps"] * row["median_secs"], 1e-9 * row["size_bytes"])
        self.assert_near(row["busbw_gbps"], bus_factor(row["kind"], row["members"]) * row["algbw_gbps"])
        self.assertEqual(row["wrong"], 0, row)
        self.assertEqual(row["redop"], "sum" if row["kind"] in ("all-reduce", "reduce-scatter") else "none")
        self.assertEqual(row["root"], 0 if row["kind"] == "broadcast" else -1)
        place = [row["in_place_" + name] for name in ("median_secs", "algbw_gbps", "busbw_gbps", "wrong")]
        if row["kind"] in ("all-reduce", "broadcast"):  # always in place
            self.assertEqual(place, [row[name] for name in ("median_secs", "algbw_gbps", "busbw_gbps", "wrong")])
        elif row["kind"] in BOTH:
            self.assert_near(place[0] * place[1], 1e-9 * row["size_bytes"])
            self.assert_near(place[2], bus_factor(row["kind"], row["members"]) * place[1])
            self.assertEqual(place[3], 0)
        else:
            self.assertEqual(place, [None] * 4)

    def test_every_grid_kind_and_axis(self):
        result, rows = self.rows("coll", "--local", "4", "--grid", "all", "--kind", "all", "-b", "4", "-e", "1K",
                                 "-f", "16", *SHORT)
        self.assertEqual((result["ranks"], result["memory"]), (4, "library"))
        self.assertEqual(len({row["grid"] for row in rows}), 10)
        want = []
        for grid in dict.fromkeys(row["grid"] for row in rows):
            for axis, size in zip("xyzd", map(int, grid.split("x"))):
                want += [(grid, axis, size, kind, count) for kind in KINDS if size > 1 for count in (1, 16, 256)]
        self.assertEqual([tuple(row[name] for name in ("grid", "axis", "members", "kind", "count")) for row in rows],
                         want)
        for row in rows:
            self.check(row)
            self.assertEqual(row["samples"], 4)

    def test_types_and_memory(self):
        for dtype, elem_bytes in (("f64", 8), ("bf16", 2), ("f16", 2)):
            for memory in ("library", "caller"):
                words = ["--local", "3", "--grid", "1x3x1x1", "--kind", "all", "--dtype", dtype,
                         "--memory", memory, "-b", "1", "-e", "1000"]
                result, rows = self.rows("coll", *words, *SHORT)
                self.assertEqual(result["memory"], memory)
                self.assertEqual(sorted({row["size_bytes"] for row in rows})[0], elem_bytes)
                for row in rows:
                    self.check(row)

    def test_one_member(self):
        _, rows = self.rows("coll", "--local", "2", "--axis", "x", "--kind", "all", "-b", "64", "-e", "64", *SHORT)
        self.assertEqual([row["kind"] for row in rows], KINDS)
        for row in rows: # nothing moves: no rates
            self.assert_times(row)
            self.assertEqual((row["algbw_gbps"], row["busbw_gbps"], row["wrong"]), (None, None, 0))

    def test_sizes(self):
        for words, want in ((("-b", "1K", "-e", "64K"), [1 << 10, 1 << 12, 1 << 14, 1 << 16]),
                            (("--min-bytes", "100", "--max-bytes", "1000", "--factor", "3"), [100, 300, 900]),
                            (("-b", "1", "-e", "17", "-f", "2"), [4, 8, 16])):
            _, rows = self.rows("coll", "--local", "2", *words, *SHORT)
            self.assertEqual([row["size_bytes"] for row in rows], want)

    def test_csv_and_table(self):
        words = ["coll", "--local", "2", "--kind", "all-to-all", "-b", "1M", "-e", "1M", *SHORT]
        (row,) = csv.DictReader(run(*words, "--csv").out.splitlines())
        self.assertEqual([row[name] for name in ("ranks", "memory", "grid", "axis", "members", "kind", "count", "type",
                                                 "wrong", "samples")],
                         ["2", "library", "1x1x1x2", "d", "2", "all-to-all", "262144", "f32", "0", "4"])
        self.assert_near(float(row["busbw_gbps"]), 0.5 * float(row["algbw_gbps"]), 1e-8)
        cells = self.table(*words)[-1].split()
        self.assertEqual(cells[:11], ["1x1x1x2", "d", "2", "all-to-all", "1048576", "262144", "f32", "none", "-1",
                                      "raw", "1.00"])
        self.assertEqual(cells[-7:], ["-", "0", "-", "-", "-", "-", "4"])
        self.assertLessEqual(abs(float(cells[-8]) - 0.5 * float(cells[-9])), 1e-3)
        self.assertLessEqual(abs(float(cells[-9]) - 1e-3 * 1048576 / float(cells[11])), 1e-3)

    def test_codecs(self):
        for codec, kind, ratio in (("int8", "all-reduce", 32 / 8.25), ("int4/64", "reduce-scatter", 32 / 4.5),
                                   ("bf16", "all-gather", 2), ("int8+feedback", "all-reduce", 32 / 8.25),
                                   ("int8", "broadcast", 1)):
            with self.subTest(codec=codec, kind=kind):
                _, (row,) = self.rows("coll", "--local", "4", "--codec", codec, "--kind", kind, "-b", "1M", "-e", "1M",
                                      *SHORT)
                self.assert_near(row["ratio"], ratio, 1e-6)
                self.assertEqual(row["wrong"], 0)
                self.assertEqual(row["codec_secs"] is None, row["codec"] == "raw")
                self.assertEqual(row["codec"], "raw" if kind == "broadcast" else row["codec"])
        # Sums in place begin anew each time: 100 in a row would multiply them by 2 to the 300.
        words = ("--local", "8", "--codec", "int8", "-b", "64K", "-e", "64K", "--iterations", "100")
        _, (row,) = self.rows("coll", *words)
        self.assertEqual(row["wrong"], 0)
        zfp = run("coll", "--local", "2", "--codec", "zfp:8", "--kind", "all-reduce", "-b", "1M", "-e", "1M", *SHORT)
        self.assertIn(zfp.returncode, (0, 2) if "built without zfp" in zfp.err else (0,))
        done = run("coll", "--local", "2", "--codec", "int9", *SHORT)
        self.assertEqual(done.returncode, 2)
        self.assertIn("nearest: int", done.err)

    def test_planted_errors_are_counted(self):
        for dtype in ("f32", "f64", "bf16", "f16"):
            done = run("coll", "--local", "4", "--grid", "2x1x2x1", "--kind", "all", "--dtype", dtype, "-b", "64",
                       "-e", "4K", *SHORT, "--json", program=ARGUMENTS.planted)
            rows = json.loads(done.out)["rows"]
            self.assertEqual([row["wrong"] for row in rows], [4] * (2 * len(KINDS) * 4))
            twice = [row for row in rows if row["kind"] in BOTH]
            self.assertEqual([row["in_place_wrong"] for row in twice], [4] * (2 * 2 * 4))
            self.assertEqual(done.returncode, 4)
            self.assertIn(f"{4 * (len(rows) + len(twice))} results are wrong", done.err)

    @unittest.skipUnless("--mpiexec" in sys.argv, "no mpiexec")
    def test_under_mpi(self):
        words = ["coll", "--grid", "2x2x1x1", "--kind", "all", "-b", "12", "-e", "1M", "-f", "64", *SHORT]
        _, rows = self.rows(*words, before=[ARGUMENTS.mpiexec, "-n", "4"])
        self.assertEqual(len(rows), 2 * len(KINDS) * 3)
        for row in rows:
            self.check(row)
        done = run(*words, before=[ARGUMENTS.mpiexec, "-n", "4"], program=ARGUMENTS.planted)
        self.assertEqual(done.returncode, 4)


class Products(Case):
    def check(self, row):
        self.assert_times(row)
        flops = 2 * 24 * 20 * 16 * (2 if row["pass"] == "backward" else 1)
        self.assert_near(row["gflops"] * row["median_secs"], 1e-9 * flops)
        self.assertTrue(row["share"] > 0 and row["limit_median_secs"] > 0 and row["samples"] == 4, row)

    def test_codecs_of_linear(self):
        words = ("linear", *SHAPE, "--local", "4", "--panels", "1", "--grid")
        sends = ("x_bytes", "y_bytes", "z_bytes", "d_bytes")
        for grid in ("2x2x1x1", "2x1x2x1", "1x1x2x2"):
            for layout in ("replicated", "scattered"):
                _, plain = self.rows(*words, grid, "--layout", layout)
                _, coded = self.rows(*words, grid, "--layout", layout, "--codec", "int8,inside,least=1")
                for one, other in zip(plain, coded):
                    self.assertNotIn("codec", one)
                    self.assertEqual(other["codec"], "int8/128,least=1,inside")
                    self.assertTrue(any(one[axis] for axis in sends), one)
                    for axis in sends:
                        self.assertTrue(other[axis] < 0.5 * one[axis] or one[axis] == other[axis] == 0, (one, other))
        table = self.table(*words, "1x1x2x2", "--codec", "none")
        self.assertRegex(table[3], r"^grid +codec +pass +local m")
        self.assertRegex(table[-1], r"^1x1x2x2 +none +backward( +[0-9]+){3}( +[-0-9.]+){15} +4$")

    def test_axes_longer_than_the_product(self):
        _, rows = self.rows("linear", "-m", "1", "-n", "1", "-k", "1", "--local", "4", "--grid", "all", *SHORT)
        self.assertEqual(len({row["grid"] for row in rows}), 10)
        for row in rows:
            self.assert_times(row)

    def bytes_of(self, row):
        return [row[axis + "_bytes"] for axis in "xyzd"]

    def test_linear_counts_what_each_axis_sends(self):
        """f32, all sizes divisible: the table of docs/design.md, for M=24, N=20, K=16."""
        result, rows = self.rows("linear", *SHAPE, "--local", "4", "--grid", "all")
        self.assertEqual([result[key] for key in ("m", "n", "k", "dtype", "transposed", "bias")],
                         [24, 20, 16, "f32", 0, 0])
        self.assertEqual(len({row["grid"] for row in rows}), 10)
        self.assertEqual([row["pass"] for row in rows], ["forward", "backward"] * 10)
        for row in rows:
            self.check(row)
            x, y, z, d = map(int, row["grid"].split("x"))
            m, n, k = 24 // (z * d), 20 // y, 16 // x
            self.assertEqual((row["local_m"], row["local_n"], row["local_k"]), (m, n, k))
            w = 4 * n * k
            if row["pass"] == "forward":
                want = [2 * (x - 1) / x * 4 * m * n, 0, (z - 1) / z * w, 0]
            else:
                want = [0, 2 * (y - 1) / y * 4 * m * k, 2 * (z - 1) / z * w, 2 * (d - 1) / d * w / z]
            for got, exact in zip(self.bytes_of(row), want):
                # parts of a sum, and of a shard, consist of whole elements; the rank that sends most may send a few
                # more
                self.assertLessEqual(abs(got - exact), 64, row)
            for axis, got in zip("xyzd", self.bytes_of(row)):
                self.assertEqual(row[axis + "_secs"] > 0, got > 0)
            self.assertTrue(row["exposed_secs"] < row["p90_secs"])

    def test_linear_transposed(self):
        for grid, transposed in (("2x1x1x1", 0), ("1x2x1x1", 1)):
            _, rows = self.rows("linear", *SHAPE, "--local", "2", "--grid", grid, "--bias",
                                *["--transposed"] * transposed)
            self.assertEqual([(row["local_n"], row["local_k"]) for row in rows], [(20, 8)] * 2)
            self.assertEqual(max(self.bytes_of(rows[0])), 4 * 24 * 20)
            self.assertEqual(self.bytes_of(rows[0])[transposed], 4 * 24 * 20)

    def test_linear_scattered_as_csv_and_table(self):
        words = ["linear", *SHAPE, "--local", "4", "--grid", "2x2x1x1", "--layout", "scattered", "--panels", "2"]
        rows = list(csv.DictReader(run(*words, "--csv").out.splitlines()))
        self.assertEqual([(row["pass"], row["layout"], row["local_m"]) for row in rows],
                         [("forward", "scattered", "24"), ("backward", "scattered", "24")])
        table = self.table(*words, "--dtype", "bf16")
        self.assertIn("bf16, scattered, 4 ranks", table[0])
        self.assertRegex(table[-1], r"^2x2x1x1 +backward +24 +10 +8( +-?[0-9.]+){15} +4$")

    @unittest.skipUnless("--mpiexec" in sys.argv, "no mpiexec")
    def test_under_mpi(self):
        done = run("linear", *SHAPE, "--grid", "1x1x2x1", "--csv", before=[ARGUMENTS.mpiexec, "-n", "2"])
        self.assertEqual((done.returncode, done.err), (0, ""))
        self.assertEqual(len(done.out.splitlines()), 3)


class Codec(Case):
    def test_all(self):
        for dtype, codecs in (("f32", ["bf16", "int16/128", "int8/128", "int4/128"]), ("bf16", ["int8/128"])):
            result, rows = self.rows("codec", "--size", "1M", "--iterations", "1", "--warmup", "0", "--dtype", dtype)
            self.assertEqual((result["data"], result["type"]), ("gauss", dtype))
            by_codec = {row["codec"]: row for row in rows}
            self.assertLessEqual({*codecs, "lossless"}, set(by_codec))
            self.assertEqual("bf16" in by_codec, dtype == "f32")  # not shorter than the elements
            for row in rows:
                self.assertEqual((row["size_bytes"], row["samples"]), (1 << 20, 1))
                self.assert_near(row["ratio"] * row["wire_bytes"], 1 << 20)
                for rate in ("memcpy", "encode", "decode_add", "pays_below"):
                    self.assertGreater(row[f"{rate}_gbps"], 0)
                if row["codec"].startswith("zfp"):  # it cuts bits off, and has no bound
                    self.assertIsNone(row["bound_share"])
                    self.assertLess(row["relative_error"], 0.1)
                    continue
                self.assertTrue(0 <= row["bound_share"] <= 1, row)
                self.assertEqual(row["bound_share"] == 0, row["codec"] == "lossless")
                self.assertLess(abs(row["bias"]), 6)
            self.assertLess(by_codec["int8/128"]["relative_error"], 0.008 if dtype == "f32" else 0.01)

    def test_outliers(self):
        """Rotations spread them."""
        words = ("codec", "--size", "1M", "--data", "outliers", "--iterations", "1", "--codec")
        plain, rotated = (self.rows(*words, codec)[1][0]["relative_error"] for codec in ("int4", "int4+hadamard"))
        self.assertGreater(plain, 1.2 * rotated)

    def write_array(self, rows, columns, values, letter="f"):
        size = struct.calcsize(letter)
        header = f"{{'descr': '<f{size}', 'fortran_order': False, 'shape': ({rows}, {columns}), }}".encode()
        header += b" " * (-(len(header) + 11) % 64) + b"\n"
        return self.write("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header +
                          struct.pack(f"<{len(values)}{letter}", *values))

    def test_a_file(self):
        path = self.write_array(3, 50, [i / 150 for i in range(150)])
        _, rows = self.rows("codec", "--codec", "int8/64", "--data", path, "--iterations", "1")
        self.assertEqual([(row["size_bytes"], row["wire_bytes"]) for row in rows], [(600, 3 * 4 + 150)])
        self.assertGreater(rows[0]["bound_share"], 0.5)

    def test_refusals(self):
        for words, says in ((("--codec", "int9"), "int8"), (("--codec", "int8/33"), "33"), (("--dtype", "f64"), "f64"),
                            (("--data", "none.npy"), "none.npy"), (("--data", "none.npy", "--size", "1K"), "--size")):
            done = run("codec", *words)
            self.assertEqual((done.returncode, done.out), (2, ""), words)
            self.assertIn(says, done.err)
        for values, says in (([], "holds no elements"), ([1, 2, float("nan")], "element 2 of"),
                             ([1, float("inf")], "element 1 of")):
            for letter in "efd":
                done = run("codec", "--data", self.write_array(1, len(values), values, letter))
                self.assertEqual((done.returncode, done.out), (2, ""), (values, letter))
                self.assertIn(says, done.err)

    def test_huge_numbers(self):
        """Rotated blocks of them decode to NaN, which is allowed; the others keep their bounds."""
        for values in ([3.4e38] * 256, [3.4e38] + [0] * 255, [1e30, -1e30] * 128):
            path = self.write_array(1, 256, values)
            for codec in "int8/64+hadamard", "int8/256+hadamard", "int4/32+hadamard", "int8":
                _, rows = self.rows("codec", "--codec", codec, "--data", path, "--iterations", "1")
                self.assertLessEqual(rows[0]["bound_share"], 1)


class Layer(Case):
    def test_every_grid(self):
        result, rows = self.rows("layer", *LAYER, "--local", "4", "--grid", "all")
        self.assertEqual([result[name] for name in ("hidden", "heads", "context", "sequences", "layers", "ranks")],
                         [24, 6, 5, 4, 1, 4])
        self.assertEqual(len({row["grid"] for row in rows}), 10)
        self.assertEqual([row["pass"] for row in rows], ["forward", "backward", "together"] * 10)
        for row in rows:
            self.assert_times(row)
            self.assert_times(row, "serial_")
            self.assert_near(row["tokens_per_sec"] * row["median_secs"], 4 * 5)
            self.assertTrue(row["gain"] > 0 and row["share"] > 0 and row["limit_median_secs"] > 0
                            and row["samples"] == 4, row)
        for forward, backward, together in zip(rows[::3], rows[1::3], rows[2::3]):
            self.assertGreaterEqual(together["min_secs"], 0.999999 * (forward["min_secs"] + backward["min_secs"]))

    def test_ranks_without_heads(self):
        few = [word if word != "6" else "2" for word in LAYER]
        for grid in ("4x1x1x1", "1x4x1x1"):
            result, rows = self.rows("layer", *few, "--local", "4", "--grid", grid)
            self.assertEqual((result["heads"], len(rows)), (2, 3))
            for row in rows:
                self.assert_times(row)

    def test_levels(self):
        words = ("layer", *LAYER, "--local", "4", "--grid")
        _, rows = self.rows(*words, "1x1x2x2", "--levels", "node,all")
        self.assertEqual([row["levels"] for row in rows], ["4,4"] * 3)
        for row in rows:
            self.assert_times(row)
            self.assert_times(row, "serial_")
        _, rows = self.rows(*words, "all", "--levels", "zero1", "--iterations", "1")
        expected = {"1x1x1x4": "1,4", "1x1x2x2": "2,4", "2x1x1x2": "1,2", "1x2x1x2": "1,2", "1x1x4x1": "4,4"}
        levels = {row["grid"]: row["levels"] for row in rows}
        self.assertEqual(len(levels), 10)
        self.assertEqual({**levels, **expected}, levels)
        done = run(*words, "all", "--levels", "2,4", "--iterations", "1", "--json")  # where they nest
        self.assertEqual(done.returncode, 0)
        self.assertEqual({row["grid"] for row in json.loads(done.out)["rows"]}, {"1x1x1x4", "1x1x2x2"})
        self.assertEqual(done.err.count(" is left out: levels: "), 8)
        for grid, levels, says in (("all", "3,9", "suit no grid of 4 ranks"), ("all", "rack,all", "'rack,all'"),
                                   ("1x1x1x4", "zero3", "--grid 1x1xPx1"), ("1x1x1x4", "3,all", "such as 2 or 4")):
            done = run(*words, grid, "--levels", levels)
            self.assertEqual((done.returncode, done.out), (2, ""))
            self.assertIn(says, done.err)
        table = self.table(*words, "1x1x1x4", "--levels", "2,4", "--machine", "laptop")
        self.assertRegex(table[4], r"^grid +levels +pass +median")
        self.assertRegex(table[-1], r"^1x1x1x4 +2,4 +together( +[0-9.]+){10} +4( +[-0-9.]+){3}$")

    def test_layers_types_and_panels(self):
        for dtype, layout in (("f64", "scattered"), ("bf16", "replicated"), ("f16", "scattered")):
            words = ["layer", *LAYER, "--local", "2", "--grid", "1x2x1x1", "--layers", "3",
                     "--dtype", dtype, "--layout", layout, "--panels", "2", "--batch-parts", "2"]
            rows = list(csv.DictReader(run(*words, "--csv").out.splitlines()))
            self.assertEqual([(row["layers"], row["batch_parts"], row["dtype"], row["layout"]) for row in rows],
                             [("3", "2", dtype, layout)] * 3)
            table = self.table(*words)
            self.assertIn("3 transformer layers, hidden 24, 6 heads, 4 sequences of 5 tokens", table[0])
            self.assertRegex(table[-1], r"^1x2x1x1 +together( +[0-9.]+){10} +4$")

    @unittest.skipUnless("--mpiexec" in sys.argv, "no mpiexec")
    def test_under_mpi(self):
        _, rows = self.rows("layer", *LAYER, "--grid", "2x1x1x1", "--layout", "scattered",
                            before=[ARGUMENTS.mpiexec, "-n", "2"])
        self.assertEqual(len(rows), 3)


class Ckpt(Case):
    WORDS = ("ckpt", "--hidden", "24", "--heads", "6", "--layers", "2", "--iterations", "3")
    WHAT = ["rank", "all", "save", "held", "background", "load"]

    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.folder, "ckpt")

    def tearDown(self):
        self.assertEqual(os.listdir(self.folder), [])  # whatever happened

    def check(self, row, bytes_of):
        self.assert_times(row)
        self.assertEqual(row["samples"], 3)
        self.assert_near(row["bytes_per_sec"] * row["median_secs"], row["bytes"])
        self.assertEqual(row["bytes"], bytes_of[row["what"]])
        if row["what"] in ("rank", "all"):
            self.assertEqual((row["limit_median_secs"], row["limit_bytes_per_sec"], row["share"]), (None,) * 3)
        else:
            self.assert_near(row["limit_bytes_per_sec"] * row["limit_median_secs"], row["bytes"])
            self.assertGreater(row["share"], 0)

    def test_every_grid(self):
        """The file has all elements, three for each parameter; a rank alone writes a quarter of it."""
        result, rows = self.rows(*self.WORDS, "--local", "4", "--grid", "all", "--file", self.file)
        self.assertEqual([result[name] for name in ("hidden", "heads", "layers", "dtype", "ranks")],
                         [24, 6, 2, "f32", 4])
        self.assertEqual(len({row["grid"] for row in rows}), 10)
        self.assertEqual([row["what"] for row in rows], self.WHAT * 10)
        elements = 2 * 3 * 4 * (12 * 24 * 24 + 13 * 24)  # matrices; biases, and two norms
        for start in range(0, len(rows), 6):
            size = rows[start + 1]["bytes"]
            self.assertTrue(elements < size < elements + 16384, size)
            held = rows[start + 3]["bytes"]
            self.assertTrue(elements <= held <= elements + 4 * (64 + 262144), held)  # and bands of transposed shards
            for row in rows[start:start + 6]:
                self.check(row, {"rank": size // 4, "held": held, **dict.fromkeys(("all", "save", "background", "load"),
                                                                                  size)})
        all_secs = {(row["grid"], row["what"]): row["median_secs"] for row in rows}
        for row in rows:
            if row["what"] in ("save", "background"):
                self.assertEqual(row["limit_median_secs"], all_secs[row["grid"], "all"])

    def test_levels_types_and_formats(self):
        words = (*self.WORDS, "--local", "2", "--file", self.file)
        _, rows = self.rows(*words, "--dtype", "bf16", "--levels", "zero1")
        self.assertEqual([(row["grid"], row["levels"]) for row in rows], [("1x1x1x2", "1,2")] * 6)
        done = run(*words, "--csv")
        self.assertEqual([row["what"] for row in csv.DictReader(done.out.splitlines())], self.WHAT)
        lines = self.table(*words)
        self.assertEqual([line.split()[1] for line in lines[-6:]], self.WHAT)
        self.assertIn("rank_GBps", "".join(lines))

    def test_default_file(self):
        done = subprocess.run([os.path.abspath(ARGUMENTS.quadrille), "bench", *self.WORDS, "--local", "1"],
                              cwd=self.folder, capture_output=True, check=False, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_refused(self):
        for name in (self.file, self.file + ".plain"):
            self.write(name, "precious")
            done = run(*self.WORDS, "--local", "2", "--file", self.file)
            self.assertEqual((done.returncode, done.out), (2, ""))
            self.assertIn(f"{name} exists, and would be removed; name another --file", done.err)
            self.assertEqual(self.read(name), "precious")
            os.remove(name)
        done = run(*self.WORDS, "--local", "2", "--file", self.file + "/no/folder")
        self.assertEqual((done.returncode, done.out), (1, ""))
        self.assertIn("No such file or directory", done.err)
        done = run("ckpt", "--hidden", "25", "--local", "2", "--file", self.file)
        self.assertEqual((done.returncode, done.out), (2, ""))
        self.assertIn("8 heads do not divide --hidden 25", done.err)

    @unittest.skipUnless("--mpiexec" in sys.argv, "no mpiexec")
    def test_under_mpi(self):
        before = [ARGUMENTS.mpiexec, "-n", "3"]
        _, rows = self.rows(*self.WORDS, "--file", self.file, "--grid", "1x1x3x1", before=before)
        self.assertEqual([row["what"] for row in rows], self.WHAT)
        done = run(*self.WORDS, "--file", self.file + "/no", before=before)
        self.assertEqual((done.returncode, done.out, len(done.err.strip().splitlines())), (1, "", 1), done.err)

    def test_traced(self):
        """Of one rank: a warm-up and three repetitions, each with two saves and one load."""
        trace = os.path.join(self.folder, "trace")
        self.rows(*self.WORDS, "--file", self.file, "--local", "1", environment={"QDR_TRACE": trace})
        events = [e for e in json.loads(self.read(trace + ".0"))["traceEvents"]
                  if e["ph"] == "X" and e["args"]["stream"] == "file"]
        os.remove(trace + ".0")
        self.assertEqual([e["cat"] for e in events], ["write", "copy to host", "write", "read"] * 4)
        self.assertEqual({(e["name"], e["args"]["bytes"]) for e in events},
                         {("ckpt", 2 * 3 * 4 * (12 * 24 * 24 + 13 * 24))})


class Words(Case):
    def test_wrong_words(self):
        for words, says in (((), "use ckpt, codec, coll, layer or linear"), (("coal",), "coal"),
                            (("linear", "-m", "-1"), "-m"), (("linear", "-k", "0"), "-k"),
                            (("linear", "--local", "2", "--grid", "2x2x1x1"), "--local 4"),
                            (("linear", "--dtype", "int8"), "int8"), (("linear", "--layout", "round"), "round"),
                            (("linear", "--iterations", "0"), "iterations"),
                            (("linear", "--kind", "all"), "bench linear --help"),
                            (("linear", "--backward"), "--backward"),
                            (("linear", "-n", "none"), "-n"), (("linear", "--codec", "int9"), "nearest: int8"),
                            (("gemm",), "unknown benchmark"), (("coll", "--kind", "gather"), "reduce-scatter"),
                            (("coll", "--axis", "w"), "'w'"), (("coll", "--axis", ""), "axis"),
                            (("coll", "-b", "0"), "-b"), (("coll", "-e", "1T"), "1T"),
                            (("coll", "-e", "9999999999G"), "-e"), (("coll", "-b", "2K", "-e", "1K"), "2048"),
                            (("coll", "-f", "1"), "-f"), (("coll", "--memory", "ours"), "ours"),
                            (("coll", "--threads", "1"), "--threads"), (("layer", "--heads", "7"), "518"),
                            (("layer", "--hidden", "0"), "hidden"), (("layer", "--sequences", "x"), "sequences"),
                            (("layer", "--layers", "0"), "layers"), (("layer", "more"), "more"),
                            (("layer", *LAYER, "--levels", "rack,all"), "'rack,all'"),
                            (("layer", *LAYER, "--local", "4", "--levels", "3,4"), "gradients in 3 parts")):
            done = run(*words)
            self.assertEqual((done.returncode, done.out), (2, ""), words)
            self.assertIn(says, done.err)
            self.assertEqual(len(done.err.splitlines()), 1)

    @unittest.skipUnless("--mpiexec" in sys.argv, "no mpiexec")
    def test_wrong_words_once_under_mpi(self):
        on_ranks = ["linear", "--grid", "2x1x1x1"]
        for words in (["coal"], ["coll", "--axis", "w"], ["layer", "--heads", "7"], on_ranks):
            for device in ("cpu", "cuda"):
                done = run(*words, before=[ARGUMENTS.mpiexec, "-n", "3"],
                           environment={"QDR_DEVICE": device, "QDR_CUDA_PLUGIN": "/no/plugin.so"})
                lines = done.err.strip().splitlines()
                self.assertEqual((done.returncode, done.out), (2, ""), done.err)
                if device == "cuda" and words == on_ranks:  # no process has learnt its rank
                    self.assertTrue(lines and all("/no/plugin.so" in line for line in lines), lines)
                else:
                    self.assertEqual(len(lines), 1, lines)

    def test_help(self):
        overview = run("--help").out
        for name in ("ckpt", "coll", "layer", "linear"):
            self.assertRegex(overview, rf"(?m)^  {name} +\w")
            text = run(name, "--help").out
            self.assertIn(f"usage: quadrille bench {name} ", text)
            self.assertEqual(text, subprocess.run([ARGUMENTS.quadrille, "help", "bench", name],
                                                  capture_output=True).stdout.decode())


if __name__ == "__main__":
    cases.main("quadrille", "planted", "--mpiexec")
