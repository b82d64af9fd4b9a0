#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille topo: text, JSON and SVG of this machine, of synthetic ones and of recorded ones; ranks; refusals.

usage: topo_test.py QUADRILLE [--mpiexec MPIEXEC]
Recorded machines of hwloc are searched for in the folder QDR_TEST_TOPOLOGIES.
"""
import json
import os
import random
import subprocess
import sys
import unittest
import xml.etree.ElementTree

import cases
from cases import ARGUMENTS, start

MACHINES = {"tioga-8xMI250X": (8, "tioga29"), "lassen-4xV100": (4, "lassen28"), "corona-epyc": (4, "corona145"),
            "dgx2-16xV100": (16, "NVIDIA DGX-2H"), "power8-gpu-pairs": (4, "drac-12.grenoble.grid5000.fr")}
FOLDER = os.environ.get("QDR_TEST_TOPOLOGIES", "")
MADE_UP = {"HWLOC_SYNTHETIC": "pack:2 numa:2 l3:1 core:2 pu:1"}  # 8 cores, 2 per cache
AXES = ["x", "y", "z", "d"]


def topo(*words, environment=(), before=()):
    return start(*before, ARGUMENTS.quadrille, "topo", *words, environment=environment)


def recorded(name):
    path = os.path.join(FOLDER, name + ".xml")
    return path if FOLDER and os.path.exists(path) else None


def has_hwloc():
    done = subprocess.run([sys.argv[1], "--version", "--json"], capture_output=True, check=True)
    return json.loads(done.stdout)["hwloc"] != "none"


HWLOC = unittest.skipUnless(has_hwloc(), "built without hwloc, which reads machines and makes them up")


class Case(cases.Case):
    def good(self, *words, **more):
        done = topo(*words, **more)
        self.assertEqual((done.returncode, done.err), (0, ""), words)
        return done.out

    def read(self, *words, **more):
        return json.loads(self.good("--json", *words, **more))

    def draw(self, *words, **more):
        """The texts of the picture; each shape is inside it."""
        path = self.path("picture.svg")
        self.good("--svg", path, *words, **more)
        root = xml.etree.ElementTree.parse(path).getroot()
        self.assertTrue(root.tag.endswith("}svg"))
        for box in root.iter("{http://www.w3.org/2000/svg}rect"):
            if "%" not in box.get("width"):
                self.assertGreaterEqual(float(box.get("x")), 0)
                self.assertLessEqual(float(box.get("x")) + float(box.get("width")), float(root.get("width")))
                self.assertLessEqual(float(box.get("y")) + float(box.get("height")), float(root.get("height")))
        return [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]


class Machines(Case):
    def test_this_machine(self):
        machine = self.read()
        self.assertTrue(machine["this_machine"])
        self.assertEqual(machine["cores_in_all"], len(machine["cores"]))
        self.assertGreaterEqual(machine["threads"], len(machine["cores"]))
        self.assertLessEqual(machine["threads"], os.cpu_count())
        self.assertEqual((machine["ranks"], machine["layout"]), (None, None))
        text = self.good()
        self.assertIn(f"{machine['cores_in_all']} core", text)
        self.assertNotIn("recorded", text)
        self.assertIn(machine["gpu_source"], text)
        self.assertTrue(self.draw())

    @HWLOC
    def test_made_up_machine(self):
        machine = self.read(environment=MADE_UP)
        self.assertFalse(machine["this_machine"])
        self.assertEqual(len(machine["numa_nodes"]), 4)
        self.assertEqual([core["cache"] for core in machine["cores"]], [0, 0, 1, 1, 2, 2, 3, 3])
        self.assertIn("2 packages, 4 NUMA nodes", self.good(environment=MADE_UP))
        self.assertEqual(sum(text.startswith("NUMA node") for text in self.draw(environment=MADE_UP)), 4)

    @unittest.skipIf(has_hwloc(), "built with hwloc")
    def test_machines_of_hwloc_alone(self):
        for words, environment in (["--xml", "a.xml"], {}), ([], MADE_UP), ([], {"HWLOC_XMLFILE": "a.xml"}):
            done = topo(*words, environment=environment)
            self.assertEqual((done.returncode, done.out), (1, ""))
            self.assertIn("libhwloc-dev", done.err)

    @HWLOC
    def test_recorded_machines(self):
        if not recorded("tioga-8xMI250X"):
            self.skipTest("no recorded machines in QDR_TEST_TOPOLOGIES")
        for name, (n_gpus, title) in MACHINES.items():
            with self.subTest(machine=name):
                words = ["--xml", recorded(name), "--grid", "2x2x4x1"]
                machine = self.read(*words)
                self.assertFalse(machine["this_machine"])
                self.assertEqual(len(machine["gpus"]), n_gpus)
                self.assertEqual(machine["layout"]["ranks_per_node"], n_gpus)
                self.assertEqual(machine, self.read(*words[2:], environment={"HWLOC_XMLFILE": words[1]}))
                text = self.good(*words)
                self.assertIn(title, text)
                self.assertIn("(recorded", text)
                labels = self.draw(*words)
                for gpu in range(n_gpus):
                    self.assertIn(f"GPU {gpu}", labels)

    @HWLOC
    def test_assumed_rates_are_said(self):
        if not recorded("tioga-8xMI250X"):
            self.skipTest("no recorded machines in QDR_TEST_TOPOLOGIES")
        words = ["--xml", recorded("tioga-8xMI250X"), "--grid", "2x2x2x2"]
        self.assertIn("hwloc writes 100 GB/s for every XGMI link", self.good(*words))
        axes = self.read(*words)["layout"]["axes"]
        self.assertEqual([axis["link"] for axis in axes], ["XGMI in a module", "XGMI", "XGMI", "network"])
        self.assertEqual([axis["assumed"] for axis in axes], [True, True, True, False])
        self.assertIn("XM 100?", self.draw(*words))


    @HWLOC
    def test_switches_without_a_rate_are_explained(self):
        if not recorded("dgx2-16xV100"):
            self.skipTest("no recorded machines in QDR_TEST_TOPOLOGIES")
        words = ["--xml", recorded("dgx2-16xV100"), "--grid", "4x4x1x1"]
        text = self.good(*words)
        self.assertIn("SW without a rate: no switch in common; links between switches are not reported", text)
        self.assertIn("NVSwitch without a rate: ", text.split("slowest link")[1])
        labels = self.draw(*words)
        self.assertIn("SW without a rate: no switch in common;", labels)
        self.assertIn("links between switches are not reported", labels)
        self.assertNotIn("without a rate", self.good("--xml", recorded("lassen-4xV100")))

    @HWLOC
    def test_the_release_of_hwloc_is_named(self):
        """hwloc's API version is older than its release: 2.8 in hwloc 2.9.0."""
        done = topo("--xml", self.path("other.xml", b"8 GPUs"))
        try:
            release = subprocess.run(["hwloc-info", "--version"], capture_output=True,
                                     check=True).stdout.decode().split()[-1]
        except (FileNotFoundError, subprocess.CalledProcessError):
            release = json.loads(subprocess.run([ARGUMENTS.quadrille, "--version", "--json"], capture_output=True,
                                                check=True).stdout)["hwloc"]
        self.assert_refused(done, f"hwloc {release} can read")


@HWLOC
class Grids(Case):
    def axes(self, *words, **more):
        return self.read(*words, environment=MADE_UP, **more)["layout"]["axes"]

    def test_on_cores(self):
        axes = self.axes("--grid", "2x2x2x2")
        self.assertEqual([axis["axis"] for axis in axes], AXES)
        self.assertEqual([axis["link"] for axis in axes], ["shared cache", "package", "between packages", "network"])
        self.assertEqual([axis["stride"] for axis in axes], [1, 2, 4, 8])
        self.assertEqual([axis["siblings"] for axis in axes], [4, 4, 4, 8])
        self.assertEqual([axis["nodes"] for axis in axes], [1, 1, 1, 2])
        self.assertTrue(all(axis["rate"] is None for axis in axes))

    def test_order(self):
        axes = self.axes("--grid", "2x2x2x2", "--order", "dzyx")
        self.assertEqual([axis["link"] for axis in axes], ["network", "between packages", "package", "shared cache"])

    def test_ranks_per_node(self):
        axes = self.axes("--grid", "4x2x1x1", "--ranks-per-node", "2")
        self.assertEqual([(axis["nodes"], axis["ranks_on_node"]) for axis in axes], [(2, 2), (2, 1), (1, 1), (1, 1)])
        self.assertEqual([axis["inner_link"] for axis in axes], ["between packages", "none", "none", "none"])
        self.assertEqual([axis["siblings"] for axis in axes], [1, 2, 0, 0])

    def test_text_and_picture(self):
        words = ["--grid", "2x2x2x1", "--ranks-per-node", "4"]
        text = self.good(*words, environment=MADE_UP)
        self.assertIn("grid 2x2x2x1, order xyzd: 8 ranks on 2 nodes, 4 on each, in order on their cores", text)
        rows = [line.split() for line in text.splitlines() if line[:2] in ("x ", "y ", "z ", "d ")]
        self.assertEqual([row[:6] for row in rows],
                         [["x", "2", "1", "1", "2", "2"], ["y", "2", "2", "1", "2", "2"],
                          ["z", "2", "4", "2", "1", "4"], ["d", "1", "8", "1", "1", "0"]])
        labels = self.draw(*words, environment=MADE_UP)
        for word in ("package", "between packages", "network", "none"):
            self.assertIn(word, labels)
        self.assertEqual(labels.count("7"), 4)  # rank 7 in each strip

    def test_many_ranks(self):
        words = ["--grid", "8x8x16x64", "--ranks-per-node", "8"]
        self.assertEqual(self.read(*words, environment=MADE_UP)["layout"]["nodes"], 8192)
        self.assertIn("... and 65472 more ranks", self.draw(*words, environment=MADE_UP))


LINKS = ["none", "same core or GPU", "shared cache", "NUMA node", "package", "between packages", "network"]


def link_of(a, b):
    """By the smallest part of the machine that has both places."""
    if a["node"] != b["node"]:
        return "network"
    for part, link in (("core", LINKS[1]), ("cache", LINKS[2]), ("numa", LINKS[3]), ("package", LINKS[4])):
        if a[part] is not None and a[part] == b[part]:
            return link
    return "between packages"


def groups_of(grid, order, near, far):
    """{level: lists of ranks}: by coordinates, d's being i + near * (j + far * copy)."""
    groups = {"z": {}, "d near": {}, "d far": {}, "d copies": {}}
    for rank in range(grid[0] * grid[1] * grid[2] * grid[3]):
        at, rest = {}, rank
        for axis in order:
            rest, at[axis] = divmod(rest, grid[AXES.index(axis)])
        i, j, copy = at["d"] % near, at["d"] // near % far, at["d"] // near // far
        others = (at["x"], at["y"])
        for level, key in (("z", (at["d"],)), ("d near", (at["z"], j, copy)), ("d far", (at["z"], i, copy)),
                           ("d copies", (at["z"], i, j))):
            groups[level].setdefault((*others, *key), []).append(rank)
    return {level: list(found.values()) for level, found in groups.items()}


def slowest(places, ranks):
    return max((LINKS.index(link_of(places[a], places[b])) for a in ranks for b in ranks if a < b), default=0)


@HWLOC
class Levels(Case):
    def test_against_coordinates(self):
        """Random grids, orders and levels: every pair of every group."""
        seed = int(os.environ.get("QDR_TEST_SEED", "20"))
        print(f"seed {seed}")
        choose = random.Random(seed)
        n_warned = 0
        for _ in range(24):
            near, far, copies = (choose.choice([1, 2, 3]) for _ in range(3))
            grid = [choose.choice([1, 2]), choose.choice([1, 2]), choose.choice([1, 2, 4]), near * far * copies]
            order = "".join(choose.sample(AXES, 4))
            words = ["--grid", "x".join(map(str, grid)), "--order", order, "--levels",
                     f"{grid[2] * near},{grid[2] * near * far}"]
            if choose.random() < 0.5:
                words += ["--ranks-per-node", str(choose.choice([2, 3, 6, 12]))]
            with self.subTest(words=words):
                layout = self.read(*words, environment=MADE_UP)["layout"]
                n_warned += self.check(layout, groups_of(grid, order, near, far))
        self.assertGreater(n_warned, 0)

    def check(self, layout, groups):
        """@return whether there was a warning"""
        found, links = layout["levels"]["groups"], []
        self.assertEqual([level["level"] for level in found], list(groups))
        for level in found:
            members = groups[level["level"]]
            nodes = [[layout["places"][rank]["node"] for rank in ranks] for ranks in members]
            links += [max(slowest(layout["places"], ranks) for ranks in members)] if len(members[0]) > 1 else []
            self.assertEqual(level["ranks"], len(members[0]))
            if len(members[0]) > 1:
                self.assertEqual(level["stride"], members[0][1] - members[0][0])
            self.assertEqual(level["link"], LINKS[links[-1]] if len(members[0]) > 1 else "none")
            self.assertEqual(level["nodes"], max(len(set(group)) for group in nodes))
            self.assertEqual(level["ranks_on_node"], max(group.count(node) for group in nodes for node in group))
        warning = layout["levels"]["warning"]
        self.assertEqual(warning is not None, links != sorted(links), (links, warning))
        return warning is not None

    def test_remedy(self):
        """d before z gives the weights the network; the order that is proposed does not."""
        words = ["--grid", "1x2x2x8", "--levels", "4,8"]
        text = self.good(*words, "--order", "dyzx", environment=MADE_UP)
        warning = ("z, used in each pass, has slower links (network) than d near, used in each micro-batch "
                   "(shared cache)")
        remedy = "use --order zydx, in which no level has slower links than a farther one"
        self.assertIn(f"warning: {warning}: {remedy}\n", text)
        found = self.read(*words, "--order", "dyzx", environment=MADE_UP)["layout"]["levels"]
        self.assertEqual((found["warning"], found["remedy"]), (warning, remedy))
        found = self.read(*words, "--order", "zydx", environment=MADE_UP)["layout"]["levels"]
        self.assertEqual((found["warning"], found["remedy"]), (None, None))
        labels = self.draw(*words, "--order", "dyzx", environment=MADE_UP)
        self.assertIn(warning + ":", labels)
        self.assertIn(remedy, labels)

    def test_words(self):
        for words, parts in (("none", (2, 2)), ("zero1", (2, 16)), ("zero2", (16, 16)), ("4,all", (4, 16)),
                             ("all,all", (16, 16)), ("2,8", (2, 8))):
            found = self.read("--grid", "1x1x2x8", "--levels", words, environment=MADE_UP)["layout"]["levels"]
            self.assertEqual((found["gradient_parts"], found["optimizer_parts"]), parts)
        found = self.read("--grid", "1x1x8x1", "--levels", "zero3", environment=MADE_UP)["layout"]["levels"]
        self.assertEqual([level["ranks"] for level in found["groups"]], [8, 1, 1, 1])
        self.assertIsNone(self.read("--grid", "1x1x8x1", environment=MADE_UP)["layout"]["levels"])

    @HWLOC
    def test_units(self):
        for words, parts, note in (("numa,package", (2, 4), None), ("cache,node", (2, 8), None),
                                   ("package,all", (4, 8), None),
                                   ("module,node", (2, 8), "'module' does not fit gradients")):
            shape = ["--grid", "1x1x1x8", "--levels", words]
            found = self.read(*shape, environment=MADE_UP)["layout"]["levels"]
            self.assertEqual((found["gradient_parts"], found["optimizer_parts"]), parts, words)
            if note:
                self.assertIn(note, found["note"])
                self.assertIn(f"note: {note}", self.good(*shape, environment=MADE_UP))
                self.assertTrue(any(note in label for label in self.draw(*shape, environment=MADE_UP)))
            else:
                self.assertIsNone(found["note"])

    def test_units_of_recorded_machines(self):
        for machine, words, parts in (("tioga-8xMI250X", "module,node", (2, 8)), ("dgx2-16xV100", "node,all", (16, 32)),
                                      ("power8-gpu-pairs", "package,node", (2, 4)),
                                      ("corona-epyc", "cache,numa", (3, 6))):
            if not recorded(machine):
                self.skipTest("no recorded machines in QDR_TEST_TOPOLOGIES")
            on = "cores" if machine == "corona-epyc" else "gpus"
            ranks = {"tioga-8xMI250X": 16, "dgx2-16xV100": 32, "power8-gpu-pairs": 8, "corona-epyc": 96}[machine]
            found = self.read("--xml", recorded(machine), "--grid", f"1x1x1x{ranks}", "--on", on, "--levels",
                              words)["layout"]["levels"]
            self.assertEqual((found["gradient_parts"], found["optimizer_parts"]), parts, machine)

    def test_text_and_picture(self):
        words = ["--grid", "1x1x2x8", "--levels", "4,8"]
        text = self.good(*words, environment=MADE_UP).split("levels 4,8: ")[1]
        self.assertIn("weights in 2 parts, gradients in 4, optimizer state in 8\n", text)
        rows = [line.split() for line in text.splitlines()[-4:]]
        self.assertEqual([row[:3] for row in rows], [["z", "2", "1"], ["d", "near", "2"], ["d", "far", "2"],
                                                     ["d", "copies", "2"]])
        self.assertNotIn("warning", text)
        labels = self.draw(*words, environment=MADE_UP)
        for label in ("d near", "d far", "d copies", "gradients summed and weights returned once a step",
                      "levels 4,8: weights in 2 parts, gradients in 4, optimizer state in 8"):
            self.assertIn(label, labels)
        self.assertEqual(labels.count("15"), 8)  # rank 15 in each strip of axes and of levels

    def test_refusals(self):
        for words in ("4,8", "module,node", "none"):
            self.assert_refused(topo("--levels", words), "--levels", "--grid")
        self.assert_refused(topo("--grid", "1x1x2x4", "--levels", "many"), "'many'")
        self.assert_refused(topo("--grid", "1x1x2x4", "--levels", "3,8"), "3 parts", "2 or 4")
        self.assert_refused(topo("--grid", "1x1x2x4", "--levels", "4,2"), "2 parts", "4")
        self.assert_refused(topo("--grid", "1x1x2x4", "--levels", "4,16"), "16 parts", "8")
        self.assert_refused(topo("--grid", "1x1x2x4", "--levels", "zero3"), "d = 4")

    def test_recorded(self):
        """z in a module, near in a node, far between nodes."""
        if not recorded("tioga-8xMI250X"):
            self.skipTest("no recorded machines in QDR_TEST_TOPOLOGIES")
        words = ["--xml", recorded("tioga-8xMI250X"), "--grid", "1x1x2x16", "--levels", "8,all"]
        found = self.read(*words)["layout"]["levels"]
        self.assertEqual([(level["ranks"], level["link"]) for level in found["groups"]],
                         [(2, "XGMI in a module"), (4, "XGMI"), (4, "network"), (1, "none")])
        self.assertIsNone(found["warning"])
        found = self.read(*words, "--order", "dzyx")["layout"]["levels"]
        self.assertIn("z, used in each pass, has slower links (network)", found["warning"])
        self.assertIn("--order zdyx", found["remedy"])


class Refusals(Case):
    def test_options(self):
        self.assert_refused(topo("--grid", "2x2"), "2x2", "GXxGYxGZxGD")
        self.assert_refused(topo("--grid", "1024x1024x1x1"), "65536")
        self.assert_refused(topo("--grid", "1x1x1x1", "--order", "xyz"), "xyz")
        self.assert_refused(topo("--grid", "1x1x1x1", "--on", "discs"), "discs")
        if has_hwloc():
            self.assert_refused(topo("--grid", "1x1x1x1", "--on", "gpus", environment=MADE_UP), "no GPUs")
        self.assert_refused(topo("--grid", "1x1x1x1", "--ranks-per-node", "0"), "ranks-per-node")
        for words in (["--order", "xyzd"], ["--ranks-per-node", "2"], ["--on", "cores"]):
            self.assert_refused(topo(*words), words[0], "--grid")
        self.assert_refused(topo("--xml", "a.xml", "--ranks"), "--ranks", "--xml")
        self.assert_refused(topo("--tiger"), "--tiger", "quadrille topo --help")
        self.assert_refused(topo("--svg", self.path("none/machine.svg")), "--svg", "No such file")

    @HWLOC
    def test_files(self):
        """hwloc itself would describe this machine instead."""
        bad = {"empty": b"", "cut": b"<topology><object", "other": b'<?xml version="1.0"?><a></a>', "text": b"8 GPUs\n"}
        for name, content in bad.items():
            with self.subTest(file=name):
                path = self.path(name + ".xml", content)
                self.assert_refused(topo("--xml", path), path, "lstopo")
                self.assert_refused(topo(environment={"HWLOC_XMLFILE": path}), path)
        endless = subprocess.run([ARGUMENTS.quadrille, "verify", "-n", "1", "--cases", "1"], capture_output=True,
                                 text=True, timeout=60, env={**os.environ, "HWLOC_XMLFILE": "/dev/zero"})
        self.assertNotEqual(endless.returncode, 0)
        self.assertIn("/dev/zero is a device", endless.stderr)
        self.assert_refused(topo("--xml", self.path("absent.xml")), "absent.xml", "No such file")
        self.assert_refused(topo("--xml", self.folder), self.folder)

    @HWLOC
    def test_a_file_cut_short(self):
        if not recorded("tioga-8xMI250X"):
            self.skipTest("no recorded machines in QDR_TEST_TOPOLOGIES")
        with open(recorded("tioga-8xMI250X"), "rb") as file:
            path = self.path("short.xml", file.read(30000))
        self.assert_refused(topo("--xml", path), "short.xml")

    def test_full_device(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        done = topo("--svg", "/dev/full")
        self.assertEqual((done.returncode, done.out), (1, ""), done.err)
        self.assertIn("/dev/full", done.err)


class Ranks(Case):
    def test_mpi_is_not_started_alone(self):
        """A resource that MPI would need is missing."""
        environment = {"PMI_FD": "99", "PMI_RANK": "0", "PMI_SIZE": "1"}
        self.assertIsNone(self.read(environment=environment)["ranks"])

    def test_one_rank(self):
        machine = self.read("--ranks", "--grid", "1x1x1x1")
        self.assertEqual(len(machine["ranks"]), 1)
        self.assertEqual(machine["ranks"][0]["host"], machine["host"])
        self.assertTrue(machine["layout"]["running"])
        self.assert_refused(topo("--ranks", "--grid", "2x1x1x1"), "2 ranks", "1 was started", "--ranks-per-node")

    @unittest.skipUnless("--mpiexec" in sys.argv, "no mpiexec")
    def test_mpi(self):
        before = [ARGUMENTS.mpiexec, "-n", "4"]
        two_nodes = {"MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CLIQUES_BY_BLOCK": "1"}
        machine = self.read("--grid", "2x2x1x1", before=before, environment=two_nodes)
        self.assertEqual([rank["place"]["node"] for rank in machine["ranks"]], [0, 0, 1, 1])
        self.assertTrue(all(rank["cpus"] for rank in machine["ranks"]))
        axes = machine["layout"]["axes"]
        self.assertEqual([axis["nodes"] for axis in axes], [1, 2, 1, 1])
        self.assertEqual((axes[1]["link"], axes[1]["siblings"]), ("network", 2))
        text = self.good("--grid", "2x2x1x1", before=before)
        self.assertIn(f"node 0: {machine['host']}, 4 ranks\n", text)
        self.assertIn("where these ranks run", text)
        self.assertIn("rank 3, node 0", self.draw(before=before))
        self.assert_refused(topo("--grid", "3x1x1x1", before=before), "mpiexec -n 3")
        self.assert_refused(topo("--tiger", before=before), "--tiger")
        no_gpu = {"QDR_DEVICE": "cuda", "QDR_CUDA_PLUGIN": "/no/plugin.so"}  # no computation happens
        self.assertEqual(self.good("--grid", "2x2x1x1", before=before, environment=no_gpu), text)
        self.assert_refused(topo("--tiger", before=before, environment=no_gpu), "--tiger")
        alternating = self.read("--grid", "1x1x1x4", "--levels", "2,4", before=before,
                                environment={"MPIR_CVAR_NUM_CLIQUES": "2"})
        self.assertEqual([rank["place"]["node"] for rank in alternating["ranks"]], [0, 1, 0, 1])
        self.assertIn("no order of this grid avoids it", alternating["layout"]["levels"]["remedy"])
        planned = self.read("--grid", "4x2x1x1", "--ranks-per-node", "4", before=before)["layout"]
        self.assertEqual((planned["running"], planned["nodes"]), (False, 2))

    @HWLOC
    @unittest.skipUnless("--mpiexec" in sys.argv, "no mpiexec")
    def test_a_recorded_machine_under_mpi(self):
        before = [ARGUMENTS.mpiexec, "-n", "2"]
        machine = self.read(before=before, environment=MADE_UP)
        self.assertEqual((machine["ranks"], len(machine["cores"])), (None, 8))
        self.assert_refused(topo("--xml", self.path("absent.xml"), before=before), "absent.xml")


if __name__ == "__main__":
    cases.main("quadrille", "--mpiexec")
