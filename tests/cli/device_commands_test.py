#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands that compute, on GPUs in ordinary device memory: those of the fake CUDA, which counts what it was asked
for, so that a command that silently computes on the CPU is noticed.

usage: device_commands_test.py BUILD_DIR FAKE_PLUGIN FAKE_CUDNN
"""
import json
import os
import unittest

try:
    import numpy
except ImportError:
    numpy = None

import cases
from cases import ARGUMENTS

NAMES = ("QDR_", "NCCL_", "CUDA_", "FAKE_")
FEW = ("--iterations", "3", "--warmup", "1")
KINDS = ["all-gather", "reduce-scatter", "all-reduce", "broadcast", "all-to-all", "send-recv"]


def start(*words, program="src/quadrille", **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(NAMES)}
    return cases.start(os.path.join(ARGUMENTS.build, program), *words, timeout=280,
                       env={**clean, "FAKE_CUDA_DELAY_US": "5", "QDR_CUDA_PLUGIN": ARGUMENTS.plugin, **environment})


class Case(cases.Case):
    def output(self, *words, **environment):
        done = start(*words, **environment)
        self.assertEqual((done.returncode, done.err), (0, ""), done.out)
        return done.out


class Bench(Case):
    def rows(self, *words, **environment):
        result = json.loads(self.output("bench", *words, *FEW, "--json", **environment))
        self.assertEqual(result["device"], "cuda")
        return result["rows"]

    def test_coll(self):
        """Local ranks that share a GPU, and NCCL."""
        for gpus in ("1", "2"):
            rows = self.rows("coll", "--device", "cuda", "--local", "2", "--kind", "all", "-b", "64", "-e", "4K",
                             FAKE_CUDA_GPUS=gpus)
            self.assertEqual([(row["kind"], row["size_bytes"]) for row in rows],
                             [(kind, size) for kind in KINDS for size in (64, 256, 1024, 4096)])
            for row in rows:
                both = row["kind"] in ("all-gather", "reduce-scatter", "all-reduce", "broadcast")
                self.assertEqual((row["wrong"], row["in_place_wrong"]), (0, 0 if both else None), row)
                self.assertGreater(row["min_secs"], 0)

    def test_coll_by_the_clock_of_the_gpu(self):
        """The host learns 40 ms late that ten calls have ended."""
        for row in self.rows("coll", "--device", "cuda", "--local", "2", "-b", "64", "-e", "64", FAKE_CUDA_GPUS="2",
                             FAKE_CUDA_HOST_US="40000"):
            self.assertLess(row["min_secs"], 0.002, row)

    def test_coll_with_a_codec(self):
        """However often a sum in place is repeated, its numbers stay finite: of eight ranks even the 11 calls of an
        iteration would exceed f16, and the four iterations of two ranks."""
        for dtype, ranks in (("f32", "2"), ("f16", "2"), ("f16", "8")):
            (row,) = self.rows("coll", "--device", "cuda", "--local", ranks, "--codec", "int8+feedback", "-b", "64K",
                               "-e", "64K", "--dtype", dtype, FAKE_CUDA_GPUS=ranks)
            self.assertEqual((row["wrong"], row["codec"]), (0, "int8/128+feedback"))

    def test_products_and_layers(self):
        shape = ("--local", "2", "--grid", "all", "-m", "24", "-n", "20", "-k", "16")
        self.assertEqual(len(self.rows("linear", "--device", "cuda", *shape)), 8)
        for row in self.rows("linear", *shape, QDR_DEVICE="cuda", FAKE_CUDA_GPUS="2"):
            self.assertGreater(row["median_secs"], 0)
            self.assertIsNone(row["d_secs"])  # nobody takes the time of one collective on a GPU
        for row in self.rows("layer", "--device", "cuda", "--local", "2", "--hidden", "24", "--heads", "6",
                             "--context", "5", "--sequences", "4", "--layers", "2"):
            self.assertGreater(row["limit_median_secs"], 0)

    def test_codecs_and_checkpoints(self):
        for codec in ("int8+feedback", "int16"):
            (row,) = self.rows("codec", "--device", "cuda", "--codec", codec, "--size", "256K", "--dtype", "bf16")
            self.assertLessEqual(row["bound_share"], 1)
        rows = self.rows("ckpt", "--device", "cuda", "--local", "2", "--hidden", "16", "--heads", "2", "--file",
                         self.path("bench.ckpt"))
        self.assertEqual([row["what"] for row in rows], ["rank", "all", "save", "held", "background", "load"])

    def test_who_joins_local_ranks(self):
        """NCCL, if each has a GPU of its own; and the log says why it cannot."""
        words = ("bench", "coll", "--device", "cuda", "--local", "2", "-b", "64", "-e", "64", *FEW)
        self.assertNotIn("joined by", start(*words, FAKE_CUDA_GPUS="2", QDR_DEBUG="2").err)
        said = start(*words, FAKE_CUDA_GPUS="1", QDR_DEBUG="2").err
        self.assertIn("ranks 0 and 1 of one node are both on the GPU", said)
        self.assertIn("joined by local instead", said)

    def test_where(self):
        words = ("bench", "coll", "--local", "2", "-b", "64", "-e", "64", *FEW)
        self.assertIn("# device: cuda\n", self.output(*words, "--device", "cuda:0"))
        self.assertEqual(json.loads(self.output(*words, "--json"))["device"], "cpu")
        header, row = self.output(*words, "--csv", QDR_DEVICE="cuda").splitlines()
        self.assertEqual((header.split(",")[-1], row.split(",")[-1]), ("device", "cuda"))
        self.assertNotIn("device", self.output(*words, "--device", "cpu", QDR_DEVICE="cuda"))

    def test_refused(self):
        self.assert_refused(start("bench", "coll", "--device", "cuda", "--local", "2", "--memory", "caller"),
                            "--memory caller", "--device cpu")
        self.assert_refused(start("bench", "coll", "--device", "gpu"), '"gpu"', "use cpu, cuda")
        self.assert_refused(start("bench", "linear", "--device", "cuda:3", "--local", "2", FAKE_CUDA_GPUS="2"),
                            "no GPU 3", "use 0 to 1")
        for command in (["bench", "codec"], ["verify"]):
            self.assert_refused(start(*command, "--device", "cuda", FAKE_CUDA_DRIVER="0"), "no CUDA driver",
                                "--device cpu")
            self.assert_refused(start(*command, QDR_DEVICE="cuda", FAKE_CUDA_GPUS="0"), "CUDA_VISIBLE_DEVICES")


class Verify(Case):
    def test_every_grid(self):
        for gpus, words in (("1", ()), ("4", ("--codec", "int8", "--dtype", "bf16"))):
            out = self.output("verify", "-n", "4", "--cases", "4", "--device", "cuda", *words, FAKE_CUDA_GPUS=gpus)
            rows = out.splitlines()[1:]
            self.assertEqual(len(rows), 10 * 2 * (1 if words else 4))
            self.assertTrue(all(row.endswith("ok") for row in rows), out)

    def test_computes_there(self):
        """A GPU that computes something else is noticed."""
        done = start("verify", "-n", "1", "--cases", "4", "--dtype", "f32", QDR_DEVICE="cuda", QDR_TF32="1")
        self.assertEqual(done.returncode, 4, done.out)
        self.assertIn("FAIL", done.out)


@unittest.skipUnless(numpy, "no numpy")
class Linear(Case):
    def test_results(self):
        """Like NumPy's, on the CPU and on GPUs."""
        numbers = numpy.random.default_rng(1)
        arrays = {name: numbers.integers(-3, 4, shape).astype(numpy.float32)
                  for name, shape in (("x", (10, 6)), ("w", (8, 6)), ("b", (8,)), ("dy", (10, 8)))}
        words = ["linear"]
        for name, array in arrays.items():
            numpy.save(self.path(name + ".npy"), array)
            words += ["--" + name, self.path(name + ".npy")]
        x, w, b, dy = arrays.values()
        wanted = {"y": x @ w.T + b, "dx": dy @ w, "dw": dy.T @ x, "db": dy.sum(0)}
        for grid, gpus in (("2x1x2x1", "1"), ("1x2x1x2", "4")):
            out = self.path("out" + gpus)
            self.output(*words, "--grid", grid, "--local", "4", "--out", out, "--device", "cuda", FAKE_CUDA_GPUS=gpus)
            for name, array in wanted.items():
                self.assertTrue((numpy.load(os.path.join(out, name + ".npy")) == array).all(), (grid, name))


class Calibrate(Case):
    def calibrate(self, *words, **environment):
        """The file, which is whole, and another command reads it."""
        file = self.path("here.json")
        done = cases.calibrated(lambda: start("calibrate", "--quick", "--force", "-o", file, "--device", "cuda", *words,
                                              **{"QDR_CUDNN": "/no/cudnn.so", **environment}))
        self.assertEqual((done.returncode, done.err), (0, ""))
        machine = json.loads(self.read(file))
        self.assertEqual((machine["name"], machine["device"]), ("here", "Fake GPU 0"))
        self.assertEqual((machine["memory_GiB"], machine["is_gpu"]), (2, 1))
        self.assertGreater(machine["software"]["fixed_GiB"], 40 / 1024)  # of products and kernels
        self.assertLess(machine["software"]["fixed_GiB"], 0.5)
        for dtype in ("f32", "f64", "bf16"):
            self.assertGreater(machine[dtype]["peak_TFLOPS"], 0)
        for key in ("launch_us", "host_us"):
            self.assertGreater(machine["software"][key], 0)
        self.assertEqual(machine["software"]["host_power"], 3)
        self.assertGreater(machine["attention_efficiency"], 0)
        self.assertEqual(machine["codecs"]["processor_share"], 0)
        self.assertGreater(machine["codecs"]["int8_encode_GBps"], 0)
        done = start("plan", "gpt2", "-n", "8", "--machine", file, "--mem", "64G")
        self.assertEqual(done.returncode, 0, done.err)
        return machine, {group["group"] for group in machine["calibration"]["residuals"]}

    def test_gpus_with_links(self):
        model = self.path("model.json")
        with open(model, "w", encoding="utf-8") as file:
            json.dump({"model_type": "gpt2", "n_embd": 32, "n_head": 2, "n_layer": 2, "n_positions": 16,
                       "vocab_size": 64}, file)
        machine, groups = self.calibrate("--local", "2", "--for", model, "--dtype", "bf16", FAKE_CUDA_GPUS="2")
        self.assertEqual(machine["ranks_per_node"], 2)
        self.assertEqual([link["name"] for link in machine["links"]], ["node"])
        self.assertNotEqual(machine["links"][0]["rank_GBps"], 1)  # what it begins with
        self.assertEqual((machine["collectives"]["by_level"], machine["collectives"]["has_tree"]), (0, 1))
        self.assertEqual(machine["software"]["attention_score_bytes"], 0)
        self.assertLessEqual({"all-gather, all groups", "reduce-scatter, all groups", "all-reduce, all groups",
                              "attention", "product TN bf16", "copy", "launch", "network: attention"}, groups)

    def test_one_gpu(self):
        """Its links, and everything else that it does not show, are another machine's."""
        machine, groups = self.calibrate("--base", "dgx-h100")
        with open(os.path.join(os.path.dirname(__file__), "../../perfmodel/machines/dgx-h100.json"),
                  encoding="utf-8") as file:
            base = json.load(file)
        self.assertEqual(machine["ranks_per_node"], 8)
        for link, other in zip(machine["links"], base["links"], strict=True):
            self.assertEqual({key: link[key] for key in other}, other)
        self.assertEqual(machine["collectives"]["start_us"], base["collectives"]["start_us"])
        self.assertEqual(machine["software"]["optimizer_bytes"], base["software"]["optimizer_bytes"])
        self.assertNotEqual(machine["bf16"]["peak_TFLOPS"], base["bf16"]["peak_TFLOPS"])
        self.assertEqual(machine["software"]["attention_score_bytes"], 0)  # 2 there: this GPU has no cuDNN
        self.assertFalse([group for group in groups if "groups" in group], groups)

    def test_memory_of_attention(self):
        """cuDNN's takes two bytes for each score, which plans then count."""
        machine, _ = self.calibrate("--base", "dgx-a100", QDR_CUDNN=ARGUMENTS.cudnn)
        self.assertEqual(machine["software"]["attention_score_bytes"], 2)
        machine, _ = self.calibrate("--base", "dgx-a100", QDR_CUDNN=ARGUMENTS.cudnn, QDR_ATTENTION="own")
        self.assertEqual(machine["software"]["attention_score_bytes"], 0)

    def test_refused(self):
        words = ("calibrate", "--quick", "--device", "cuda", "-o", self.path("none.json"))
        self.assert_refused(start(*words), "one GPU", "--local 8", "--base")
        self.assert_refused(start(*words, "--local", "2"), "ranks 0 and 1", "GPU 0", "one rank for each GPU")
        self.assert_refused(start(*words, "--base", "dgx-h1000"), "dgx-h100")
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    cases.main("build", "plugin", "cudnn")
