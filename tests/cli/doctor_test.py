#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille doctor: this machine under limits of all kinds, made-up GPUs, environment variables, refusals.

usage: doctor_test.py QUADRILLE --plugin FAKE_PLUGIN [--nvml FOLDER_OF_FAKE_NVML]
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import unittest

ARGUMENTS = None
NAMES = ("QDR_", "NCCL_", "CUDA_", "FAKE_", "HWLOC_", "OMP_", "MPICH_", "UCX_")
NO_PLUGIN = {"QDR_CUDA_PLUGIN": "/no/plugin.so"}
NO_GPU = {**NO_PLUGIN, "CUDA_VISIBLE_DEVICES": ""}  # for any machine
LIMITS = {"-l": (resource.RLIMIT_MEMLOCK, 1024), "-n": (resource.RLIMIT_NOFILE, 1), "-u": (resource.RLIMIT_NPROC, 1),
          "-s": (resource.RLIMIT_STACK, 1024), "-v": (resource.RLIMIT_AS, 1024)}
GROUPS = ["build", "GPU", "machine", "limits", "works"]


def set_limit(option, value):
    """The limits of ulimit; not every shell's ulimit knows all of these."""
    which, unit = LIMITS[option]
    resource.setrlimit(which, (int(value) * unit, resource.getrlimit(which)[1]))


def doctor(*words, limit=None, environment=NO_GPU, more=()):
    """limit: arguments of ulimit, such as "-l 64"."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(NAMES)}
    folders = [folder for folder in clean.get("LD_LIBRARY_PATH", "").split(":") if folder != ARGUMENTS.nvml]
    clean["LD_LIBRARY_PATH"] = ":".join(folders)
    done = subprocess.run([*more, ARGUMENTS.quadrille, "doctor", *words], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=120, env={**clean, **environment},
                          preexec_fn=limit and (lambda: set_limit(*limit.split())))
    done.out, done.err = done.stdout.decode(), done.stderr.decode()
    return done


class Case(unittest.TestCase):
    def read(self, code=0, **more):
        done = doctor("--json", **more)
        self.assertEqual((done.returncode, done.err), (code, ""), done.out)
        report = json.loads(done.out)
        states = [finding["state"] for finding in report["findings"]]
        self.assertLessEqual(set(states), {"ok", "note", "broken"})
        self.assertEqual((report["works"], report["broken"]), (code == 0, states.count("broken")))
        for finding in report["findings"]:
            self.assertTrue(finding["name"] and finding["text"], finding)
            self.assertEqual(finding["remedy"] is not None, finding["state"] != "ok", finding)
        return report

    def find(self, report, name, group=None):
        found = [finding for finding in report["findings"]
                 if finding["name"].startswith(name) and group in (None, finding["group"])]
        self.assertEqual(len(found), 1, (name, found))
        return found[0]


class ThisMachine(Case):
    def test_all_of_it(self):
        report = self.read()
        groups = list(dict.fromkeys(finding["group"] for finding in report["findings"]))
        self.assertEqual([group for group in groups if group != "environment"], GROUPS)
        for name in ("product, CPU", "all-reduce, CPU"):
            finding = self.find(report, name)
            self.assertEqual(finding["state"], "ok")
            self.assertGreater(finding["secs"], 0)
        versions = subprocess.run([ARGUMENTS.quadrille, "--version", "--json"], capture_output=True, check=True)
        self.assertLessEqual(json.loads(versions.stdout).items(), report["versions"].items())
        for name, part in (("mpi", "MPI"), ("blas", "BLAS"), ("hwloc", "hwloc"), ("onednn", "oneDNN"), ("zfp", "zfp")):
            finding = self.find(report, part, "build")
            self.assertIn(report["versions"][name], finding["text"])
            self.assertEqual(finding["state"], "note" if report["versions"][name] == "none" else "ok")

    def test_text(self):
        report, done = self.read(), doctor()
        self.assertEqual((done.returncode, done.err), (0, ""))
        for finding in report["findings"]:
            self.assertIn(finding["name"], done.out)
            if finding["group"] == "build":
                self.assertIn(finding["text"], done.out)
        self.assertTrue(done.out.startswith(report["host"] + "\n"))
        self.assertIn("everything found here works", done.out.splitlines()[-1])

    def test_no_gpu_is_not_broken(self):
        self.assertEqual(self.read()["gpu_status"], "QDR_ERR_UNSUPPORTED")
        self.assertIn("hides", self.find(self.read(), "use")["text"])
        if not os.path.exists("/dev/nvidia0"):
            report = self.read(environment=NO_PLUGIN)
            self.assertEqual(report["gpus"], [])
            self.assertIn("no NVIDIA GPU", self.find(report, "use")["text"])

    def test_help(self):
        done = doctor("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("Examples:", done.out)

    def test_full_device(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([ARGUMENTS.quadrille, "doctor", "--json"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"standard output", done.stderr)


class Limits(Case):
    def test_locked_memory(self):
        report = self.read(limit="-l 64")
        self.assertEqual(report["limits"]["memory_lock"], 64 << 10)
        finding = self.find(report, "locked memory")
        self.assertEqual((finding["state"], finding["text"]), ("note", "64 KiB"))
        self.assertIn("ulimit -l", finding["remedy"])

    def test_open_files(self):
        report = self.read(limit="-n 256")
        self.assertEqual(report["limits"]["open_files"], 256)
        self.assertEqual(self.find(report, "open files")["state"], "note")
        self.assertEqual(self.find(self.read(limit="-n 2048"), "open files")["state"], "ok")

    def test_threads_and_stack(self):
        report = self.read(limit="-u 3000")
        self.assertEqual(report["limits"]["threads"], 3000)
        self.assertEqual(self.find(report, "threads")["state"], "note")
        self.assertEqual(self.read(limit="-s 4096")["limits"]["stack"], 4096 << 10)

    def test_address_space(self):
        report = self.read()
        self.assertIsNone(report["limits"]["address_space"])
        if doctor(limit=f"-v {64 << 20}").returncode:
            self.skipTest("this build cannot live with a limit (a sanitizer)")
        report = self.read(limit=f"-v {64 << 20}")
        self.assertEqual(report["limits"]["address_space"], 64 << 30)
        self.assertIn("ulimit -v", self.find(report, "address space")["remedy"])
        report = self.read(code=1, limit=f"-v {320 << 10}")
        broken = self.find(report, "all-reduce, CPU")
        self.assertEqual((broken["state"], broken["secs"]), ("broken", None))
        self.assertIn("MiB", broken["text"])

    def test_one_core(self):
        if os.cpu_count() < 2 or not hasattr(os, "sched_setaffinity"):
            self.skipTest("one core")
        cpu = str(min(os.sched_getaffinity(0)))
        finding = self.find(self.read(more=["taskset", "-c", cpu]), "binding")
        self.assertIn(cpu, finding["text"])
        self.assertEqual(finding["state"], "note")


class Environment(Case):
    def test_variables(self):
        report = self.read(environment={**NO_GPU, "OMP_NUM_THREADS": "3", "NCCL_P2P_DISABLE": "1", "OMPLETE": "x",
                                        "QDR_CHECK": "1", "MPICH_ASYNC_PROGRESS": "0", "UCX_TLS": "tcp,self"})
        self.assertLessEqual({"OMP_NUM_THREADS": "3", "NCCL_P2P_DISABLE": "1", "UCX_TLS": "tcp,self", **NO_GPU}.items(),
                             report["environment"].items())
        self.assertNotIn("OMPLETE", report["environment"])
        self.assertEqual(self.find(report, "OMP_NUM_THREADS")["state"], "ok")
        self.assertEqual(self.find(report, "NCCL_P2P_DISABLE")["state"], "note")
        self.assertEqual(self.find(report, "QDR_CHECK")["state"], "note")
        self.assertEqual(self.find(report, "MPICH_ASYNC_PROGRESS")["state"], "ok")

    def test_no_traces_are_written(self):
        self.read(environment={**NO_GPU, "QDR_TRACE": "/no/such/folder/trace", "QDR_TUNE": "/no/such/folder/tune"})

    def test_a_wrong_value(self):
        report = self.read(code=1, environment={**NO_GPU, "QDR_TIMEOUT": "soon"})
        self.assertIn("QDR_TIMEOUT", self.find(report, "product, CPU")["text"])

    def test_a_device_that_is_none(self):
        for device, says in (("gpu", 'QDR_DEVICE is "gpu"'), ("cuda", "/no/plugin.so")):
            report = self.read(code=1, environment={**NO_PLUGIN, "QDR_DEVICE": device})
            finding = self.find(report, "product, QDR_DEVICE")
            self.assertEqual(finding["state"], "broken")
            self.assertIn(says, finding["text"])
        report = self.read(environment={**NO_GPU, "QDR_DEVICE": "cpu"})
        self.assertNotIn("product, QDR_DEVICE", [finding["name"] for finding in report["findings"]])

    def test_bytes_that_are_no_text(self):
        done = subprocess.run([ARGUMENTS.quadrille, "doctor", "--json"], capture_output=True,
                              env={**os.environ, **NO_GPU, "OMP_PLACES": b"\xff\xfe"})
        self.assertEqual(json.loads(done.stdout)["environment"]["OMP_PLACES"], "")

    def test_one_of_several_processes(self):
        report = self.read(environment={**NO_GPU, "PMI_RANK": "0", "PMI_SIZE": "4", "PMI_FD": "99"})
        self.assertIn("not tried", self.find(report, "all-reduce, CPU")["text"])
        self.assertGreater(self.find(report, "product, CPU")["secs"], 0)


class MadeUpGpus(Case):
    """With a plugin that cannot create devices, so that what was found does not work."""

    def with_gpus(self, mode="", nvml=None, **more):
        environment = {"QDR_CUDA_PLUGIN": ARGUMENTS.plugin, "FAKE_PLUGIN": mode, **more.pop("environment", {})}
        if nvml is not None:
            if not ARGUMENTS.nvml:
                self.skipTest("no fake NVML (cmocka is missing)")
            environment.update(LD_LIBRARY_PATH=ARGUMENTS.nvml + ":" + os.environ.get("LD_LIBRARY_PATH", ""),
                               FAKE_NVML=nvml)
        return self.read(environment=environment, **more)

    def test_two_gpus_that_do_not_work(self):
        report = self.with_gpus(code=1)
        self.assertEqual(report["gpu_status"], "QDR_OK")
        self.assertEqual([gpu["bus"] for gpu in report["gpus"]], ["ffff:a0:00.0", "ffff:a1:00.0"])
        self.assertEqual(report["gpus"][0]["capability"], [9, 0])
        self.assertIn("Fake 0, 80 GiB (79 GiB free), 132 multiprocessors, capability 9.0",
                      self.find(report, "cuda:0")["text"])
        self.assertEqual(self.find(report, "cuda:1")["state"], "ok")
        self.assertEqual((report["versions"]["cudnn"], self.find(report, "cuDNN")["text"]), (91900, "9.19.0"))
        self.assertEqual((report["versions"]["cublaslt"], report["versions"]["nccl"]), (130101, 22809))
        self.assertEqual(self.find(report, "NCCL", "GPU")["text"], "2.28.9")
        self.assertEqual(self.find(report, "cuBLASLt")["text"], "13.1.1")
        self.assertIn("CUDA 13.1", self.find(report, "driver")["text"])
        for name in ("product, cuda:0", "product, cuda:1", "all-reduce, cuda"):
            finding = self.find(report, name)
            self.assertEqual((finding["state"], finding["remedy"]), ("broken", "use the CPU"))
        self.assertEqual(self.find(report, "product, CPU")["state"], "ok")

    def test_one_that_is_lost(self):
        report = self.with_gpus("lost", code=1)
        self.assertEqual([gpu["status"] for gpu in report["gpus"]], ["QDR_ERR_DEVICE", "QDR_OK"])
        self.assertIn("nvidia-smi", self.find(report, "cuda:0")["remedy"])

    def test_hidden(self):
        report = self.with_gpus("hidden", nvml="", environment={"CUDA_VISIBLE_DEVICES": ""})
        self.assertIn("hides", self.find(report, "use")["text"])

    def test_gpus_without_a_driver_or_a_plugin(self):
        report = self.with_gpus("none", nvml="", code=1)
        self.assertEqual(self.find(report, "use")["remedy"], "install one")
        report = self.with_gpus(nvml="", code=1, environment=NO_PLUGIN)
        self.assertIn("/no/plugin.so", self.find(report, "use")["text"])

    def test_links(self):
        report = self.with_gpus(nvml="", code=1)
        self.assertEqual(len(report["gpu_links"]), 6)
        self.assertEqual(report["gpu_links"][0]["link"], "NVLink")
        texts = [finding["text"] for finding in report["findings"] if finding["name"] == "links"]
        self.assertTrue(any("NVLink: 1 pair, 100 GB/s, with access" in text for text in texts), texts)
        self.assertTrue(any("NVSwitch: 1 pair, 150 GB/s" in text for text in texts), texts)
        self.assertTrue(any("without access" in text for text in texts), texts)


class Refusals(Case):
    def test_options(self):
        for words in (["--colour"], ["--json=1"], ["more"], ["-x"]):
            done = doctor(*words)
            self.assertEqual((done.returncode, done.out), (2, ""), words)
            self.assertEqual(len(done.err.strip().splitlines()), 1, done.err)
            self.assertIn("quadrille doctor --help", done.err)


def main():
    global ARGUMENTS
    parser = argparse.ArgumentParser()
    parser.add_argument("quadrille")
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--nvml")
    ARGUMENTS = parser.parse_args()
    unittest.main(argv=[sys.argv[0]], verbosity=1)


if __name__ == "__main__":
    main()
