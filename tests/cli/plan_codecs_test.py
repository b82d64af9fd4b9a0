#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille plan and quadrille mem with codecs.

usage: plan_codecs_test.py QUADRILLE
"""
import json

import cases
import plan_test


class Codecs(plan_test.Case):
    """Between the two nodes of eight ranks."""
    ORDER = ("--layout", "replicated", "--recompute", "none")

    def secs(self, *words, **keys):
        return {row["grid"]: row["secs"] for row in self.answer(*self.ORDER, "--top", "64", *words, **keys)["plans"]}

    def test_auto_is_never_slower(self):
        plain, auto = self.secs(), self.secs("--codec", "auto:aggressive")
        every = self.secs("--codec", "aggressive")
        self.assertEqual(set(plain), set(auto))
        for grid, secs in auto.items():
            self.assertLessEqual(secs, plain[grid] * 1.0001, grid)
        self.assertLessEqual(min(auto.values()), min(every.values()) * 1.003)  # what gains less is left out
        self.assertLess(min(auto.values()), min(plain.values()))

    def test_what_is_kept_fits(self):
        """Feedback counts, and where it does not fit nothing is lost but the codec."""
        least = min(row["memory_bytes"] for row in self.answer("--top", "64")["plans"])
        for share in 1.0, 1.05, 1.3:
            limit = ("--mem", str(int(least * share) + 1), "--top", "64")
            plain = self.answer(*limit)["plans"]
            for words in ("auto:aggressive",), ("int8+feedback", "--order", "dzyx"), ("auto:int8+feedback",):
                done = self.plan("--json", "--codec", *words, *limit)
                if done.returncode == 3 and not words[0].startswith("auto"):
                    continue  # asked for, it may not fit
                answer = json.loads(done.stdout)
                for row in answer["plans"]:
                    self.assertLessEqual(row["memory_bytes"], int(least * share) + 1, (words, row["grid"]))
                if words[0].startswith("auto"):
                    self.assertLessEqual({row["grid"] for row in plain}, {row["grid"] for row in answer["plans"]})

    def test_one_node_has_nothing_to_code(self):
        answer = self.answer("--codec", "auto:hybrid", ranks=4)
        self.assertEqual({row["codecs"] for row in answer["plans"]}, {"none"})
        for words in (), ("--codec", "aggressive"):
            self.assertEqual(self.secs(*words, ranks=4), self.secs(ranks=4))
        note = "all 4 ranks are on one node, so nothing is coded; add ,inside"
        self.assertIn(note, answer["notes"][-1])
        mem = ("mem", self.model, "--machine", self.machine, "--codec")
        for words, is_noted in ((("hybrid", "-n", "4"), 1), (("hybrid,inside", "-n", "4"), 0),
                                (("hybrid", "-n", "8"), 0), (("none", "-n", "4"), 0)):
            self.assertEqual(note in plan_test.run(*mem, *words).stdout, bool(is_noted), words)

    def test_slow_codecs_are_not_chosen(self):
        slow = [f"codecs.{name}_{way}_GBps=0.01" for name in ("int8", "int4", "int16") for way in ("encode", "decode")]
        words = [word for setting in slow for word in ("--set", setting)]
        answer = self.answer("--codec", "auto:aggressive", *words)
        self.assertEqual({row["codecs"] for row in answer["plans"]}, {"none"})

    def test_memory_of_feedback(self):
        grid = ("--grid", "1x1x1x8", "--machine", self.machine, "--json")
        memory = [json.loads(plan_test.run("mem", self.model, *grid, *codec).stdout)["memory"]["feedback"]
                  for codec in ((), ("--codec", "hybrid"), ("--codec", "aggressive"))]
        # Four ranks of a node have a quarter of each sum: a float for each of its elements.
        weights = 6 * 12 * 768 * 768 + 5003 * 768
        self.assertEqual(memory[:2], [0, 0])
        self.assertTrue(weights <= memory[2] <= weights * 1.001, (memory, weights))

    def test_file_and_words(self):
        text = self.good("--codec", "auto:hybrid", "--explain", "--fix", "d=8", "-o", self.path("plan.json"))
        self.assertRegex(text, r"as int8/128 0\.26 of the bytes, .* of encoding and decoding, pays below .* GB/s")
        self.assertEqual(json.loads(self.read("plan.json"))["codecs"], "none,d.gradient=int8/128")
        self.assertIn("with codecs", self.good("--codec", "hybrid"))

    def test_refusals(self):
        self.assert_plan_refused(["--codec", "hybird"], "'hybird'", "nearest: hybrid")
        self.assert_plan_refused(["--codec", "auto"], "auto")
        self.assert_plan_refused(["--codec", "auto:int8/48"], "blocks of 48")
        self.assert_plan_refused(["--codec", "hybrid", "--dtype", "f64"], "f64 is never coded")
        self.assert_refused(plan_test.run("mem", self.model, "--codec", "hybrid"), "--machine")
        mem = ("mem", self.model, "--machine", self.machine)
        self.assert_refused(plan_test.run(*mem, "--codec", "auto:hybrid"), "auto")


if __name__ == "__main__":
    cases.main("quadrille")
