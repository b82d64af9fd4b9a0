#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`quadrille calibrate` as its users run it: the file is complete and other commands read it, no file is lost, bad
input.

usage: calibrate_test.py QUADRILLE [--mpiexec PROGRAM]
"""
import csv
import io
import json
import os
import re
import socket
import sys
import unittest

import cases
from cases import ARGUMENTS, start

QUICK = ("--quick", "--threads", "1")


def run(*words, before=()):
    return start(*before, ARGUMENTS.quadrille, *words)


class Calibrate(cases.Case):
    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.folder, "here.json")

    def calibrate(self, *words, before=(), ranks=("--local", "2")):
        return cases.calibrated(lambda: run("calibrate", *QUICK, "-o", self.file, *words, *(() if before else ranks),
                                            before=before))

    def assert_only_file(self):
        self.assertEqual(os.listdir(self.folder), ["here.json"])

    def check(self, n_ranks, **how):
        done = self.calibrate(**how)
        self.assertEqual((done.returncode, done.err), (0, ""), done.err)
        self.assertIn("median", done.out)
        self.assert_only_file()
        machine = json.loads(self.read(self.file))
        facts = machine["calibration"]
        self.assertEqual((machine["name"], facts["ranks"], facts["nodes"]), ("here", n_ranks, 1))
        self.assertEqual(sum(group["samples"] for group in facts["residuals"]), facts["samples"])
        self.assertTrue(all(0 <= group["median_error"] <= group["largest_error"] for group in facts["residuals"]))
        self.assertIn("quadrille", facts["versions"])
        self.assertGreater(machine["f32"]["peak_TFLOPS"], 0)
        self.assertEqual((machine["is_gpu"], machine["software"]["attention_score_bytes"]), (0, 0))
        self.assertGreater(machine["software"]["fixed_GiB"], 0.001)
        return machine

    def test_other_commands_read_it(self):
        machine = self.check(2)
        self.assertEqual(machine["collectives"]["by_level"], 1)
        self.assertEqual(machine["collectives"]["direct_KiB"], 0)  # ranks that are threads: not measured
        done = run("plan", "gpt2", "-n", "2", "--machine", self.file, "--dtype", "f32", "--mem", "64G", "--json")
        self.assertEqual((done.returncode, done.err), (0, ""))
        json.loads(done.out)
        done = run("bench", "layer", "--local", "2", "--grid", "all", "--hidden", "64", "--context", "32",
                   "--machine", self.file, "--iterations", "2", "--csv")
        self.assertEqual((done.returncode, done.err), (0, ""))
        rows = list(csv.DictReader(io.StringIO(done.out)))
        self.assertEqual(len(rows), 3 * 4)
        for row in rows:
            said, measured = float(row["predicted_secs"]), float(row["median_secs"])
            self.assertGreater(said, 0)
            self.assertGreater(float(row["serial_predicted_secs"]), 0)
            self.assertAlmostEqual(float(row["error"]), said / measured - 1, places=5)

    def test_link_of_one_rank(self):
        """What one rank cannot measure is called assumed."""
        for n, words in {1: " (assumed: it takes several ranks to measure it)", 2: ""}.items():
            done = self.calibrate("--force", ranks=("--local", str(n)))
            self.assertEqual((done.returncode, done.err), (0, ""))
            self.assertRegex(done.out, rf"# node: \S+ GB/s a rank, step \S+ us{re.escape(words)}\n")
            self.assertEqual(json.loads(self.read(self.file))["calibration"]["links_assumed"], n == 1)

    def test_one_rank_and_json(self):
        done = self.calibrate("--json", "--name", "laptop of mine", ranks=())
        self.assertEqual((done.returncode, done.err), (0, ""))
        said = json.loads(done.out)
        self.assertEqual((said["machine"], said["ranks"], len(said["all"])), ("laptop of mine", 1, said["samples"]))
        for sample in said["all"]:
            self.assertGreater(sample["measured_us"], 0)
            self.assertAlmostEqual(sample["error"], sample["model_us"] / sample["measured_us"] - 1, places=5)
        run("plan", "gpt2", "-n", "1", "--machine", self.file)

    def test_base(self):
        """What one rank does not measure stays as in another machine."""
        done = self.calibrate("--base", "dgx-h100", ranks=())
        self.assertEqual((done.returncode, done.err), (0, ""))
        machine = json.loads(self.read(self.file))
        self.assertEqual([(link["name"], link["rank_GBps"]) for link in machine["links"]],
                         [("NVLink", 351), ("InfiniBand", 0)])
        self.assertEqual((machine["ranks_per_node"], machine["software"]["optimizer_bytes"]), (8, 28))
        self.assertNotIn(machine["f32"]["peak_TFLOPS"], (67, 0))  # measured, as this is
        self.assertNotEqual(machine["device"], "H100-SXM5-80GB")
        self.assertEqual((machine["is_gpu"], machine["software"]["attention_score_bytes"]), (0, 0))  # 1 and 2 there
        done = self.calibrate("--force", "--base", "dgx-h1000", ranks=())
        self.assertEqual((done.returncode, done.out), (2, ""))
        self.assertIn("dgx-h100", done.err)

    @unittest.skipUnless("--mpiexec" in sys.argv, "no mpiexec")
    def test_mpi(self):
        machine = self.check(4, before=[ARGUMENTS.mpiexec, "-n", "4"])
        for border in ("direct_KiB", "direct_all_reduce_KiB", "two_round_KiB"):
            self.assertIn(machine["collectives"][border], (64, 128, 256, 512, 1024), border)

    @unittest.skipUnless("--mpiexec" in sys.argv, "no mpiexec")
    def test_ranks_not_node_by_node(self):
        """Six ranks in four simulated nodes, the last ones with one rank each."""
        cliques = ["env", "MPIR_CVAR_NUM_CLIQUES=4", "MPIR_CVAR_CLIQUES_BY_BLOCK=1"]
        done = self.calibrate(before=[*cliques, ARGUMENTS.mpiexec, "-n", "6"])
        self.assertEqual((done.returncode, done.out, len(done.err.strip().splitlines())), (2, "", 1), done.err)
        self.assertIn("the same number of ranks on each node", done.err)
        self.assertEqual(os.listdir(self.folder), [])

    def write_model(self, **keys):
        """Sizes that all differ, so that a shape tells where it comes from."""
        path = os.path.join(self.folder, "model.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"model_type": "gpt2", "n_embd": 48, "n_head": 4, "n_layer": 3, "n_positions": 20, "n_inner": 80,
                       "vocab_size": 100, **keys}, file)
        return path

    def samples_for(self, *words, **how):
        done = self.calibrate("--json", *words, **how)
        self.assertEqual((done.returncode, done.err), (0, ""))
        return [sample["sample"].removeprefix("network: ") for sample in json.loads(done.out)["all"]
                if sample["sample"].startswith("network: ")]

    def test_network(self):
        """Two ranks along x: 2 sequences of 20 tokens, each rank multiplies half of the hidden size."""
        model = self.write_model()
        samples = self.samples_for("--for", model, "--grid", "2x1x1x1")
        products = [[int(size) for size in sample.split()[2].split("x")] for sample in samples
                    if sample.startswith(("product NT", "product NN"))]
        for out, into in ((3 * 48, 24), (24, 48), (80, 24), (24, 80), (100, 24)):
            rows = sum(m for m, n, k in products if (n, k) == (out, into))  # of all panels and parts of the batch
            self.assertIn(rows, (40, 80), (out, into, products))  # 80: backward has a product of the same shape
        for kind, count in (("attention,", 1), ("activation,", 1), ("norm-apply", 3), ("norm-backward", 3),
                            ("embed,", 1), ("loss-backward", 1), ("add", 2)):
            self.assertGreaterEqual(sum(sample.startswith(kind) for sample in samples), count, (kind, samples))
        self.assertTrue(any(" x of 2, 1 apart" in sample for sample in samples), samples)
        self.assertFalse(any(f" {axis} of" in sample for sample in samples for axis in "yzd"), samples)
        done = self.calibrate("--force", "--for", model, "--seq", "10", "--batch", "6", "--dtype", "f64")
        self.assertEqual((done.returncode, done.err), (0, ""))
        self.assertIn("network: attention", done.out)
        self.assertIn("a layer of model", done.out)
        self.assertIn("6 sequences of 10 tokens", done.out)
        self.assertIn("kind of task", done.out)
        self.assertEqual(sorted(os.listdir(self.folder)), ["here.json", "model.json"])

    def test_network_with_gates(self):
        """Grouped keys, gates and rotations; the best grid of four."""
        model = self.write_model(model_type="llama", hidden_size=48, num_attention_heads=4, num_key_value_heads=2,
                                 num_hidden_layers=2, intermediate_size=80, max_position_embeddings=20)
        samples = self.samples_for("--for", model, "--batch", "4", ranks=("--local", "4"))
        self.assertTrue(any(sample.startswith("attention-backward") for sample in samples), samples)
        self.assertTrue(any(sample.startswith("activation-backward") for sample in samples), samples)
        self.assertFalse(any(sample.startswith(("position", "bias")) for sample in samples), samples)

    @unittest.skipUnless("--mpiexec" in sys.argv, "no mpiexec")
    def test_network_mpi(self):
        samples = self.samples_for("--for", self.write_model(), "--grid", "1x2x2x1",
                                   before=[ARGUMENTS.mpiexec, "-n", "4"])
        for kind in ("all-gather z", "reduce-scatter z", "all-reduce y", "product TN"):
            self.assertTrue(any(sample.startswith(kind) for sample in samples), (kind, samples))

    def test_network_refused(self):
        self.write_model()
        for words, says in ((("--grid", "2x1x1x1"), "--for MODEL"), (("--seq", "8"), "--for MODEL"),
                            (("--for", "gpt-two"), "gpt-two"), (("--for", "gpt2", "--grid", "4x1x1x1"), "4"),
                            (("--for", "gpt2", "--dtype", "f16"), "--dtype"),
                            (("--for", "gpt2", "--grid", "4x1x1x1"), "calibrate: grid"),
                            (("--for", "gpt2", "--grid", "1x1x1x2", "--batch", "1"), "a batch of 1 is too small"),
                            (("--for", "llama-3.1-405b", "--seq", "8"), "--grid")):
            done = self.calibrate(*words)
            self.assertIn(done.returncode, (2, 3), words)
            self.assertEqual((done.out, len(done.err.splitlines())), ("", 1), (words, done.err))
            self.assertIn(says, done.err)
            self.assertEqual(os.listdir(self.folder), ["model.json"])

    def test_nothing_is_replaced_without_force(self):
        self.write(self.file, "precious")
        done = self.calibrate()
        self.assertEqual((done.returncode, done.out), (2, ""))
        self.assertIn("--force", done.err)
        self.assertEqual(self.read(self.file), "precious")
        self.assert_only_file()
        self.assertEqual(self.calibrate("--force").returncode, 0)
        self.assert_only_file()
        self.assertIn("calibration", json.loads(self.read(self.file)))

    def test_this_host(self):
        """Without --out: programs here use the file from then on."""
        home = self.folder

        def here(*words, HOME=home, **environment):
            return run(*words, before=["env", "-u", "XDG_DATA_HOME", f"HOME={HOME}",
                                       *(f"{name}={value}" for name, value in environment.items())])

        def machine_here():
            done = here("plan", "gpt2", "-n", "2", "--machine", "here", "--dtype", "f32", "--mem", "64G", "--json")
            self.assertEqual((done.returncode, done.err), (0, ""))
            return json.loads(done.out)["machine"]

        self.assertEqual(machine_here(), "laptop")
        words = ("calibrate", *QUICK, "--local", "2")
        done = here(*words)
        path = os.path.join(home, ".local/share/quadrille/hosts", socket.gethostname() + ".json")
        self.assertEqual((done.returncode, done.err), (0, ""))
        self.assertIn(path, done.out)
        self.assertEqual(machine_here(), socket.gethostname())
        self.assertIn("--force", here(*words).err)
        self.assertEqual(here(*words, "--force", "--name", "mine").returncode, 0)
        self.assertEqual(machine_here(), "mine")
        self.assertEqual(here(*words, XDG_DATA_HOME=os.path.join(home, "other")).returncode, 0)
        self.assertTrue(os.path.exists(os.path.join(home, "other/quadrille/hosts", os.path.basename(path))))
        done = here(*words, HOME="")
        self.assertEqual((done.returncode, done.out), (2, ""))
        self.assertIn("set HOME or XDG_DATA_HOME", done.err)
        words = ("bench", "layer", "--local", "2", "--grid", "2x1x1x1", "--hidden", "64", "--context", "32",
                 "--iterations", "1", "--dtype", "f64")
        for text, says in (("{", "JSON"), ('{"name": "mine", "based_on": "laptop", "f64": {"peak_TFLOPS": 0}}',
                                           "mine has no peak for f64")):
            self.write(path, text)
            done = here(*words)
            self.assertEqual(done.returncode, 0, done.err)
            self.assertIn("neither panels nor parts", done.err)
            self.assertIn(says, done.err)
            named = here(*words, QDR_MACHINE=path)
            self.assertEqual((named.returncode, named.out), (2, ""))
            self.assertIn(says, named.err)
            self.assertEqual(here("plan", "gpt2", "-n", "2", "--machine", "here", "--dtype", "f64").returncode, 2)

    def test_refused(self):
        for words, says in ((("--name", ""), "--name"), (("--name", "x" * 64), "63"), (("--local", "0"), "local"),
                            (("--threads", "x"), "threads"), (("--slow",), "calibrate --help"), (("more",), "more"),
                            (("-o",), "-o"),
                            (("-o", os.path.join(self.folder, "no", "x.json")), "folder that exists")):
            done = run("calibrate", "--quick", *words)
            self.assertEqual((done.returncode, done.out, len(done.err.splitlines())), (2, "", 1), words)
            self.assertIn(says, done.err)
        for words, says in ((("--machine", "no-such"), "no-such"),
                            (("--machine", "dgx-a100", "--panels", "2"), "--panels"),
                            (("--machine", "dgx-a100", "--batch-parts", "2"), "--batch-parts")):
            done = run("bench", "layer", *words)
            self.assertEqual((done.returncode, done.out, len(done.err.splitlines())), (2, "", 1), words)
            self.assertIn(says, done.err)


if __name__ == "__main__":
    cases.main("quadrille", "--mpiexec")
