#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille doctor on two made-up nodes, network and UTS namespaces of this machine. The second has another version of
the library, less /dev/shm and a clock that is 3 s ahead; or only another build of the library.

usage: doctor_nodes.py QUADRILLE OTHER_NODE.so
77: namespaces cannot be made here.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
QUADRILLE, OTHER_NODE = (os.path.abspath(path) for path in sys.argv[1:3])
# Nodes get host names by their addresses in the lab, and the other one a /dev/shm of its own; or, with THEIRS, only a
# file that is mounted over another.
NODE = f"""#!/bin/sh
number=$(ip -br -4 addr show dev eth0 | sed 's|.*10\\.77\\.0\\.\\([0-9]*\\)/.*|\\1|')
export number
[ "$number" = "$OTHER" ] || exec unshare --uts sh -c 'hostname node$number && exec "$@"' sh "$@"
[ -z "$THEIRS" ] || exec unshare --uts --mount sh -c 'hostname node$number && mount --bind "$THEIRS" "$OURS" &&
    exec "$@"' sh "$@"
exec unshare --uts --mount sh -c 'hostname node$number && mount -t tmpfs -o size=6m none /dev/shm &&
    LD_PRELOAD=$LD_PRELOAD:{OTHER_NODE} exec "$@"' sh "$@"
"""


def doctor(*words, other="2", n_nodes=2, **environment):
    """other: the number of the node that differs."""
    with tempfile.TemporaryDirectory() as folder:
        node = os.path.join(folder, "node.sh")
        with open(node, "w", encoding="utf-8") as file:
            file.write(NODE)
        return subprocess.run(["sh", os.path.join(FOLDER, "netlab.sh"), "-q", "-n", str(n_nodes), "--", "sh", node,
                               QUADRILLE, "doctor", *words],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=120, check=False, env={**os.environ, "OTHER": other, **environment})


class TwoNodes(unittest.TestCase):
    def test_three_lines(self):
        done = doctor()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("2 nodes, 2 ranks;", done.stdout)
        found = sorted(re.findall(r"^(note|broken) +(\w+): ([^:]+): (.*?); (.+)$", done.stdout, re.M),
                       key=lambda line: line[2])
        self.assertEqual([line[:3] for line in found], [("note", "node2", "/dev/shm"), ("note", "node2", "clock"),
                                                        ("broken", "node2", "library")], done.stdout)
        shm, clock, library = found
        self.assertIn("6 MiB with ", shm[3])
        self.assertIn("1 rank, which may need 8 MiB", shm[3])
        self.assertIn("remount,size=", shm[4])
        offset = re.fullmatch(r"\+(3\.\d+) s, elsewhere \+0\.000 s", clock[3])
        self.assertTrue(offset, clock)
        self.assertAlmostEqual(float(offset[1]), 3, delta=0.1)
        self.assertIn("NTP", clock[4])
        self.assertRegex(library[3], r"^9\.9\.9(, build \w{8})?, elsewhere \d+\.\d+\.\d+(, build \w{8})?$")
        self.assertIn("same build", library[4])
        rows = [line.split()[0] for line in done.stdout.splitlines() if re.match(r"node[12]  ", line)]
        self.assertEqual(rows, ["node1", "node2"])

    def test_json(self):
        done = doctor("--json")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual((report["works"], report["broken"], report["ranks"]), (False, 1, 2))
        self.assertEqual([(node["host"], node["ranks"]) for node in report["nodes"]], [("node1", [0]), ("node2", [1])])
        facts = [node["facts"] for node in report["nodes"]]
        self.assertEqual((facts[1]["library"].split(",")[0], facts[1]["/dev/shm"]), ("9.9.9", 6 << 20))
        self.assertAlmostEqual(facts[1]["clock"] - facts[0]["clock"], 3, delta=report["clock_bound_secs"])
        self.assertEqual(sorted((one["host"], one["fact"]) for one in report["differences"]),
                         [("node2", "/dev/shm"), ("node2", "clock"), ("node2", "library")])

    def test_most_nodes_are_right(self):
        """Where rank 0's node is the odd one."""
        report = json.loads(doctor("--json", other="1", n_nodes=3).stdout)
        self.assertEqual(sorted((one["host"], one["fact"]) for one in report["differences"]),
                         [("node1", "/dev/shm"), ("node1", "clock"), ("node1", "library")])
        self.assertEqual(report["nodes"][0]["host"], "node1")

    def test_another_build(self):
        """One bit of the build ID: the version is the same, and so is all the code."""
        used = subprocess.run(["ldd", QUADRILLE], capture_output=True, text=True, check=True).stdout
        ours = os.path.realpath(re.search(r"libquadrille\.so\S* => (\S+)", used)[1])
        notes = subprocess.run(["readelf", "--notes", ours], capture_output=True, text=True, check=True).stdout
        build = re.search(r"Build ID: ([0-9a-f]+)", notes)
        if not build:
            self.skipTest("this linker makes no build ID")
        build = bytes.fromhex(build[1])
        changed = build[:3] + bytes([build[3] ^ 1]) + build[4:]
        with tempfile.NamedTemporaryFile() as theirs, open(ours, "rb") as library:
            theirs.write(library.read().replace(build, changed))
            theirs.flush()
            done = doctor(OURS=ours, THEIRS=theirs.name)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        found = re.findall(r"^(?:note|broken) .*", done.stdout, re.M)
        self.assertEqual(len(found), 1, done.stdout)
        self.assertRegex(found[0], rf"^broken node2: library: (\S+), build {changed[:4].hex()}, elsewhere \1, build "
                                   rf"{build[:4].hex()}; install the same build")

    def test_equal_nodes(self):
        done = doctor(other="none")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotRegex(done.stdout, r"(?m)^(note|broken) ")
        self.assertIn("no node is broken; 0 notes", done.stdout)


def skip_unless_there_are_nodes():
    done = subprocess.run(["sh", os.path.join(FOLDER, "netlab.sh"), "-q", "-n", "1", "--", "unshare", "--uts",
                           "--mount", "sh", "-c", "hostname other && mount -t tmpfs none /dev/shm"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        print("skipped: nodes cannot be made here:", (done.stderr.strip().splitlines() or ["no reason is given"])[-1])
        sys.exit(77)


if __name__ == "__main__":
    skip_unless_there_are_nodes()
    unittest.main(argv=sys.argv[:1], verbosity=1)
