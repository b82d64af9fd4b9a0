#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`quadrille predict`: what it reads from tables of runs, what it prints and writes, and what it refuses.

usage: predict_test.py QUADRILLE DATA

DATA is the folder of machines/ and models/.
"""
import csv
import io
import itertools
import json
import math
import os

import cases
from cases import ARGUMENTS, start

ADDED = ["predicted_secs", "predicted_memory_gib", "expected_secs", "state", "why_skipped"]
COLUMNS = ["source", "machine", "model", "step_secs", "memory_gib", "skip", "gpus", "tp", "pp", "dp", "cp", "ep",
           "zero", "shards", "interleave", "layout", "overlap", "recompute", "dtype", "batch", "micro_batch",
           "sequence", "layers", "hidden", "heads", "vocab", "kv_heads", "head_size", "ffn", "gated", "tied",
           "learned_positions", "biases", "norm", "software", "levels", "date", "url", "note"]
SHAPE = ("layers", "hidden", "heads", "vocab", "sequence")
NONE = dict.fromkeys(SHAPE, "")
GPT = {"source": "here", "machine": "Quux 8x", "gpus": 8, "model": "small", "layers": 24, "hidden": 2048, "heads": 16,
       "sequence": 1024, "vocab": 51200, "batch": 64, "micro_batch": 4, "step_secs": 1}
MACHINE = {"name": "test-quux", "based_on": "dgx-a100", "aliases": ["Quux"], "attention_efficiency": 0}


def run(*words, data=None, table=""):
    paths = ([data] if data else []) + [ARGUMENTS.data]
    return start(ARGUMENTS.quadrille, "predict", *words, input=table, environment={"QDR_DATA_PATH": ":".join(paths)})


def as_csv(rows, columns=None, **dialect):
    text = io.StringIO()
    writer = csv.DictWriter(text, columns or COLUMNS, restval="", lineterminator="\n", **dialect)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


class Case(cases.Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("machines"))
        self.write("machines/test-quux.json", json.dumps(MACHINE))

    def run_table(self, text, *words):
        return run(self.write("runs.csv", text), *words, data=self.folder)

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
        return float(row["predicted_secs"])

    def why(self, **change):
        """Why the row is skipped; a second row is not."""
        row, other = self.predict(change, {})
        self.assertEqual([row[name] for name in ADDED[:2]], ["", ""])
        self.assertEqual(other["why_skipped"], "")
        return row["why_skipped"]

    def refused(self, *parts, **change):
        self.assert_refused(self.run_table(as_csv([GPT, {**GPT, **change}])), "runs.csv, line 3, column '", *parts)

    def assert_refused(self, done, *parts, code=2):
        self.assertEqual(done.returncode, code, done.err)
        self.assertEqual(done.err.count("\n"), 1, done.err)
        for part in ("quadrille: ", *parts):
            self.assertIn(part, done.err)


class Rows(Case):
    def test_time_and_memory(self):
        row, = self.predict({})
        flops = 3 * 64 * 1024 * (24 * (24 * 2048 ** 2 + 4 * 1024 * 2048) + 2 * 51200 * 2048)
        secs = float(row["predicted_secs"])
        self.assertGreater(secs, flops / 8 / 312e12)
        self.assertLess(secs, 10 * flops / 8 / 312e12)
        self.assertGreater(float(row["predicted_memory_gib"]), 16 * 1.3)

    def test_every_column_counts(self):
        secs = self.secs()
        for change in ({"layers": 12}, {"hidden": 1024}, {"sequence": 512}, {"vocab": 25600}, {"batch": 32},
                       {"gpus": 16}):
            self.assertLess(self.secs(**change), 0.97 * secs, change)
        self.assertNotEqual(self.secs(heads=32), secs)

    def test_ways(self):
        split, stages = {"tp": 4}, {"pp": 4}
        changes = [{}, {"recompute": "full"}, {"recompute": "attention"}, {"micro_batch": 1}, split,
                   {**split, "layout": "scattered"}, stages, {**stages, "interleave": 3}, {**stages, "interleave": 2},
                   {"zero": 1}, {"zero": 2}, {"zero": 3}, {"zero": 3, "shards": 4}, {"dtype": "f32"}, {"kv_heads": 4},
                   {"head_size": 64}, {"ffn": 2048}, {"gated": 1}, {"tied": 0}, {"norm": "rms"}, {"biases": 0},
                   {"learned_positions": 0}, {"overlap": "none"}, {"overlap": "weights"}, {"levels": "2,8"},
                   {"cp": 2}, {"cp": 4}, {**split, "cp": 2}, {"zero": 3, "levels": "8,8", "shards": 4}]
        rows = self.predict(*changes)
        self.assertEqual({row["why_skipped"] for row in rows}, {""}, rows)
        seen = [(row["predicted_secs"], row["predicted_memory_gib"]) for row in rows]
        for i, j in itertools.combinations(range(len(seen)), 2):
            if changes[j] != {"overlap": "weights"}:  # of which nothing is to be seen where weights are not split
                self.assertNotEqual(seen[i], seen[j], (changes[i], changes[j]))

    def test_defaults(self):
        """An empty cell is as good as its default."""
        for change in ({"tp": 1, "pp": 1, "dp": 8, "cp": 1, "ep": 1}, {"dp": "8.0"}, {"zero": 0, "interleave": 1},
                       {"kv_heads": 16, "head_size": 128, "ffn": 8192, "gated": 0, "tied": 1, "biases": 1},
                       {"learned_positions": 1, "norm": "layer"}, {"recompute": "none", "dtype": "bf16"},
                       {"overlap": "all"}, {"overlap": "default"}, {"layout": "replicated"}, {"source": ""}):
            self.assertEqual(self.secs(**change), self.secs(), change)
        self.assertEqual(self.secs(micro_batch=""), self.secs(micro_batch=1))
        self.assertEqual(self.secs(zero=3), self.secs(zero=3, shards=8))
        self.assertEqual(self.secs(tp=2, dp=""), self.secs(tp=2, dp=4))

    def test_copies_of_shards(self):
        """Less memory than with copies alone, more than if everything is split."""
        rows = self.predict(*[{"gpus": 32, **way} for way in ({}, {"zero": 3, "shards": 8}, {"zero": 3, "shards": 16},
                                                              {"zero": 3})])
        memory = [float(row["predicted_memory_gib"]) for row in rows]
        self.assertEqual(sorted(memory, reverse=True), memory)
        self.assertEqual(len(set(memory)), 4)

    def test_skipped(self):
        for change, words in (({"dtype": "fp8"}, "FP8"), ({"ep": 4}, "expert parallelism"),
                              ({"skip": "it was broken"}, "it was broken"),
                              ({"skip": "it was empty", "gpus": "", "batch": "", "step_secs": "", **NONE}, "was empty"),
                              ({"dtype": "fp8", "gpus": "", "step_secs": ""}, "FP8"),
                              ({"step_secs": 500}, "utilisation below 0.5 %"), ({"pp": 8, "layers": 4}, "stages")):
            self.assertIn(words, self.why(**change), change)

    def test_refused(self):
        """Each mistake with its line, its column and what to do."""
        fill = "it is empty or missing; fill it in, or"
        for change, parts in (({"tp": "two"}, ["tp': 'two' is not a whole number from 1 to 1000000"]),
                              ({"tp": "1.5"}, ["tp': '1.5' is not a whole number"]), ({"tp": 0}, ["tp': '0' is not"]),
                              ({"gated": 2}, ["gated': '2' is not a whole number from 0 to 1"]),
                              ({"step_secs": -1}, ["step_secs': '-1' is not a number above 0 and up to"]),
                              ({"step_secs": "nan"}, ["step_secs': 'nan' is not"]),
                              ({"memory_gib": "35.0 GB"}, ["memory_gib': '35.0 GB' is not a number"]),
                              ({"recompute": "ckpt=True"}, ["recompute': 'ckpt=True'", "one of none, attention, full"]),
                              ({"overlap": "some"}, ["overlap': 'some'", "weights+rows"]),
                              ({"gpus": 12, "dp": 8}, ["gpus': 12 is not tp * pp * cp * dp = 1 * 1 * 1 * 8"]),
                              ({"gpus": 9, "tp": 2}, ["gpus': 9 is not tp * pp * cp * dp = 2 * 1 * 1 * 4"]),
                              ({"gpus": 2, "tp": 4}, ["gpus': 2 is not tp * pp * cp * dp = 4 * 1 * 1 * 1"]),
                              ({"shards": 4}, ["shards': ", "zero 3 only"]),
                              ({"zero": 3, "shards": 3}, ["shards': 3 does not divide cp * dp = 8"]),
                              ({"gpus": ""}, ["gpus'", fill]), ({"batch": ""}, ["batch'", fill]),
                              ({"step_secs": ""}, ["step_secs'", fill, "'skip'"]), ({"machine": ""}, ["--machine"]),
                              ({"machine": "Abacus"}, ["machine': ", '"Abacus"'])):
            self.refused(*parts, **change)
        for column in SHAPE:
            self.refused(f"{column}': it is empty or missing", "known model", **{column: ""})
        self.refused("model': ", "fill in layers", **NONE)

    def test_machine_for_all(self):
        one, two = self.predict({"machine": ""}, {"machine": "Abacus"}, words=["--machine", "test-quux"])
        self.assertEqual(one["predicted_secs"], two["predicted_secs"])
        self.assertEqual(float(one["predicted_secs"]), self.secs())
        path = self.write("mine.json", json.dumps({**MACHINE, "memory_efficiency": 0.1}))
        row, = self.predict({}, words=["-m", path])
        self.assertGreater(float(row["predicted_secs"]), self.secs())

    def test_files(self):
        """Machines and software by path."""
        machine = self.write("mine.json", json.dumps({**MACHINE, "bf16": {"most": 0.4}}))
        software = self.write("soft.json", json.dumps({"name": "soft", "aliases": ["Soft 3"],
                                                       "factors": {"products": 0.5, "attention": 1}}))
        named, mine, slow, both, _ = rows = self.predict({}, {"machine": machine}, {"software": software},
                                                         {"machine": machine, "software": software},
                                                         {"software": "nemo"})
        self.assertEqual([row["why_skipped"] for row in rows], [""] * 5)
        secs = [float(row["predicted_secs"]) for row in (named, mine, slow, both)]
        self.assertGreater(min(secs[1:3]), 1.3 * secs[0])
        self.assertGreater(secs[3], 1.3 * max(secs[1:3]))
        os.mkdir(self.path("software"))
        os.rename(software, self.path("software/soft.json"))
        by_alias, by_option = self.predict({"software": "soft 3.1"}, {"software": "Nemo"})[0], \
            self.predict({}, words=["--software", "soft"])[0]
        self.assertEqual({row["predicted_secs"] for row in (by_alias, by_option)}, {slow["predicted_secs"]})
        self.refused("software'", "no software is named \"sift\"", "nearest: \"soft\"", software="sift")
        self.refused("software'", "none.json", software=self.path("none.json"))

    def test_states(self):
        """The nearest counts, by ratio; the mean is told, and how likely the nearest was."""
        states = [{"of_pipelines": 1, "stage_us": 5e4, "on_1_node": 0.5, "on_4_nodes": 0.25}]
        machine = self.write("slow.json", json.dumps({**MACHINE, "states": states}))
        pipeline = {"machine": machine, "gpus": 32, "pp": 4, "batch": 64, "micro_batch": 1}
        named, _ = self.predict({**pipeline, "machine": "Quux"}, {})
        normal = float(named["predicted_secs"])
        stalled = {**GPT, **pipeline, "step_secs": normal + 1}
        rows, report = self.predicted(as_csv([{**stalled, "step_secs": normal}, {**stalled, "step_secs": 1.3 * normal},
                                              stalled]))
        self.assertEqual([row["state"] for row in rows], ["0", "0", "1"])
        self.assertEqual([row["predicted_secs"] for row in rows[:2]], [named["predicted_secs"]] * 2)
        slow = float(rows[2]["predicted_secs"])
        self.assertGreater(slow, normal + 8 * 2 * 0.05)  # eight micro-batches, two neighbours
        for row in rows:
            self.assertAlmostEqual(float(row["expected_secs"]), 0.75 * normal + 0.25 * slow, delta=1e-4 * slow)
        self.assertEqual(report["all"]["n_slow"], 1)
        self.assertAlmostEqual(report["all"]["log_loss"], -(2 * math.log(0.75) + math.log(0.25)) / 3, 6)
        done = self.run_table(as_csv([stalled, GPT]))
        self.assertIn("# states: 1 row is nearest to the normal one, 1 to slower ones", done.out)
        self.assertNotIn("# states", self.run_table(as_csv([GPT])).out)

    def test_provenance_is_not_read(self):
        self.assertEqual(self.secs(date="2025-04", url="https://a.org/?a=b,c", note="by hand, \"twice\""), self.secs())

    def test_levels(self):
        """In the words of plan; those of stages of ZeRO are these stages."""
        self.assertEqual(self.secs(levels="zero1"), self.secs(zero=1))
        self.assertEqual(self.secs(levels="all,all"), self.secs(zero=2))
        self.assertEqual(self.secs(levels="none"), self.secs())
        self.assertEqual(self.secs(gpus=16, levels="node,all"), self.secs(gpus=16, levels="8,16"))
        self.refused("levels'", "neither GP,OP", levels="8")
        self.refused("levels'", "neither GP,OP", levels="zero3")
        self.refused("levels'", "column zero", levels="8,8", zero=1)

    def test_context_parallelism(self):
        """Rows are halved; attention of a whole sequence stays, and its keys and values travel."""
        pairs = {"gpus": 16, "batch": 16, "micro_batch": 1}
        one, half, alone = self.predict(pairs, {**pairs, "cp": 2}, {**pairs, "sequence": 512, "batch": 32})
        self.assertEqual([row["why_skipped"] for row in (one, half, alone)], [""] * 3)
        self.assertLess(float(half["predicted_memory_gib"]), float(one["predicted_memory_gib"]))
        self.assertGreater(float(half["predicted_secs"]), float(alone["predicted_secs"]))
        long = {**pairs, "sequence": 65536, "batch": 8, "gpus": 8, "learned_positions": 0, "recompute": "full",
                "machine": "DGX H100"}
        secs = [self.secs(**long, cp=cp) for cp in (1, 2, 4, 8)]  # as much work in each, and little to be sent
        self.assertLess(max(secs), 1.15 * min(secs))
        self.refused("cp'", "3 does not divide", cp=3, gpus=24, zero=0)

    def test_settings(self):
        secs = self.secs()
        row, = self.predict({}, words=["--set", "bf16.most=0.4"])
        self.assertGreater(float(row["predicted_secs"]), 1.3 * secs)
        mine, other, same = self.predict({}, {"machine": "DGX A100"}, {},
                                         words=["--set", "test-quux:bf16.most=0.4", "--set", "dgx-a100:bf16.most=0.1"])
        self.assertEqual(mine["predicted_secs"], row["predicted_secs"])
        self.assertEqual(mine["predicted_secs"], same["predicted_secs"])
        self.assertGreater(float(other["predicted_secs"]), 2 * float(mine["predicted_secs"]))
        done = self.run_table(as_csv([GPT, {**GPT, "machine": "DGX A100"}]), "--set", "dgx-h100:bf16.most=0.4")
        self.assert_refused(done, "dgx-h100:bf16.most", "no row is on that machine", "dgx-a100\n")
        both, = self.predict({}, words=["--set", "bf16.most=0.4", "--set", "links[0].rank_GBps=10"])
        self.assertGreater(float(both["predicted_secs"]), float(row["predicted_secs"]))


class Names(Case):
    """Rows whose shape is the name of a model."""

    def test_the_whole_network(self):
        """Heads of keys, gate, norm and all, as columns would say it."""
        row = {**NONE, "model": "llama-3.1-8b", "sequence": 8192, "step_secs": 20}
        shape = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256, "gated": 1,
                 "tied": 0, "learned_positions": 0, "biases": 0, "norm": "rms"}
        by_name, by_shape, padded = self.predict(row, {**row, **shape}, {**row, "vocab": 131072})
        self.assertEqual([by_name[name] for name in ADDED], [by_shape[name] for name in ADDED])
        self.assertGreater(float(padded["predicted_secs"]), float(by_name["predicted_secs"]))

    def test_its_context(self):
        row = {**NONE, "model": "llama-2-7b", "step_secs": 20}
        self.assertEqual(self.secs(**row), self.secs(**{**row, "sequence": 4096}))

    def test_own_shape_is_kept(self):
        self.assertEqual(self.secs(model="llama-2-7b"), self.secs())
        for column in ("layers", "heads"):
            self.refused(f"{column}': it is empty or missing", **{"model": "llama-2-7b", column: ""})

    def test_files(self):
        config = {"model_type": "gpt2", "n_layer": 24, "n_embd": 2048, "n_head": 16, "n_positions": 1024,
                  "vocab_size": 51200}
        path = self.write("config.json", json.dumps(config))
        self.assertEqual(self.secs(**NONE, model=path), self.secs())

    def test_unknown(self):
        self.refused("llama-2-7b", **NONE, model="llama-2-7")


class Tables(Case):
    def test_any_shape_of_table(self):
        """Order of columns, line ends, a byte order mark, quotes."""
        rows = [{**GPT, "source": 'says "so"\ntwice'}, {**GPT, "tp": 2, "source": "ü"}]
        want, _ = self.predicted(as_csv(rows))
        self.assertEqual([row["source"] for row in want], ['says "so"\ntwice', "ü"])
        self.assertEqual(set(want[0]), {*COLUMNS, *ADDED})
        text = as_csv(rows, COLUMNS[::-1], quoting=csv.QUOTE_ALL)
        for changed in (text, "\ufeff" + text, text.replace("\n", "\r\n").replace('so""\r\n', 'so""\n'),
                        text.rstrip("\n")):
            self.assertEqual(self.predicted(changed)[0], want)

    def test_again(self):
        """The file written is again a table of runs; new predictions replace those in it."""
        rows, report = self.predicted(as_csv([GPT, {**GPT, "pp": 4, "layers": 2}]))
        text = self.read("out.csv")
        again, same = self.predicted(text)
        self.assertEqual((again, same), (rows, report))

    def test_few_columns(self):
        columns = ["gpus", "batch", "step_secs", *SHAPE]
        rows, _ = self.predicted(as_csv([{key: GPT[key] for key in columns}], columns), "-m", "test-quux")
        self.assertEqual((rows[0]["why_skipped"], list(rows[0])[-len(ADDED):]), ("", ADDED))
        rows, _ = self.predicted("model,gpus,batch,step_secs\ngpt2,8,64,0.1\n", "-m", "test-quux")
        self.assertEqual(rows[0]["why_skipped"], "")

    def test_standard_input(self):
        done = run("-", "-m", "test-quux", data=self.folder, table=as_csv([GPT]))
        self.assertEqual((done.returncode, done.err), (0, ""))
        self.assertIn("standard input", done.out)

    def test_columns_that_are_missing(self):
        for column in ("gpus", "batch", "step_secs"):
            done = self.run_table(as_csv([{key: value for key, value in GPT.items() if key != column}],
                                         [name for name in COLUMNS if name != column]))
            self.assert_refused(done, f"line 2, column '{column}': it is empty or missing")

    def test_columns_that_are_unknown(self):
        for column, near in (("n_gpus", "gpus"), ("notes", ""), ("seq", ""), ("b\u00e4tch", "batch")):
            done = self.run_table(as_csv([{**GPT, column: 1}], [*COLUMNS, column]))
            self.assert_refused(done, "runs.csv, line 1: column 'b??tch'" if near == "batch" else f"column '{column}'",
                                "is unknown" + (f" (did you mean {near}" if near else ""), "rename or remove it",
                                "--help")
        self.assert_refused(self.run_table("gpus;batch\n1;2\n"), "'gpus;batch' is unknown", "commas")

    def test_names_of_columns(self):
        columns = [name.upper() if number % 2 else f"  {name} " for number, name in enumerate(COLUMNS)]
        rows, _ = self.predicted(as_csv([dict(zip(columns, (GPT.get(name, "") for name in COLUMNS)))], columns))
        self.assertEqual(float(rows[0]["predicted_secs"]), self.secs())
        done = self.run_table(as_csv([{**GPT, "Batch": 3}], ["Batch", *COLUMNS]))
        self.assert_refused(done, "'Batch' is unknown")

    def test_tables_that_are_wrong(self):
        for text, parts in (("", ["it is empty"]), ("a,b\n1\n", ["line 2, column 1", "1 cells"]),
                            ('a,b\n1,"2\n', ["line 2, column 2 (b)", "not closed"]),
                            (as_csv([]), ["no rows"]), (b"a\n\0\n", ["line 2, column 1 (a)", "zero byte"])):
            self.assert_refused(self.run_table(text), "runs.csv", *parts)

    def test_nothing_to_predict(self):
        done = self.run_table(as_csv([{**GPT, "skip": "it swaps"}]))
        self.assert_refused(done, "no row could be predicted", "it swaps", code=1)

    def test_an_output_needs_a_name(self):
        done = self.run_table(as_csv([GPT]), "-o", "-")
        self.assert_refused(done, "--out -", "name a file")
        self.assertEqual(done.out, "")

    def test_usage(self):
        good = self.write("runs.csv", as_csv([GPT]))
        for words, parts in (([], ["--help"]), ([good, "--colour"], ["--colour"]), ([self.path("no.csv")], ["no.csv"]),
                             ([good, "more"], ["'more'"]), ([good, "--set", "x"], ["KEY=NUMBER"]),
                             ([good, "--set", "bf16.most=much"], ["KEY=NUMBER"]),
                             ([good, "--set", "=1"], ["KEY=NUMBER"]),
                             ([good, "--set", "bf16.mots=1"], ["bf16.most"]),
                             ([good, "--set", "bf16.most=7"], ["bf16.most"]), ([good, "-m", "dgx-a10"], ["dgx-a100"]),
                             ([good, "-m", self.path("no.json")], ["no.json"]),
                             ([good, "-o", self.path("no/out.csv")], ["no/out.csv"]),
                             ([self.folder], [self.folder])):
            self.assert_refused(run(*words, data=self.folder), *parts)

    def test_help(self):
        done = run("--help")
        self.assertEqual((done.returncode, done.err), (0, ""))
        self.assertIn("Examples:", done.out)
        self.assertIn("--set KEY=VALUE", done.out)
        for column in COLUMNS:
            self.assertRegex(done.out, rf"\b{column}\b")


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
        ways = [(1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (1, 2)]
        for number, (tp, pp) in enumerate(ways):
            grid = {**GPT, "tp": tp, "pp": pp}
            yield {**grid, "step_secs": 0.5 + 0.1 * (number * 5 % 7)}
            yield {**grid, "batch": 32, "step_secs": 0.2 + 0.1 * (number * 3 % 5), "micro_batch": 2, "memory_gib": 20}
            if number < 3:
                yield {**grid, "source": "there", "step_secs": 1 + number}
            yield {**grid, "source": "yonder", "model": "x", "step_secs": 0.7}
        yield {**GPT, "source": "there", "skip": "it swaps"}

    def test_against_definitions(self):
        rows, report = self.predicted(as_csv(self.runs()))
        groups = {}
        for row in rows:
            if not row["why_skipped"]:
                key = tuple(row[name] for name in ("source", "model", "gpus", "layers", "hidden", "batch", "sequence"))
                groups.setdefault(key, []).append((float(row["predicted_secs"]), float(row["step_secs"])))
        self.assertEqual(sorted(len(group) for group in groups.values()), [3, 6, 6, 6])
        self.compare(report["all"], {**scores_of(list(groups.values())), "skipped": 1})
        for source in report["sources"]:
            self.compare(source, scores_of([group for key, group in groups.items() if key[0] == source["source"]]))
        self.assertEqual({source["source"]: source["skipped"] for source in report["sources"]},
                         {"here": 0, "there": 1, "yonder": 0})
        self.assertEqual(report["skipped"], [{"why": "it swaps", "rows": 1}])

    def test_memory(self):
        sizes = [20, 30, 60, 40]
        rows, report = self.predicted(as_csv([{**GPT, "memory_gib": size} for size in sizes] +
                                             [{**GPT, "micro_batch": 64}]))
        errors = sorted(abs(float(row["predicted_memory_gib"]) - size) / size for row, size in zip(rows, sizes))
        self.compare(report["all"], {"n_memory": 4, "memory_error": (errors[1] + errors[2]) / 2})
        fits = [float(row["predicted_memory_gib"]) <= 79.15 for row in rows]
        self.compare(report["all"], {"no_fit": fits.count(False) / 5})

    def test_text(self):
        done = self.run_table(as_csv(self.runs()))
        self.assertEqual((done.returncode, done.err), (0, ""))
        lines = [line for line in done.out.splitlines() if not line.startswith("#")]
        self.assertEqual([line.split()[0] for line in lines], ["source", "here", "yonder", "there", "all"])
        self.assertEqual(len({len(line) for line in lines}), 1)
        self.assertIn("#   1 row: it swaps", done.out)


if __name__ == "__main__":
    cases.main("quadrille", "data")
