#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`quadrille predict` with tables of collectives: times in closed form, output on the terminal and in files, and
refusals.

usage: predict_coll_test.py QUADRILLE DATA

DATA is the folder of machines/.
"""
import csv
import io
import json
import os

import cases
from cases import ARGUMENTS, start

ADDED = ["predicted_secs", "why_skipped"]
COLUMNS = ["source", "machine", "collective", "gpus", "nodes", "strided", "alone", "algorithm", "bytes", "bytes_most",
           "secs", "skip"]
# Nothing but rates: 100 GB/s of a rank inside a node of 8; 4 adapters of 10 GB/s; 200 GB/s into the switch.
MACHINE = {"name": "test-quux", "aliases": ["Quux"], "ranks_per_node": 8, "memory_GiB": 80, "memory_GBps": 2000,
           "bf16": {"peak_TFLOPS": 312},
           "links": [{"ranks": 8, "rank_GBps": 100, "switch_GBps": 200},
                     {"ranks": 0, "adapters": 4, "adapter_GBps": 10}]}
MIB = 2 ** 20


def row(collective="all-gather", gpus=8, size=64 * MIB, **more):
    return {"machine": "Quux V9", "collective": collective, "gpus": gpus, "bytes": size, "secs": 1, **more}


def bus_bytes(collective, gpus, size):
    """What a rank sends in a ring."""
    return size * {"send-recv": 1, "all-reduce": 2 * (gpus - 1) / gpus}.get(collective, (gpus - 1) / gpus)


def as_csv(rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


class Case(cases.Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("machines"))
        self.write("machines/test-quux.json", json.dumps(MACHINE))

    def run_file(self, path, *words):
        return start(ARGUMENTS.quadrille, "predict", path, *words,
                     environment={"QDR_DATA_PATH": f"{self.folder}:{ARGUMENTS.data}"})

    def predicted(self, path, *words):
        done = self.run_file(path, "-o", self.path("out.csv"), "--json", *words)
        self.assertEqual((done.returncode, done.err), (0, ""), done.err)
        with open(self.path("out.csv"), newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file)), json.loads(done.out)

    def rows(self, *rows, words=()):
        return self.predicted(self.write("in.csv", as_csv(rows)), *words)[0]

    def busbw(self, *words, **columns):
        """Of the largest size, in GB/s."""
        line = row(**columns)
        got, = self.rows(line, words=words)
        self.assertEqual(got["why_skipped"], "")
        sent = bus_bytes(line["collective"], line["gpus"], line.get("bytes_most") or line["bytes"])
        return sent / float(got["predicted_secs"]) / 1e9

    def refused(self, *parts, **columns):
        done = self.run_file(self.write("in.csv", as_csv([row(), row(**columns)])))
        self.assertEqual((done.returncode, done.out, done.err.count("\n")), (2, "", 1), done.err)
        for part in ("in.csv, line 3, column '", *parts):
            self.assertIn(part, done.err)


class Rows(Case):
    def test_rings_reach_the_rate(self):
        for name in ("all-gather", "reduce-scatter", "send-recv"):
            for gpus in (2, 8):
                self.assertAlmostEqual(self.busbw(collective=name, gpus=gpus), 100, places=3)

    def test_time(self):
        got, = self.rows(row(size=10 ** 9))
        self.assertAlmostEqual(float(got["predicted_secs"]), 7 / 8 * 1e9 / 100e9, places=7)

    def test_switch_or_ring(self):
        # In the switch: 1 + 1/8 passes at 200 GB/s; a ring there would need 2·7/8.
        self.assertAlmostEqual(self.busbw(collective="all-reduce"), 1.75 * 200 / 1.125, places=2)
        self.assertAlmostEqual(self.busbw(collective="all-reduce", algorithm="any"), 1.75 * 200 / 1.125, places=2)
        self.assertAlmostEqual(self.busbw(collective="all-reduce", algorithm="ring"), 100, places=3)
        self.assertAlmostEqual(self.busbw(collective="all-reduce", gpus=2), 100, places=3)

    def test_nodes(self):
        self.assertAlmostEqual(self.busbw(gpus=32), 40, places=3)  # all four adapters
        self.assertAlmostEqual(self.busbw(gpus=32, nodes=4), 40, places=3)
        self.assertAlmostEqual(self.busbw(gpus=4, nodes=4), 10, places=3)  # one rank of each node
        self.assertAlmostEqual(self.busbw(gpus=8, nodes=4), 10, places=3)
        self.assertAlmostEqual(self.busbw(gpus=4, nodes=1), 100, places=3)
        self.assertGreater(self.busbw(gpus=9), 0)  # on two nodes, as the machine says

    def test_groups_share_adapters(self):
        groups = {"nodes": 2, "alone": 0}
        for gpus, rate in ((8, 20), (4, 10), (2, 5)):
            self.assertAlmostEqual(self.busbw(gpus=gpus, strided=1, **groups), rate, places=3)
            self.assertAlmostEqual(self.busbw(gpus=gpus, strided=0, **groups), 100, places=3)
        self.assertAlmostEqual(self.busbw(gpus=2, strided=1, nodes=2), 10, places=3)

    def test_sizes(self):
        """The mean bandwidth over sizes that double."""
        words = ("--set", "collectives.start_us=10")
        secs = lambda size: 7 / 8 * size / 100e9 + 10e-6
        one = self.busbw(*words, size=MIB)
        self.assertAlmostEqual(one, 7 / 8 * MIB / secs(MIB) / 1e9, places=3)
        mean = sum(7 / 8 * MIB * k / secs(MIB * k) / 1e9 for k in (1, 2, 4)) / 3
        self.assertAlmostEqual(self.busbw(*words, size=MIB, bytes_most=4 * MIB), mean, places=3)

    def test_refused(self):
        for columns, parts in (({"collective": "broadcast"}, ["collective': 'broadcast' is not one of all-gather, "]),
                               ({"size": ""}, ["bytes': it is empty or missing"]),
                               ({"gpus": 1}, ["gpus': '1' is not a whole number from 2"]),
                               ({"secs": ""}, ["secs': it is empty or missing"]),
                               ({"gpus": "many"}, ["gpus': 'many'"]), ({"gpus": 2.5}, ["gpus': '2.5'", "whole"]),
                               ({"secs": -4}, ["secs': '-4'"]), ({"size": "nan"}, ["bytes': 'nan'"]),
                               ({"machine": "Qux"}, ["machine': ", "Quux"]), ({"machine": ""}, ["--machine"]),
                               ({"bytes_most": 5}, ["bytes_most': 5 is less than bytes = 67108864"]),
                               ({"gpus": 32, "nodes": 2}, ["32 are more than the 16 that 2 nodes of test-quux have"]),
                               ({"gpus": 9, "nodes": 2}, ["2 nodes cannot share 9 evenly"]),
                               ({"gpus": 2, "nodes": 4}, ["4 nodes cannot share 2 evenly"])):
            self.refused(*parts, **columns)

    def test_skipped(self):
        skipped, other = self.rows(row(skip="a broken cable", gpus="", secs=""), row())
        self.assertEqual([skipped[name] for name in ADDED], ["", "a broken cable"])
        self.assertEqual(other["why_skipped"], "")

    def test_settings_of_a_machine(self):
        words = ("--set", "test-quux:links[0].rank_GBps=50")
        self.assertAlmostEqual(self.busbw(*words), 50, places=3)
        done = self.run_file(self.write("in.csv", as_csv([row()])), "--set", "quux:links[0].rank_GBps=50")
        self.assertEqual((done.returncode, done.out), (2, ""))
        self.assertIn("no row is on that machine; the last one is on test-quux\n", done.err)

    def test_machine_of_all_rows(self):
        self.assertAlmostEqual(self.busbw("--machine", "test-quux", machine="who knows"), 100, places=3)


class Reports(Case):
    def test_scores(self):
        secs = bus_bytes("all-gather", 8, 64 * MIB) / 100e9
        rows = ([row(secs=secs / share) for share in (1, 0.5, 2, 1.25)]
                + [row(collective="all-reduce"), row(skip="not measured well")])
        _, report = self.predicted(self.write("in.csv", as_csv(rows)))
        gathers, reduces = report["groups"]
        self.assertEqual((gathers["machine"], gathers["collective"], gathers["n"], gathers["skipped"]),
                         ("Quux V9", "all-gather", 4, 1))
        # predicted / measured times: 1, 0.5, 2, 1.25
        self.assertAlmostEqual(gathers["median_error"], 0.375, places=6)
        self.assertAlmostEqual(gathers["mean_error"], (0 + 0.5 + 1 + 0.25) / 4, places=6)
        self.assertAlmostEqual(gathers["worst_error"], 1, places=6)
        self.assertAlmostEqual(gathers["median_ratio"], 1.125, places=6)
        self.assertEqual((reduces["collective"], reduces["n"]), ("all-reduce", 1))
        self.assertEqual((report["all"]["n"], report["skipped"]), (5, [{"why": "not measured well", "rows": 1}]))

    def test_text(self):
        path = self.write("in.csv", as_csv([row(), row(skip="not measured well")]))
        done = self.run_file(path)
        self.assertEqual((done.returncode, done.err), (0, ""))
        for part in ("# 2 collectives of ", "Quux V9", "all-gather", "# skipped:", "1 row: not measured well"):
            self.assertIn(part, done.out)
        lines = [line for line in done.out.splitlines() if not line.startswith("#")]
        self.assertEqual(len({len(line) for line in lines}), 1, done.out)

    def test_again(self):
        """The file written is again a table."""
        rows, report = self.predicted(self.write("in.csv", as_csv([row(), row(skip="no")])))
        os.rename(self.path("out.csv"), self.path("in.csv"))
        self.assertEqual(self.predicted(self.path("in.csv")), (rows, report))

    def test_refused(self):
        for text, part in (("collective,gpus,busbw_GBps\nall-gather,8,100\n", "column 'busbw_GBps' is unknown"),
                           ("collective,gpus,bytes\nall-gather,8,1\n", "line 2, column 'secs': it is empty or missing"),
                           (as_csv([]), "no rows"), (as_csv([row(skip="no")]), "no row could be predicted")):
            done = self.run_file(self.write("in.csv", text))
            self.assertIn(done.returncode, (1, 2))
            self.assertEqual(done.err.count("\n"), 1)
            self.assertIn(part, done.err)


if __name__ == "__main__":
    cases.main("quadrille", "data")
