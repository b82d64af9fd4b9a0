#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Levels of the example programs: words, plans and searches, losses, and the bytes of each channel.

usage: levels_test.py EXAMPLES_DIR
"""
import json
import os
import re

import cases
import examples_test as shared


class Levels(shared.Case):
    def test_help(self):
        for program in ("train", "transformer_layer"):
            self.assertRegex(shared.run(program, "--help").out, r"--levels GP,OP +numbers of ranks")

    def test_complaints(self):
        self.complain_of_plan("--levels", "2,all", says=["--plan", "--levels", "leave one"])
        os.remove(self.path("plan.json"))
        for program in ("train", "transformer_layer"):
            start = (program, "--ctx", "8", "--local", "4", "--grid")
            for words, says in (("rack,all", ["'rack,all' is not known", "package, node or all"]),
                                ("8", ["'8' is not known", "8,all"]), ("zero3", ["'zero3' is not known"]),
                                ("3,all", ["gradients in 3 parts", "z*d = 4, such as 2 or 4"]),
                                ("4,2", ["optimizer state in 2 parts", "multiple of 4"]),
                                ("any", ["--levels any", "--grid auto"])):
                self.complain(*start, "1x1x1x4", "--levels", words, says=says)
            for words in ("node,all", "zero3", "rack,all", "8"):
                self.complain(*start, "auto", "--machine", "laptop", "--levels", words,
                              says=[f"--levels {words}: ", "any, none, zero1, zero2", "give the grid"])

    def test_a_plan_with_levels(self):
        path = self.plan(grid=[1, 1, 1, 4], ranks=4, layout="replicated", gradient_parts=2, optimizer_parts=4,
                         micro_batch=0)
        lines, talk = self.train_by_plan("--plan", path, "--local", "4")
        self.assertRegex(talk, r"levels: weights over 1 rank \(\S+ MB a rank\), gradients over 2 .*state over 4 ")
        self.assert_same_losses(lines, self.by_hand(grid="1x1x1x4"), 1e-9)

    def test_auto_with_levels(self):
        words = ("--batch", "8", "--ctx", "8", "--grid", "auto", "--local", "4", "--machine", "laptop", "--levels")
        for levels, pattern in (("any", r"(, levels \d,\d)?"), ("zero1", r"(, levels \d,\d)?"),
                                ("2,4", ", levels 2,4")):
            _, talk = self.train_by_plan(*words, levels)
            self.assertRegex(talk, rf"(?m)^grid auto: \S+, order \w+, \w+, micro-batch \d+{pattern}: \S+ s per step")
            self.assertEqual(", levels " in talk, "\nlevels: weights over " in talk)

    def test_levels_agree(self):
        """Line by line; in f32 the sums are added in another order."""
        reference, done = self.train()
        single, _ = self.train("--dtype", "f32", grid="1x1x1x4")
        self.assertNotIn("levels:", done.err)
        said = re.compile(r"^levels: weights over (\d+) ranks? \((\S+) MB a rank\), gradients over (\d+) \((\S+) MB\), "
                          r"optimizer state over (\d+) \((\S+) MB\)$", re.MULTILINE)
        for grid, words, parts in (("1x1x1x4", "node,all", (1, 4, 4)), ("1x1x1x4", "zero1", (1, 1, 4)),
                                   ("1x1x2x2", "zero2", (2, 4, 4)), ("1x1x2x4", "4,all", (2, 4, 8)),
                                   ("2x1x1x4", "2,2", (1, 2, 2))):
            with self.subTest(grid=grid, levels=words):
                lines, done = self.train("--levels", words, "--micro-batch", "1", grid=grid)
                self.assert_same_losses(lines, reference, 1e-9)
                found = said.search(done.err)
                self.assertEqual(tuple(map(int, found.groups()[::2])), parts)
                memory = re.search(r"parameters (\d+), gradients (\d+),.* optimizer (\d+)", done.err)
                for told, exact in zip(found.groups()[1::2], memory.groups()):
                    self.assertAlmostEqual(float(told), 1e-6 * int(exact), delta=1e-8 * int(exact))
        lines, _ = self.train("--dtype", "f32", "--levels", "node,all", grid="1x1x1x4")
        self.assert_same_losses(lines, single, 1e-5)
        lines, _ = self.train("--levels", "none", grid="1x1x1x4")
        self.assert_same_losses(lines, self.train(grid="1x1x1x4")[0], 0)

    def test_transformer_layer_with_levels(self):
        """Each channel sends what its list plans; near and far in both directions: sums, and what returns."""
        sums, back = "reduce-scatter", "all-gather"
        for grid, levels, parts, rows in (
                ("1x1x1x8", "2,4", [2, 4], {("d near", sums), ("d near", back), ("d far", sums), ("d far", back),
                                            ("d copies", "all-reduce"), ("d reduce", "all-reduce")}),
                ("1x1x2x2", "node,all", [4, 4], {("d near", sums), ("d near", back), ("d reduce", "all-reduce")}),
                ("1x1x2x2", "none", [2, 2], {("d reduce", "all-reduce")})):
            with self.subTest(grid=grid, levels=levels):
                words = ("--local", str(shared.ranks_of(grid)), "--grid", grid, "--levels", levels, "--hidden", "64",
                         "--heads", "4", "--ctx", "8", "--batch", "8", "--iterations", "2")
                done = shared.run("transformer_layer", *words, "--json")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                result = json.loads(done.stdout)
                self.assertEqual([result["gradient_parts"], result["optimizer_parts"]], parts)
                traffic = {(row["channel"], row["collective"]): row for row in result["traffic"]
                           if row["channel"].startswith("d ") and not row["channel"].endswith("stat")}
                self.assertLessEqual(rows, set(traffic))
                self.assertEqual(levels != "none", any(channel == "d near" for channel, _ in traffic))
                for row in traffic.values():
                    self.assertEqual(row["bytes_sent"], row["bytes_planned"], row)
                    self.assertGreater(row["bytes_sent"], 0)
                table = shared.run("transformer_layer", *words).out
                self.assertEqual(f", levels {parts[0]},{parts[1]}, replicated" in table, levels != "none")


if __name__ == "__main__":
    cases.main("examples_dir")
