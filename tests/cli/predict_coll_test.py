#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`quadrille predict` with tables of collectives: times in closed form, output on the terminal and in files, and
refusals.

usage: predict_coll_test.py QUADRILLE DATA

DATA is the folder of machines/ and data/. Tables of measured collectives are looked for in the folder that
QDR_TEST_MEASURED names, else in ../shared/measured next to the repository.
"""
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

ARGUMENTS = sys.argv[1:3]
ADDED = ["predicted_time_us", "predicted_busbw_GBps", "why_skipped"]
COLUMNS = ["machine", "gpu", "collective", "nodes", "gpus", "bytes", "time_us", "busbw_GBps", "algo", "source"]
# Nothing but rates: 100 GB/s of a rank inside a node of 8; 4 adapters of 10 GB/s; 200 GB/s into the switch.
MACHINE = {"name": "test-quux", "aliases": ["Quux"], "ranks_per_node": 8, "memory_GiB": 80, "memory_GBps": 2000,
           "bf16": {"peak_TFLOPS": 312},
           "links": [{"ranks": 8, "rank_GBps": 100, "switch_GBps": 200},
                     {"ranks": 0, "adapters": 4, "adapter_GBps": 10}]}
MIB = 2 ** 20


def row(collective="all_gather", gpus=8, size=64 * MIB, **more):
    return {"machine": "Quux", "gpu": "V9", "collective": collective, "gpus": gpus, "bytes": size,
            "busbw_GBps": 100, **more}


def as_csv(rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        os.mkdir(self.path("machines"))
        self.write("machines/test-quux.json", json.dumps(MACHINE))

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def run_file(self, path, *words):
        done = subprocess.run([ARGUMENTS[0], "predict", path, *words], capture_output=True, timeout=120,
                              env={**os.environ, "QDR_DATA_PATH": f"{self.folder.name}:{ARGUMENTS[1]}"})
        done.out, done.err = done.stdout.decode(), done.stderr.decode()
        return done

    def predicted(self, path, *words):
        done = self.run_file(path, "-o", self.path("out.csv"), "--json", *words)
        self.assertEqual((done.returncode, done.err), (0, ""), done.err)
        with open(self.path("out.csv"), newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file)), json.loads(done.out)

    def rows(self, *rows, words=()):
        return self.predicted(self.write("in.csv", as_csv(rows)), *words)[0]

    def busbw(self, *words, **columns):
        got, = self.rows(row(**columns), words=words)
        self.assertEqual(got["why_skipped"], "")
        return float(got["predicted_busbw_GBps"])

    def why(self, **columns):
        got, other = self.rows(row(**columns), row())
        self.assertEqual([got[name] for name in ADDED[:2]], ["", ""])
        self.assertEqual(other["why_skipped"], "")
        return got["why_skipped"]


class Rows(Case):
    def test_rings_reach_the_rate(self):
        for name in ("all_gather", "AllGather", "all-gather", "reduce_scatter", "ReduceScatter", "sendrecv"):
            for gpus in (2, 8):
                self.assertAlmostEqual(self.busbw(collective=name, gpus=gpus), 100, places=3)

    def test_time_and_bandwidth_are_one(self):
        got, = self.rows(row(size=10 ** 9))
        self.assertAlmostEqual(float(got["predicted_time_us"]), 7 / 8 * 1e9 / 100e9 * 1e6, places=1)
        got, = self.rows(row(size=10 ** 9, time_us=8750, busbw_GBps=""))
        self.assertAlmostEqual(float(got["predicted_busbw_GBps"]), 100, places=3)

    def test_switch_or_ring(self):
        # In the switch: 1 + 1/8 passes at 200 GB/s; a ring there would need 2·7/8.
        self.assertAlmostEqual(self.busbw(collective="all_reduce"), 1.75 * 200 / 1.125, places=2)
        self.assertAlmostEqual(self.busbw(collective="all_reduce", algo="Ring"), 100, places=3)
        self.assertAlmostEqual(self.busbw(collective="all_reduce", gpus=2), 100, places=3)

    def test_nodes(self):
        self.assertAlmostEqual(self.busbw(gpus=32), 40, places=3)  # all four adapters
        self.assertAlmostEqual(self.busbw(gpus=32, nodes=4), 40, places=3)
        self.assertAlmostEqual(self.busbw(gpus=4, nodes=4), 10, places=3)  # one rank of each node
        self.assertAlmostEqual(self.busbw(gpus=8, nodes=4), 10, places=3)
        self.assertAlmostEqual(self.busbw(gpus=4, nodes=1), 100, places=3)

    def test_groups_share_adapters(self):
        for gpus, rate in ((8, 20), (4, 10), (2, 5)):
            self.assertAlmostEqual(self.busbw(collective=f"all_gather group {gpus} strided", gpus=gpus, nodes=2), rate,
                                   places=3)
            self.assertAlmostEqual(self.busbw(collective=f"all_gather group {gpus} consec", gpus=gpus, nodes=2), 100,
                                   places=3)

    def test_assumed_sizes(self):
        assumed = {"entries": [{"source": "s1", "bytes": MIB, "reason": "said elsewhere"},
                               {"source": "s2", "bytes": MIB, "bytes_most": 4 * MIB, "alone": 1,
                                "reason": "its script"}]}
        words = ("--assume", self.write("assumed.json", json.dumps(assumed)), "--set", "collectives.start_us=10")
        secs = lambda size: 7 / 8 * size / 100e9 + 10e-6
        one = self.busbw(*words, source="s1", size="")
        self.assertAlmostEqual(one, 7 / 8 * MIB / secs(MIB) / 1e9, places=3)
        mean = sum(7 / 8 * MIB * k / secs(MIB * k) / 1e9 for k in (1, 2, 4)) / 3
        self.assertAlmostEqual(self.busbw(*words, source="s2", size=""), mean, places=3)
        alone = self.busbw(*words, source="s2", collective="all_gather group 2 strided", gpus=2, nodes=2, size="")
        self.assertAlmostEqual(alone, sum(MIB * k / 2 / (MIB * k / 2 / 10e9 + 10e-6) / 1e9 for k in (1, 2, 4)) / 3,
                               places=3)

    def test_rows_that_are_none(self):
        self.assertIn("'broadcast'", self.why(collective="broadcast"))
        self.assertIn("bytes is missing", self.why(size=""))
        self.assertIn("below 2", self.why(gpus=1))
        self.assertIn("nothing was measured", self.why(busbw_GBps=""))
        self.assertIn("'gpus'", self.why(gpus="many"))
        self.assertIn("whole", self.why(gpus=2.5))
        self.assertIn("'time_us': '-4'", self.why(time_us=-4))
        self.assertIn("'bytes': 'nan'", self.why(size="nan"))
        self.assertIn("Quux", self.why(machine="Qux"))

    def test_rows_that_contradict_themselves(self):
        self.assertIn("gpus is 32, but 2 nodes of test-quux have 16", self.why(gpus=32, nodes=2))
        self.assertIn("gpus is 9, which 2 nodes cannot share", self.why(gpus=9, nodes=2))
        self.assertIn("gpus is 2, which 4 nodes cannot share", self.why(gpus=2, nodes=4))
        self.assertIn("'all_gather group 4 strided', but gpus is 8",
                      self.why(collective="all_gather group 4 strided", nodes=2))
        self.assertIn("but 1 nodes", self.why(collective="all_gather group 16", gpus=16, nodes=1))
        for word in ("banana", "stridden", "-- con"):
            self.assertIn("consecutive, contiguous or strided",
                          self.why(collective=f"all_gather group 8 {word}", nodes=2), word)
        for word in ("", " consec", " consecutive", " Contiguous", ", contiguous"):
            self.assertAlmostEqual(self.busbw(collective=f"all_gather group 8{word}", nodes=2), 100, places=3)

    def test_machine_or_gpu(self):
        """Either column may name the machine: the first that does, machine before GPU."""
        want = self.busbw()
        for columns in ({"machine": "test-quux", "gpu": "H100"}, {"machine": "TEST-QUUX"},
                        {"machine": "lab", "gpu": "Quux"}, {"machine": "", "gpu": "Quux"},
                        {"machine": "test-quux", "gpu": "dgx-a100"}):
            self.assertEqual(self.busbw(**columns), want, columns)
        self.assertIn('"lab V9"', self.why(machine="lab"))
        self.assertIn("machine is missing", self.why(machine="", gpu=""))

    def test_settings_of_a_machine(self):
        words = ("--set", "test-quux:links[0].rank_GBps=50")
        self.assertAlmostEqual(self.busbw(*words), 50, places=3)
        done = self.run_file(self.write("in.csv", as_csv([row()])), "--set", "quux:links[0].rank_GBps=50")
        self.assertEqual((done.returncode, done.out), (2, ""))
        self.assertIn("those used are test-quux\n", done.err)

    def test_machine_of_all_rows(self):
        self.assertAlmostEqual(self.busbw("--machine", "test-quux", machine="who knows"), 100, places=3)


class Reports(Case):
    def test_scores(self):
        rows = ([row(busbw_GBps=measured) for measured in (100, 50, 200, 125)]
                + [row(collective="all_reduce"), row(gpus=1)])
        _, report = self.predicted(self.write("in.csv", as_csv(rows)))
        gathers, reduces = report["groups"]
        self.assertEqual((gathers["collective"], gathers["n"], gathers["skipped"]), ("all-gather", 4, 1))
        # predicted / measured times: 1, 0.5, 2, 1.25
        self.assertAlmostEqual(gathers["median_error"], 0.375, places=6)
        self.assertAlmostEqual(gathers["mean_error"], (0 + 0.5 + 1 + 0.25) / 4, places=6)
        self.assertAlmostEqual(gathers["worst_error"], 1, places=6)
        self.assertAlmostEqual(gathers["median_ratio"], 1.125, places=6)
        self.assertEqual((reduces["collective"], reduces["n"]), ("all-reduce", 1))
        self.assertEqual((report["all"]["n"], report["skipped"][0]["rows"]), (5, 1))

    def test_text(self):
        path = self.write("in.csv", as_csv([row(), row(gpus=1)]))
        done = self.run_file(path, "--groups")
        self.assertEqual((done.returncode, done.err), (0, ""))
        for part in ("Quux V9", "all-gather", "0.0%", "# skipped:", "1 row: gpus is below 2", "67108864"):
            self.assertIn(part, done.out)

    def test_refused(self):
        for text, part in (("collective,gpus\nall_gather,8\n",
                            "busbw_GBps, separated by commas; there are only 'collective', 'gpus'"),
                           (as_csv([]), "no rows"), (as_csv([row(gpus=1)]), "no row could be predicted")):
            done = self.run_file(self.write("in.csv", text))
            self.assertIn(done.returncode, (1, 2))
            self.assertEqual(done.err.count("\n"), 1)
            self.assertIn(part, done.err)


NCCL = """# nThread 1 nGpus {ranks} minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 5 iters: 20 \
agg iters: 1
#
# Using devices
{devices}#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float    none      -1    {0:.2f}   99.99   87.49      0    1.00   99.99   87.49      0
     2097152        524288     float    none      -1    {1:.2f}   99.99   87.49    N/A    1.00   99.99   87.49    N/A
     4194304       1048576     float    none      -1    {2:.2f}   99.99   87.49      0    1.00   99.99   87.49      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 87.49
"""


class Nccl(Case):
    """The output of nccl-tests."""
    times = [7 / 8 * size / 100e9 * 1e6 for size in (MIB, 2 * MIB, 4 * MIB)]

    def text(self, begin="", ranks=8, times=None):
        devices = "".join(f"#  Rank {rank:2} Group  0 Pid  77{rank} on  node device {rank} [0x07] V9\n"
                          for rank in range(ranks))
        return begin + NCCL.format(*(times or self.times), ranks=ranks, devices=devices)

    def read(self, text, *words):
        return self.predicted(self.write("nccl.txt", text), *words, "--machine", "test-quux")

    def test_out_of_place_times(self):
        for begin in ("# Collective test starting: all_gather_perf\n",
                      "$ ./build/all_gather_perf -b 1M -e 4M -f 2 -g 8\n",
                      "host:1:2 [0] NCCL INFO all well\r\n# nccl-tests version 2.13.8\n"
                      "# Collective test starting: all_gather_perf\n"):
            rows, report = self.read(self.text(begin))
            self.assertEqual([(each["collective"], each["gpus"], each["bytes"]) for each in rows],
                             [("all_gather", "8", str(size * MIB)) for size in (1, 2, 4)])
            self.assertEqual([float(each["time_us"]) for each in rows], [round(time, 2) for time in self.times])
            self.assertLess(report["all"]["worst_error"], 1e-3)

    def test_what_it_does_not_say(self):
        path = self.write("nccl.txt", self.text(ranks=0))
        for words, part in (((), "--collective"), (("--collective", "all_gather"), "--ranks"),
                            (("--collective", "a,b"), "'a,b'"), (("--ranks", "1"), "ranks")):
            done = self.run_file(path, *words)
            self.assertEqual((done.returncode, done.err.count("\n")), (2, 1), done.err)
            self.assertIn(part, done.err)
        rows, report = self.read(self.text(ranks=0), "--collective", "all_gather")
        self.assertEqual({each["gpus"] for each in rows}, {"8"})  # the ranks of a node
        self.assertLess(report["all"]["worst_error"], 1e-3)
        said = self.text("# Collective test starting: all_gather_perf\n")
        rows, _ = self.read(said, "--ranks", "4", "--collective", "all_reduce")
        self.assertEqual({(each["collective"], each["gpus"]) for each in rows}, {("all_reduce", "4")})
        rows, _ = self.read("# nRanks 4\n" + self.text(ranks=0), "--collective", "all_gather")
        self.assertEqual({each["gpus"] for each in rows}, {"4"})

    def test_several_and_lines(self):
        """One text may contain several tests; rows have the line numbers of that text."""
        text = (self.text("# Collective test starting: all_gather_perf\n")
                + self.text("# Collective test starting: sendrecv_perf\n", 2))
        rows, _ = self.read(text)
        self.assertEqual([(each["collective"], each["gpus"]) for each in rows],
                         [("all_gather", "8")] * 3 + [("sendrecv", "2")] * 3)
        done = self.run_file(self.path("nccl.txt"), "--machine", "test-quux", "--groups")
        line = next(number for number, words in enumerate(text.split("\n"), 1) if words.strip().startswith("1048576"))
        self.assertIn(f"\n# {line:4d}       8 ", done.out)

    def test_any_bytes(self):
        """Truncated and damaged texts are read, or refused with one message."""
        whole = self.text("# Collective test starting: all_gather_perf\n")
        for text in [*(whole[:end] for end in range(300, len(whole), 97)), whole.replace("4194304 ", "4194304," * 99),
                     whole + "7" * 5000, whole.replace("float", '"flo"'), whole.replace(" 0 ", "\0")]:
            done = self.run_file(self.write("nccl.txt", text), "--machine", "test-quux")
            self.assertIn(done.returncode, (0, 1, 2), text)
            self.assertEqual(done.err.count("\n"), int(done.returncode != 0), done.err)


class Measured(Case):
    """Collectives measured by others, if their tables are available."""

    def find(self, name):
        root = os.path.dirname(os.path.abspath(ARGUMENTS[1]))
        folder = os.environ.get("QDR_TEST_MEASURED", os.path.join(root, "..", "shared", "measured"))
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            self.skipTest(f"{path} is not there; set QDR_TEST_MEASURED to its folder")
        return path

    def test_collectives(self):
        rows, report = self.predicted(self.find("collectives.csv"))
        self.assertEqual((report["all"]["n"], report["all"]["skipped"]), (119, 0))
        self.assertLess(report["all"]["median_error"], 0.10)
        strided = [each for each in rows if "strided" in each["collective"] and each["machine"] == "2n8g"]
        self.assertEqual(len(strided), 3)
        for each in strided:
            self.assertLess(abs(float(each["busbw_GBps"]) / float(each["predicted_busbw_GBps"]) - 1), 0.15, each)

    def test_all_reduces_of_8_gpus(self):
        with open(self.find("a100_allreduce_8gpu.csv"), newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))[1:]
        rows = [row("all_reduce", size=line[0], machine="DGX A100", gpu="", time_us=float(line[3]) / 1e3, busbw_GBps="")
                for line in lines]
        _, report = self.predicted(self.write("in.csv", as_csv(rows)))
        self.assertEqual(report["all"]["n"], len(rows))
        self.assertLess(report["all"]["median_error"], 0.05)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
