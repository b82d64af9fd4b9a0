#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/bench/strict_tables.py: what it understands of the tables that others publish, and what quadrille predict says
of its own.

usage: strict_tables_test.py QUADRILLE DATA SCRIPT

DATA is the folder of machines/ and models/. Tables of measured runs are looked for in the folder that QDR_TEST_MEASURED
names, else in ../shared/measured next to the repository.
"""
import csv
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import unittest

import cases
import predict_test
from cases import ARGUMENTS
from predict_test import as_csv

SCRIPT = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else ""
COLUMNS = ["source", "machine", "gpu", "n_gpus", "model", "layers", "hidden", "heads", "seq", "vocab", "batch", "tp",
           "pp", "dp", "other_parallelism", "tflops_per_gpu", "pct_peak", "iter_time_s", "notes"]
SHAPE = ("layers", "hidden", "heads", "vocab", "seq")
NONE = dict.fromkeys(SHAPE, "")
GPT = {"source": "here", "machine": "Quux 8x", "n_gpus": 8, "model": "small", "layers": 24, "hidden": 2048, "heads": 16,
       "seq": 1024, "vocab": 51200, "batch": 64, "tp": 1, "pp": 1, "dp": 8, "iter_time_s": 1, "notes": "microbatch 4"}
FLOPS = 3 * 64 * 1024 * (24 * (24 * 2048 ** 2 + 4 * 1024 * 2048) + 2 * 51200 * 2048)
AGAIN = FLOPS + 64 * 1024 * 24 * (24 * 2048 ** 2 + 4 * 1024 * 2048)
MIB = 2 ** 20


def load_script():
    spec = importlib.util.spec_from_file_location("strict_tables", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module


class Case(predict_test.Case):
    def convert(self, text, *words):
        """What the script makes of a table."""
        path = self.write("raw", text)
        return subprocess.run([sys.executable, SCRIPT, *words, path], capture_output=True, text=True, encoding="utf-8",
                              timeout=120)

    def strict(self, text, *words):
        """Its rows, and what it says."""
        done = self.convert(text, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.write("strict.csv", done.stdout)
        return list(csv.DictReader(io.StringIO(done.stdout))), done.stderr

    def rows(self, *changes, words=()):
        """Strict rows of rows that differ from GPT by the changes."""
        return self.strict(as_csv([{**GPT, **change} for change in changes], COLUMNS), *words)[0]

    def row(self, **change):
        row, = self.rows(change)
        return row

    def why(self, **change):
        """Why the row is skipped; the command says the same, and a second row is not skipped."""
        row, other = self.rows(change, {})
        self.assertEqual(other["skip"], "")
        predicted, unskipped = self.command()
        self.assertEqual(unskipped["why_skipped"], "")
        self.assertEqual([predicted[name] for name in predict_test.ADDED[:2]], ["", ""])
        self.assertIn(row["skip"], predicted["why_skipped"])
        return predicted["why_skipped"]

    def command(self, *words):
        """The rows of the last strict table as the command predicts them."""
        return self.predicted(self.read("strict.csv"), *words)[0]

    def assume(self, *entries):
        return ["--assume", self.write("mine.json", json.dumps({"entries": list(entries)}))]

    def assert_columns(self, row, **want):
        self.assertEqual({name: row[name] for name in want}, {name: str(value) for name, value in want.items()})


class Numbers(unittest.TestCase):
    """Numbers in notes, as they occur in published tables."""

    def setUp(self):
        self.script = load_script()

    def test_behind_words(self):
        for text, word, want in (("microbatch 4; mem 35.0 gb", "microbatch", 4), ("mbs 4; mem 35.0 gb", "mem", 35),
                                 ("cp2 vp6", "vp", 6), ("zero 1", "zero", 1), ("deep 3, ep 2", "ep", 2),
                                 ("microbatch size not in table", "microbatch", None), ("mem", "mem", None),
                                 ("microbatch ; mem ;", "mem", None), ("microbatch ; mem ;", "microbatch", None),
                                 ("microbatch size x; microbatch 8", "microbatch", 8)):
            self.assertEqual(self.script.count_after(word, text), want, text)
        match = self.script.number_after("memory|mem", "mem 67gb")
        self.assertEqual(match.string[match.end():], "gb")

    def test_before_units(self):
        for text, unit, want in (("39.3k tokens/s; aggregate", "tokens/s", 39300), ("82.4 gib", "gib", 82.4),
                                 ("grad accum 1, 1007 tokens/s/gpu", "tokens/s", 1007), ("gib 7gib", "gib", 7),
                                 ("k tokens/s", "tokens/s", 0), (". tokens/s", "tokens/s", 0), ("", "tokens/s", 0)):
            self.assertAlmostEqual(self.script.number_before(unit, text)[1], want, msg=text)

    def test_plain_texts(self):
        self.assertEqual(self.script.plain("_Micro_batch-size=4: ZeRO - 3"), " micro batch size 4 zero 3")
        self.assertEqual(self.script.plain(""), "")

    def test_words_not_understood(self):
        for text, want in (("", ""), ("8", ""), ("8x", "8x"), ("hsdp 8x8", ""), ("fsdp32 tp8 compile", ""),
                           ("zero 1.5", ""), ("fsdpx, 1f1b;pear+fsdp", "fsdpx pear"), ("sequence", ""),
                           ("full", "full"), ("recompute full shard", "shard"), ("fsdp + banana, banana", "banana"),
                           ("zero 1; offload cpu", "cpu offload"), ("fsdpx 8y fully", "8y fsdpx fully")):
            self.assertEqual(" ".join(sorted(self.script.not_understood(text))), want, text)
        for way in ("CP1 VP2", "Megatron-LM", "FSDP+compile", "FSDP+TP async TP bf16", "vanilla TP", "AxoNN 4D",
                    "sequence-parallel + selective recompute; interleave 1", "FSDP FULL_SHARD ckpt=False", "PTD-P",
                    "HSDP 2x4", "TP8 PP8 1F1B", "DeepSpeed ZeRO stage 3", "micro_batch_size=4", "ZeRO-0",
                    "activation checkpointing", "no activation checkpointing", "baseline no recompute",
                    "FSDP8 TP8 PP8 Float8 AsyncTP interleaved 1F1B", "recompute-granularity full",
                    "virtual-pipeline size 2"):
            self.assertEqual(self.script.not_understood(self.script.plain(way)), set(), way)


class Ways(Case):
    def test_plain_row(self):
        row = self.row()
        self.assert_columns(row, source="here", machine="Quux 8x", model="small", gpus=8, tp=1, pp=1, dp=8, layers=24,
                            hidden=2048, heads=16, vocab=51200, sequence=1024, batch=64, micro_batch=4, step_secs=1.0,
                            zero="", recompute="", layout="", memory_gib="", skip="")
        self.assertEqual([row["why_skipped"] for row in self.command()], [""])

    def test_spellings(self):
        """Each pattern of notes, and the cells that say the same."""
        notes = "mbs 4; "
        for column, spellings, want in (
                ("other_parallelism", ("ZeRO-3", "ZeRO stage 3", "zero-stage 3", "zero_stage=3",
                                       "DeepSpeed ZeRO stage 3", "FSDP", "FSDP2", "fully_sharded", "Fully Sharded",
                                       "FSDP FULL_SHARD"),
                 {"zero": 3, "shards": ""}),
                ("other_parallelism", ("HYBRID_SHARD 8", "HSDP 1x8", "HSDP"), {"zero": 3, "shards": 8}),
                ("other_parallelism", ("HSDP 4x2", "hybrid sharding 2"), {"zero": 3, "shards": 2}),
                ("other_parallelism", ("ZeRO-2", "FSDP SHARD_GRAD_OP"), {"zero": 2}),
                ("other_parallelism", ("ZeRO-1", "zero stage 1", "distributed optimizer", "Distributed-Optimizer",
                                       "use_distributed_optimizer"), {"zero": 1}),
                ("other_parallelism", ("no distributed optimizer", "compile", ""), {"zero": ""}),
                ("other_parallelism", ("VP2", "VPP 2", "vpp=2", "virtual pipeline 2", "virtual-pipeline size 2",
                                       "interleave 2"), {"interleave": 2}),
                ("notes", [notes + words for words in (
                    "full recompute", "full activation recompute", "Full checkpointing", "ckpt=True", "recompute=full",
                    "activation checkpointing", "gradient_checkpointing", "recompute-granularity full")],
                 {"recompute": "full"}),
                ("notes", [notes + words for words in ("selective recompute", "selective activation checkpointing",
                                                       "recompute=selective")], {"recompute": "attention"}),
                ("notes", [notes + words for words in ("no activation checkpointing", "recompute=none", "ckpt=False")],
                 {"recompute": "none"}),
                ("notes", ("mbs 2", "micro_batch_size=2", "micro-batch-size 2", "Microbatch 2", "grad acc 4",
                           "grad accum 4, x", "micro-batch size: 2", "gradient accumulation steps 4"),
                 {"micro_batch": 2}),
                ("notes", ("mem 35.0 GB", "x; memory 35.0 GiB", "35.0 GiB"), {"memory_gib": "35.0"}),
                ("notes", ("", "mem 35"), {"memory_gib": "", "micro_batch": 1})):
            for row, spelling in zip(self.rows(*[{column: spelling} for spelling in spellings]), spellings):
                self.assertEqual(row["skip"], "", spelling)
                self.assert_columns(row, **want)

    def test_sequence_parallelism(self):
        split, whole = self.rows({"tp": 4, "dp": 2, "other_parallelism": "sequence parallel"},
                                 {"other_parallelism": "sequence-parallel"})
        self.assertEqual((split["layout"], whole["layout"]), ("scattered", ""))

    def test_grid(self):
        for change in ({"dp": ""}, {"dp": "8.0"}, {}):
            self.assert_columns(self.row(**change), gpus=8, dp=8)
        columns = [name for name in COLUMNS if name not in ("tp", "pp", "dp")]
        rows, _ = self.strict(as_csv([{key: GPT.get(key, "") for key in columns}], columns))
        self.assert_columns(rows[0], gpus=8, tp=1, pp=1, dp=8)

    def test_local_batch(self):
        self.assert_columns(self.row(batch="", notes="local batch 8"), batch=64, micro_batch=8)
        self.assert_columns(self.row(notes="local batch 8"), batch=64, micro_batch=8)

    def test_hybrid(self):
        wide = {"n_gpus": 32, "dp": 32}
        for way, tp, shards in (("HSDP", 1, 8), ("hybrid sharding", 1, 8), ("HSDP 4x8", 1, 8), ("HSDP 2x16", 1, 16),
                                ("HSDP", 2, 4), ("HSDP 4x4", 2, 4), ("HSDP 8x", 1, 8)):
            self.assert_columns(self.row(**{**wide, "tp": tp, "dp": 32 // tp, "other_parallelism": way}), zero=3,
                                shards=shards)
        self.assertIn("16 shards and 4 copies of them are not dp = 32", self.why(**wide, other_parallelism="HSDP 4x16"))
        self.assertIn("3 shards", self.why(**wide, other_parallelism="HSDP 3"))
        self.assertIn("are not dp = 12", self.why(n_gpus=12, dp=12, other_parallelism="HSDP"))

    def test_measured_time(self):
        """All of these took half a second."""
        each = {"iter_time_s": "", "notes": "mbs 4"}
        for change in ({"iter_time_s": 0.5}, {"notes": "mbs 4; 131072 tokens/s"}, {"notes": "mbs 4; 131.072k tokens/s"},
                       {"notes": "mbs 4; 16384 tokens/s/GPU"}, {"notes": "mbs 4; 16384 tok/s/gpu"},
                       {"notes": "mbs 4; 16384 tokens/s (per GPU)"}, {"tflops_per_gpu": FLOPS / 0.5 / 8e12},
                       {"tflops_per_gpu": FLOPS / 0.5 / 8e12, "pct_peak": 10},
                       {"pct_peak": 100 * FLOPS / 0.5 / 8 / 312e12, "gpu": "A100-80GB"},
                       {"tflops_per_gpu": AGAIN / 0.5 / 8e12, "notes": "full recompute; FLOPs formula with it"},
                       {"tflops_per_gpu": AGAIN / 0.5 / 8e12, "notes": "full recompute; TFLOP/s incl. recompute"}):
            self.assertAlmostEqual(float(self.row(**{**each, **change})["step_secs"]), 0.5, 9, change)

    def test_context_parallelism(self):
        for dp in "", 8, 4:  # with and without its ranks
            row = self.row(other_parallelism="CP2", dp=dp)
            self.assertEqual((row["cp"], row["dp"]), ("2", "4"))

    def test_skipped(self):
        for change, words in (({"other_parallelism": "FP8"}, "FP8"), ({"notes": "Float8"}, "FP8"),
                              ({"other_parallelism": "CP 3"}, "n_gpus is 8, which is not"),
                              ({"other_parallelism": "EP 4"}, "expert parallelism"),
                              ({"other_parallelism": "FP8", "tp": ""}, "FP8"),
                              ({"tp": ""}, "tp is missing: the parallelism of the run is unknown"),
                              ({"batch": ""}, "batch is missing"), ({"n_gpus": ""}, "n_gpus is missing"),
                              ({"n_gpus": 12}, "not tp · pp · dp"), ({"dp": 4}, "not tp · pp · dp = 1 · 1 · 4"),
                              ({"tp": "two"}, "column 'tp': 'two' is not a number"),
                              ({"tp": "1.5"}, "column 'tp': 1.5 is not a whole number"),
                              ({"iter_time_s": ""}, "no time"), ({"iter_time_s": 500}, "utilisation below 0.5 %"),
                              ({"iter_time_s": "", "pct_peak": 400, "gpu": "H100"}, "pct_peak is 400: more than the"),
                              ({"iter_time_s": "", "pct_peak": 40}, "pct_peak is 40: of an unknown GPU"),
                              ({"pp": 8, "dp": 1, "layers": 4}, "stages")):
            self.assertIn(words, self.why(**change), change)
        for column in SHAPE:
            why = self.why(**{column: ""})
            for part in (f"{column} is missing", f"column '{column}'", "--assume"):
                self.assertIn(part, why)

    def test_what_is_not_understood(self):
        rows = [{**GPT, "other_parallelism": "banana"}] * 3 + [{**GPT, "other_parallelism": "f\u00fcnf banana banana"},
                                                               {**GPT, "tp": "", "other_parallelism": "no!"}]
        _, said = self.strict(as_csv(rows, COLUMNS))
        self.assertEqual(sorted(re.findall("not understood.*", said)),
                         ["not understood: 'banana' (4 rows)", "not understood: 'f\u00fcnf' (1 row)"])


class Names(Case):
    """Rows whose shape is the name of a model."""

    def test_spellings(self):
        for spellings, name in ((("llama-2-7b", "Llama 2 7B", "LLAMA2-7B", "llama_2_7b"), "llama-2-7b"),
                                (("Llama 2 13B", "llama2 13b"), "llama-2-13b"),
                                (("GPT-NeoX 20B", "gpt-neox-20b"), "gpt-neox-20b"),
                                (("Llama-3.1-8B", "llama3.1-8b"), "llama-3.1-8b"), (("GPT-2 XL", "gpt2-xl"), "gpt2-xl"),
                                (("meta-llama/Llama-2-7b-hf", "Llama 2 7B chat"), "llama-2-7b")):
            rows = self.rows(*[{**NONE, "model": spelling, "iter_time_s": 9} for spelling in spellings])
            for row in rows:
                self.assert_columns(row, model=name, sequence="", skip="", layers="", vocab="")
            self.assertEqual({row["why_skipped"] for row in self.command()}, {""})

    def test_other_names(self):
        """Digits are not joined, and a name that only begins like a model's is not that model."""
        names = ("Llama 270B", "Llama-27B", "GPT-36.7B", "llama-2-7b v2", "llama-2-7bhf", "gpt2/gpt3", "llama-2", "7b",
                 "MPT-7b", "gpt20b", "")
        for name, row in zip(names, self.rows(*[{**NONE, "model": name} for name in names])):
            self.assertIn("layers is missing", row["skip"], name)

    def test_own_shape_is_kept(self):
        self.assert_columns(self.row(model="llama-2-7b"), model="llama-2-7b", layers=24, heads=16, vocab=51200)
        self.assertIn("seq is missing", self.why(model="llama-2-7b", seq=""))
        self.assertIn("heads is missing", self.why(model="llama-2-7b", heads=""))
        padded = self.row(**{**NONE, "model": "llama-2-7b", "vocab": 128000})
        self.assert_columns(padded, model="llama-2-7b", layers="", vocab=128000, skip="")


class Assumed(Case):
    def test_first_entry_that_fits(self):
        words = self.assume({"source": "here", "model": "Small", "vocab": 51200, "reason": "a"},
                            {"source": "he", "vocab": 1024, "hidden": 64, "reason": "b"},
                            {"source": "there", "vocab": 9, "reason": "c"})
        rows, said = self.strict(as_csv([{**GPT, "vocab": ""}], COLUMNS), *words)
        self.assert_columns(rows[0], vocab=51200, hidden=2048)
        self.assertEqual(said, "assumed: here, Small: vocab 51200 (a)\n")

    def test_what_replaces(self):
        words = self.assume({"source": "here", "layers": 12, "replaces": True, "reason": "a typing error"})
        self.assert_columns(self.rows({}, words=words)[0], layers=12)

    def test_fields(self):
        change = {"tp": 4, "dp": 2, "notes": "", "machine": ""}
        for field, value in (("kv_heads", 4), ("head_size", 64), ("ffn", 2048), ("gated", 1), ("tied", 0),
                             ("norm", "rms"), ("biases", 0), ("learned_positions", 0), ("micro_batch", 2),
                             ("interleave", 2), ("zero", 3), ("recompute", "full"), ("layout", "scattered"),
                             ("overlap", "none"), ("machine", "dgx-a100")):
            row, = self.rows(change, words=self.assume({"source": "", field: value, "reason": "why not"}))
            self.assert_columns(row, **{field: value}, skip="")

    def test_titles_and_flops(self):
        words = self.assume({"source": "he", "title": "There"}, {"source": "", "flops_recomputed": 1, "reason": "a"})
        row, = self.rows({"iter_time_s": "", "tflops_per_gpu": AGAIN / 8e12}, words=words)
        self.assertEqual(row["source"], "There")
        self.assertAlmostEqual(float(row["step_secs"]), 1, 9)

    def test_networks_by_name(self):
        words = self.assume({"source": "here", "network": "gpt2", "sequence": 512, "reason": "its name"})
        named, shaped = self.rows({**NONE, "iter_time_s": 0.1}, {}, words=words)
        self.assert_columns(named, model="gpt2", layers="", sequence=512, skip="")
        self.assert_columns(shaped, model="small", layers=24, sequence=1024)

    def test_skipped_by_entry(self):
        words = self.assume({"source": "here", "model": "bad", "skip": "it was broken"})
        rows = self.rows({}, {"model": "bad"}, words=words)
        self.assertEqual([row["skip"] for row in rows], ["", "it was broken"])

    def test_wrong_files(self):
        for entries, part in (([{"vocab": 3, "reason": "x"}], "a source"), ([{"source": "", "vocab": 3}], "a reason"),
                              ([{"source": "", "vocap": 3, "reason": "x"}], "entry 1: key 'vocap' is unknown"),
                              ([{"source": "", "vocab": "3", "reason": "x"}], "entry 1: key 'vocab'"),
                              ([{"source": "", "overlap": "some", "reason": "x"}], "key 'overlap'")):
            done = self.convert(as_csv([GPT], COLUMNS), *self.assume(*entries))
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
            self.assertIn(part, done.stderr)

    def test_a_readme_of_two_times(self):
        """The assumptions about the example of 2021 apply to its row alone."""
        old = {"source": "Megatron-LM README (2022-2024 versions)", "model": "GPT-3 175B", "machine": "", "vocab": ""}
        new = {**old, "source": "Megatron-LM README of 2025, H100", "machine": "DGX H100", "vocab": 51200}
        rows = self.rows(old, new)
        self.assertEqual([row["machine"] for row in rows], ["selene-2021", "DGX H100"])
        self.assertEqual([row["recompute"] for row in rows], ["full", ""])


class Collectives(Case):
    columns = ["machine", "gpu", "collective", "nodes", "gpus", "bytes", "time_us", "busbw_GBps", "algo", "source"]

    def collective(self, name="all_gather", gpus=8, words=(), **more):
        row = {"machine": "Quux", "gpu": "V9", "collective": name, "gpus": gpus, "bytes": 64 * MIB, "busbw_GBps": 100,
               **more}
        rows, _ = self.strict(as_csv([row], self.columns), *words)
        return rows[0]

    def test_kinds(self):
        for name, kind in (("all_gather", "all-gather"), ("AllGather", "all-gather"), ("all-gather", "all-gather"),
                           ("reduce_scatter", "reduce-scatter"), ("ReduceScatter", "reduce-scatter"),
                           ("sendrecv", "send-recv"), ("all_reduce", "all-reduce")):
            self.assert_columns(self.collective(name), machine="Quux V9", collective=kind, gpus=8, skip="", strided="",
                                alone="")

    def test_time_and_bandwidth_are_one(self):
        for name, passes in (("all_reduce", 1.75), ("all_gather", 0.875), ("sendrecv", 1)):
            self.assertAlmostEqual(float(self.collective(name, bytes=10 ** 9)["secs"]), passes * 1e9 / 100e9)
        self.assert_columns(self.collective(time_us=8750, busbw_GBps=""), secs=1e-6 * 8750)

    def test_groups(self):
        for name, strided in (("group 8 strided", 1), ("group 8", 0), ("group 8 consec", 0), ("group 8 consecutive", 0),
                              ("group 8 Contiguous", 0), ("group 8, contiguous", 0)):
            self.assert_columns(self.collective(f"all_gather {name}", nodes=2), strided=strided, alone=0, skip="")
        for word in ("banana", "stridden", "-- con"):
            self.assertIn("consecutive, contiguous or strided", self.collective(f"all_gather group 8 {word}")["skip"])
        self.assertIn("'all_gather group 4 strided', but gpus is 8",
                      self.collective("all_gather group 4 strided")["skip"])

    def test_algorithms(self):
        for algo, algorithm in (("Ring", "ring"), ("", ""), ("NVLS from 2MiB", "")):
            self.assert_columns(self.collective(algo=algo), algorithm=algorithm)

    def test_assumed_sizes(self):
        words = self.assume({"source": "s1", "bytes": MIB, "reason": "said elsewhere"},
                            {"source": "s2", "bytes": MIB, "bytes_most": 4 * MIB, "alone": 1, "reason": "its script"})
        self.assert_columns(self.collective(words=words, source="s1", bytes=""), bytes=MIB, bytes_most="")
        row = self.collective("all_gather group 2 strided", 2, words, source="s2", bytes="")
        self.assert_columns(row, bytes=MIB, bytes_most=4 * MIB, alone=1, strided=1)
        self.assertAlmostEqual(float(row["secs"]), 2 * MIB / 100e9)
        self.assert_columns(self.collective(words=words, source="s2"), bytes=64 * MIB, bytes_most="")

    def test_skipped(self):
        for change, words in (({"name": "broadcast"}, "'broadcast'"), ({"bytes": ""}, "bytes is missing"),
                              ({"gpus": 1}, "below 2"), ({"busbw_GBps": ""}, "nothing was measured"),
                              ({"gpus": "many"}, "'gpus'"), ({"gpus": 2.5}, "whole"),
                              ({"time_us": -4}, "'time_us': '-4'"), ({"bytes": "nan"}, "'bytes': 'nan'")):
            self.assertIn(words, self.collective(**change)["skip"], change)

    def test_neither_runs_nor_collectives(self):
        for text in ("", "a,b\n1,2\n", "n_gpus,batch\n"):
            done = self.convert(text)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
            self.assertIn("'collective' nor 'n_gpus'", done.stderr)


NCCL = """# nThread 1 nGpus {ranks} minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 5 iters: 20 \
agg iters: 1
#
# Using devices
{devices}#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float    none      -1    {0:.2f}   99.99   87.49      0    1.00   99.99   87.49      0
     2097152        524288     float    none      -1    {1:.2f}   99.99   87.49    N/A    1.00   99.99   87.49    N/A
     4194304       1048576     float    none      -1    {2:.2f}   99.99   87.49      0    1.00   99.99   87.49      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 87.49
"""


class Nccl(Case):
    """The output of nccl-tests."""
    times = [7 / 8 * size / 100e9 * 1e6 for size in (MIB, 2 * MIB, 4 * MIB)]

    def text(self, begin="", ranks=8):
        devices = "".join(f"#  Rank {rank:2} Group  0 Pid  77{rank} on  node device {rank} [0x07] V9\n"
                          for rank in range(ranks))
        return begin + NCCL.format(*self.times, ranks=ranks, devices=devices)

    def kinds(self, text, *words):
        return {(row["collective"], row["gpus"]) for row in self.strict(text, *words)[0]}

    def test_out_of_place_times(self):
        for begin in ("# Collective test starting: all_gather_perf\n",
                      "$ ./build/all_gather_perf -b 1M -e 4M -f 2 -g 8\n",
                      "host:1:2 [0] NCCL INFO all well\r\n# nccl-tests version 2.13.8\n"
                      "# Collective test starting: all_gather_perf\n"):
            rows, _ = self.strict(self.text(begin))
            self.assertEqual([(row["collective"], row["gpus"], float(row["bytes"])) for row in rows],
                             [("all-gather", "8", size * MIB) for size in (1, 2, 4)])
            for row, time in zip(rows, self.times):
                self.assertAlmostEqual(1e6 * float(row["secs"]), round(time, 2))
        self.assertEqual({row["why_skipped"] for row in self.command("-m", "dgx-a100")}, {""})

    def test_what_it_does_not_say(self):
        for words in ((), ("--collective", "all_gather"), ("--ranks", "8")):
            done = self.convert(self.text(ranks=0), *words)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
            self.assertIn("add --collective all_reduce, or another, and --ranks", done.stderr)
        self.assertEqual(self.kinds(self.text(ranks=0), "--collective", "all_gather", "--ranks", "8"),
                         {("all-gather", "8")})
        said = self.text("# Collective test starting: all_gather_perf\n")
        self.assertEqual(self.kinds(said, "--ranks", "4", "--collective", "all_reduce"), {("all-reduce", "4")})
        self.assertEqual(self.kinds("# nRanks 4\n" + self.text(ranks=0), "--collective", "all_gather"),
                         {("all-gather", "4")})

    def test_several(self):
        """One text may contain several tests."""
        text = (self.text("# Collective test starting: all_gather_perf\n")
                + self.text("# Collective test starting: sendrecv_perf\n", 2))
        rows, _ = self.strict(text)
        self.assertEqual([(row["collective"], row["gpus"]) for row in rows],
                         [("all-gather", "8")] * 3 + [("send-recv", "2")] * 3)

    def test_columns(self):
        """The same numbers as a table, in which two columns have one name."""
        text = "size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)\n1048576,262144,float,92790,19.78,1,2\n"
        (row,), _ = self.strict(text, "--collective", "all_reduce", "--ranks", "8")
        self.assert_columns(row, collective="all-reduce", gpus=8, bytes=MIB, skip="")
        self.assertAlmostEqual(float(row["secs"]), 92790e-9)

    def test_any_bytes(self):
        """Truncated and damaged texts are read, or refused with one message."""
        whole = self.text("# Collective test starting: all_gather_perf\n")
        script = load_script()
        for text in [*(whole[:end] for end in range(300, len(whole), 97)), whole.replace("4194304 ", "4194304," * 99),
                     whole + "7" * 5000, whole.replace("float", '"flo"'), whole.replace(" 0 ", "\0")]:
            for row in script.read_nccl(text.splitlines()):
                self.assertEqual((row["collective"], row["gpus"]), ("all_gather", "8"))
            done = self.convert(text)
            self.assertIn(done.returncode, (0, 1), text)
            self.assertNotIn("Traceback", done.stderr, text)


class Measured(Case):
    """Runs and collectives measured by others, if their tables are available."""

    def find(self, name):
        root = os.path.dirname(os.path.abspath(ARGUMENTS.data))
        folder = os.environ.get("QDR_TEST_MEASURED", os.path.join(root, "..", "shared", "measured"))
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            self.skipTest(f"{path} is not there; set QDR_TEST_MEASURED to its folder")
        return self.read(path)

    def of_file(self, name, words=(), more=()):
        """The raw rows, the rows with predictions, and the report."""
        text = self.find(name)
        strict, _ = self.strict(text, *words)
        raw = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual(len(strict), len(raw))
        rows, report = self.predicted(self.read("strict.csv"), *more)
        self.assertEqual(len(rows), len(raw))
        return raw, rows, report

    def test_training_runs(self):
        _, rows, report = self.of_file("training_runs.csv")
        for row in rows:
            self.assertNotEqual(bool(row["predicted_secs"]), bool(row["why_skipped"]), row)
            if row["predicted_secs"]:
                self.assertGreater(float(row["predicted_secs"]), 0)
                self.assertGreater(float(row["predicted_memory_gib"]), 0)
        self.assertEqual(report["all"]["n"] + report["all"]["skipped"], len(rows))
        self.assertEqual(report["all"]["n"], sum(not row["why_skipped"] for row in rows))
        vtrain = [source for source in report["sources"] if source["source"].startswith("vTrain")]
        self.assertEqual(sum(source["n"] for source in vtrain), 699)

    def test_collectives(self):
        raw, rows, report = self.of_file("collectives.csv")
        self.assertEqual((report["all"]["n"], report["all"]["skipped"]), (119, 0))
        self.assertLess(report["all"]["median_error"], 0.10)
        strided = [row for said, row in zip(raw, rows) if "strided" in said["collective"] and said["machine"] == "2n8g"]
        self.assertEqual(len(strided), 3)
        for row in strided:
            self.assertLess(abs(float(row["predicted_secs"]) / float(row["secs"]) - 1), 0.15, row)

    def test_all_reduces_of_8_gpus(self):
        _, rows, report = self.of_file("a100_allreduce_8gpu.csv", ("--collective", "all_reduce", "--ranks", "8"),
                                       ("-m", "dgx-a100"))
        self.assertEqual(report["all"]["n"], len(rows))
        self.assertLess(report["all"]["median_error"], 0.05)


if __name__ == "__main__":
    cases.main("quadrille", "data", "script")
