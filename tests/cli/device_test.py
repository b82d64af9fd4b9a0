#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples and the doctor on GPUs, in ordinary device memory: on the plugin built on the fake CUDA, and, where
there is no driver, on the real one.

usage: device_test.py BUILD_DIR --fake FAKE_PLUGIN [--listener LISTENER] [--cudnn FAKE_CUDNN]
                      [--plugin REAL_PLUGIN] [--full]
"""
import json
import os

import cases
from cases import ARGUMENTS, ranks_of, start

NAMES = ("QDR_", "NCCL_", "CUDA_", "FAKE_")
SIZE = ["--layers", "2", "--hidden", "16", "--heads", "2", "--ctx", "8", "--batch", "4",
        "--steps", "3", "--val-windows", "3", "--sample", "8"]
BLOCK = ["--hidden", "16", "--heads", "2", "--ctx", "8", "--batch", "4", "--iterations", "2"]
# for losses after a few steps: docs/numerics.md, "Training losses".
ALLOWED = {"f64": 1e-9, "f32": 1e-4, "bf16": 2e-2}


def run(program, *words, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(NAMES)}
    return start(os.path.join(ARGUMENTS.build, program), *words, timeout=300,
                 env={**clean, "FAKE_CUDA_DELAY_US": "5", "QDR_CUDA_PLUGIN": ARGUMENTS.fake, **environment})


def layer(*words, grid="1x1x1x1", device="cuda", **environment):
    return run("examples/transformer_layer", *BLOCK, "--grid", grid, "--local", str(ranks_of(grid)),
                 "--device", device, *words, **environment)


class Losses(cases.Case):
    """train on GPUs gives the CPU's losses."""

    def train(self, device, grid, dtype, *words, **environment):
        text, log = self.path("text.txt"), self.path("run.jsonl")
        with open(text, "w", encoding="ascii") as file:
            file.writelines(f"{i}: {i * i}\n" for i in range(200))
        done = run("examples/train", text, *SIZE, "--dtype", dtype, "--grid", grid,
                     "--local", str(ranks_of(grid)), "--device", device, "--log", log, *words, **environment)
        self.assertEqual(done.returncode, 0, done.err)
        with open(log, encoding="ascii") as file:
            return [line for line in map(json.loads, file) if "loss" in line]

    def compare(self, grid, dtype, *words, **environment):
        expected = self.train("cpu", "1x1x1x1", dtype)
        got = self.train("cuda", grid, dtype, *words, **environment)
        self.assertEqual(len(got), len(expected))
        self.assertGreaterEqual(len(got), 3)
        for line, other in zip(got, expected):
            for key in {"loss", "val_loss"} & set(other):
                self.assertLessEqual(abs(line[key] - other[key]), ALLOWED[dtype] * other[key],
                                     (grid, dtype, line, other))

    def test_types(self):
        for dtype in ALLOWED:
            with self.subTest(dtype):
                self.compare("1x1x1x1", dtype)

    def test_grids(self):
        grids = [("2x1x1x1", "f32"), ("1x2x2x1", "f64"), ("2x1x1x2", "bf16")]
        for grid, dtype in grids + ([("2x2x2x1", "f32"), ("1x1x2x4", "f64")] if ARGUMENTS.full else []):
            with self.subTest(grid):
                self.compare(grid, dtype)

    def test_scattered(self):
        self.compare("2x2x1x1", "f32", "--layout", "scattered", "--panels", "2")

    def test_graph(self):
        """Recorded steps: the same losses, with several micro-batches, and validation in between."""
        for grid, words in (("1x1x1x1", ()), ("2x1x1x1", ("--micro-batch", "1", "--val-every", "2"))):
            runs = [self.train("cuda", grid, "bf16", *words, "--steps", "6", "--graph", graph, FAKE_CUDA_GPUS="2")
                    for graph in ("off", "on")]
            off, on = [[(line["loss"], line["lr"], line.get("val_loss")) for line in run] for run in runs]
            self.assertEqual(on, off, grid)
            self.assertEqual(len(set(off)), 6)
        done = run("examples/train", *SIZE, "--local", "2", "--device", "cuda", "--graph", "on")
        self.assertEqual(done.returncode, 2)
        self.assertIn("local ranks meet on the host", done.err)

    def test_gpu_each(self):
        """With NCCL, which is the default, and with local ranks that access each other's memory."""
        self.compare("2x1x1x1", "f32", FAKE_CUDA_GPUS="2")
        self.compare("1x2x1x1", "f32", FAKE_CUDA_GPUS="2", QDR_CUDA_COMM="local")


class Block(cases.Case):
    def test_grids(self):
        for grid, *words in [("1x1x1x1",), ("2x2x1x1", "--panels", "2"),
                             ("2x1x2x1", "--layout", "scattered", "--panels", "3"),
                             ("1x2x1x2", "--dtype", "bf16"), ("2x1x1x1", "--batch-parts", "2")]:
            with self.subTest(grid):
                result = json.loads(self.assert_done(layer("--json", *words, grid=grid)))
                self.assertEqual(result["grid"], grid)
                self.assertGreater(result["backward_secs"], 0)
                planned = [row for row in result["traffic"] if not row["channel"].endswith("stat")]
                self.assertTrue(planned or grid == "1x1x1x1", result)
                for row in planned:
                    self.assertEqual(row["bytes_sent"], row["bytes_planned"], row)

    def test_graph(self):
        for grid, gpus in (("1x1x1x1", "1"), ("2x1x1x1", "2")):
            result = json.loads(self.assert_done(layer("--json", "--graph", "on", grid=grid, FAKE_CUDA_GPUS=gpus,
                                                       QDR_CUDA_COMM="nccl")))
            self.assertEqual((result["grid"], result["graph"]), (grid, True))
            for row in result["traffic"]:
                if not row["channel"].endswith("stat"):
                    self.assertEqual(row["bytes_sent"], row["bytes_planned"], row)
        self.assertIn("as graphs", self.assert_done(layer("--graph", "on")))

    def test_trace(self):
        """Times of each stream increase, and the command reads the file."""
        name = self.path("run.json")
        self.assert_done(layer(grid="2x1x1x1", QDR_TRACE=name))
        for rank in range(2):
            events = [event for event in json.loads(self.read(f"{name}.{rank}"))["traceEvents"] if event["ph"] == "X"]
            self.assertGreater(len(events), 20)
            ends = {}
            for event in sorted(events, key=lambda event: (event["args"]["run"], event["args"]["task"])):
                self.assertGreaterEqual(event["dur"], 0, event)
                self.assertGreaterEqual(event["ts"], ends.get(event["tid"], 0) - 0.01, event)  # to 10 ns
                ends[event["tid"]] = event["ts"] + event["dur"]
            self.assertGreater(len(ends), 1)
        done = run("src/quadrille", "trace", name)
        self.assertIn("# 2 ranks, grid 2x1x1x1", self.assert_done(done))
        self.assertIn("x reduce", done.out)


class Ranges(cases.Case):
    """The NVTX ranges that a profiler receives: one for each task, named as in the trace."""

    def setUp(self):
        super().setUp()
        if not ARGUMENTS.listener:
            self.skipTest("nobody listens")

    def test_names(self):
        name = self.path("run.json")
        self.assert_done(layer(QDR_TRACE=name, NVTX_INJECTION64_PATH=ARGUMENTS.listener,
                               LISTENER_FILE=self.path("ranges")))
        events = [event for event in json.loads(self.read(f"{name}.0"))["traceEvents"] if event["ph"] == "X"]
        traced = {f"{event['name']}: {event['cat']} #{event['args']['task']}" for event in events}
        products = {f"{event['name']}: product #{event['args']['task']}" for event in events
                    if event["cat"] == "product"}
        with open(self.path("ranges"), encoding="utf-8") as file:
            ranges = {line.rstrip("\n") for line in file if line.startswith("block")}
        self.assertGreater(len(ranges), 20)
        self.assertLessEqual(ranges, traced)  # biases and GELU may be fused with a product
        self.assertLessEqual(products, ranges)

    def kinds(self, *words, grid="1x1x1x1", **environment):
        """Names and kinds of the tasks that run separately, of a block whose layers are wide enough to be multiplied at
        once."""
        ranges = self.path("ranges")
        self.assert_done(layer(*words, "--hidden", "32", grid=grid, NVTX_INJECTION64_PATH=ARGUMENTS.listener,
                               LISTENER_FILE=ranges, **environment))
        with open(ranges, encoding="utf-8") as file:
            return {line.split(" #")[0].removeprefix("block0.") for line in file if line.startswith("block")}

    def test_fused(self):
        """GELU and the gradient through it are fused with the preceding product, if its sum involves no other rank."""
        gelu = {"gelu: activation", "gelu: activation-backward"}
        biases = {f"{name}: bias-add" for name in ("qkv", "proj", "fc", "fc2")}
        bf16 = ("--dtype", "bf16")
        for words, grid, environment, expected in (
                (bf16, "1x1x1x1", {}, set()),
                (("--dtype", "f16"), "1x1x1x1", {}, set()),
                ((*bf16, "--batch-parts", "2"), "1x1x1x1", {}, set()),
                (bf16, "1x1x2x1", {}, set()),
                ((*bf16, "--overlap", "off"), "1x1x2x1", {}, set()),
                (bf16, "1x2x1x1", {}, {"proj: bias-add", "fc2: bias-add"}),
                ((*bf16, "--layout", "scattered"), "1x2x1x1", {}, {"proj: bias-add", "fc2: bias-add"}),
                (bf16, "2x1x1x1", {}, gelu | {"qkv: bias-add", "fc: bias-add"}),
                (bf16, "2x2x1x1", {}, gelu | biases),
                ((*bf16, "--products", "fp8"), "1x1x1x1", {}, gelu | biases),
                (bf16, "1x1x1x1", {"FAKE_CUDA_CAPABILITY": "86"}, gelu),
                (bf16, "1x1x1x1", {"QDR_FUSE_GELU": "0"}, gelu),
                (("--dtype", "f32"), "1x1x1x1", {}, gelu),
                (("--dtype", "f64"), "1x1x1x1", {}, gelu | biases)):
            with self.subTest(words=words, grid=grid, environment=environment):
                found = self.kinds(*words, grid=grid, **environment)
                self.assertEqual(found & (gelu | biases), expected)
                self.assertIn("fc: product", found)

    def test_pairs(self):
        self.assert_done(layer(NVTX_INJECTION64_PATH=ARGUMENTS.listener, LISTENER_FILE=self.path("ranges")))
        with open(self.path("ranges"), encoding="utf-8") as file:
            self.assertNotIn("lost\n", file.readlines())

    def test_nobody_listens(self):
        self.assert_done(layer(QDR_NVTX="1"))


class Doctor(cases.Case):
    def test_two_gpus(self):
        report = json.loads(self.assert_done(run("src/quadrille", "doctor", "--json", FAKE_CUDA_GPUS="2")))
        self.assertEqual((report["works"], report["broken"]), (True, 0))
        states = {finding["name"]: finding["state"] for finding in report["findings"]}
        for name in ("driver", "cuda:0", "cuda:1", "NCCL", "product, cuda:0", "product, cuda:1", "all-reduce, cuda"):
            self.assertEqual(states.get(name), "ok", report)

    def test_the_default(self):
        self.assertEqual(self.find(0, "product, QDR_DEVICE", FAKE_CUDA_GPUS="2", QDR_DEVICE="cuda:1")[0], "ok")
        state, text = self.find(1, "product, QDR_DEVICE", FAKE_CUDA_GPUS="2", QDR_DEVICE="cuda:9")
        self.assertEqual(state, "broken")
        self.assertIn("no GPU 9", text)

    def find(self, code, name, program="src/quadrille", **environment):
        """Findings with that name, as (state, text and remedy)."""
        done = run(program, "doctor", "--json", **environment)
        self.assertEqual((done.returncode, done.err), (code, ""), done.out)
        self.report = json.loads(done.out)
        found = [(finding["state"], finding["text"] + "; " + (finding["remedy"] or ""))
                 for finding in self.report["findings"] if finding["name"] == name]
        self.assertLessEqual(len(found), 1, found)
        return found[0] if found else (None, "")

    def test_a_gpu_that_is_too_old(self):
        state, text = self.find(1, "cuda:0", FAKE_CUDA_CAPABILITY="75")
        self.assertEqual(state, "broken")
        self.assertIn("8.0", text)
        self.assertNotIn("f32", text)
        self.assertEqual(self.find(1, "product, cuda:0", FAKE_CUDA_CAPABILITY="75")[0], None)

    def test_a_driver_that_is_too_old(self):
        state, text = self.find(1, "use", FAKE_CUDA_DRIVER="12040")
        self.assertEqual(state, "broken")
        for words in ("CUDA 12.4", "13.0", "newer driver"):
            self.assertIn(words, text)
        state, text = self.find(0, "use", FAKE_CUDA_GPUS="0")
        self.assertEqual(state, "note")
        self.assertIn("no GPU can be used", text)
        self.assertEqual(self.find(0, "use", FAKE_CUDA_DRIVER="0")[0], "none")

    def test_environment_is_that_of_the_caller(self):
        self.find(0, "use")
        self.assertEqual({name for name in self.report["environment"] if name.startswith(NAMES)}, {"QDR_CUDA_PLUGIN"})
        self.find(0, "use", QDR_TIMEOUT="50", QDR_TRACE="/no/such/folder", QDR_CUDA_COMM="local")
        for name, value in (("QDR_TIMEOUT", "50"), ("QDR_TRACE", "/no/such/folder"), ("QDR_CUDA_COMM", "local")):
            self.assertEqual(self.report["environment"][name], value)

    def test_a_plugin_that_does_not_fit(self):
        self.assertIn("/no/plugin.so", self.find(0, "CUDA", QDR_CUDA_PLUGIN="/no/plugin.so")[1])
        self.assertIn("is of build", self.find(0, "CUDA", QDR_CUDA_PLUGIN="libm.so.6")[1])

    def test_cudnn(self):
        none = {"QDR_CUDNN": "/no/cudnn.so"}
        self.assertEqual(self.find(0, "cuDNN", **none)[0], "none")
        state, text = self.find(0, "cuDNN", QDR_ATTENTION="cudnn", **none)
        self.assertEqual(state, "note")
        self.assertIn("/no/cudnn.so", text)
        self.assertIn("own kernels", self.find(0, "attention", QDR_ATTENTION="cudnn", **none)[1])
        self.assertIn("auto, which means own here", self.find(0, "attention", **none)[1])
        if ARGUMENTS.cudnn:
            one = {"QDR_CUDNN": ARGUMENTS.cudnn}
            self.assertRegex(self.find(0, "cuDNN", **one)[1], r"^9\.\d+\.\d")
            self.assertGreater(self.report["versions"]["cudnn"], 90000)
            self.assertIn("cuDNN's kernels", self.find(0, "attention", QDR_ATTENTION="cudnn", **one)[1])
            self.assertIn("cuDNN's kernels for the shapes", self.find(0, "attention", **one)[1])
            self.assertIn("own here", self.find(0, "attention", FAKE_CUDA_CAPABILITY="80", **one)[1])
            self.assertIn("own kernels", self.find(0, "attention", QDR_ATTENTION="own", **one)[1])

    def test_registered_memory(self):
        two = {"FAKE_CUDA_GPUS": "2"}
        self.assertIn("is registered", self.find(0, "NCCL memory", **two)[1])
        state, text = self.find(0, "NCCL memory", FAKE_NCCL_REGISTER="1,0", **two)
        self.assertEqual(state, "note")
        self.assertIn("rank 1 cannot", text)
        self.assertIn("NCCL_LOCAL_REGISTER", text)
        self.assertIn("is not registered", self.find(0, "NCCL memory", QDR_NCCL_REGISTER="0", **two)[1])
        self.assertEqual(self.find(0, "all-reduce, NCCL", **two)[0], "ok")
        self.assertEqual(self.find(1, "all-reduce, cuda", FAKE_CUDA_FAIL="nccl:1", **two)[0], "broken")
        self.assertEqual(self.find(0, "NCCL memory")[0], None)

    def test_after_an_illegal_address(self):
        """Every later call of CUDA fails: so do the tests on GPUs that follow, and the report is whole."""
        for name in ("all-reduce, cuda", "all-reduce, NCCL"):
            state, text = self.find(1, name, FAKE_CUDA_GPUS="2", FAKE_CUDA_FAIL="illegal:1", QDR_CUDA_COMM="local")
            self.assertEqual(state, "broken")
            self.assertIn("illegal memory access", text)

    def test_nccl_that_is_too_old(self):
        state, text = self.find(0, "NCCL", FAKE_NCCL_VERSIONS="22501")
        self.assertEqual(state, "note")
        for words in ("2.25.1", "2.26", "LD_LIBRARY_PATH"):
            self.assertIn(words, text)
        self.assertEqual(self.find(0, "NCCL", FAKE_NCCL_VERSIONS="22600")[0], "ok")
        self.assertEqual(self.find(1, "NCCL", FAKE_CUDA_GPUS="2", FAKE_NCCL_VERSIONS="22501")[0], "note")

    def test_wrong_numbers(self):
        """With collectives that produce errors: the command that doctor recommends next finds where they are wrong."""
        for name, next_run in (("all-reduce, CPU", "run quadrille verify,"),
                               ("all-reduce, cuda", "run sh tests/gpu/run.sh build ")):
            state, text = self.find(1, name, program="tests/cli/quadrille_planted", QDR_CUDA_MEMORY="managed")
            self.assertEqual(state, "broken")
            self.assertIn("1 numbers in", text)
            self.assertIn(next_run, text)

    def test_text(self):
        out = self.assert_done(run("src/quadrille", "doctor", FAKE_CUDA_GPUS="2"))
        for words in ("cuda:0", "cuda:1", "NCCL", "all-reduce, cuda"):
            self.assertIn(words, out)


class Complaints(cases.Case):
    """Impossible requests: one message, the documented exit code, nothing on standard output."""

    def complain(self, code, says, *words, device="cuda", grid="2x1x1x1", **environment):
        done = layer(*words, device=device, grid=grid, **environment)
        self.assertEqual((done.returncode, done.out), (code, ""), done.err)
        self.assertEqual(len(done.err.splitlines()), 1, done.err)
        self.assertTrue(done.err.startswith("transformer_layer: "), done.err)
        for word in says:
            self.assertIn(word, done.err)

    def test_no_driver(self):
        self.complain(2, ["no CUDA driver", "--device cpu"], FAKE_CUDA_DRIVER="0")
        self.complain(2, ["CUDA 12.4", "newer driver"], FAKE_CUDA_DRIVER="12040")

    def test_gpus(self):
        self.complain(2, ["CUDA_VISIBLE_DEVICES", "--device cpu"], FAKE_CUDA_GPUS="0")
        self.complain(2, ["no GPU 3", "use 0 to 1"], device="cuda:3", FAKE_CUDA_GPUS="2")
        self.complain(2, ["7.5", "8.0"], FAKE_CUDA_CAPABILITY="75")

    def test_plugins(self):
        self.complain(2, ["/no/plugin.so", "QDR_CUDA_PLUGIN"], QDR_CUDA_PLUGIN="/no/plugin.so")

    def test_words(self):
        self.complain(2, ['"gpu"', "use cpu, cuda"], device="gpu")
        self.complain(2, ['QDR_CUDA_COMM is "rccl"', "nccl"], QDR_CUDA_COMM="rccl")
        self.complain(2, ['QDR_CUDA_MEMORY is "host"', "managed"], QDR_CUDA_MEMORY="host")
        self.complain(2, ['QDR_TF32 is "on"', "0 or 1"], QDR_TF32="on")

    def test_graphs(self):
        self.complain(2, ["graph", "local ranks", "NCCL"], "--graph", "on")
        self.complain(2, ["graph", "cannot record work"], "--graph", "on", device="cpu", grid="1x1x1x1")

    def test_memory(self):
        self.complain(3, ["device memory for", "bytes", "are needed", "in all", "smaller batch", "fewer ranks on each"],
                      FAKE_CUDA_MEMORY="40000")
        self.complain(3, ["cudaHostAlloc", "of the host", "fewer ranks on this machine"], FAKE_CUDA_FAIL="host:1")

    def test_products(self):
        self.complain(2, ["8.9", "QDR_PRODUCT_AS_STORED", "--products stored"], "--products", "fp8", "--dtype", "bf16",
                      FAKE_CUDA_CAPABILITY="86")

    def test_real_plugin(self):
        """The plugin built for GPUs, on a machine without any: it is only started."""
        if not ARGUMENTS.plugin or not os.path.exists(ARGUMENTS.plugin):
            self.skipTest("the plugin was not built")
        if os.path.exists("/proc/driver/nvidia/version"):
            self.skipTest("there is a driver")
        self.complain(2, ["no CUDA driver", "--device cpu"], QDR_CUDA_PLUGIN=ARGUMENTS.plugin)

    def test_cpu_goes_on(self):
        self.assert_done(layer(device="cpu", QDR_CUDA_PLUGIN="/no/plugin.so", FAKE_CUDA_DRIVER="0"))


if __name__ == "__main__":
    cases.main("build", "--fake", "--listener", "--cudnn", "--plugin", flags=("--full",))
