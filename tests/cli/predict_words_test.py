#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`quadrille predict`: rows whose shape is the name of a model, and the words for ways of running.

usage: predict_words_test.py QUADRILLE DATA

DATA is the folder of machines/, models/ and data/.
"""
import json
import os
import re
import sys
import unittest

from predict_test import ARGUMENTS, COLUMNS, Case, GPT, as_csv

SHAPE = ("layers", "hidden", "heads", "vocab", "seq")
NONE = dict.fromkeys(SHAPE, "")


class Names(Case):
    def test_spellings(self):
        for spellings, name in ((("llama-2-7b", "Llama 2 7B", "LLAMA2-7B", "llama_2_7b"), "llama-2-7b"),
                                (("Llama 2 13B", "llama2 13b"), "llama-2-13b"),
                                (("GPT-NeoX 20B", "gpt-neox-20b"), "gpt-neox-20b"),
                                (("Llama-3.1-8B", "llama3.1-8b"), "llama-3.1-8b"), (("GPT-2 XL", "gpt2-xl"), "gpt2-xl"),
                                (("meta-llama/Llama-2-7b-hf", "Llama 2 7B chat", "llama-2-7b"), "llama-2-7b")):
            rows, report = self.predicted(as_csv([{**GPT, **NONE, "model": spelling, "iter_time_s": 9}
                                                  for spelling in spellings]))
            self.assertEqual({row["why_skipped"] for row in rows}, {""}, rows)
            self.assertEqual(len({row["predicted_time_s"] for row in rows}), 1, rows)
            taken, = [entry for entry in report["assumed"] if entry.get("model") == spellings[0]]
            with open(os.path.join(ARGUMENTS[1], "models", name + ".json"), encoding="utf-8") as file:
                model = json.load(file)
            context = model.get("max_position_embeddings", model.get("n_positions"))
            self.assertEqual((taken["values"], taken["rows"]), (f"sequence {context}, network {name}", len(spellings)))

    def test_other_names(self):
        """Digits are not joined, and a name that only begins like a model's is not that model."""
        for name in ("Llama 270B", "Llama-27B", "GPT-36.7B", "llama-2-7b v2", "llama-2-7bhf", "gpt2/gpt3", "llama-2",
                     "7b", "MPT-7b", "gpt20b", ""):
            self.assertIn("is missing", self.why(**NONE, model=name), name)

    def test_the_whole_network(self):
        """As an entry that describes the network in full: heads of keys, gate, norm and all."""
        entry = {"source": "here", "network": "llama-3.1-8b", "reason": "said so"}
        path = self.write("mine.json", json.dumps({"entries": [entry]}))
        row = {**GPT, **NONE, "seq": 2048, "iter_time_s": 9}
        want = self.predicted(as_csv([row]), "--assume", path)[0][0]
        empty = self.write("none.json", '{"entries": []}')
        got = self.predicted(as_csv([{**row, "model": "Llama-3.1-8B"}]), "--assume", empty)[0][0]
        for column in ("predicted_time_s", "predicted_mem_GB"):
            self.assertEqual(got[column], want[column])
        self.assertNotEqual(self.secs(**NONE, model="Llama-3.1-8B", iter_time_s=9), float(got["predicted_time_s"]))

    def test_own_shape_is_kept(self):
        self.assertEqual(self.secs(model="llama-2-7b"), self.secs())
        self.assertIn("seq is missing", self.why(model="llama-2-7b", seq=""))
        whole = {"layers": 32, "hidden": 4096, "heads": 32, "vocab": 32000, "iter_time_s": 9}
        self.assertEqual(self.secs(**whole, model="llama-2-7b", seq=""), self.secs(**whole, seq=4096))
        mine = {"layers": 32, "hidden": 4096, "heads": "", "vocab": "", "model": "llama-2-7b", "iter_time_s": 9}
        self.assertEqual(self.secs(**mine),
                         self.secs(**{**NONE, **{"seq": 1024, "model": "llama-2-7b", "iter_time_s": 9}}))
        self.assertIn("heads is missing", self.why(**{**mine, "layers": 24}))
        self.assertGreater(self.secs(**{**mine, "vocab": 128000}), self.secs(**mine))

    def test_entries_before_names(self):
        entry = {"source": "here", "vocab": 128000, "ffn": 4096, "gated": 0, "learned_positions": 1, "biases": 1,
                 "reason": "so"}
        path = self.write("mine.json", json.dumps({"entries": [entry]}))
        row = {**GPT, **NONE, "model": "llama-2-7b", "iter_time_s": 9}
        rows, report = self.predicted(as_csv([row]), "--assume", path)
        self.assertNotEqual(float(rows[0]["predicted_time_s"]),
                            self.secs(**{**NONE, "model": "llama-2-7b", "iter_time_s": 9}))
        self.assertEqual([entry["values"] for entry in report["assumed"]],
                         ["ffn 4096, vocab 128000, gated 0, learned_positions 1, biases 1",
                          "sequence 4096, network llama-2-7b"])

    def test_text_and_remedy(self):
        done = self.run_table(as_csv([{**GPT, **NONE, "model": "Llama 2 13B", "iter_time_s": 9, "seq": 1024}] * 3))
        self.assertIn("#   Llama 2 13B: network llama-2-13b (a model of this name; 3 rows)\n", done.out)
        for column in SHAPE:
            why = self.why(**{column: ""})
            self.assertIn(f"{column} is missing", why)
            self.assertIn(f"column '{column}'", why)
            self.assertIn("--assume", why)


class Ways(Case):
    def test_spellings_of_one_way(self):
        notes = "mbs 4; "
        for spellings in ([{"other_parallelism": words} for words in (
                              "ZeRO-3", "ZeRO stage 3", "zero-stage 3", "zero_stage=3", "DeepSpeed ZeRO stage 3",
                              "FSDP2", "fully_sharded", "Fully Sharded", "HYBRID_SHARD 8", "HSDP 1x8")],
                          [{"other_parallelism": words} for words in (
                              "ZeRO-1", "zero stage 1", "distributed optimizer", "Distributed-Optimizer",
                              "use_distributed_optimizer")],
                          [{"notes": notes + words} for words in (
                              "full recompute", "recompute=full", "activation checkpointing", "gradient_checkpointing",
                              "recompute-granularity full")],
                          [{"notes": notes + words} for words in (
                              "selective recompute", "selective activation checkpointing", "recompute=selective")],
                          [{"notes": notes + words} for words in ("", "no activation checkpointing", "recompute=none")],
                          [{"notes": words} for words in (
                              "mbs 2", "micro_batch_size=2", "micro-batch-size 2", "gradient accumulation steps 4")],
                          [{"other_parallelism": words, "pp": 4, "dp": 2} for words in (
                              "VP2", "VPP 2", "vpp=2", "virtual pipeline 2", "virtual-pipeline size 2",
                              "interleave 2")]):
            base, *rows = self.predict({**spellings[0], "other_parallelism": "", "notes": "mbs 8"}, *spellings)
            self.assertEqual({row["why_skipped"] for row in rows}, {""}, rows)
            self.assertEqual(len({(row["predicted_time_s"], row["predicted_mem_GB"]) for row in rows}), 1, rows)
            self.assertNotEqual(rows[0]["predicted_mem_GB"], base["predicted_mem_GB"])
        self.assertEqual(self.secs(other_parallelism="no distributed optimizer"), self.secs())

    def test_hybrid(self):
        """Copies and shards: less memory than with copies alone, more than if everything is split."""
        wide = {"n_gpus": 32, "dp": 32}
        rows = self.predict(*[{**wide, "other_parallelism": way}
                              for way in ("", "HSDP", "hybrid sharding", "HSDP 4x8", "HSDP 8", "HSDP 2x16", "FSDP")])
        self.assertEqual({row["why_skipped"] for row in rows}, {""}, rows)
        memory = [float(row["predicted_mem_GB"]) for row in rows]
        self.assertEqual(len(set(memory[1:5])), 1, memory)  # a node has 8 ranks
        self.assertEqual(sorted(memory[i] for i in (0, 1, 5, 6)), [memory[6], memory[5], memory[1], memory[0]])
        halves = self.predict(*[{**wide, "tp": 2, "dp": 16, "other_parallelism": way}
                                for way in ("HSDP", "HSDP 4x4", "HSDP 2x8")])
        self.assertEqual(halves[0]["predicted_mem_GB"], halves[1]["predicted_mem_GB"])
        self.assertNotEqual(halves[0]["predicted_mem_GB"], halves[2]["predicted_mem_GB"])
        self.assertEqual(self.secs(other_parallelism="HSDP"), self.secs(other_parallelism="FSDP"))
        self.assertIn("16 shards and 4 copies of them are not dp = 32", self.why(**wide, other_parallelism="HSDP 4x16"))
        self.assertIn("3 shards", self.why(**wide, other_parallelism="HSDP 3"))
        self.assertIn("do not divide dp = 12", self.why(n_gpus=12, dp=12, other_parallelism="HSDP"))

    def unknown(self, *ways):
        _, report = self.predicted(as_csv([{**GPT, "other_parallelism": way} for way in ways]))
        return {each["word"]: each["rows"] for each in report["not_understood"]}

    def test_what_is_not_understood(self):
        self.assertEqual(self.unknown("banana", "FSDP + Banana, banana", "ZeRO-1; offload=cpu", "banana split"),
                         {"banana": 3, "offload": 1, "cpu": 1, "split": 1})
        self.assertEqual(self.unknown("fsdpx 8y fully"), {"fsdpx": 1, "8y": 1, "fully": 1})
        for way in ("CP1 VP2", "Megatron-LM", "FSDP+compile", "FSDP+TP async TP bf16", "vanilla TP", "AxoNN 4D",
                    "PTD-P", "ZeRO-0", "sequence-parallel + selective recompute; interleave 1",
                    "FSDP FULL_SHARD ckpt=False", "HSDP 2x4", "TP8 PP8 1F1B", "DeepSpeed ZeRO stage 3",
                    "micro_batch_size=4", "activation checkpointing", "baseline no recompute"):
            self.assertEqual(self.unknown("", way), {}, way)

    def test_text_of_it(self):
        rows = [{**GPT, "other_parallelism": "banana"}] * 3 + [{**GPT, "other_parallelism": "f\u00fcnf", "tp": 1},
                                                               {**GPT, "tp": "", "other_parallelism": "no!"}]
        done = self.run_table(as_csv(rows))
        self.assertEqual(re.findall("# not understood.*", done.out),
                         ["# not understood: 'banana' (3 rows)", "# not understood: 'f??nf' (1 row)"])
        many = [{**GPT, "other_parallelism": " ".join(f"w{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(300))}]
        self.assertEqual(len(self.predicted(as_csv(many))[1]["not_understood"]), 256)


class Peak(Case):
    def test_share_of_the_peak(self):
        columns = [name for name in COLUMNS if name not in ("tflops_per_gpu", "iter_time_s", "notes")]
        row = {name: GPT[name] for name in columns if name in GPT}
        _, want = self.predicted(as_csv([{**row, "tflops_per_gpu": 0.4 * 312}], columns + ["tflops_per_gpu"]))
        _, got = self.predicted(as_csv([{**row, "pct_peak": 40}], columns + ["pct_peak"]))
        self.assertAlmostEqual(got["all"]["mape"], want["all"]["mape"], places=6)
        both = columns + ["tflops_per_gpu", "pct_peak"]
        _, got = self.predicted(as_csv([{**row, "tflops_per_gpu": 0.4 * 312, "pct_peak": 10}], both))
        self.assertAlmostEqual(got["all"]["mape"], want["all"]["mape"], places=6)
        rows, _ = self.predicted(as_csv([{**row, "pct_peak": 40}, {**row, "pct_peak": 400}, {**row, "pct_peak": ""}],
                                        both))
        self.assertEqual(rows[0]["why_skipped"], "")
        self.assertIn("pct_peak is 400", rows[1]["why_skipped"])
        self.assertIn("share of the peak", rows[2]["why_skipped"])


class Sources(Case):
    def test_a_readme_of_two_times(self):
        """The assumptions about the example of 2021 apply to its row alone."""
        old = {**GPT, "source": "Megatron-LM README (2022-2024 versions)", "model": "GPT-3 175B", "machine": "",
               "vocab": ""}
        new = {**old, "source": "Megatron-LM README of 2025, H100", "machine": "DGX H100", "vocab": 51200}
        _, report = self.predicted(as_csv([{**old, "n_gpus": 8}, new]))
        taken = {(entry["source"], entry["rows"]) for entry in report["assumed"] if entry["source"]}
        self.assertEqual(taken, {("Megatron-LM README (2022-2024 versions)", 1)})


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
