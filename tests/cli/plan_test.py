#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille plan as its users run it: tables, JSON, CSV, pictures, files, and every refusal.

usage: plan_test.py QUADRILLE
"""
import csv
import io
import json
import os
import re
import xml.etree.ElementTree as xml

import cases
from cases import ARGUMENTS, start

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
GIB = 2.0 ** 30
TERMS = {"products", "attention", "kernels", "recompute", "ends", "optimizer", "x", "y", "z", "d", "bubble", "host"}
MEMORY = {"parameters", "gradients", "feedback", "optimizer", "activations", "gathered", "workspace", "reserve",
          "device"}
KNOWN_METHODS = ["FSDP", "Megatron-1D", "DDP", "ZeRO-1", "HSDP", "Three-level"]
# A machine of 4 small ranks a node, so that plans are few and some do not fit.
MACHINE = {
    "name": "toy", "ranks_per_node": 4, "memory_GiB": 4, "memory_GBps": 1000, "attention_efficiency": 0.5,
    "bf16": {"peak_TFLOPS": 100, "most": 0.8}, "f32": {"peak_TFLOPS": 20, "most": 0.8},
    "links": [{"name": "inside", "ranks": 4, "rank_GBps": 100, "step_us": 2},
              {"name": "between", "ranks": 0, "adapters": 4, "adapter_GBps": 10, "step_us": 9}],
}
CONFIG = {"model_type": "gpt2", "n_layer": 6, "n_embd": 768, "n_head": 12, "n_positions": 512, "vocab_size": 5003}


def run(*words, stdin=""):
    return start(ARGUMENTS.quadrille, *words, input=stdin)


class Case(cases.Case):
    def setUp(self):
        super().setUp()
        self.machine, self.model = self.path("toy.json"), self.path("small.json")
        self.save(self.machine, MACHINE)
        self.save(self.model, CONFIG)

    @staticmethod
    def save(path, value):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(value, file)

    def plan(self, *words, model=None, ranks=8):
        return run("plan", model or self.model, "-n", str(ranks), "--machine", self.machine, *words)

    def good(self, *words, **keys):
        done = self.plan(*words, **keys)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def answer(self, *words, **keys):
        return json.loads(self.good("--json", *words, **keys))

    def assert_plan_refused(self, words, *parts, code=2, **keys):
        with self.subTest(words=words):
            self.assert_refused(self.plan(*words, **keys), *parts, code=code)


class Table(Case):
    def rows(self, text):
        lines = text.split("\n\n")[0].splitlines()
        title = "# small on 8 ranks of toy, 4 a node: 8 sequences of 512 tokens a step, bf16"
        self.assertTrue(lines[0].startswith(title), text)
        self.assertTrue(lines[3].startswith("plan "), text)
        return lines[4:]

    def test_table(self):
        text = self.good()
        rows = self.rows(text)
        self.assertEqual([row.split()[0] for row in rows], [str(i) for i in range(1, 11)] + KNOWN_METHODS)
        for row in rows:
            self.assertRegex(row, r"^\S+ +\d+x\d+x\d+x\d+ +\d+,\d+ +[xyzd]{4} +(replicated|scattered)"
                                  r" +(none|operations|full) +\d+ +\d+ +\d+ ")
        steps = [float(row.split()[9]) for row in rows[:10]]
        self.assertEqual(steps, sorted(steps))
        self.assertRegex(text, r"\n\d+ plans, of which at most \d+ fit in 4 GiB; \d+ were simulated, "
                               r"and bounds rule out the rest\.\n")
        best, second = (row.split()[1] for row in rows[:2])
        self.assertRegex(text, rf"\n{best} beats {second} by [\d.]+ %: .* (less|more) .*\.\n")
        self.assertEqual(self.good(), text)
        for x, axes in (("x=1", "yzd"), ("x=2", "xyzd")):  # those with collectives
            self.assertEqual(re.findall(r" ([xyzd]) \(", self.good("--fix", x)), list(axes))

    def test_known_methods_are_there_though_they_do_not_fit(self):
        text = self.good("--mem", "0.5G")
        rows = self.rows(text)
        ddp = rows[-4]
        self.assertEqual(ddp.split()[:2], ["DDP", "1x1x1x8"])
        self.assertRegex(ddp, r"  lacks \d+\.\d\d GiB$")
        self.assertEqual([row.split()[1:3] for row in rows[-6:]],
                         [["1x1x8x1", "8,8"], ["1x4x1x2", "1,1"], ["1x1x1x8", "1,1"], ["1x1x1x8", "1,8"],
                          ["1x1x4x2", "4,4"], ["1x1x2x4", "4,8"]])
        self.assertTrue(all("lacks" not in row for row in rows[:-6]))

    def test_three_levels_follow_the_links(self):
        """Weights lie on the innermost links, where they join fewer ranks than a node."""
        inside, between = MACHINE["links"]
        links = [{**inside, "name": "three", "ranks": 3}, {**between, "name": "node", "ranks": 6}, between]
        self.save(self.machine, {**MACHINE, "ranks_per_node": 6, "links": links})
        rows = [row.split()[:3] for row in self.good(ranks=12).split("\n\n")[0].splitlines()]
        self.assertIn(["Three-level", "1x1x3x4", "6,12"], rows)
        self.assertIn(["HSDP", "1x1x6x2", "6,6"], rows)

    def test_known_methods_with_few_sequences(self):
        rows = self.rows(self.good("--batch", "2").replace("2 sequences of", "8 sequences of", 1))
        self.assertEqual([row.split()[0] for row in rows[-6:]], KNOWN_METHODS)

    def test_padding_is_said(self):
        self.assertIn("5003 tokens of the vocabulary over y = 8: padded to 5008", self.good("--fix", "y=8"))
        self.assertIn("12 heads over y = 8: padded to 16, of which 25 % is idle.", self.good("--fix", "y=8"))
        self.assertIn("9 sequences of the batch over z*d = 8: padded to 16", self.good("--fix", "z=8", "--batch", "9"))

    def test_one_grid(self):
        self.assertIn("2x2x2x1 is the only grid that was looked at.", self.good("--fix", "x=2,y=2,z=2", "--top", "1"))
        self.assertIn("\n1x1x1x1 is the only grid that was looked at.\n", self.good(ranks=1))
        fitting = "--fix", "x=2,z=2", "--mem", "0.14G"
        self.assertIn("2x2x2x1 is the only one of 2 grids that fits.", self.good(*fitting))
        self.assertIn("2x2x2x1 is the fastest; --top 2 says why", self.good(*fitting, "--top", "1"))
        self.assertIn("\n1 plan, which fits in 4 GiB.\n2x2x2x1 is the only grid that was looked at.\n",
                      self.good("--fix", "x=2,y=2,z=2", "--order", "xyzd", "--layout", "replicated", "--recompute",
                                "none", "--micro-batch", "1", "--top", "1"))

    def test_from_standard_input(self):
        done = run("plan", "-", "-n", "8", "--machine", self.machine, stdin=json.dumps(CONFIG))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("standard input on 8 ranks", done.stdout)

    def test_explain(self):
        text = self.good("--explain", "--fix", "x=2,y=2,z=2")
        for part in ("Rows: 8 sequences over z*d = 2 cells are 4 for each", "H/x = 768/2 = 384", "GFLOP at",
                     "over z, 2 ranks on between", "\nTime of a step\n", "waiting for collectives over x",
                     "\nMemory of a rank\n"):
            self.assertIn(part, text)
        self.assertNotIn("nan", text)
        part = text.split("Time of a step\n")[1].split("\n\n")[0]
        shares = [float(share) for share in re.findall(r" ([\d.]+) %  ", part)]
        self.assertAlmostEqual(sum(shares), 100, delta=0.5)


class Json(Case):
    def test_sums(self):
        answer = self.answer("--why-not", "2x2x2x1", "--explain")
        self.assertEqual((answer["model"], answer["machine"], answer["ranks"]), ("small", "toy", 8))
        self.assertEqual((answer["batch"], answer["sequence"], answer["dtype"]), (8, 512, "bf16"))
        self.assertEqual([plan["plan"] for plan in answer["known_methods"]], KNOWN_METHODS)
        counts = answer["counts"]
        self.assertTrue(counts["plans"] >= counts["bounded"] >= counts["simulated"] > 0)
        self.assertTrue(counts["plans"] >= counts["fitting"] >= counts["simulated"])
        for plan in answer["plans"] + answer["known_methods"]:
            self.assertEqual(set(plan["terms_secs"]), TERMS)
            self.assertEqual(set(plan["memory"]), MEMORY)
            self.assertAlmostEqual(sum(plan["terms_secs"].values()) / plan["secs"], 1, places=9)
            self.assertAlmostEqual(sum(plan["memory"].values()) / plan["memory_bytes"], 1, places=9)
            self.assertAlmostEqual(plan["headroom_bytes"], answer["memory_bytes"] - plan["memory_bytes"], delta=1)
            self.assertEqual(plan["fits"], plan["headroom_bytes"] >= 0)
            self.assertEqual(plan["lacks_bytes"], max(0, -plan["headroom_bytes"]))
            self.assertAlmostEqual(plan["tokens_per_sec"] * plan["secs"], 8 * 512, places=3)
            self.assertEqual({axis: plan["terms_secs"][axis] for axis in "xyzd"}, plan["exposed_secs"])
            self.assertTrue(0 < plan["peak_share"] < 1)
        self.assertIn("2x2x2x1", answer["why_not"])
        self.assertIn("Time of a step", answer["explain"])
        self.assertTrue(any("vocabulary" in note for note in self.answer("--fix", "y=8")["padding"]))

    def test_top_and_fixed(self):
        self.assertEqual(len(self.answer("--top", "3")["plans"]), 3)
        for words, check in ((["--fix", "z=4"], lambda plan: plan["grid"].split("x")[2] == "4"),
                             (["--fix", "x=2,y=2"], lambda plan: plan["grid"].startswith("2x2x")),
                             (["--fix", "x=2", "--fix", "y=2"], lambda plan: plan["grid"].startswith("2x2x")),
                             (["--order", "dzyx"], lambda plan: plan["order"] == "dzyx"),
                             (["--layout", "replicated"], lambda plan: plan["layout"] == "replicated"),
                             (["--recompute", "operations"], lambda plan: plan["recompute"] == "operations"),
                             (["--micro-batch", "1"], lambda plan: plan["micro_batch"] == 1),
                             (["--panels", "3"], lambda plan: plan["panels"] == 3),
                             (["--batch-parts", "2"], lambda plan: plan["batch_parts"] == (
                                 2 if plan["layout"] == "replicated" and plan["grid"][:3] != "1x1" else 1)),
                             (["--levels", "zero3"], lambda plan: plan["grid"].endswith("x1")),
                             (["--levels", "4,all"],
                              lambda plan: (plan["gradient_parts"], 4 % int(plan["grid"][4])) == (4, 0)),
                             (["--levels", "8,8"], lambda plan: plan["grid"].startswith("1x1x"))):
            with self.subTest(words=words):
                plans = self.answer(*words)["plans"]
                self.assertTrue(plans and all(check(plan) for plan in plans), plans)

    def test_levels_with_numbers_find_the_best_of_all(self):
        """With all levels 2 at once, the plans are the best of each grid for which levels of 2 are possible."""
        together = self.answer("--levels", "2,2", "--top", "64")["plans"]
        times = [plan["secs"] for plan in together]
        self.assertEqual(times, sorted(times))
        self.assertEqual(len({plan["grid"] for plan in together}), len(together))
        for plan in together[:6]:
            x, y, z, d = plan["grid"].split("x")
            one = self.answer("--levels", "2,2", "--fix", f"x={x},y={y},z={z},d={d}")["plans"]
            self.assertEqual([one[0]["secs"], one[0]["order"]], [plan["secs"], plan["order"]])
            self.assertTrue(2 % int(z) == 0 and int(z) * int(d) % 2 == 0)

    def test_zero1_needs_less_memory(self):
        words = ["--fix", "d=8", "--recompute", "none", "--micro-batch", "1"]
        plain, parted = self.answer(*words)["plans"][0], self.answer(*words, "--levels", "zero1")["plans"][0]
        self.assertEqual((plain["optimizer_parts"], parted["optimizer_parts"], parted["gradient_parts"]), (1, 8, 1))
        ratio = plain["memory"]["optimizer"] / parted["memory"]["optimizer"]
        self.assertTrue(7 < ratio < 8, ratio)  # biases, norms and positions stay copied

    def test_any_levels(self):
        """No worse than with any levels given, on each grid; what is printed can be asked for again."""
        words = ["--batch", "64", "--micro-batch", "1", "--recompute", "none", "--top", "64"]
        best = {plan["grid"]: plan for plan in self.answer("--levels", "any", *words)["plans"]}
        for levels in ("none", "zero1", "zero2", "4,4", "4,8"):
            for plan in self.answer("--levels", levels, *words)["plans"]:
                with self.subTest(levels=levels, grid=plan["grid"]):
                    self.assertLessEqual(best[plan["grid"]]["secs"], plan["secs"] * (1 + 1e-9))
        self.assertTrue(any(plan["optimizer_parts"] > int(grid.split("x")[2]) for grid, plan in best.items()))
        out = self.path("plan.json")
        first = self.answer("--levels", "any", *words, "-o", out)["plans"][0]
        stored = json.loads(self.read(out))
        self.assertEqual([stored[key] for key in ("gradient_parts", "optimizer_parts")],
                         [first[key] for key in ("gradient_parts", "optimizer_parts")])
        again = self.answer("--levels", f"{first['gradient_parts']},{first['optimizer_parts']}", *words)["plans"]
        self.assertEqual([again[0][key] for key in ("grid", "secs", "order")],
                         [first[key] for key in ("grid", "secs", "order")])

    def test_levels_in_words(self):
        """toy: 4 ranks a node; its links have no modules or caches, so the next larger unit is a node."""
        words = ["--fix", "x=1,y=1", "--top", "64"]
        for levels, parts in (("node,all", {"1x1x1x8": [4, 8], "1x1x2x4": [4, 8], "1x1x8x1": [8, 8]}),
                              ("module,cache", {"1x1x1x8": [4, 4], "1x1x2x4": [4, 4], "1x1x8x1": [8, 8]})):
            found = {plan["grid"]: [plan["gradient_parts"], plan["optimizer_parts"]]
                     for plan in self.answer("--levels", levels, "--order", "xyzd", *words)["plans"]}
            self.assertEqual({**found, **parts}, found)
        one = ["--fix", "x=1,y=2,z=1,d=4", "--levels", "node,all"]
        for order, parts in (("xyzd", 2), ("dyzx", 4)):  # with y first a node has two ranks of each group of d
            plan = self.answer(*one, "--order", order)["plans"][0]
            self.assertEqual([plan["gradient_parts"], plan["optimizer_parts"]], [parts, 4])
        plan = self.answer(*one)["plans"][0]  # as its order has them
        again = self.answer(*one, "--order", plan["order"])["plans"][0]
        self.assertEqual([plan[key] for key in ("secs", "gradient_parts")],
                         [again[key] for key in ("secs", "gradient_parts")])

    def test_levels_that_do_not_fit(self):
        """Another unit is taken, and a note says so."""
        words = ["--fix", "x=1,y=1,z=2,d=4", "--order", "xyzd"]
        self.assertEqual(self.answer("--levels", "node,all", *words)["notes"], [])
        for levels, parts, note in (
                ("module,node", [4, 4], "'module' does not fit gradients (the machine has no links of that name)"),
                ("all,node", [8, 8], "'node' does not fit optimizer state (its ranks are unequally many")):
            for found in (self.answer("--levels", levels, *words),
                          json.loads(run("mem", self.model, "--grid", "1x1x2x4", "--levels", levels, "--machine",
                                         self.machine, "--json").stdout)):
                plan = found["plans"][0] if "plans" in found else found
                self.assertEqual([plan["gradient_parts"], plan["optimizer_parts"]], parts)
                self.assertEqual([note in said for said in found["notes"]], [True])

    def test_faster_levels_are_said(self):
        """Where a known method is faster than the best plan, by levels that only --levels any searches."""
        n_said = 0
        for words in (), ("--batch", "512"), ("--batch", "512", "--mem", "0.5G"), ("--batch", "512", "--fix", "y=8"):
            found = self.answer(*words)
            best = found["plans"][0]
            faster = [known for known in found["known_methods"] if known["fits"] and known["enough_sequences"] and
                      known["optimizer_parts"] > int(known["grid"].split("x")[2]) and
                      best["secs"] > 1.001 * known["secs"]]
            faster = [] if "y=8" in words else sorted(faster, key=lambda known: known["secs"])
            said = [note for note in found["notes"] if "--levels any" in note]
            self.assertEqual([note.split()[0] for note in said], [known["plan"] for known in faster[:1]], words)
            n_said += len(said)
            any_levels = self.answer("--levels", "any", *words)
            self.assertEqual([note for note in any_levels["notes"] if "--levels any" in note], [])
            if faster:
                self.assertLessEqual(any_levels["plans"][0]["secs"], faster[0]["secs"])
        self.assertGreater(n_said, 0)

    def test_parts_are_nested(self):
        for plan in self.answer("--levels", "any", "--top", "64")["plans"]:
            z, d = (int(size) for size in plan["grid"].split("x")[2:])
            gradient, state = plan["gradient_parts"], plan["optimizer_parts"]
            self.assertEqual((gradient % z, state % gradient, z * d % state), (0, 0, 0), plan["grid"])

    def test_parts_of_known_methods(self):
        known = {plan["plan"]: plan for plan in self.answer("--levels", "any")["known_methods"]}
        parts = {name: (plan["gradient_parts"], plan["optimizer_parts"]) for name, plan in known.items()}
        self.assertEqual(parts, {"FSDP": (8, 8), "Megatron-1D": (1, 1), "DDP": (1, 1), "ZeRO-1": (1, 8),
                                 "HSDP": (4, 4), "Three-level": (4, 8)})

    def test_machine_is_changed(self):
        words = ["--fix", "y=8", "--recompute", "none", "--micro-batch", "8", "--layout", "replicated"]
        best = lambda *more: self.answer(*words, *more)["plans"][0]
        self.assertGreater(best("--set", "links[1].adapter_GBps=1")["secs"], best()["secs"])
        self.assertLess(best("--ranks-per-node", "8")["exposed_secs"]["y"], best()["exposed_secs"]["y"])
        self.assertGreater(best("--ranks-per-node", "1")["secs"], 0)
        self.assertEqual(self.answer("--mem", "2.5G")["memory_bytes"], 2.5 * GIB)
        self.assertEqual(self.answer("--dtype", "f32")["dtype"], "f32")
        bf16, f16 = self.answer(), self.answer("--dtype", "f16")
        self.assertEqual(f16["dtype"], "f16")
        self.assertEqual([plan["secs"] for plan in f16["plans"]], [plan["secs"] for plan in bf16["plans"]])
        self.assertEqual(self.answer("--seq", "256", "--batch", "16")["sequence"], 256)

    def test_bf16_where_there_is_one(self):
        self.save(self.machine, {**MACHINE, "bf16": {"peak_TFLOPS": 0}})
        self.assertEqual(self.answer()["dtype"], "f32")
        self.assert_plan_refused(["--dtype", "bf16"], "no peak for bf16")


class Csv(Case):
    def test_csv(self):
        rows = list(csv.DictReader(io.StringIO(self.good("--csv"))))
        plans = self.answer()
        self.assertEqual([row["plan"] for row in rows], [str(i) for i in range(1, 11)] + KNOWN_METHODS)
        for row, plan in zip(rows, plans["plans"] + plans["known_methods"]):
            self.assertTrue(all(value is not None for value in row.values()) and None not in row)
            self.assertEqual(row["grid"], plan["grid"])
            self.assertAlmostEqual(float(row["secs"]) / plan["secs"], 1, places=7)
            self.assertAlmostEqual(float(row["z_exposed_secs"]), plan["exposed_secs"]["z"], places=7)
            self.assertAlmostEqual(float(row["activations_bytes"]), plan["memory"]["activations"], delta=1)
            self.assertEqual(row["fits"], str(int(plan["fits"])))
            self.assertEqual([int(row[key]) for key in ("gradient_parts", "optimizer_parts")],
                             [plan[key] for key in ("gradient_parts", "optimizer_parts")])


class RunsHere(Case):
    """What the runtime cannot run is marked, and left out on request."""

    @staticmethod
    def rows(text):
        return text.split("\n\n")[0].splitlines()[4:]

    def network(self, **changes):
        self.write(self.model, json.dumps(changes))

    def test_recompute(self):
        words = ["--batch", "64", "--recompute"]
        secs, kept = [], []
        for recompute, repeats in (("none", None), ("operations", "norms and activation functions again"),
                                   ("full", "made from its input again")):
            text = self.good(*words, recompute, "--explain")
            self.assertTrue(all(re.search(r"  yes\b", row) for row in self.rows(text)), text)
            self.assertIn("\nRuns here.\n", text)
            if repeats:
                self.assertRegex(text, r"\n  recompute +\S+ \S+ +\S+ %  .*" + repeats)
            answer = self.answer(*words, recompute, "--fix", "x=2,y=2", "--micro-batch", "4")
            for plan in answer["plans"]:
                self.assertIs(plan["runs_here"], True)
            secs.append(answer["plans"][0]["secs"])
            kept.append(answer["plans"][0]["memory"]["activations"])
            rows = list(csv.DictReader(io.StringIO(self.good(*words, recompute, "--csv"))))
            self.assertEqual({row["runs_here"] for row in rows}, {"1"})
        self.assertEqual((secs, kept), (sorted(secs), sorted(kept, reverse=True)))
        self.assertTrue(secs[0] < secs[1] < secs[2] < 1.3 * secs[0], secs)
        self.assert_plan_refused(["--recompute", "attention"], "'attention'", "none, operations or full")

    def test_runnable(self):
        """All plans run."""
        words = ["--batch", "64", "--micro-batch", "8", "--mem", "0.3G"]
        everything = self.answer(*words)
        self.assertGreater(len({plan["recompute"] for plan in everything["plans"]}), 1)
        runnable = self.answer(*words, "--runnable")
        self.assertTrue(all(plan["runs_here"] for plan in runnable["plans"] + runnable["known_methods"]))
        self.assertEqual(runnable, everything)

    def test_networks(self):
        llama = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
                 "intermediate_size": 128, "vocab_size": 500, "max_position_embeddings": 512}
        for kind in ("llama", "qwen3", "gemma3_text", "olmo2", "cohere2"):
            self.network(**{**llama, "model_type": kind, "num_key_value_heads": 2})
            self.good("--runnable")
        for activation in ("gelu_new", "gelu", "silu", "swish", "relu", "relu2"):
            self.network(**{**CONFIG, "activation_function": activation})
            self.good("--runnable")


class WhyNot(Case):
    def said(self, grid, *words):
        return self.good("--why-not", grid, *words).splitlines()[-1]

    def test_slower(self):
        self.assertRegex(self.said("8x1x1x1"),
                         r"^8x1x1x1 \(.*\) takes .*, [\d.]+ % more than .*: .* more waiting for x")

    def test_the_best_itself(self):
        best = self.answer()["plans"][0]["grid"]
        self.assertIn("nothing is faster", self.said(best))

    def test_memory(self):
        said = self.said("1x1x1x8", "--mem", "0.5G")
        self.assertRegex(said,
                         r"^1x1x1x8 \(.*\) needs the least memory of all plans of this grid, and still [\d.]+ GiB too "
                         r"much: [\d.]+ of 0.5 GiB")
        self.assertIn("optimizer", said)

    def test_levels(self):
        words = ["--batch", "64", "--micro-batch", "1"]
        said = self.said("1x1x2x4:2,8", *words)
        self.assertRegex(said, r"^1x1x2x4 \(.*, micro-batch 1, levels 2,8\) takes ")
        secs = self.answer("--levels", "2,8", "--fix", "x=1,y=1,z=2,d=4", *words)["plans"][0]["secs"]
        self.assertIn(f"takes {1e3 * secs:.3g} ms", said)
        self.assertEqual(self.said("1x1x2x4", "--levels", "2,8", *words).split(" takes ")[0],
                         said.split(" takes ")[0])
        for levels, printed in (("zero1", ", levels 1,8)"), ("zero2", ", levels 8,8)"), ("none", "micro-batch 1)")):
            self.assertIn(printed, self.said(f"1x1x1x8:{levels}", "--levels", "any", *words))
        self.assertRegex(self.said("1x1x1x8:any", *words), r"^1x1x1x8 \(.*, levels \d,\d\) takes ")
        self.assertIn("1x1x8x1", self.said("1x1x8x1:zero3", *words))
        said = self.answer("--why-not", "1x1x2x4:4,8", *words)["why_not"]
        self.assertRegex(said, r"^1x1x2x4 \(.*, levels 4,8\) ")
        plans = {levels: self.answer("--levels", levels, "--fix", "x=1,y=1,z=1,d=8", *words)["plans"][0]["secs"]
                 for levels in ("none", "zero1")}
        slow, fast = sorted(plans, key=plans.get, reverse=True)
        said = self.answer("--levels", slow, "--fix", "x=1,y=1,z=1,d=8", "--why-not", f"1x1x1x8:{fast}",
                           *words)["why_not"]
        self.assertIn(f"% less than the best of this search, which takes {1e3 * plans[slow]:.3g} ms: search with "
                      f"--levels {fast}.", said)

    def test_few_sequences(self):
        self.assertIn("8 cells for a batch of 2", self.said("1x1x8x1", "--batch", "2"))


class Files(Case):
    def test_plan_file(self):
        out = self.path("plan.json")
        best = self.answer("-o", out, "--batch", "16")["plans"][0]
        stored = json.loads(self.read(out))
        self.assertEqual("x".join(map(str, stored["grid"])), best["grid"])
        self.assertEqual((stored["network"], stored["machine"], stored["ranks"]), ("small", "toy", 8))
        for key in ("order", "layout", "recompute", "micro_batch", "panels", "batch_parts"):
            self.assertEqual(stored[key], best[key])
        self.assertEqual((stored["batch"], stored["sequence"], stored["dtype"]), (16, 512, "bf16"))
        self.assertEqual(stored["predicted_secs"], best["secs"])
        self.assertAlmostEqual(stored["predicted_memory_bytes"], best["memory_bytes"], delta=1)
        self.good("--fix", "y=8", "--out", out)
        self.assertEqual(json.loads(self.read(out))["grid"], [1, 8, 1, 1])
        self.assertEqual(sorted(os.listdir(self.folder)), ["plan.json", "small.json", "toy.json"])

    def test_picked_plan(self):
        out, words = self.path("plan.json"), ["--batch", "16", "--top", "3"]
        for number, plan in enumerate(self.answer(*words)["plans"][:3], 1):
            text = self.good(*words, "-o", out, "--pick", str(number))
            self.assertRegex(text, rf"\nplan {number}, {plan['grid']} \({plan['order']}, {plan['layout']}, recompute "
                                   rf"{plan['recompute']}, .*\) in {plan['panels']} panels?: written to {out}\n")
            stored = json.loads(self.read(out))
            self.assertEqual("x".join(map(str, stored["grid"])), plan["grid"])
            self.assertEqual(stored["predicted_secs"], plan["secs"])
        os.remove(out)
        self.assert_plan_refused([*words, "-o", out, "--pick", "4"], "--pick 4, but 3 plans are found")
        self.assert_plan_refused(["--fix", "y=8", "-o", out, "--pick", "2"], "--pick 2, but 1 plan is found")
        self.assert_plan_refused(["--pick", "2"], "give -o FILE, too")
        self.assertFalse(os.path.exists(out))

    def test_documented_keys(self):
        out = self.path("plan.json")
        self.good("-o", out, "--batch", "16", "--overlap", "off", "--codec", "hybrid", "--threads", "2")
        keys = set(json.loads(self.read(out)))
        self.assertLessEqual({"overlap", "codecs", "batch_parts", "threads"}, keys)
        for name, start in (("include/quadrille/plan.h", "Writes a JSON object"), ("docs/man/quadrille.1", "\nkeys:")):
            words = set(re.findall(r"\w+", self.read(os.path.join(SOURCE, name)).split(start)[1][:1500]))
            self.assertEqual(keys - words, set(), name)

    def test_other_files_stay(self):
        self.assert_plan_refused(["-o", self.model], "is not a plan file", self.model)
        other = self.path("other.json")
        self.write(other, json.dumps(CONFIG))
        self.assert_plan_refused(["-o", other], "is not a plan file", other)
        os.remove(other)
        self.assertEqual(json.loads(self.read(self.model)), CONFIG)
        self.assert_plan_refused(["-o", self.path("none/plan.json")], "none/plan.json")
        self.assert_plan_refused(["--svg", self.path("none/plan.svg")], "none/plan.svg")

    def test_picture(self):
        for i, words in enumerate((["--fix", "x=2,y=2,z=2"], ["--recompute", "full"], ["--recompute", "operations"],
                                   ["--top", "1"], ["--mem", "0.5G"], ["--fix", "d=8"])):
            with self.subTest(words=words):
                svg = self.path(f"{i}.svg")
                self.good("--svg", svg, *words)
                root = xml.parse(svg).getroot()
                self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
                text = "\n".join("".join(part.itertext()) for part in root.iter("{http://www.w3.org/2000/svg}text"))
                for part in ("small on 8 ranks of toy", "processor", "forward", "backward", "FSDP", "DDP", "products"):
                    self.assertIn(part, text)
                tips = "".join("".join(tip.itertext()) for tip in root.iter("{http://www.w3.org/2000/svg}title"))
                self.assertEqual("again: " in tips, re.search(r"recompute (\w+)", text)[1] != "none")
                if "--recompute" in words:
                    self.assertIn("again: ", tips)
                boxes = [float(box.get("width")) for box in root.iter("{http://www.w3.org/2000/svg}rect")
                         if "%" not in box.get("width")]
                self.assertTrue(boxes and all(0 <= width <= 1280 for width in boxes))

    def test_picture_of_levels(self):
        svg = self.path("levels.svg")
        self.good("--svg", svg, "--fix", "d=8", "--levels", "2,4", "--batch", "16", "--micro-batch", "1")
        text = ["".join(part.itertext()) for part in xml.parse(svg).getroot().iter("{http://www.w3.org/2000/svg}text")]
        for part in ("d near", "d far", "d copies", "1x1x1x8 levels 2,4",
                     "of 6, simulated; first forward, last backward of 2 micro-batches"):
            self.assertIn(part, text)
        self.assertIn("1x1x1x8 DDP", text)


class NothingFits(Case):
    def test_nothing_fits(self):
        done = self.plan("--mem", "0.1G", ranks=2)
        self.assert_refused(done, "no plan of small on 2 ranks of toy fits in 0.1 GiB", "would help", code=3)
        needed = re.search(r"; (\d+) ranks are the fewest that fit", done.stderr)
        self.assertIsNotNone(needed, done.stderr)
        n_ranks = int(needed.group(1))
        self.assertGreater(n_ranks, 2)
        self.good("--mem", "0.1G", ranks=n_ranks)
        self.assertEqual(self.plan("--mem", "0.1G", ranks=n_ranks - 1).returncode, 3)

    def test_what_helps(self):
        words = ["--mem", "0.5G", "--fix", "d=8", "--recompute", "none", "--batch", "8"]
        done = self.plan(*words)
        self.assert_refused(done, "this would help: --levels zero", "z and d left free", code=3)
        self.assertEqual(self.plan(*words, "--levels", "zero2").returncode, 0)
        words = ["--mem", "1.2G", "--fix", "d=8", "--recompute", "none", "--batch", "256", "--micro-batch", "8"]
        done = self.plan(*words)
        self.assert_refused(done, "--recompute full (1x1x1x8)", "--micro-batch 1 (1x1x1x8)", code=3)

    def test_no_number_of_ranks(self):
        self.assert_plan_refused(["--mem", "1K"], "no larger number of ranks up to 1048576 fits", code=3)


class Refusals(Case):
    def test_names(self):
        self.assert_refused(run("plan", "gpt2-xll", "-n", "8", "--machine", self.machine), "gpt2-xll",
                            "nearest: gpt2-xl (")
        self.assert_refused(run("plan", "gpt2", "-n", "8", "--machine", "dgx-a10"), "dgx-a10", "dgx-a100")
        self.assert_refused(run("plan", "gpt2", "-n", "8"), "--machine is missing", "dgx-a100")
        self.assert_refused(run("plan", "gpt2", "--machine", self.machine), "-n (the number of ranks) is missing")
        self.assert_refused(run("plan", "-n", "8", "--machine", self.machine), "the model is missing", "gpt2-xl")
        self.assert_refused(run("plan", "gpt2", "gpt3", "-n", "8"), "'gpt3'")
        self.assert_refused(run("plan", self.path("none.json"), "-n", "8", "--machine", self.machine), "none.json")

    def test_files(self):
        for text, part in (("{", "small.json"), ('{"model_type": "mamba"}', "mamba"), ("[" * 1000, "small.json"),
                           ('{"model_type": "mixtral", "num_local_experts": 8}', "mixtral"),
                           ('{"model_type": "gpt2", "n_layer": -1}', "'n_layer'")):
            with self.subTest(text=text[:40]):
                self.write(self.model, text)
                self.assert_refused(self.plan(), part)
        self.save(self.model, CONFIG)
        for change, part in (({"memory_GiB": -1}, "'memory_GiB'"), ({"links": []}, "links"),
                             ({"memory_GBps": 0}, "memory_GBps")):
            with self.subTest(change=change):
                self.save(self.machine, {**MACHINE, **change})
                self.assert_refused(self.plan(), part)

    def test_options(self):
        for ranks in ("0", "-1", "x", "1000000000", "1048577", "99999999999999999999"):
            with self.subTest(ranks=ranks):
                self.assert_refused(run("plan", self.model, "-n", ranks, "--machine", self.machine), ranks, "1048576")
        for words in (["--batch", "0"], ["--seq", "-5"], ["--ranks-per-node", "0"], ["--mem", "0"], ["--mem", "80X"],
                      ["--mem", "80GB"], ["--mem", "nan"], ["--mem", "1e300"], ["--fix", "w=2"],
                      ["--fix", "z"], ["--fix", "z=0"], ["--fix", "z=2,"], ["--fix", "z=2;x=2"],
                      ["--fix", ""], ["--order", "xyz"], ["--layout", "both"], ["--recompute", "some"],
                      ["--levels", "zero4"], ["--levels", "1"], ["--levels", "0,1"],
                      ["--levels", "1,x"], ["--levels", "rack,all"], ["--levels", "node"],
                      ["--micro-batch", "0"], ["--dtype", "i32"], ["--top", "65"], ["--top", "0"],
                      ["--why-not", "2x2x2"], ["--why-not", "2x2x2x2x2"], ["--why-not", "2x2x2x1:"],
                      ["--why-not", "2x2x2x1:3"], ["--why-not", ":2,8"], ["--why-not", "2x2x2:2,8"], ["--set", "=1"],
                      ["--set", "memory_GiB=x"], ["--set", "memory_GiB"]):
            self.assert_plan_refused(words, f"'{words[1]}'", words[0])
        self.assert_plan_refused(["--set", "memry_GiB=1"], "memory_GiB")
        self.assert_plan_refused(["--set", "memory_GiB=-1"], "memory_GiB")
        self.assert_plan_refused(["--set", "ranks_per_node=1"] * 65, "64 settings")

    def test_together(self):
        self.assert_plan_refused(["--why-not", "2x2x2x2"], "16 ranks", "-n is 8")
        self.assert_plan_refused(["--csv", "--json"], "--json and --csv")
        self.assert_plan_refused(["--csv", "--explain"], "--csv")
        self.assert_plan_refused(["--csv", "--why-not", "2x2x2x1"], "--csv")
        self.assert_plan_refused(["--fix", "z=3"], "the product of the fixed axes, 3, does not divide 8 ranks",
                                 "whose product divides 8, or plan for 9 ranks")
        self.assert_plan_refused(["--fix", "z=16"], "16", "8")
        self.assert_plan_refused(["--levels", "3,3"], "--levels")
        self.assert_plan_refused(["--why-not", "1x1x2x4:2,6"], "optimizer state in 6 parts", "4 or 8")
        self.assert_plan_refused(["--why-not", "8x1x1x1", "--levels", "4,all"], "gradients in 4 parts")
        self.assert_plan_refused(["--why-not", "1x1x2x4:zero3"], "zero3 has d = 1")
        self.assert_plan_refused(["--levels", "zero3", "--fix", "d=2"], "zero3")
        self.assert_plan_refused(["--fix", "z=8", "--batch", "4"], "batch of 4")
        self.assert_plan_refused(["--dtype", "f64"], "f64")

    def test_many_ranks(self):
        done = run("plan", "gpt3-175b", "-n", "4096", "--machine", "dgx-a100", "--batch", "4096", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["ranks"], 4096)
        done = run("plan", "gpt3-175b", "-n", "4096", "--machine", "dgx-a100", "--batch", "4096", "--levels", "any",
                   "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(json.loads(done.stdout)["counts"]["simulated"], 20000)


if __name__ == "__main__":
    cases.main("quadrille")
