#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scripts that evaluate measurements on a GPU, with made-up measurements."""
import gzip
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import losses  # noqa: E402
import overlap  # noqa: E402
import record  # noqa: E402
import thin_nccl  # noqa: E402


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def event(tid, cat, begin, duration, run=9):
    return {"ph": "X", "name": "layer", "cat": cat, "pid": 0, "tid": tid, "ts": begin, "dur": duration,
            "args": {"run": run}}


def result(benchmark, values, **more):
    return {"benchmark": benchmark, "case": "small", "values": values, "bars": {}, "limits": {}, "words": {}, **more}


class Overlap(unittest.TestCase):
    def evaluate(self, *ranks):
        with tempfile.TemporaryDirectory() as folder:
            paths = [write(folder, f"trace.{i}", json.dumps({"traceEvents": events})) for i, events in enumerate(ranks)]
            return overlap.evaluate("small", [overlap.read_spans(path) for path in paths])["values"]

    def test_shares(self):
        values = self.evaluate(
            [event(0, "product", 0, 10), event(0, "product", 8, 4), event(3, "all-reduce", 6, 10),
             event(0, "gelu", 12, 100), event(3, "all-reduce", 0, 50, run=1), {"ph": "M", "name": "thread_name"}],
            [event(0, "product", 14, 4), event(5, "all-gather", 20, 10)])
        self.assertEqual(values["collectives"], [2])
        self.assertEqual(values["collectives overlapping a product of their rank"], [1])
        self.assertEqual(values["time of collectives, ms"], [0.02])
        self.assertAlmostEqual(values["share overlapping products of their rank"][0], 6 / 20)
        self.assertAlmostEqual(values["share overlapping products of any rank"][0], 8 / 20)

    def test_nothing_travels(self):
        self.assertEqual(self.evaluate([event(0, "product", 0, 10)])["share overlapping products of any rank"], [0.0])


class Losses(unittest.TestCase):
    def test_differences(self):
        values = losses.compare("small", [2.0, 1.0], [2.0, 1.1], [2.0, 1.0])["values"]
        self.assertEqual(values["GPU to float64"], [0.0])
        self.assertAlmostEqual(values["CPU to float64"][0], 0.1)

    def test_what_is_no_loss(self):
        for bad in ([], [1.0], [1.0, None]):
            self.assertEqual(losses.largest_difference(bad, [1.0, 1.0]), float("inf"))

    def test_ranks(self):
        values = losses.compare_ranks("small", [2.0, 1.1], [2.0, 1.0])["values"]
        self.assertAlmostEqual(values["ranks to one rank"][0], 0.1)

    def test_log(self):
        with tempfile.TemporaryDirectory() as folder:
            path = write(folder, "log", '{"step":0,"loss":2.5,"lr":1}\n{"step":1,"loss":null,"lr":1}\n')
            self.assertEqual(losses.read_losses(path), [2.5, None])


class Record(unittest.TestCase):
    def make(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                write(folder, name.replace("_", "."), text)
            return record.make_record(folder)

    def test_empty(self):
        made = self.make()
        self.assertIn("None were measured.", record.markdown(made))
        self.assertEqual(record.file_name(made["facts"]), "no-gpu-no-date")

    def test_facts(self):
        info = {"gpu": "NVIDIA H9 80GB", "bus": "0", "sms": 3, "major": 9, "minor": 0, "bytes": 5, "driver": 13010,
                "runtime": 13000, "cublaslt": 130100, "nccl": 22809}
        for gpu, name in (("", "nvidia-h9-80gb"), ("GPU\tunknown\n", "nvidia-h9-80gb"),
                          ("GPU\tNVIDIA H9\n", "nvidia-h9")):
            facts = self.make(info_json=json.dumps(info) + "\n",
                              facts=gpu + "date\t2030-01-02 10:00\ncommit\tabc\n")["facts"]
            self.assertEqual((facts["CUDA of the driver"], facts["cuBLASLt"], facts["NCCL"]),
                             ("13.1", "13.1.0", "2.28.9"))
            self.assertEqual(record.file_name(facts), name + "-2030-01-02-10-00")

    def test_bars(self):
        good = result("linear", {"ratio": [0.9, 0.98, 0.99]}, bars={"ratio": 0.97})
        bad = result("host", {"us": [30.0, 10.0, 40.0], "other": [1.0]}, limits={"us": 20})
        made = self.make(a_jsonl=json.dumps(good) + "\n{cut off\n", b_jsonl=json.dumps(bad) + "\n")
        self.assertEqual(made["missed"], ["host, small: us is 30, required ≤ 20"])
        text = record.markdown(made)
        self.assertIn("| ratio | 0.98 | 0.9 – 0.99 | 3 | ≥ 0.97 | yes |", text)
        self.assertIn("| us | 30 | 10 – 40 | 3 | ≤ 20 | **no** |", text)
        self.assertIn("| other | 1 |  | 1 |  |  |", text)

    def test_no_numbers(self):
        """Infinities, null, and missing samples fail every bar and limit, and are null in JSON."""
        values = {"a": [float("inf")], "b": [1.0, None], "c": [], "d": [float("nan"), 2.0]}
        bad = result("losses", values, limits={"a": 1, "b": 1}, bars={"c": 1, "d": 1})
        made = self.make(a_jsonl=json.dumps(bad) + "\n")
        self.assertEqual(made["missed"], [f"losses, small: {name} is no number, required {sign} 1" for name, sign in
                                          (("a", "≤"), ("b", "≤"), ("c", "≥"), ("d", "≥"))])
        self.assertIn("| a | no number |  | 1 | ≤ 1 | **no** |", record.markdown(made))
        self.assertEqual(record.without_infinities(made)["results"][0]["values"]["d"], [None, 2.0])

    def test_files(self):
        script = [sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)), "record.py")]
        with tempfile.TemporaryDirectory() as folder:
            write(folder, "facts", "GPU\tH9\ndate\t2030-01-02 10:00 UTC\n")
            write(folder, "a.jsonl", json.dumps(result("losses", {"a": [float("inf")]})) + "\n")
            out = os.path.join(folder, "out")
            done = [subprocess.run([*script, folder, out], capture_output=True, text=True) for _ in range(2)]
            self.assertEqual([one.returncode for one in done], [0, 1])
            self.assertIn("there already", done[1].stderr)
            self.assertEqual(sorted(os.listdir(out)), ["h9-2030-01-02-10-00.json.gz", "h9-2030-01-02-10-00.md"])
            with gzip.open(os.path.join(out, "h9-2030-01-02-10-00.json.gz"), "rt", encoding="utf-8") as file:
                self.assertNotIn("Infinity", file.read())
            write(folder, "facts", "GPU\tH9\ndate\t2030-01-02 10:01 UTC\n")
            self.assertEqual(subprocess.run([*script, folder, out], capture_output=True).returncode, 0)
            self.assertEqual(len(os.listdir(out)), 4)
            write(folder, "parts", "build\tok\t61\t\n")
            self.assertEqual(subprocess.run([*script, "--grow", folder, out], capture_output=True).returncode, 0)
            self.assertEqual(len(os.listdir(out)), 4)
            with open(os.path.join(out, "h9-2030-01-02-10-01.md"), encoding="utf-8") as file:
                self.assertIn("| build | ok | 61 |", file.read())

    def test_log_of_no_loss(self):
        script = [sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)), "losses.py")]
        with tempfile.TemporaryDirectory() as folder:
            path = write(folder, "log", '{"loss":null}\n')
            done = subprocess.run([*script, "small", path, path, path], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(json.loads(done.stdout, parse_constant=self.fail)["values"]["GPU to CPU"], [None])

    def test_layers(self):
        ours = {"layer, ms": [20.0], "attention, ms": [5.0], "all but attention, ms": [15.0]}
        theirs = {"layer, ms": [18.0], "attention, ms": [2.0], "all but attention, ms": [16.5],
                  "without attention, ms": [18.0]}
        lines = [result("layer", ours, words={"attention": "own"}),
                 result("layer, PyTorch", theirs, words={"attention": "flash"})]
        made = self.make(a_jsonl="".join(json.dumps(line) + "\n" for line in lines * 2))
        self.assertEqual(made["results"][-1]["values"], {"all but attention, PyTorch/library": [1.1, 1.1],
                                                         "attention, PyTorch/library": [0.4, 0.4],
                                                         "whole layer, PyTorch/library": [0.9, 0.9]})
        self.assertEqual(made["missed"], [])
        lines.append(result("layer, attention of cuDNN", dict(ours, **{"attention, ms": [1.0]}),
                            words={"attention": "cuDNN"}))
        both = self.make(a_jsonl="".join(json.dumps(line) + "\n" for line in lines))["results"][-2:]
        self.assertEqual([one["values"]["attention, PyTorch/library"] for one in both], [[0.4], [2.0]])
        self.assertEqual([one["words"]["attention of the library"] for one in both], ["own", "cuDNN"])
        self.assertEqual(self.make(a_jsonl=json.dumps(lines[0]) + "\n")["results"], [lines[0]])

    def test_parts(self):
        parts = self.make(parts="build\tok\t61\t\nlinear\tFAILED\t3\ttoo slow\n")["parts"]
        self.assertEqual(parts[1], {"part": "linear", "result": "FAILED", "secs": 3, "note": "too slow"})


class Find(unittest.TestCase):
    """A toolkit with nvcc only, and Python packages with the rest of it."""
    FOLDERS = {12: ("cuda_runtime", "cublas", "nvtx"), 13: ("cu13", "cu13", "cu13")}

    def find(self, major, headers):
        here = os.path.dirname(os.path.abspath(__file__))
        runtime, cublas, nvtx = self.FOLDERS[major]
        files = {f"{runtime}/include/cuda_runtime_api.h", f"{runtime}/lib/libcudart.so.{major}",
                 f"{cublas}/include/cublasLt.h", f"{cublas}/lib/libcublasLt.so.{major}",
                 *(f"{nvtx}/include/{header}" for header in headers)}
        with tempfile.TemporaryDirectory() as folder:
            for name in {f"py/nvidia/{file}" for file in files} | {"toolkit/bin/nvcc", "toolkit/include/cuda_fp16.h"}:
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                write(folder, name, f"#!/bin/sh\necho 'Cuda compilation tools, release {major}.8, V{major}.8.93'\n")
            os.chmod(f"{folder}/toolkit/bin/nvcc", 0o755)
            path = f"{folder}/toolkit/bin:{os.environ['PATH']}"
            env = {name: value for name, value in os.environ.items() if name != "CUDA_HOME"}
            env.update(PATH=path, PYTHONPATH=f"{folder}/py")
            script = (f'library_path=; . "{here}/find.sh"; find_cuda "{folder}/links" && cuda_is_whole && '
                      'ls "$CUDA_HOME/include"')
            return subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True).stdout.split()

    def test_packages(self):
        for major in self.FOLDERS:
            self.assertEqual(self.find(major, ["nvtx3/nvToolsExt.h"]),
                             ["cublasLt.h", "cuda_fp16.h", "cuda_runtime_api.h", "nvtx3"])

    def test_no_nvtx(self):
        for major in self.FOLDERS:
            self.assertEqual(self.find(major, []), [])


class Thin(unittest.TestCase):
    """A library whose device code is text: what is left of it."""

    def entry(self, kind, architecture, code):
        return thin_nccl.ENTRY.pack(kind, 257, 40, len(code), architecture) + b"\1" * 8 + code

    def make(self):
        """(the library, the offset of its device code)."""
        rows = [self.entry(2, 90, b"of ninety") + self.entry(1, 90, b"of any PTX"),
                self.entry(2, 80, b"of eighty") + self.entry(2, 90, b"ninety's rest!!!")]
        containers = [struct.pack("<IHHQ", thin_nccl.CONTAINER_MAGIC, 1, 16, len(row)) + row for row in rows]
        code = b"".join(container + bytes(-len(container) % 8) for container in containers)
        names = b"\0.nv_fatbin\0__nv_relfatbin\0.text\0.names\0"
        bodies = [("", b""), (".nv_fatbin", code), ("__nv_relfatbin", b"linker"), (".text", b"of the host"),
                  (".names", names)]
        library, headers = bytearray(64), b""
        for name, body in bodies:
            at = names.index(b"\0" + name.encode() + b"\0") + 1 if name else 0
            headers += thin_nccl.SECTION.pack(at, 1, 0, 0, len(library), len(body), 0, 0, 8, 0)
            library += body + bytes(-len(body) % 8)
        struct.pack_into("<Q", library, 0x28, len(library))
        struct.pack_into("<HHH", library, 0x3A, thin_nccl.SECTION.size, len(bodies), len(bodies) - 1)
        return library + headers, code

    def test_thin(self):
        library, code = self.make()
        size = len(library)
        self.assertEqual(thin_nccl.thin(library, 90), len(b"of ninety") + len(b"ninety's rest!!!"))
        self.assertEqual(len(library), size)
        for left in (b"of ninety", b"ninety's rest!!!", b"of the host", b".nv_fatbin"):
            self.assertIn(left, library)
        for gone in (b"of any PTX", b"of eighty", b"linker"):
            self.assertNotIn(gone, library)
        expected = code.replace(b"of any PTX", bytes(10)).replace(b"of eighty", bytes(9))
        self.assertIn(expected, library)

    def test_nothing_is_left(self):
        self.assertEqual(thin_nccl.thin(self.make()[0], 100), 0)


class Ranks(unittest.TestCase):
    """The part `ranks` with programs that only note how they were called: the first way of NCCL fails."""
    STUB = """#!/bin/sh
name=$(basename "$0")
echo "$name $* cumem=${NCCL_CUMEM_ENABLE:-} order=${NCCL_LAUNCH_ORDER_IMPLICIT:-} boot=${QDR_TEST_BOOT:-}" >>"$CALLS"
case "$name $*" in
"fake_gpu_ranks --threads --short --ctas 10 2")
    for n in 32 16 16; do
        echo "h:1:2 [0] NCCL INFO 32 coll channels, 0 nvls channels, $n p2p channels, 2 p2p channels per peer"
    done >"$NCCL_DEBUG_FILE"
    ;;
fake_gpu_ranks*" 2") [ -n "${NCCL_CUMEM_ENABLE:-}" ] || exit 1 ;;
esac
while [ $# -gt 0 ]; do
    [ "$1" != --log ] || echo '{"step":0,"loss":2.5}' >"$2"
    shift
done
"""
    PROGRAMS = ("fake_cuda/fake_gpu_ranks", "common/boot_train", "conform/conform_comm", "conform/conform_coded",
                "dist/test_linear", "dist/test_redistribute", "dist/test_gpt")  # test_stack is missing

    def run_part(self, folder):
        for program in (*(f"tests/{name}" for name in self.PROGRAMS), "examples/train"):
            path = os.path.join(folder, program)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.chmod(write(os.path.dirname(path), os.path.basename(path), self.STUB), 0o755)
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.sh")
        env = dict(os.environ, QDR_CUDA_PLUGIN="/no/plugin.so", CALLS=os.path.join(folder, "calls"))
        for name in ("NCCL_CUMEM_ENABLE", "NCCL_LAUNCH_ORDER_IMPLICIT", "QDR_TEST_BOOT"):
            env.pop(name, None)
        return subprocess.run(["sh", script, "-b", folder, "ranks"], env=env, capture_output=True, text=True)

    def test_ways(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_part(folder)
            if not os.path.exists(os.path.join(folder, "calls")):
                self.skipTest(done.stdout + done.stderr)
            with open(os.path.join(folder, "calls"), encoding="utf-8") as file:
                calls = file.read().splitlines()
            parts = {part["part"]: part["result"] for part in record.read_parts(os.path.join(folder, "gpu-run"))}
            results = os.path.join(folder, "gpu-run", "record")
            texts = []
            for name in sorted(os.listdir(results)):
                if name.endswith(".md"):
                    with open(os.path.join(results, name), encoding="utf-8") as file:
                        texts.append(file.read())
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual([name for name, result in parts.items() if result != "ok"], ["ranks-2", "stack-2-processes"])
        self.assertEqual(parts["ranks-2-NCCL_CUMEM_ENABLE=0"], "ok")
        self.assertNotIn("ranks-2-NCCL_P2P_DISABLE=1", parts)
        self.assertIn("fake_gpu_ranks --threads 4 cumem=0 order= boot=threads", calls)
        self.assertIn("fake_gpu_ranks --threads 2 cumem=0 order=0 boot=threads", calls)
        self.assertIn("conform_comm --boot 4 cumem=0 order= boot=threads", calls)
        self.assertTrue(any(call.startswith("boot_train ") and " --graph on " in call for call in calls))
        self.assertTrue(any(call.startswith("train ") and " --local 2 " in call and "order=0" in call
                            for call in calls))
        self.assertEqual(len(texts), 1)
        self.assertIn("| ranks-2 | FAILED |", texts[0])
        self.assertIn("- p2p channels: 16 32", texts[0])
        self.assertIn("| losses-2-threads-1x1x2x1 | ok |", texts[0])


class Named(unittest.TestCase):
    """A part that was named and cannot run has failed."""

    def run_named(self, part, reason, has_gpu):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.sh")
        with tempfile.TemporaryDirectory() as folder:
            if has_gpu:
                os.chmod(write(folder, "nvidia-smi", "#!/bin/sh\necho 'GPU 0'\n"), 0o755)
            env = dict(os.environ, QDR_CUDA_PLUGIN="/no/plugin.so", QDR_TEST_NCCL="/no/nccl",
                       PATH=f"{folder}:{os.environ['PATH']}")
            done = subprocess.run(["sh", script, "-o", folder, "-b", f"{folder}/build", part], env=env,
                                  capture_output=True, text=True)
        if "total" not in done.stdout:
            self.skipTest(done.stdout + done.stderr)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, f"(?m)^{part} +FAILED: {reason}")

    def test_no_library(self):
        self.run_named("ranks", "there is no /no/nccl/libnccl.so.2.xz; tests/gpu/thin_nccl.py writes it", True)

    def test_no_gpu(self):
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("there is a GPU")
        self.run_named("codec", "no GPU", False)


class Usage(unittest.TestCase):
    def test_parts(self):
        """The parts in the help text are those that exist."""
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.sh")
        with open(script, encoding="utf-8") as file:
            text = file.read()
        parts = re.search('^all_parts="(.*)"$', text, re.M)[1].split()
        done = subprocess.run(["sh", script, "--help"], capture_output=True, text=True, check=True)
        told = done.stdout.split("parts, all of them")[1].split("\n\n")[0]
        self.assertEqual(re.findall(r"^  (\w+) ", told, re.M), parts)
        self.assertEqual(sorted(re.findall(r"^part_(\w+)\(\)", text, re.M)), sorted(parts))


class Interrupted(unittest.TestCase):
    """A signal to run.sh also ends the running parts, and the processes that they started. Here these are sleepers."""
    SLEEPER = '#!/bin/sh\nsleep 600 &\necho $! >"$0.$$"\nmv "$0.$$" "$0.$$.pid"\nwait\n'

    def wait_for(self, what, process):
        """The function's result, once there is one; None if the process has ended before."""
        while not (found := what()):
            if process.poll() is not None:
                return None
            time.sleep(0.02)
        return found

    def is_running(self, pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                return file.read().rsplit(") ")[-1][0] != "Z"
        except OSError:
            return False

    @staticmethod
    def as_in_a_terminal():
        """A shell cannot trap a signal that was ignored when it was started, as by nohup."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    def interrupt(self, shell, number, part, program, n_running):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run.sh")
        with tempfile.TemporaryDirectory() as folder:
            place, name = os.path.split(os.path.join(folder, program))
            os.makedirs(place)
            os.chmod(write(place, name, self.SLEEPER), 0o755)
            with subprocess.Popen([shell, script, "-b", folder, part],
                                  env=dict(os.environ, QDR_CUDA_PLUGIN="/no/plugin.so"), start_new_session=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  preexec_fn=self.as_in_a_terminal) as run:

                def sleepers():
                    paths = [os.path.join(place, file) for file in os.listdir(place) if file.endswith(".pid")]
                    return paths if len(paths) == n_running else None
                paths = self.wait_for(sleepers, run)
                if not paths:
                    self.skipTest(run.stdout.read())
                pids = []
                for path in paths:
                    with open(path, encoding="ascii") as file:
                        pids.append(int(file.read()))
                self.assertTrue(all(map(self.is_running, pids)))
                os.killpg(run.pid, number)
                self.assertEqual(run.wait(), 128 + number, run.stdout.read())
                self.assertEqual(len(os.listdir(os.path.join(folder, "gpu-run", "record"))), 2)
                self.assertTrue(os.path.getsize(os.path.join(folder, "gpu-run", "logs.tar.gz")))
                # They were signalled before run.sh ended; on a busy machine they may end a little later.
                until = time.monotonic() + 20
                while any(map(self.is_running, pids)) and time.monotonic() < until:
                    time.sleep(0.02)
                self.assertEqual([pid for pid in pids if self.is_running(pid)], [])

    def test_signals(self):
        alone, beside = ("kernels", "tests/gpu/gpu_products", 1), ("correct", "tests/conform/conform_comm", 4)
        for shell, number, part in (("sh", signal.SIGINT, alone), ("sh", signal.SIGINT, beside),
                                    ("sh", signal.SIGTERM, beside), ("sh", signal.SIGHUP, beside),
                                    ("bash", signal.SIGINT, beside), ("bash", signal.SIGTERM, alone)):
            if shutil.which(shell):
                with self.subTest(shell=shell, number=number, part=part):
                    self.interrupt(shell, number, *part)


if __name__ == "__main__":
    unittest.main()
