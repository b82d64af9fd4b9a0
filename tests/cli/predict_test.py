#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`quadrille predict`: what it reads from tables of runs, what it prints and writes, and what it refuses.

usage: predict_test.py QUADRILLE DATA

DATA is the folder of machines/ and data/. Tables of measured runs are looked for in the folder that QDR_TEST_MEASURED
names, else in ../shared/measured next to the repository.
"""
import csv
import io
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import unittest

ARGUMENTS = sys.argv[1:3]
ADDED = ["predicted_time_s", "predicted_tflops_per_gpu", "predicted_mem_GB", "why_skipped"]
COLUMNS = ["source", "machine", "n_gpus", "model", "layers", "hidden", "heads", "seq", "vocab", "batch", "tp",
           "pp", "dp", "other_parallelism", "tflops_per_gpu", "iter_time_s", "notes"]
GPT = {"source": "here", "machine": "Quux 8x", "n_gpus": 8, "model": "small", "layers": 24, "hidden": 2048, "heads": 16,
       "seq": 1024, "vocab": 51200, "batch": 64, "tp": 1, "pp": 1, "dp": 8, "iter_time_s": 1, "notes": "microbatch 4"}
MACHINE = {"name": "test-quux", "based_on": "dgx-a100", "aliases": ["Quux"], "attention_efficiency": 0}


def run(*words, data=None, table=None):
    paths = ([data] if data else []) + [ARGUMENTS[1]]
    done = subprocess.run([ARGUMENTS[0], "predict", *words], input=table or b"", capture_output=True, timeout=120,
                          env={**os.environ, "QDR_DATA_PATH": ":".join(paths)})
    done.out, done.err = done.stdout.decode(), done.stderr.decode()
    return done


def as_csv(rows, columns=None, **dialect):
    text = io.StringIO()
    writer = csv.DictWriter(text, columns or COLUMNS, restval="", lineterminator="\n", **dialect)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        os.mkdir(self.path("machines"))
        self.write("machines/test-quux.json", json.dumps(MACHINE))

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return self.path(name)

    def run_table(self, text, *words):
        return run(self.write("runs.csv", text), *words, data=self.folder.name)

    def predicted(self, text, *words):
        """The rows of the table that it wrote, and the report."""
        done = self.run_table(text, "-o", self.path("out.csv"), "--json", *words)
        self.assertEqual((done.returncode, done.err), (0, ""), done.err)
        with open(self.path("out.csv"), newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file)), json.loads(done.out)

    def predict(self, *changes, words=()):
        """Rows that differ from GPT by the changes."""
        return self.predicted(as_csv([{**GPT, **change} for change in changes]), *words)[0]

    def secs(self, **change):
        row, = self.predict(change)
        self.assertEqual(row["why_skipped"], "")
        return float(row["predicted_time_s"])

    def why(self, **change):
        """Why the row is skipped; a second row is not."""
        row, other = self.predict(change, {})
        self.assertEqual([row[name] for name in ADDED[:3]], ["", "", ""])
        self.assertEqual(other["why_skipped"], "")
        return row["why_skipped"]

    def assert_refused(self, done, *parts, code=2):
        self.assertEqual(done.returncode, code, done.err)
        self.assertEqual(done.err.count("\n"), 1, done.err)
        for part in ("quadrille: ", *parts):
            self.assertIn(part, done.err)


class Rows(Case):
    def test_time_and_memory(self):
        row, = self.predict({})
        flops = 3 * 64 * 1024 * (24 * (24 * 2048 ** 2 + 4 * 1024 * 2048) + 2 * 51200 * 2048)
        secs = float(row["predicted_time_s"])
        self.assertGreater(secs, flops / 8 / 312e12)
        self.assertLess(secs, 10 * flops / 8 / 312e12)
        self.assertAlmostEqual(float(row["predicted_tflops_per_gpu"]), flops / secs / 8 / 1e12, delta=0.01)
        self.assertGreater(float(row["predicted_mem_GB"]), 16 * 1.3)

    def test_every_column_counts(self):
        secs = self.secs()
        for change in ({"layers": 12}, {"hidden": 1024}, {"seq": 512}, {"vocab": 25600}, {"batch": 32},
                       {"n_gpus": 16, "dp": 16}):
            self.assertLess(self.secs(**change), 0.97 * secs, change)
        self.assertNotEqual(self.secs(heads=32), secs)

    def test_ways(self):
        secs = self.secs()
        split = {"tp": 4, "dp": 2}
        others = [{"notes": "microbatch 4; full recompute"}, {"notes": "microbatch 1"}, split,
                  {**split, "other_parallelism": "sequence parallel"}, {"pp": 4, "dp": 2},
                  {"pp": 4, "dp": 2, "other_parallelism": "interleave 3"},
                  {"pp": 4, "dp": 2, "other_parallelism": "VP2"}, {"other_parallelism": "ZeRO-1"},
                  {"other_parallelism": "ZeRO-2"}, {"other_parallelism": "ZeRO-3"},
                  {"notes": "microbatch 4; selective recompute"}]
        rows = self.predict(*others)
        self.assertEqual([row["why_skipped"] for row in rows], [""] * len(others))
        seen = [(row["predicted_time_s"], row["predicted_mem_GB"]) for row in rows]
        self.assertEqual(len(set(seen)), len(seen), seen)
        self.assertNotIn(f"{secs:.6g}", [row["predicted_time_s"] for row in rows[:6]])

    def test_spellings_of_one_way(self):
        for spellings in ([{"notes": "micro batch 2"}, {"notes": "Microbatch 2"}, {"notes": "grad acc 4"},
                           {"notes": "grad accum 4, x"}, {"notes": "micro-batch size: 2"}, {"notes": "mbs=2"}],
                          [{"notes": "mbs 4; " + words} for words in ("full recompute", "full activation recompute",
                                                                      "Full checkpointing", "ckpt=True")],
                          [{"other_parallelism": words} for words in ("ZeRO-3", "FSDP", "zero 3", "FSDP FULL_SHARD")],
                          [{"other_parallelism": words} for words in ("ZeRO-2", "FSDP SHARD_GRAD_OP")],
                          [{"dp": ""}, {"dp": "8.0"}, {}],
                          [{"batch": "", "notes": "local batch 8"}, {"notes": "mbs 8"}]):
            rows = self.predict(*spellings)
            self.assertEqual({row["why_skipped"] for row in rows}, {""}, rows)
            self.assertEqual(len({(row["predicted_time_s"], row["predicted_mem_GB"]) for row in rows}), 1, rows)

    def test_measured_time_from_notes(self):
        """All of these took half a second; the error shows which time a row was given."""
        flops = 3 * 64 * 1024 * (24 * (24 * 2048 ** 2 + 4 * 1024 * 2048) + 2 * 51200 * 2048)
        again = flops + 64 * 1024 * 24 * (24 * 2048 ** 2 + 4 * 1024 * 2048)
        each = {"iter_time_s": "", "notes": "mbs 4"}
        _, want = self.predicted(as_csv([{**GPT, "iter_time_s": 0.5}]))
        for change in ({"notes": "mbs 4; 131072 tokens/s"}, {"notes": "mbs 4; 131.072k tokens/s"},
                       {"notes": "mbs 4; 16384 tokens/s/GPU"}, {"notes": "mbs 4; 16384 tok/s/gpu"},
                       {"notes": "mbs 4; 16384 tokens/s (per GPU)"}, {"tflops_per_gpu": flops / 0.5 / 8e12}):
            _, got = self.predicted(as_csv([{**GPT, **each, **change}]))
            self.assertAlmostEqual(got["all"]["mape"], want["all"]["mape"], places=6, msg=change)
        _, full = self.predicted(as_csv([{**GPT, "iter_time_s": 0.5, "notes": "mbs 4; full recompute"}]))
        _, got = self.predicted(as_csv([{**GPT, **each, "tflops_per_gpu": again / 0.5 / 8e12,
                                         "notes": "mbs 4; full recompute; FLOPs formula with it"}]))
        self.assertAlmostEqual(got["all"]["mape"], full["all"]["mape"], places=6)

    def test_skipped(self):
        for change, words in (({"other_parallelism": "FP8"}, "FP8"), ({"notes": "Float8"}, "FP8"),
                              ({"other_parallelism": "CP2"}, "context parallelism"),
                              ({"other_parallelism": "EP 4"}, "expert parallelism"),
                              ({"tp": ""}, "tp is missing"), ({"layers": ""}, "layers is missing"),
                              ({"vocab": ""}, "vocab is missing"), ({"seq": ""}, "seq is missing"),
                              ({"batch": ""}, "batch is missing"), ({"n_gpus": ""}, "n_gpus is missing"),
                              ({"n_gpus": 12}, "not tp · pp · dp"), ({"dp": 4}, "not tp · pp · dp = 1 · 1 · 4"),
                              ({"tp": "two"}, "line 2, column 'tp': 'two' is not a number"),
                              ({"tp": "1.5"}, "line 2, column 'tp': 1.5 is not a whole number"),
                              ({"iter_time_s": ""}, "no time"), ({"iter_time_s": 500}, "utilisation below 0.5 %"),
                              ({"pp": 8, "dp": 1, "layers": 4}, "stages"), ({"machine": ""}, "--machine"),
                              ({"machine": "Abacus"}, "Abacus")):
            self.assertIn(words, self.why(**change), change)

    def test_machine_for_all(self):
        one, two = self.predict({"machine": ""}, {"machine": "Abacus"}, words=["--machine", "test-quux"])
        self.assertEqual(one["predicted_time_s"], two["predicted_time_s"])
        self.assertEqual(float(one["predicted_time_s"]), self.secs())
        path = self.write("mine.json", json.dumps({**MACHINE, "memory_efficiency": 0.1}))
        row, = self.predict({}, words=["-m", path])
        self.assertGreater(float(row["predicted_time_s"]), self.secs())

    def test_settings(self):
        secs = self.secs()
        row, = self.predict({}, words=["--set", "bf16.most=0.4"])
        self.assertGreater(float(row["predicted_time_s"]), 1.3 * secs)
        mine, other = self.predict({}, {"machine": "DGX A100"}, words=["--set", "test-quux:bf16.most=0.4",
                                                                       "--set", "dgx-a100:bf16.most=0.1"])
        self.assertEqual(mine["predicted_time_s"], row["predicted_time_s"])
        self.assertGreater(float(other["predicted_time_s"]), 2 * float(mine["predicted_time_s"]))
        done = self.run_table(as_csv([GPT, {**GPT, "machine": "DGX A100"}, GPT]), "--set", "dgx-h100:bf16.most=0.4")
        self.assert_refused(done, "dgx-h100:bf16.most", "are test-quux, dgx-a100\n")
        both, = self.predict({}, words=["--set", "bf16.most=0.4", "--set", "links[0].rank_GBps=10"])
        self.assertGreater(float(both["predicted_time_s"]), float(row["predicted_time_s"]))


class Tables(Case):
    def test_any_shape_of_table(self):
        """Order of columns, unknown columns, line ends, a byte order mark, quotes."""
        rows = [{**GPT, "more, of it": 'says "so"\ntwice'}, {**GPT, "tp": 2, "dp": 4, "more, of it": "ü"}]
        want, _ = self.predicted(as_csv(rows, COLUMNS + ["more, of it"]))
        self.assertEqual([row["more, of it"] for row in want], ['says "so"\ntwice', "ü"])
        self.assertEqual(list(want[0]), COLUMNS + ["more, of it"] + ADDED)
        text = as_csv(rows, ["more, of it"] + COLUMNS[::-1], quoting=csv.QUOTE_ALL)
        for changed in (text, "\ufeff" + text, text.replace("\n", "\r\n").replace("so\"\"\r\n", "so\"\"\n"),
                        text.rstrip("\n")):
            got, _ = self.predicted(changed)
            self.assertEqual(got, [{key: row[key] for key in got[0]} for row in want])

    def test_again(self):
        """The file written is again a table of runs; new predictions replace those in it."""
        rows, report = self.predicted(as_csv([GPT, {**GPT, "tp": 3}]))
        with open(self.path("out.csv"), encoding="utf-8") as file:
            text = file.read()
        again, same = self.predicted(text)
        self.assertEqual((again, same), (rows, report))

    def test_few_columns(self):
        columns = ["n_gpus", "batch", "iter_time_s", "layers", "hidden", "heads", "vocab", "seq"]
        rows, _ = self.predicted(as_csv([{key: GPT[key] for key in columns}], columns), "-m", "test-quux")
        self.assertEqual(rows[0]["why_skipped"], "")

    def test_standard_input(self):
        done = run("-", "-m", "test-quux", data=self.folder.name, table=as_csv([GPT]).encode())
        self.assertEqual((done.returncode, done.err), (0, ""))
        self.assertIn("standard input", done.out)

    def test_columns_that_are_missing(self):
        for column in ("n_gpus", "batch"):
            done = self.run_table(as_csv([{}], [name for name in COLUMNS if name != column]))
            self.assert_refused(done, f"no column '{column}'", "'source', 'machine', ", "and 11 more", "commas")
        self.assert_refused(self.run_table("n_gpus,batch\n1,2\n"), "nothing was measured", "iter_time_s",
                            "'n_gpus', 'batch'")
        self.assert_refused(self.run_table("n_gpus;b\u00e4tch\n1;2\n"), "only 'n_gpus;b??tch'; ", "commas between")

    def test_names_of_columns(self):
        columns = [name.upper() if number % 2 else f"  {name} " for number, name in enumerate(COLUMNS)]
        rows, _ = self.predicted(as_csv([dict(zip(columns, (GPT.get(name, "") for name in COLUMNS)))], columns))
        self.assertEqual(float(rows[0]["predicted_time_s"]), self.secs())
        two = ["Batch", *COLUMNS]
        rows, _ = self.predicted(as_csv([{**GPT, "Batch": 3}], two))
        self.assertEqual(float(rows[0]["predicted_time_s"]), self.secs())

    def test_tables_that_are_wrong(self):
        for text, parts in (("", ["it is empty"]), ("a,b\n1\n", ["line 2, column 1", "1 cells"]),
                            ('a,b\n1,"2\n', ["line 2, column 2 (b)", "not closed"]),
                            (as_csv([]), ["no rows"]), (b"a\n\0\n", ["line 2, column 1 (a)", "zero byte"])):
            self.assert_refused(self.run_table(text), "runs.csv", *parts)

    def test_nothing_to_predict(self):
        done = self.run_table(as_csv([{**GPT, "tp": ""}]))
        self.assert_refused(done, "no row could be predicted", "tp is missing", code=1)

    def test_own_input_is_kept(self):
        path = self.write("runs.csv", as_csv([GPT]))
        os.symlink(path, self.path("link.csv"))
        for name in ("runs.csv", "link.csv"):
            self.assert_refused(self.run_table(as_csv([GPT]), "-o", self.path(name)), "name the same file")
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), as_csv([GPT]))
        done = self.run_table(as_csv([GPT]), "-o", "-")
        self.assert_refused(done, "--out -", "name a file")
        self.assertEqual(done.out, "")

    def test_usage(self):
        good = self.write("runs.csv", as_csv([GPT]))
        for words, parts in (([], ["--help"]), ([good, "--colour"], ["--colour"]), ([self.path("no.csv")], ["no.csv"]),
                             ([good, "more"], ["'more'"]), ([good, "--set", "x"], ["KEY=VALUE"]),
                             ([good, "--set", "bf16.most=much"], ["KEY=VALUE"]), ([good, "--set", "=1"], ["KEY=VALUE"]),
                             ([good, "--set", "bf16.mots=1"], ["bf16.most"]),
                             ([good, "--set", "bf16.most=7"], ["bf16.most"]), ([good, "-m", "dgx-a10"], ["dgx-a100"]),
                             ([good, "-m", self.path("no.json")], ["no.json"]),
                             ([good, "-o", self.path("no/out.csv")], ["no/out.csv"]),
                             ([self.folder.name], [self.folder.name])):
            self.assert_refused(run(*words, data=self.folder.name), *parts)

    def test_help(self):
        done = run("--help")
        self.assertEqual((done.returncode, done.err), (0, ""))
        self.assertIn("Examples:", done.out)
        self.assertIn("--set KEY=VALUE", done.out)


class Assumed(Case):
    def assume(self, *entries):
        return ["--assume", self.write("mine.json", json.dumps({"entries": list(entries)}))]

    def test_first_entry_that_fits(self):
        words = self.assume({"source": "here", "model": "Small", "vocab": 51200, "reason": "a"},
                            {"source": "he", "vocab": 1024, "hidden": 64, "reason": "b"},
                            {"source": "there", "vocab": 9, "reason": "c"})
        rows, report = self.predicted(as_csv([{**GPT, "vocab": ""}]), *words)
        self.assertEqual(float(rows[0]["predicted_time_s"]), self.secs())
        self.assertEqual(report["assumed"],
                         [{"source": "here", "model": "Small", "values": "vocab 51200", "reason": "a", "rows": 1}])

    def test_what_replaces(self):
        words = self.assume({"source": "here", "layers": 12, "replaces": True, "reason": "a typing error"})
        rows, _ = self.predicted(as_csv([GPT]), *words)
        self.assertEqual(float(rows[0]["predicted_time_s"]), self.secs(layers=12))

    def test_fields_change_predictions(self):
        text = as_csv([{**GPT, "tp": 4, "dp": 2}, {**GPT, "notes": "", "pp": 2, "dp": 4}])
        base = self.predicted(text, *self.assume())[0]
        for field, value in (("kv_heads", 4), ("head_size", 64), ("ffn", 2048), ("gated", 1), ("tied", 0),
                             ("norm", "rms"), ("biases", 0), ("learned_positions", 0), ("micro_batch", 2),
                             ("interleave", 2), ("zero", 3), ("recompute", "full"), ("layout", "scattered"),
                             ("overlap", "none"), ("machine", "dgx-a100")):
            entry = {"source": "", field: value, "reason": "why not", "replaces": field == "machine"}
            rows, report = self.predicted(text, *self.assume(entry))
            self.assertEqual(len(report["assumed"]), 1, field)
            self.assertEqual({row["why_skipped"] for row in rows}, {""}, field)
            same = [[row[name] for name in ADDED] for row in rows] == [[row[name] for name in ADDED] for row in base]
            self.assertFalse(same, field)

    def test_networks_by_name(self):
        words = self.assume({"source": "here", "network": "gpt2", "reason": "its name"})
        rows, _ = self.predicted(as_csv([{**GPT, "layers": "", "hidden": "", "heads": "", "vocab": "",
                                          "iter_time_s": 0.1}]),
                                 *words)
        self.assertEqual(float(rows[0]["predicted_time_s"]), self.secs(layers=12, hidden=768, heads=12, vocab=50257,
                                                                        iter_time_s=0.1))

    def test_skipped_by_entry(self):
        words = self.assume({"source": "here", "model": "bad", "skip": "it was broken"})
        rows, report = self.predicted(as_csv([GPT, {**GPT, "model": "bad"}]), *words)
        self.assertEqual([row["why_skipped"] for row in rows], ["", "it was broken"])
        self.assertEqual(report["skipped"], [{"why": "it was broken", "rows": 1}])

    def test_wrong_files(self):
        for entries, part in (([{"vocab": 3, "reason": "x"}], "a source"), ([{"source": "", "vocab": 3}], "a reason"),
                              ([{"source": "", "vocap": 3, "reason": "x"}], "'vocap' is unknown"),
                              ([{"source": "", "vocab": "3", "reason": "x"}], "entry 1: key 'vocab'"),
                              ([{"source": "", "vocab": 0, "reason": "x"}], "key 'vocab'"),
                              ([{"source": "", "overlap": "some", "reason": "x"}], "key 'overlap'"),
                              ([{"source": "", "network": "gpt2-huge", "reason": "x"}], "gpt2-large"),
                              ([3], "entry 1")):
            self.assert_refused(self.run_table(as_csv([GPT]), *self.assume(*entries)), part)
        for text, part in (("{", "line 1"), ("{}", "'entries'")):
            self.assert_refused(self.run_table(as_csv([GPT]), "--assume", self.write("mine.json", text)),
                                "mine.json", part)


# ---- expected scores ----

def ranks(values):
    return [sum(other < value for other in values) + (1 + sum(other == value for other in values)) / 2
            for value in values]


def spearman(a, b):
    a, b = ranks(a), ranks(b)
    mean = sum(a) / len(a)
    ab = sum((x - mean) * (y - mean) for x, y in zip(a, b))
    norm = math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))
    return ab / norm if norm else None


def kendall(a, b):
    signs = [((x > y) - (x < y), (v > w) - (v < w)) for (x, v), (y, w) in itertools.combinations(zip(a, b), 2)]
    norm = math.sqrt(sum(x != 0 for x, _ in signs) * sum(y != 0 for _, y in signs))
    return sum(x * y for x, y in signs) / norm if norm else None


def regrets(predicted, measured):
    chosen = [m for p, m in zip(predicted, measured) if p == min(predicted)]
    best = min(measured)
    return sum(m == best for m in chosen) / len(chosen), sum(chosen) / len(chosen) / best - 1


def mean(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values) if values else None


def scores_of(groups):
    """Of lists of (predicted, measured)."""
    rows = [row for group in groups for row in group]
    large = [tuple(zip(*group)) for group in groups if len(group) >= 4]
    choices = [regrets(p, m) for p, m in large]
    return {"n": len(rows), "mape": mean([abs(p - m) / m for p, m in rows]), "groups": len(large),
            "spearman": mean([spearman(p, m) for p, m in large]), "kendall": mean([kendall(p, m) for p, m in large]),
            "top1": mean([hit for hit, _ in choices]), "mean_regret": mean([regret for _, regret in choices]),
            "max_regret": max([regret for _, regret in choices], default=None)}


class Scores(Case):
    def compare(self, got, want, digits=4):
        for key, value in want.items():
            if value is None:
                self.assertIsNone(got[key], key)
            else:
                self.assertAlmostEqual(got[key], value, digits, key)

    def runs(self):
        ways = [(1, 1, 8), (2, 1, 4), (4, 1, 2), (8, 1, 1), (2, 2, 2), (1, 2, 4)]
        for number, (tp, pp, dp) in enumerate(ways):
            grid = {**GPT, "tp": tp, "pp": pp, "dp": dp}
            yield {**grid, "iter_time_s": 0.5 + 0.1 * (number * 5 % 7)}
            yield {**grid, "batch": 32, "iter_time_s": 0.2 + 0.1 * (number * 3 % 5), "notes": "mbs 2; mem 20 GB"}
            if number < 3:
                yield {**grid, "source": "there", "iter_time_s": 1 + number}
            yield {**grid, "source": "yonder", "model": "x", "iter_time_s": 0.7}
        yield {**GPT, "source": "there", "tp": ""}

    def test_against_definitions(self):
        rows, report = self.predicted(as_csv(self.runs()))
        groups = {}
        for row in rows:
            if not row["why_skipped"]:
                key = tuple(row[name] for name in ("source", "model", "n_gpus", "layers", "hidden", "batch", "seq"))
                groups.setdefault(key, []).append((float(row["predicted_time_s"]), float(row["iter_time_s"])))
        self.assertEqual(sorted(len(group) for group in groups.values()), [3, 6, 6, 6])
        self.compare(report["all"], {**scores_of(list(groups.values())), "skipped": 1})
        for source in report["sources"]:
            self.compare(source, scores_of([group for key, group in groups.items() if key[0] == source["source"]]))
        self.assertEqual({source["source"]: source["skipped"] for source in report["sources"]},
                         {"here": 0, "there": 1, "yonder": 0})
        self.assertEqual(len(report["groups"]), 3)
        for group in report["groups"]:
            key = (*(str(group[name]) for name in ("source", "model")), "8", "24", "2048", str(group["batch"]), "1024")
            self.compare(group, scores_of([groups[key]]))

    def test_memory(self):
        rows, report = self.predicted(as_csv([{**GPT, "notes": f"mbs 4; mem {size} GB"} for size in (20, 30, 60)] +
                                             [{**GPT, "notes": "mbs 4; 40 GiB"}, {**GPT, "notes": "microbatch 64"}]))
        sizes = [20, 30, 60, 40]
        errors = sorted(abs(float(row["predicted_mem_GB"]) - size) / size for row, size in zip(rows, sizes))
        self.compare(report["all"], {"n_memory": 4, "memory_error": (errors[1] + errors[2]) / 2})
        fits = [float(row["predicted_mem_GB"]) <= 79.15 for row in rows]
        self.compare(report["all"], {"no_fit": fits.count(False) / 5})

    def test_text(self):
        done = self.run_table(as_csv(self.runs()), "--groups")
        self.assertEqual((done.returncode, done.err), (0, ""))
        lines = [line for line in done.out.splitlines() if line and not line.startswith("#")]
        self.assertEqual([line.split()[0] for line in lines if not line.startswith(" ")],
                         ["source", "here", "yonder", "there", "all"])
        self.assertIn("1 row: tp is missing", done.out)
        self.assertEqual(done.out.count("# group "), 3)


class Measured(Case):
    """The runs measured by others, if their tables are available."""

    def test_training_runs(self):
        root = os.path.dirname(os.path.abspath(ARGUMENTS[1]))
        folder = os.environ.get("QDR_TEST_MEASURED", os.path.join(root, "..", "shared", "measured"))
        path = os.path.join(folder, "training_runs.csv")
        if not os.path.exists(path):
            self.skipTest(f"{path} is not there; set QDR_TEST_MEASURED to its folder")
        begin = time.monotonic()
        done = run(path, "-o", self.path("out.csv"), "--json")
        print(f"{time.monotonic() - begin:.2f} s", file=sys.stderr)
        self.assertEqual((done.returncode, done.err), (0, ""))
        with open(path, newline="", encoding="utf-8") as file:
            measured = list(csv.DictReader(file))
        with open(self.path("out.csv"), newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([{key: row[key] for key in measured[0]} for row in rows], measured)
        for row in rows:
            self.assertNotEqual(bool(row["predicted_time_s"]), bool(row["why_skipped"]), row)
            if row["predicted_time_s"]:
                self.assertGreater(float(row["predicted_time_s"]), 0)
                self.assertGreater(float(row["predicted_mem_GB"]), 0)
        report = json.loads(done.out)
        self.assertEqual(report["all"]["n"] + report["all"]["skipped"], len(rows))
        self.assertEqual(report["all"]["n"], sum(not row["why_skipped"] for row in rows))
        vtrain = [source for source in report["sources"] if source["source"].startswith("vTrain")]
        self.assertEqual(sum(source["n"] for source in vtrain), 699)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
