#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille mem as its users run it: tables, JSON, every refusal; and what it and quadrille plan say of checkpoints.

usage: mem_test.py QUADRILLE
"""
import json

import cases
import plan_test


class Mem(plan_test.Case):
    def mem(self, *words):
        done = plan_test.run("mem", *words, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def test_known_models(self):
        for model, params in (("gpt2", 124439808), ("llama-2-70b", 68976648192), ("gpt-neox-20b", 20554567680)):
            answer = self.mem(model)
            self.assertEqual(answer["params"], params)
            self.assertEqual(sum(answer["params_by_part"].values()), params)
            self.assertEqual(set(answer["memory"]), plan_test.MEMORY)
            self.assertAlmostEqual(sum(answer["memory"].values()), answer["memory_bytes"], delta=8)
            self.assertEqual((answer["ranks"], answer["grid"], answer["batch"], answer["dtype"]),
                             (1, "1x1x1x1", 1, "bf16"))
            self.assertAlmostEqual(answer["memory"]["parameters"] / (2 * params), 1, places=3)
            self.assertEqual(answer["memory"]["reserve"], 0)
            self.assertEqual((answer["threads"], answer["memory"]["device"]), (1, 0))
        self.assertEqual(self.mem("gpt2")["sequence"], 1024)

    def test_table(self):
        done = plan_test.run("mem", "gpt2-xl")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"\nsum +1557611200\n")
        for term in plan_test.MEMORY:
            self.assertRegex(done.stdout, rf"\n{term} +\d+ +[\d.]+\n")
        self.assertRegex(done.stdout, r"[^\n]\n$")
        self.assertIn("\n\n25 heads over y = 2: padded to 26",
                      plan_test.run("mem", "gpt2-xl", "--grid", "1x2x1x1").stdout)

    def test_threads(self):
        """What a CPU keeps: panels in which f16 is converted, and for each thread but the first attention of one head
        of 64 columns: two blocks of 64 rows of scores, and of narrow types seven panels of the head."""
        panels, scores, heads = 3 * 4 * 512**2, 4 * 1024 * 2 * 64, 4 * 1024 * 7 * 64
        for words, expected in (((), 0), (("--threads", "3"), 2 * (scores + heads)),
                                (("--threads", "3", "--dtype", "f32"), 2 * scores),
                                (("--dtype", "f16"), panels),
                                (("--threads", "2", "--dtype", "f16"), 2 * panels + scores + heads)):
            for machine in (), ("--machine", "laptop"):
                self.assertEqual(self.mem("gpt2", *words, *machine)["memory"]["device"], expected, (words, machine))
            self.assertEqual(self.mem("gpt2", *words, "--machine", "dgx-a100")["memory"]["device"], 0)
            plan = json.loads(plan_test.run("plan", "gpt2", "-n", "1", "--machine", "laptop", "--top", "1", "--mem",
                                            "100G", *(words or ("--dtype", "f32")), "--json").stdout)
            self.assertEqual(plan["plans"][0]["memory"]["device"], expected, words)
            self.assertEqual(plan["threads"], int(words[1]) if "--threads" in words else 1)

    def test_grids(self):
        one = self.mem(self.model)["memory"]
        for grid, parts in (("1x1x8x1", 8), ("2x2x2x1", 8), ("1x1x1x8", 1)):
            memory = self.mem(self.model, "--grid", grid)["memory"]
            self.assertAlmostEqual(one["optimizer"] / memory["optimizer"] / parts, 1, delta=0.1)
        self.assertEqual(self.mem(self.model, "-n", "8")["grid"], "1x1x1x8")
        self.assertEqual(self.mem(self.model, "-n", "8", "--levels", "zero3")["grid"], "1x1x8x1")
        self.assertEqual(self.mem(self.model, "-n", "8", "--levels", "zero1")["optimizer_parts"], 8)

    def test_checkpoints(self):
        """Bytes everywhere, seconds only where a machine's file states rates."""
        params = 124439808
        for dtype, each in (("f32", 12), ("bf16", 12), ("f64", 24)):
            saved = self.mem("gpt2", "--dtype", dtype, "--grid", "1x1x2x2")["checkpoint"]
            self.assertEqual((set(saved), saved["bytes"]), ({"bytes", "rank_bytes"}, each * params))
            self.assertEqual(saved["rank_bytes"] % each, 0)
            self.assertTrue(saved["bytes"] / 4 < saved["rank_bytes"] < saved["bytes"] / 3)
        self.assertEqual(set(self.mem("gpt2", "--machine", "dgx-a100")["checkpoint"]), {"bytes", "rank_bytes"})
        for grid in ("1x1x1x1", "1x1x2x2"):
            saved = self.mem("gpt2", "--grid", grid, "--machine", "laptop")["checkpoint"]
            self.assertAlmostEqual(saved["secs"], max(saved["bytes"] / 0.9e9, saved["rank_bytes"] / 0.85e9))
        text = plan_test.run("mem", "gpt2", "--machine", "laptop").stdout
        self.assertRegex(text, rf"\nfile +{12 * params} +1\.39\nrank +{12 * params} ")
        self.assertIn("\nSaving one takes 1.76 s on laptop.\n", text)
        self.assertNotIn("Saving one", plan_test.run("mem", "gpt2", "--machine", "dgx-a100").stdout)
        shorter = self.mem("gpt2", "--seq", "24")["checkpoint"]
        self.assertEqual(shorter["bytes"], shorter["rank_bytes"])
        self.assertEqual(shorter["bytes"], 12 * (params - 1000 * 768))

    def test_checkpoints_explained(self):
        words = ("plan", "gpt2", "-n", "4", "--explain", "--top", "1")
        done = plan_test.run(*words, "--machine", "laptop")
        self.assertRegex(done.stdout, r"\n  save +1\.66 s  the longer of file / 0\.9 GB/s of all and rank / 0\.85 ")
        for rates, said in ((("all_GBps=2",), r"746\.64 ms  file / 2 GB/s of all\n"),
                            (("rank_GBps=2",), r"[\d.]+ ms  rank / 2 GB/s of one\n"), ((), None)):
            settings = (word for rate in rates for word in ("--set", "file." + rate))
            done = plan_test.run(*words, "--machine", "dgx-a100", *settings)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"\nCheckpoint\n  file +1\.39 GiB  parameters and two moments, 4 bytes each")
            if said:
                self.assertRegex(done.stdout, r"\n  save +" + said)
            else:
                self.assertNotIn("\n  save", done.stdout)
        answer = json.loads(plan_test.run(*words, "--machine", "laptop", "--json").stdout)
        self.assertIn("Checkpoint", answer["explain"])
        self.assertEqual(answer["checkpoint"]["bytes"], 12 * 124439808)

    def test_workspace_of_attention(self):
        """Two bytes for each score of a layer's local heads, of one sequence of 2,048 tokens; 2.25 GiB at most."""
        def reserve(*words):
            return self.mem("gpt3-6.7b", "--machine", "dgx-h100", *words)["memory"]["reserve"]
        none = ("--set", "software.attention_score_bytes=0")
        for grid, n_heads in (("1x1x1x1", 32), ("1x4x1x1", 8)):
            one = ("--grid", grid, "--batch", "1")
            self.assertEqual(reserve(*one) - reserve(*one, *none), 2 * 2048**2 * n_heads)
        many = ("--batch", "16", "--micro-batch", "16")
        self.assertEqual(reserve(*many) - reserve(*many, *none), 9 * 2**28)
        self.assertEqual(reserve("--dtype", "f32"), reserve("--dtype", "f32", *none))

    def test_levels_in_words(self):
        for grid, levels, machine, parts in (
                ("1x1x2x32", "module,node", "frontier", [2, 8]), ("1x1x2x32", "node,all", "frontier", [8, 64]),
                ("1x1x2x32", "cache,module", "frontier", [8, 8]), ("1x1x4x16", "module,all", "frontier", [8, 64]),
                ("2x2x1x32", "node,all", "dgx-a100", [2, 32]), ("1x1x1x6", "package,node", "summit", [6, 6]),
                ("1x1x1x12", "node,all", "summit", [6, 12]), ("1x1x1x4", "node,all", "dgx-a100", [4, 4])):
            with self.subTest(grid=grid, levels=levels):
                answer = self.mem(self.model, "--grid", grid, "--levels", levels, "--machine", machine)
                self.assertEqual([answer["gradient_parts"], answer["optimizer_parts"]], parts)
        self.assert_refused(plan_test.run("mem", self.model, "-n", "8", "--levels", "node,all"), "--levels",
                            "--machine")

    def test_options(self):
        words = [self.model, "--batch", "4", "--seq", "256"]
        kept = [self.mem(*words, "--recompute", how)["memory"]["activations"] for how in ("none", "full")]
        self.assertGreater(kept[0], 2 * kept[1])
        self.assertEqual(self.mem(*words, "--dtype", "f32")["memory"]["parameters"],
                         2 * self.mem(*words)["memory"]["parameters"])
        less = self.mem(*words, "--micro-batch", "1")["memory"]["activations"]
        self.assertLess(less, kept[0] / 2)
        answer = self.mem(*words, "--machine", self.machine)
        self.assertEqual(answer["machine"], "toy")
        self.assertEqual(answer["headroom_bytes"], 4 * plan_test.GIB - answer["memory_bytes"])
        self.assertIn("GiB are left", plan_test.run("mem", *words, "--machine", self.machine).stdout)

    def test_refusals(self):
        for words, parts in ((["gpt2-xll"], ["gpt2-xl"]), ([], ["the model is missing"]),
                             (["gpt2", "-n", "0"], ["'0'"]), (["gpt2", "-n", "1000000000"], ["'1000000000'"]),
                             (["gpt2", "--grid", "2x2"], ["'2x2'"]),
                             (["gpt2", "-n", "3", "--grid", "2x1x1x1"], ["2 ranks", "-n is 3"]),
                             (["gpt2", "--machine", "laptopp"], ["laptopp"]), (["gpt2", "--levels", "2,2"], ["2"]),
                             (["gpt2", "-n", "8", "--levels", "any"], ["--levels 'any'", "zero3"]),
                             (["gpt2", "--grid", "1x1x1x2", "--levels", "zero3"], ["zero3"]),
                             (["gpt2", "--dtype", "i32"], ["'i32'"]), (["gpt2", "--batch", "0"], ["'0'"]),
                             (["gpt2", "--threads", "0"], ["'0'"]), (["gpt2", "--threads", "1025"], ["'1025'"]),
                             (["gpt2", "gpt3"], ["'gpt3'"])):
            with self.subTest(words=words):
                self.assert_refused(plan_test.run("mem", *words), *parts)


if __name__ == "__main__":
    cases.main("quadrille")
