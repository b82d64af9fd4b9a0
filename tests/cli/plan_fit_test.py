#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The messages of quadrille plan and quadrille mem if nothing fits, and about options that a plan cannot follow.

usage: plan_fit_test.py QUADRILLE
"""
import csv
import io
import json
import os
import pty
import random
import re
import subprocess
import time

import cases
from cases import ARGUMENTS, start
from plan_test import CONFIG, MACHINE  # 0.25 GiB of which are the reserve

GIB = 2.0 ** 30
DGX = ["--machine", "dgx-a100"]


def run(*words, timeout=120):
    return start(ARGUMENTS.quadrille, *words, timeout=timeout)


class Case(cases.Case):
    def setUp(self):
        super().setUp()
        self.machine, self.model = self.save("toy.json", MACHINE), self.save("small.json", CONFIG)

    def save(self, name, value):
        return self.write(name, json.dumps(value))

    def toy(self, *words, ranks=8):
        return run("plan", self.model, "-n", str(ranks), "--machine", self.machine, *words)

    def good(self, done):
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def nothing(self, done, *parts):
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)
        return done.stderr

    def refused(self, done, *parts):
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)


class FewestRanks(Case):
    def fewest(self, words, ranks):
        began = time.monotonic()
        said = self.nothing(run("plan", words[0], "-n", str(ranks), *words[1:]))
        self.assertLess(time.monotonic() - began, 5)
        found = re.search(r"; (\d+) ranks are the fewest that fit", said)
        self.assertIsNotNone(found, said)
        return int(found.group(1))

    def test_least_and_none_fewer(self):
        """The search itself tries every number in between."""
        toy = [self.model, "--machine", self.machine]
        for words, ranks, expected in (
                (["llama-3.1-405b", *DGX], 100, 110), (["llama-2-70b", *DGX], 15, 16),
                (["llama-2-70b", *DGX, "--recompute", "none"], 18, 20),
                (["llama-2-70b", *DGX, "--layout", "replicated"], 13, None), ([*toy, "--mem", "0.1G"], 2, None),
                ([*toy, "--mem", "0.2G", "--levels", "zero2"], 2, None),
                ([*toy, "--mem", "0.15G", "--levels", "4,all"], 4, None),
                ([*toy, "--mem", "0.2G", "--levels", "any"], 2, None),
                ([*toy, "--mem", "0.3G", "--fix", "x=2"], 2, None), ([*toy, "--mem", "0.12G", "--batch", "6"], 6, None),
                ([*toy, "--mem", "0.3G", "--fix", "d=1,y=1"], 2, None),
                ([*toy, "--mem", "0.2G", "--micro-batch", "2", "--batch", "64", "--recompute", "none"], 3, None),
                ([*toy, "--mem", "0.3G", "--dtype", "f32"], 1, None)):
            with self.subTest(words=words, ranks=ranks):
                found = self.fewest(words, ranks)
                self.assertEqual(found, expected or found)
                self.assertEqual(run("plan", words[0], "-n", str(found), *words[1:], "--top", "1").returncode, 0)
                for fewer in range(ranks, found):
                    self.assertNotEqual(run("plan", words[0], "-n", str(fewer), *words[1:], "--top", "1").returncode,
                                        0, fewer)

    def test_none_in_any_number(self):
        self.nothing(self.toy("--mem", "1K"), "no larger number of ranks up to 1048576 fits")
        self.nothing(self.toy("--fix", "x=2,y=2,z=2,d=1", "--mem", "0.01G"),
                     "no larger number of ranks up to 1048576 fits")

    def test_too_many_to_try(self):
        """A batch of one leaves only x and y, over which so long a sequence cannot be split well."""
        said = self.nothing(run("plan", "llama-2-70b", "-n", "8", *DGX, "--seq", "100000000", "--batch", "1"))
        self.assertRegex(said,
                         r"at most \d+ ranks are needed|no larger number|neither \d+ to \d+ ranks fit|are the fewest")


class Causes(Case):
    def test_reserve(self):
        self.nothing(run("plan", "gpt2", "-n", "8", *DGX, "--mem", "1G"), "the reserve alone is ", "give more --mem",
                     "no larger number of ranks")

    def test_sequence(self):
        said = self.nothing(run("plan", "gpt2", "-n", "8", *DGX, "--seq", "1000000000"),
                            "of one sequence of 1000000000 tokens need", "so use a smaller --seq")
        shorter = re.search(r"this would help: --seq (\d+) \((\S+)\)", said)
        self.assertIsNotNone(shorter, said)
        self.assertEqual(run("plan", "gpt2", "-n", "8", *DGX, "--seq", shorter.group(1), "--top", "1").returncode, 0)
        self.assertEqual(run("plan", "gpt2", "-n", "8", *DGX, "--seq", str(2 * int(shorter.group(1)) + 1)).returncode,
                         3)

    def test_bytes_without_a_letter(self):
        self.refused(self.toy("--mem", "80"), "--mem 80 is 80 bytes; is 80G meant?")
        self.refused(self.toy("--mem", "1048575"), "1048575G")
        self.nothing(self.toy("--mem", "1048576"))
        self.nothing(self.toy("--mem", "80K"))
        self.good(self.toy("--mem", str(4 * 2 ** 30)))


class Limits(Case):
    """Random networks, machines and memories: no ranked plan is over its limit, none is refused with its own bytes, and
    mem says the same of its choices."""
    MODELS = ["gpt2", "gpt2-xl", "llama-3.2-1b", "llama-3-8b", "qwen2-7b", "gpt-neox-20b", "mistral-7b"]
    MACHINES = ["dgx-h100", "perlmutter", "frontier", "summit", "laptop"]

    def answer(self, *words):
        done = run("plan", *words, "--json")
        self.assertIn(done.returncode, (0, 3), done.stderr)
        return json.loads(done.stdout)

    def check(self, seed, draw):
        model, machine = draw.choice(self.MODELS), draw.choice(self.MACHINES)
        ranks = draw.choice([4, 8, 12, 16, 64])
        words = [model, "-n", str(ranks), "--machine", machine, "--batch", str(ranks * draw.randint(1, 3)),
                 *draw.choice([[], ["--codec", "aggressive"]]), *draw.choice([[], ["--threads", "3"]])]
        free = draw.choice([[], ["--levels", "any"], ["--levels", "zero1"]])
        overlap = draw.choice([[], ["--overlap", "off"]]) # on which memory does not depend: mem has no such option
        answer = self.answer(*words, *free, *overlap, "--top", "64", "--mem",
                             f"{draw.choice([4, 8, 16, 24, 40, 80])}G")
        plans = answer["plans"]
        for plan in plans:
            self.assertTrue(plan["headroom_bytes"] >= 0 and plan["fits"] and plan["lacks_bytes"] == 0, (seed, words))
        for plan in draw.sample(plans, min(2, len(plans))):
            bytes_of_plan = plan["memory_bytes"]
            self.assertEqual(bytes_of_plan, int(bytes_of_plan), (seed, words))
            chosen = ["--order", plan["order"], "--layout", plan["layout"], "--recompute", plan["recompute"],
                      "--micro-batch", str(plan["micro_batch"]), "--panels", str(plan["panels"]),
                      "--batch-parts", str(plan["batch_parts"]),
                      "--levels", f"{plan['gradient_parts']},{plan['optimizer_parts']}", "--mem",
                      str(int(bytes_of_plan))]
            axes = ",".join(f"{axis}={n}" for axis, n in zip("xyzd", plan["grid"].split("x")))
            again = self.answer(*words, *overlap, *chosen, "--fix", axes)["plans"]
            self.assertEqual([one["memory_bytes"] for one in again], [bytes_of_plan], (seed, words, chosen))
            limit = ["--mem", str(int(bytes_of_plan))]
            self.assertTrue(self.answer(*words, *free, *overlap, *limit)["plans"], (seed, words, free, limit))
            said = run("mem", *words, *chosen, "--grid", plan["grid"], "--dtype", answer["dtype"], "--json")
            self.assertEqual(json.loads(self.good(said))["memory_bytes"], bytes_of_plan, (seed, words, chosen))
        return len(plans)

    def test_limits(self):
        seed = int(os.environ.get("QDR_TEST_SEED") or time.time())
        print(f"QDR_TEST_SEED={seed}", flush=True)
        draw = random.Random(seed)
        self.assertGreater(sum(self.check(seed, draw) for _ in range(ARGUMENTS.draws)), 0)


class NothingFits(Case):
    WORDS = ["--mem", "0.5G", "--fix", "d=8", "--recompute", "none", "--batch", "8"]

    def test_why_not(self):
        done = self.toy(*self.WORDS, "--why-not", "1x1x1x8")
        self.nothing(done)
        self.assertRegex(done.stdout,
                         r"^1x1x1x8 \(.*\) needs the least memory of all plans of this grid, and still [\d.]+ GiB too "
                         r"much: [\d.]+ of 0.5 GiB, of which optimizer [\d.]+ GiB, .*\.\n$")
        done = self.toy(*self.WORDS, "--why-not", "1x8x1x1")
        self.nothing(done)
        self.assertRegex(done.stdout, r"^1x8x1x1 \(.*\) takes .* and fits, but the given options exclude it\.\n$")

    def test_json(self):
        done = self.toy(*self.WORDS, "--json", "--why-not", "1x1x1x8")
        said = self.nothing(done)
        answer = json.loads(done.stdout)
        self.assertIs(answer["fits"], False)
        self.assertEqual((answer["plans"], answer["ranks"], answer["model"]), ([], 8, "small"))
        self.assertEqual(said, f"quadrille: {answer['why_nothing_fits']}\n")
        least = answer["least_memory"]
        self.assertEqual((least["grid"], least["recompute"]), ("1x1x1x8", "none"))
        self.assertGreater(least["memory_bytes"], answer["memory_bytes"])
        self.assertAlmostEqual(sum(least["memory"].values()), least["memory_bytes"], delta=8)
        changes = {help["change"]: help["plan"] for help in answer["helps"]}
        self.assertIn("z and d left free", changes)
        for plan in changes.values():
            self.assertLessEqual(plan["memory_bytes"], answer["memory_bytes"])
        self.assertIn("GiB too much", answer["why_not"])
        answer = json.loads(run("plan", "llama-2-70b", "-n", "15", *DGX, "--json").stdout)
        self.assertEqual((answer["fewest_ranks"]["ranks"], answer["fewest_ranks"]["none_fewer"]), (16, True))
        self.assertLessEqual(answer["fewest_ranks"]["plan"]["memory_bytes"], answer["memory_bytes"])
        self.assertIsNone(json.loads(self.toy("--mem", "1K", "--json").stdout)["fewest_ranks"])


class Comparison(Case):
    WORDS = ["--batch", "2"]

    def test_batch_too_small(self):
        lines = self.good(self.toy(*self.WORDS)).split("\n\n")[0].splitlines()
        marked = [line.split()[0] for line in lines if line.endswith("  batch too small")]
        self.assertEqual(marked, ["FSDP", "DDP", "ZeRO-1", "HSDP", "Three-level"])
        answer = json.loads(self.good(self.toy(*self.WORDS, "--json")))
        self.assertEqual([row["enough_sequences"] for row in answer["known_methods"]],
                         [False, True, False, False, False, False])
        self.assertTrue(all(row["enough_sequences"] for row in answer["plans"]))
        rows = list(csv.DictReader(io.StringIO(self.good(self.toy(*self.WORDS, "--csv")))))
        self.assertEqual([row["enough_sequences"] for row in rows[-6:]], ["0", "1", "0", "0", "0", "0"])
        self.assertNotIn("too small", self.good(self.toy()))

    def test_no_unmarked_row_is_better(self):
        for ranks, batch in (("4096", "1"), ("64", "3")):
            done = run("plan", "gpt2", "-n", ranks, "--machine", "frontier", "--batch", batch, "--json")
            answer = json.loads(self.good(done))
            for row in answer["known_methods"]:
                if row["fits"] and row["enough_sequences"]:
                    self.assertGreaterEqual(row["secs"], answer["plans"][0]["secs"] * (1 - 1e-9))

    def test_equal_plans(self):
        """A difference of less than 0.1 % counts as none; the table says so."""
        seen = set()
        for machine, ranks in (("laptop", "64"), ("laptop", "16"), ("dgx-a100", "8"), ("frontier", "64")):
            answer = json.loads(self.good(run("plan", "gpt2", "-n", ranks, "--machine", machine, "--json",
                                              "--top", "2")))
            first, second = answer["plans"]
            is_equal = second["secs"] / first["secs"] < 1.001
            grids = [first["grid"], second["grid"]]
            if is_equal:
                self.assertEqual(answer["why"], "{} and {} are equally fast according to the model.".format(*grids))
                answer = json.loads(self.good(run("plan", "gpt2", "-n", ranks, "--machine", machine,
                                                  "--json", "--why-not", grids[1])))
                self.assertIn("according to the model nothing is faster, not even " + grids[0], answer["why_not"])
            else:
                self.assertRegex(answer["why"], "^{} beats {} by [\\d.]+ %: ".format(*grids))
            seen.add(is_equal)
        self.assertEqual(seen, {False, True})


class Notes(Case):
    def test_micro_batch(self):
        words = ["--micro-batch", "5", "--batch", "16", "--fix", "d=8", "--levels", "none"]
        said = "--micro-batch 5: cells have only 2 sequences; a forward pass uses them all"
        self.assertIn(f"\n{said}.\n", self.good(self.toy(*words)))
        self.assertEqual(json.loads(self.good(self.toy(*words, "--json")))["notes"], [said])
        self.assertEqual(json.loads(self.good(self.toy("--levels", "none", "--json")))["notes"], [])
        words = [self.model, "--micro-batch", "5", "--batch", "16", "--grid", "1x1x1x8"]
        self.assertIn(f"\n{said}.\n", self.good(run("mem", *words)))
        self.assertEqual(json.loads(self.good(run("mem", *words, "--json")))["notes"], [said])

    def test_positions(self):
        said = "--seq 100000: gpt2 has 1024 learned positions, which are taken to be 100000"
        self.assertIn(f"\n{said}.\n", self.good(run("mem", "gpt2", "--seq", "100000")))
        self.assertIn(f"\n{said}.\n", self.good(run("plan", "gpt2", "-n", "8", *DGX, "--seq", "100000", "--top", "1")))
        self.assertNotIn("--seq", self.good(run("mem", "gpt2", "--seq", "1024")))
        self.assertNotIn("--seq", self.good(run("mem", "llama-2-70b", "--seq", "8192")))

    def test_key_heads(self):
        said = lambda *words: self.good(run("mem", *words))
        self.assertIn("\n8 key heads over y = 16: 8 ranks have one each and 8 none, "
                      "and all keys and values are gathered over y.\n",
                      said("llama-2-70b", "--grid", "1x16x1x1"))
        self.assertNotIn("key head", said("llama-2-70b", "--grid", "1x8x1x1"))
        self.assertIn("8 key heads over y = 6: padded to 12", said("llama-2-70b", "--grid", "1x6x1x1"))
        self.assertNotIn("key head", said("gpt2", "--grid", "1x16x1x1"))

    def test_heads_of_a_network(self):
        odd = self.save("odd.json", {"model_type": "granite", "hidden_size": 100, "num_attention_heads": 8})
        self.assertIn("8 heads do not divide 100 hidden columns: a head has 12, and attention 96",
                      self.good(run("mem", odd)))
        odd = self.save("odd.json", {"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 5})
        self.refused(run("mem", odd), "'num_key_value_heads' is 5", "32 heads")

    def test_fix_twice(self):
        for words in (["--fix", "z=4,z=8"], ["--fix", "z=4", "--fix", "z=8"]):
            self.refused(self.toy(*words), "z=4 and z=8 contradict")
        self.good(self.toy("--fix", "z=4", "--fix", "z=4", "--fix", "x=2"))

    def test_one_level(self):
        flat = self.save("flat.json", {**MACHINE, "links": MACHINE["links"][:1]})
        done = run("plan", self.model, "-n", "8", "--machine", flat, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr,
                         r"^quadrille: warning: machine toy has no link between nodes .*"
                         r"8 ranks are priced as one node of 8\n$")
        self.assertEqual(json.loads(done.stdout)["notes"], [done.stderr[len("quadrille: warning: "):-1]])
        self.good(run("plan", self.model, "-n", "4", "--machine", flat))
        self.good(self.toy())


class Explain(Case):
    def test_bytes_of_all_flows(self):
        """A sum over d of 8 ranks on two nodes: 2 (g - 1) / g of the gradients leave the node, for any number of
        adapters."""
        sent = []
        for adapters in (1, 4):
            links = [MACHINE["links"][0], {**MACHINE["links"][1], "adapters": adapters, "adapter_GBps": 40 / adapters}]
            machine = self.save("other.json", {**MACHINE, "links": links})
            text = self.good(run("plan", self.model, "-n", "8", "--machine", machine, "--fix", "d=8", "--explain",
                                 "--recompute", "none", "--micro-batch", "1", "--top", "1"))
            self.assertIn("what each rank sends in all / its rate", text)
            line = next(line for line in text.splitlines() if "over d, 8 ranks" in line and " qkv " in line)
            sent.append(tuple(float(x) for x in re.search(r"then ([\d.e+]+) MB at ([\d.e+]+) GB/s", line).groups()))
        for megabytes, _ in sent:
            self.assertAlmostEqual(megabytes / (2 * 7 / 8 * 768 * 3 * 768 * 4 * 1e-6), 1, delta=1e-3)
        self.assertAlmostEqual(sent[0][1] / sent[1][1], 1, delta=1e-3)

    def test_small_gradients(self):
        words = ["-n", "8", "--machine", self.machine, "--fix", "x=2,y=2,z=2", "--layout", "scattered",
                 "--explain", "--top", "1"]
        text = self.good(run("plan", self.model, *words))
        self.assertRegex(text, r"small gradients +1 \* .* over z, 2 ranks on \S+, 0\.2273 M elements: ")
        self.assertRegex(text, r"small gradients +1 \* .* over y, 2 ranks on \S+, 0\.2066 M elements: ")
        llama = self.save("llama.json", {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512,
                                         "num_attention_heads": 8, "intermediate_size": 1024, "vocab_size": 5000,
                                         "max_position_embeddings": 512})
        self.assertRegex(self.good(run("plan", llama, *words)),
                         r"small gradients +1 \* .* over z, 2 ranks on \S+, 0\.002304 M elements: ")


class Progress(Case):
    def test_terminal_only(self):
        """Many divisors: progress is shown on a terminal only, and its line is cleared."""
        words = [ARGUMENTS.quadrille, "plan", "gpt2", "-n", "720720", *DGX, "--top", "1"]
        first, second = pty.openpty()
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=second) as child:
            os.close(second)
            said = b""
            try:
                while part := os.read(first, 4096):
                    said += part
                    if b"bounded" in said:
                        break
            except OSError:  # the other end is closed
                pass
            child.kill()
        os.close(first)
        self.assertRegex(said.decode(), r"^\r\x1b\[K\d+ % of the grids bounded")


if __name__ == "__main__":
    cases.main("quadrille", "--only", draws=6)
