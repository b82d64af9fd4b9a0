#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille doctor: this machine under limits of all kinds, made-up GPUs, environment variables, ranks, refusals.

usage: doctor_test.py QUADRILLE --plugin FAKE_PLUGIN [--nvml FOLDER_OF_FAKE_NVML] [--mpiexec MPIEXEC]
"""
import json
import os
import re
import resource
import subprocess
import unittest

import cases
from cases import ARGUMENTS, start

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
    return start(*more, ARGUMENTS.quadrille, "doctor", *words, env={**clean, **environment},
                 preexec_fn=limit and (lambda: set_limit(*limit.split())))


def library_text():
    """The version, and the build ID that binutils find."""
    version = subprocess.run([ARGUMENTS.quadrille, "--version"], capture_output=True, text=True, check=True).stdout
    used = subprocess.run(["ldd", ARGUMENTS.quadrille], capture_output=True, text=True, check=True).stdout
    library = re.search(r"libquadrille\.so\S* => (\S+)", used)[1]
    notes = subprocess.run(["readelf", "--notes", library], capture_output=True, text=True, check=True).stdout
    build = re.search(r"Build ID: ([0-9a-f]{8})", notes)
    return version.split()[1] + (", build " + build[1] if build else "")


class Case(unittest.TestCase):
    def read(self, *words, code=0, **more):
        done = doctor("--json", *words, **more)
        self.assertEqual((done.returncode, done.err), (code, ""), done.out)
        report = json.loads(done.out)
        states = [finding["state"] for finding in report["findings"]]
        self.assertLessEqual(set(states), {"ok", "note", "broken", "none"})
        self.assertEqual((report["works"], report["broken"]), (code == 0, states.count("broken")))
        for finding in report["findings"]:
            self.assertTrue(finding["name"] and finding["text"], finding)
            self.assertEqual(finding["remedy"] is not None, finding["state"] in ("note", "broken"), finding)
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
            self.assertEqual([self.find(report, name, "GPU")["state"] for name in ("use", "CUDA")], ["none", "none"])
            driver = self.find(report, "driver")
            self.assertEqual(driver["state"], "none" if "not installed" in driver["text"] else "ok")

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
        report = self.read(more=["taskset", "-c", cpu])
        finding = self.find(report, "binding")
        self.assertIn(cpu, finding["text"])
        # Without hwloc, no other cores are known.
        self.assertEqual(finding["state"], "ok" if report["versions"]["hwloc"] == "none" else "note")


class Environment(Case):
    def test_variables(self):
        report = self.read(environment={**NO_GPU, "OMP_NUM_THREADS": "3", "NCCL_P2P_DISABLE": "1", "OMPLETE": "x",
                                        "QDR_CHECK": "1", "MPICH_ASYNC_PROGRESS": "0", "UCX_TLS": "tcp,self",
                                        "NCCL_MAX_CTAS": "4", "NCCL_MIN_CTAS": "4", "NCCL_CGA_CLUSTER_SIZE": "0",
                                        "NCCL_LAUNCH_ORDER_IMPLICIT": "0", "NCCL_LAUNCH_RACE_FATAL": "0"})
        self.assertLessEqual({"OMP_NUM_THREADS": "3", "NCCL_P2P_DISABLE": "1", "UCX_TLS": "tcp,self", **NO_GPU}.items(),
                             report["environment"].items())
        self.assertNotIn("OMPLETE", report["environment"])
        self.assertEqual(self.find(report, "OMP_NUM_THREADS")["state"], "ok")
        for name in ("NCCL_P2P_DISABLE", "NCCL_MAX_CTAS", "NCCL_MIN_CTAS", "NCCL_CGA_CLUSTER_SIZE",
                     "NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_LAUNCH_RACE_FATAL"):
            self.assertEqual(self.find(report, name)["state"], "note")
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
        report = self.read("--each", environment={**NO_GPU, "PMI_RANK": "0", "PMI_SIZE": "4", "PMI_FD": "99"})
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


class Ranks(unittest.TestCase):
    """Processes of a launcher, which meet. Nodes that differ are in tests/netlab/doctor_nodes.py."""

    def setUp(self):
        if not ARGUMENTS.mpiexec:
            self.skipTest("there is no MPI")

    def read(self, n_ranks, *bound):
        done = doctor("--json", more=[ARGUMENTS.mpiexec, "-n", str(n_ranks), *bound])
        report = json.loads(done.out)
        states = [difference["state"] for difference in report["differences"]]
        self.assertEqual((report["works"], report["broken"]), (done.returncode == 0, states.count("broken")), done.err)
        for difference in report["differences"]:
            self.assertIsNone(difference["usual"])
            self.assertTrue(difference["remedy"])
        return report

    def test_one_row(self):
        alone = json.loads(doctor("--json").out)
        processors = [finding for finding in alone["findings"] if finding["name"] == "processors"][0]
        shm = os.statvfs("/dev/shm")
        for n_ranks in (2, 4):
            report = self.read(n_ranks)
            self.assertEqual((report["ranks"], len(report["nodes"])), (n_ranks, 1))
            node = report["nodes"][0]
            self.assertEqual((node["host"], node["ranks"]), (os.uname().nodename, list(range(n_ranks))))
            facts = node["facts"]
            self.assertEqual((facts["ranks"], facts["hardware threads"]), (n_ranks, len(node["threads"])))
            self.assertLessEqual(set(node["threads"]), os.sched_getaffinity(0))
            self.assertEqual((facts["library"], facts["NCCL"], facts["clock"]), (library_text(), "none", 0))
            self.assertIn(alone["versions"]["mpi"].split()[-1], facts["MPI"])
            gib = facts["memory"] / 2**30
            self.assertRegex(processors["text"], f", ({gib:.1f}|{gib:.0f}) GiB$")
            self.assertEqual(facts["/dev/shm"], shm.f_frsize * shm.f_blocks)
            self.assertTrue(os.path.exists(os.path.join(facts["data path"], "models", "gpt2.json")), facts)
            self.assertLess(0, report["clock_bound_secs"])

    def test_one_row_where_MPI_sees_two_nodes(self):
        environment = {**NO_GPU, "MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CLIQUES_BY_BLOCK": "1"}
        done = doctor("--json", more=[ARGUMENTS.mpiexec, "-n", "4"], environment=environment)
        self.assertEqual([node["ranks"] for node in json.loads(done.out)["nodes"]], [[0, 1, 2, 3]])

    def test_text(self):
        done = doctor(more=[ARGUMENTS.mpiexec, "-n", "2"])
        lines = done.out.splitlines()
        self.assertIn("1 node, 2 ranks;", lines[0])
        rows = [line.split() for line in lines if line.startswith(os.uname().nodename + " ")]
        self.assertEqual([row[1:3] for row in rows], [["2:", "0-1"]], done.out)
        for name in ("adapters", "GPUs", "driver", "library", "MPI", "NCCL", "data path"):
            self.assertEqual(len([line for line in lines if line.startswith(f"  {name} ")]), 1, (name, done.out))

    def test_cores_that_ranks_share(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one core")
        first, second = sorted(os.sched_getaffinity(0))[:2]
        program = [ARGUMENTS.mpiexec]
        for cpu in (first, second):
            program += [*([":"] if len(program) > 1 else []), "-n", "1", "taskset", "-c", str(cpu),
                        ARGUMENTS.quadrille, "doctor", "--json"]
        apart = json.loads(subprocess.run(program, capture_output=True, timeout=120, check=False).stdout)
        self.assertEqual(apart["nodes"][0]["threads"], [first, second])
        self.assertNotIn("binding", [one["fact"] for one in apart["differences"]])
        together = doctor("--json", more=[ARGUMENTS.mpiexec, "-n", "2", "taskset", "-c", str(first)])
        sharing = [one for one in json.loads(together.out)["differences"] if one["fact"] == "binding"]
        self.assertEqual([(one["state"], one["value"]) for one in sharing],
                         [("note", f"several of 2 ranks share hardware thread {first}")])

    def test_a_small_shm(self):
        """MPI has taken its part of it when the ranks look, and needs no more."""
        small = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=24m none /dev/shm && exec "$@"', "sh"]
        if subprocess.run([*small, "true"], capture_output=True, check=False).returncode:
            self.skipTest("needs root, to mount")
        done = doctor("--json", more=[*small, ARGUMENTS.mpiexec, "-n", "4"])
        self.assertEqual(done.returncode, 0, done.err)
        found = [one for one in json.loads(done.out)["differences"] if one["fact"] == "/dev/shm"]
        self.assertEqual([one["state"] for one in found], ["note"])
        self.assertRegex(found[0]["value"], r"^24 MiB with .* free for 4 ranks, which may need 32 MiB$")

    def test_each(self):
        done = doctor("--each", more=[ARGUMENTS.mpiexec, "-n", "2"])
        self.assertEqual((done.returncode, done.err), (0, ""))
        self.assertEqual(done.out.count("everything found here works"), 2)

    def test_other_options(self):
        program = [ARGUMENTS.mpiexec, "-n", "1", ARGUMENTS.quadrille, "doctor", ":", "-n", "1", ARGUMENTS.quadrille,
                   "doctor", "--json"]
        done = subprocess.run(program, capture_output=True, timeout=120, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, b"")
        self.assertIn(b"--json is not given on rank 0 and given on rank 1", done.stderr)
        self.assertNotIn(b"--each", done.stderr)

    def test_mpi_that_does_not_start(self):
        done = doctor(environment={**NO_GPU, "PMI_RANK": "0", "PMI_SIZE": "4", "PMI_FD": "99"})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("quadrille doctor --each", done.err)

    def test_processes_that_believe_they_are_alone(self):
        done = doctor(environment={**NO_GPU, "SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"})
        self.assertEqual((done.returncode, done.out), (1, ""))
        self.assertIn("each believes it is alone", done.err)
        self.assertIn("quadrille doctor --each", done.err)

    def test_processes_that_are_only_numbered(self):
        """The first cannot know whether there are others: it starts MPI, which does, and says so if MPI sees none."""
        report = json.loads(doctor("--json", environment={**NO_GPU, "PMIX_RANK": "0"}).out)
        self.assertEqual((report["works"], report["ranks"]), (True, 1))
        found = [one for one in report["differences"] if one["fact"] == "launcher"]
        self.assertEqual([one["state"] for one in found], ["note"])
        self.assertIn("--each", found[0]["remedy"])
        report = json.loads(doctor("--json", "--each", environment={**NO_GPU, "PMIX_RANK": "0"}).out)
        self.assertIn("findings", report)

    def test_a_rank_that_does_not_come(self):
        program = [ARGUMENTS.mpiexec, "-n", "1", ARGUMENTS.quadrille, "doctor", "--timeout", "2", ":", "-n", "1",
                   "sleep", "60"]
        done = subprocess.run(program, capture_output=True, timeout=50, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"has waited 2 s", done.stderr)
        self.assertIn(b"quadrille doctor --each", done.stderr)


class Refusals(Case):
    def test_options(self):
        for words in (["--colour"], ["--json=1"], ["more"], ["-x"]):
            done = doctor(*words)
            self.assertEqual((done.returncode, done.out), (2, ""), words)
            self.assertEqual(len(done.err.strip().splitlines()), 1, done.err)
            self.assertIn("quadrille doctor --help", done.err)


if __name__ == "__main__":
    cases.main("quadrille", "--plugin", "--nvml", "--mpiexec")
