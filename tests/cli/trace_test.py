#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces: what a run writes with QDR_TRACE, and what `quadrille trace` prints, merges, draws and refuses.

usage: trace_test.py QUADRILLE [--mpiexec MPIEXEC --program DRIFTING_CLOCK]
"""
import json
import os
import re
import xml.etree.ElementTree

import cases
from cases import ARGUMENTS, start

HIDDEN, EXPOSED, FILE, COPY = "#4a9a4a", "#d9541e", "#8064a2", "#c3b3d9"


def trace(*words):
    return start(ARGUMENTS.quadrille, "trace", *words)


def event(kind, stream, ts, dur, sent=0, run=0, name="fc"):
    return {"ph": "X", "name": name, "cat": kind, "pid": 0, "tid": 0, "ts": ts, "dur": dur,
            "args": {"stream": stream, "axis": "", "task": 1, "run": run, "bytes": sent, "flops": 0.0}}


def header(rank, ranks=2):
    return {"version": 3, "id": "1", "rank": rank, "ranks": ranks, "grid": [ranks, 1, 1, 1], "levels": [1, 1],
            "place": [rank, 0, 0, 0], "clock": [{"at": 0, "ahead": 0, "bound": 0}], "lost": 0}


def rows(text):
    lines = [re.split(r" {2,}", line) for line in text.splitlines() if not line.startswith("#")]
    return {line[0]: [float(word.rstrip("%")) for word in line[1:]] for line in lines[1:]}


class Case(cases.Case):
    def setUp(self):
        super().setUp()
        self.name = self.path("run.json")

    def write(self, number, events, ranks=2, **others):
        self.write_text(number, json.dumps({"traceEvents": events, "quadrille": {**header(number, ranks), **others}}))

    def write_text(self, rank, text):
        with open(f"{self.name}.{rank}", "w", encoding="utf-8") as file:
            file.write(text)

    def assert_trace_refused(self, says, *words):
        self.assert_refused(trace(self.name, *words), says)


class Table(Case):
    def test_hidden_and_exposed(self):
        """Rank 0 sums for 4 ms, of which 1 + 2 overlap with products; rank 1 for 2 ms without overlap, and begins 2 ms
        late."""
        self.write(0, [event("product", "compute", 0, 3000), event("all-reduce", "x reduce", 2000, 4000, 8e6),
                       event("product", "compute", 4000, 2000)])
        self.write(1, [event("product", "compute", 0, 1000), event("all-reduce", "x reduce", 4000, 2000, 8e6)])
        out = self.assert_done(trace(self.name))
        self.assertIn("# 2 ranks, grid 2x1x1x1", out)
        self.assertIn("6.000 ms from the first", out)
        self.assertIn("computing: 3.000 ms (50.0%)", out)
        self.assertEqual(rows(out)["x reduce"], [1.0, 8.0, 3.0, 1.5, 1.5, 50.0, 1.0, 4.0])
        self.assertEqual(set(rows(out)), {"x reduce", "all"})

    def test_idle(self):
        """Rank 0 idles 1 ms before its first pass, 2 ms while it gathers, 1 ms before and 1 ms after gelu, and 3 ms
        before its next pass, 1 of them while it writes a file; rank 1 always computes."""
        self.write(0, [event("product", "compute", 1000, 1000), event("all-gather", "x gather", 1500, 2500, 8e6),
                       event("bias-add", "compute", 4000, 1000), event("gelu", "compute", 6000, 500),
                       event("all-reduce", "d stat", 7500, 0, 8), event("write", "file", 8000, 1000),
                       event("embed", "compute", 10500, 500, run=1)])
        self.write(1, [event("product", "compute", 0, 11000)])
        out = self.assert_done(trace(self.name))
        self.assertIn("# idle: 4.000 ms; during collectives 1.000, during work on files 0.500, "
                      "between tasks of a pass 1.000, between passes 1.500\n", out)
        self.assertIn("# idle most before: embed 2.000 ms, bias-add 1.000 ms, product 0.500 ms, gelu 0.500 ms\n", out)

    def test_idle_never(self):
        self.write(0, [event("product", "compute", 0, 1000), event("all-reduce", "x reduce", 200, 300, 8)], ranks=1)
        out = self.assert_done(trace(self.name))
        self.assertIn("# idle: 0.000 ms; during collectives 0.000, between tasks of a pass 0.000, "
                      "between passes 0.000\nstream", out)

    def test_axes(self):
        """An axis that is used in two directions has one row for both."""
        self.write(0, [event("all-reduce", "x reduce", 0, 1000, 3e6), event("all-gather", "z gather", 0, 1000, 1e6),
                       event("reduce-scatter", "z reduce", 500, 1000, 2e6), event("product", "compute", 0, 750)],
                   ranks=1)
        found = rows(self.assert_done(trace(self.name)))
        self.assertEqual(set(found), {"x reduce", "z gather", "z reduce", "z", "all"})
        self.assertEqual(found["z"], [2.0, 3.0, 2.0, 1.0, 1.0, 50.0, 0.0, 1.5])
        self.assertEqual(found["all"][:4], [3.0, 6.0, 3.0, 1.75])

    def test_codecs(self):
        coded = event("all-reduce", "d reduce", 0, 4000, 2e6)
        coded["args"].update(plain_bytes=8000000, codec_us=600)
        self.write(0, [coded, event("all-reduce", "x reduce", 0, 1000, 1e6)], ranks=1)
        out = self.assert_done(trace(self.name, "--merge", self.path("all.json")))
        self.assertEqual(rows(out)["d reduce"][-2:], [8.0, 0.6])
        self.assertEqual(rows(out)["x reduce"][-2:], [1.0, 0.0])
        self.assertEqual(rows(out)["all"][-2:], [9.0, 0.6])
        self.assertIn("plain (MB)", out)
        merged = [e["args"] for e in json.loads(self.read("all.json"))["traceEvents"] if e["ph"] == "X"]
        self.assertEqual([(e.get("plain_bytes"), e.get("codec_us")) for e in merged if e["bytes"] == 2000000],
                         [(8000000, 600)])
        for wrong in {"plain_bytes": -1}, {"plain_bytes": "2"}, {"codec_us": 1e300}:
            coded["args"].update({"plain_bytes": 8000000, "codec_us": 600, **wrong})
            self.write(0, [coded], ranks=1)
            self.assert_trace_refused("event 1 of 1")

    def test_last(self):
        self.write(0, [event("all-reduce", "x reduce", 0, 5000, 8e6),
                       event("all-reduce", "x reduce", 9000, 1000, 1e6, run=1)], ranks=1)
        self.assertEqual(rows(self.assert_done(trace(self.name, "--last", "1")))["x reduce"][:3], [1.0, 1.0, 1.0])
        self.assertEqual(rows(self.assert_done(trace(self.name)))["x reduce"][:3], [2.0, 9.0, 6.0])

    def test_clocks(self):
        """Rank 1's clock is 7 s ahead at the beginning and gains 2 ms in 1 s; converted to rank 0's time both are the
        same."""
        self.write(0, [event("product", "compute", 0, 3000), event("product", "compute", 990000, 10000)])
        clocks = [{"at": 7000000000, "ahead": 7000000000, "bound": 1500},
                  {"at": 8002000000, "ahead": 7002000000, "bound": 2500}]
        self.write(1, [event("product", "compute", 7000000, 3006), event("product", "compute", 7991980, 10020)],
                   clock=clocks)
        out = self.assert_done(trace(self.name, "--merge", self.path("all.json")))
        self.assertIn("off by 2.5 us at most", out)
        self.assertIn("# 1000.000 ms from", out)
        ends = {(e["pid"], e["ts"] + e["dur"]) for e in json.loads(self.read("all.json"))["traceEvents"]
                if e["ph"] == "X"}
        for end, (pid, got) in zip([3000, 1000000] * 2, sorted(ends)):
            self.assertAlmostEqual(got, end, delta=0.01, msg=pid)

    def test_unknown_clocks(self):
        for rank in range(2):
            self.write(rank, [event("product", "compute", 0, 3000)], clock=header(0)["clock"][:1 - rank])
        self.assertIn("1 clock could not be compared", self.assert_done(trace(self.name)))

    def test_late(self):
        """On a grid of 2x2 ranks 0 and 1, 2 and 3 sum over x, 0 and 2 over y; the sender of a message to one rank waits
        for no other rank."""
        begins = [0, 300, 100, 500]
        for rank, begin in enumerate(begins):
            self.write(rank, [event("all-reduce", "x reduce", begin, 1000 - begin),
                              event("all-reduce", "x reduce", 1000, 10), event("send-recv", "y gather", begin, 1000),
                              event("all-gather", "y gather", 2000 + begin, 50),
                              event("all-reduce", "x reduce", 5000, 10 + begin, run=1)],
                       ranks=4, grid=[2, 2, 1, 1], place=[rank % 2, rank // 2, 0, 0])
        out = self.assert_done(trace(self.name))
        # Rank 1 is the last on x by 300 us, rank 3 by 400; on y rank 2 by 100, rank 3 by 200.
        self.assertIn("# most often the last: rank 3 (x1 y1 z0 d0), in 2 of 4 collectives, 0.300 ms after", out)
        found = rows(out)
        self.assertEqual(found["x reduce"][6], round((300 + 400) / 4 / 1000, 3))
        self.assertEqual(found["y gather"][6], round((50 + 50) / 4 / 1000, 3))  # no longer than the run
        self.write(3, [event("all-reduce", "x reduce", 500, 500)], ranks=4, grid=[1, 4, 1, 1], place=[0, 3, 0, 0])
        out = self.assert_done(trace(self.name))
        self.assertEqual(rows(out)["all"][6], 0)
        self.assertNotIn("most often the last", out)

    def test_late_in_three_groups(self):
        """On a grid of 2x2x3 two neighbours sum over x: the first of each pair waits 100 us for the second."""
        for rank in range(12):
            self.write(rank, [event("all-reduce", "x reduce", 100 * rank, 5000 - 100 * rank)],
                       ranks=12, grid=[2, 2, 3, 1], place=[rank % 2, rank // 2 % 2, rank // 4, 0])
        out = self.assert_done(trace(self.name))
        self.assertEqual(rows(out)["x reduce"][6], 0.05)
        self.assertIn("in 1 of 6 collectives, 0.100 ms after", out)

    def test_the_last_of_several(self):
        """Of five ranks one is the last, in any order of the files, by what is between it and the one before it."""
        for last in range(5):
            for rank in range(5):
                begin = 700 if rank == last else 100 * rank
                self.write(rank, [event("all-reduce", "d reduce", begin, 1000 - begin),
                                  event("all-reduce", "d reduce", 1000, 5)],
                           ranks=5, grid=[1, 1, 1, 5], place=[0, 0, 0, rank])
            by = (700 - 100 * (3 if last == 4 else 4)) / 1000
            self.assertIn(f"rank {last} (x0 y0 z0 d{last}), in 1 of 1 collectives, {by:.3f} ms after",
                          self.assert_done(trace(self.name)))

    def write_levels(self):
        """A grid of 1x1x1x8 in which pairs are near, and pairs of them far. In near and in copies the last of a group
        begins 100 us after each before it, in far 200 us."""
        for rank in range(8):
            near, far, copy = rank % 2, rank // 2 % 2, rank // 4
            self.write(rank, [event("product", "compute", 0, 2000),
                              event("reduce-scatter", "d near", 1000 + 100 * near, 1000, 4e6),
                              event("reduce-scatter", "d far", 3000 + 200 * far, 500, 2e6),
                              event("all-reduce", "d copies", 4000 + 100 * copy, 500, 1e6),
                              event("all-gather", "d far", 6000 + 200 * far, 500, 1e6, run=1)],
                       ranks=8, grid=[1, 1, 1, 8], levels=[2, 2], place=[0, 0, 0, rank])

    def test_levels(self):
        self.write_levels()
        out = self.assert_done(trace(self.name))
        self.assertIn("# 8 ranks, grid 1x1x1x8, levels 2,4: near 2, far 2, copies 2;", out)
        found = rows(out)
        self.assertEqual(list(found), ["d near", "d far", "d copies", "d", "all"])
        self.assertEqual(found["d near"][:3] + found["d near"][6:7], [1.0, 4.0, 1.0, 0.05])
        self.assertEqual(found["d near"][3], 0.95)  # hidden
        self.assertEqual(found["d far"][:3] + found["d far"][6:7], [2.0, 3.0, 1.0, 0.2])
        self.assertEqual(found["d copies"][:3] + found["d copies"][6:7], [1.0, 1.0, 0.5, 0.05])
        self.assertEqual(found["d"][:2], [4.0, 8.0])
        self.assertIn("grid 1x1x1x8; numbers", self.assert_done(self.without_levels()))

    def without_levels(self):
        for rank in range(8):
            self.write(rank, [event("product", "compute", 0, 1)], ranks=8, grid=[1, 1, 1, 8], place=[0, 0, 0, rank])
        return trace(self.name)

    def test_levels_drawn_and_merged(self):
        self.write_levels()
        self.assert_done(trace(self.name, "--svg", self.path("run.svg"), "--merge", self.path("all.json")))
        texts = list(xml.etree.ElementTree.fromstring(self.read("run.svg")).itertext())
        for lane in ("d near", "d far", "d copies"):
            self.assertEqual(texts.count(lane), 8)
        self.assertIn("8 ranks, grid 1x1x1x8, levels 2,4: near 2, far 2, copies 2: 6.7 ms", texts)
        events = json.loads(self.read("all.json"))["traceEvents"]
        names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 7}
        self.assertEqual(names, {0: "compute", 8: "d near", 9: "d far", 10: "d copies"})
        self.assertEqual({(e["tid"], e["args"]["stream"]) for e in events if e["ph"] == "X"}, set(names.items()))

    def write_files(self):
        """A copy of 1 ms that nothing hides, and 6 ms of writing, 3 of which products and 2 of which sums overlap with;
        rank 1 writes half as much as rank 0."""
        for rank in range(2):
            self.write(rank, [event("copy to host", "file", 0, 1000, 4e6, name="run.ckpt"),
                              event("write", "file", 1000, 6000, 4e6 - 2e6 * rank, name="run.ckpt"),
                              event("product", "compute", 1000, 3000),
                              event("all-reduce", "x reduce", 4000, 2000, 1e6)])

    def test_files(self):
        self.write_files()
        out = self.assert_done(trace(self.name))
        found = rows(out)
        self.assertEqual(list(found), ["x reduce", "all", "file copy", "file write"])
        self.assertEqual(found["file copy"], [1.0, 4.0, 1.0, 0.0, 1.0, 0.0, 0.0, 4.0])
        self.assertEqual(found["file write"], [1.0, 3.0, 6.0, 3.0, 3.0, 50.0, 0.0, 0.5])
        self.assertEqual(found["all"], found["x reduce"])
        self.assertEqual(found["all"][:3], [1.0, 1.0, 2.0])
        self.assertIn("computing: 3.000 ms (42.9%)", out)
        self.assertIn("# file: ", out)
        self.write(0, [event("read", "file", 0, 1000, 5e6)], ranks=1)
        self.assertEqual(rows(self.assert_done(trace(self.name)))["file read"][:3], [1.0, 5.0, 1.0])

    def test_files_drawn_and_merged(self):
        self.write_files()
        self.assert_done(trace(self.name, "--svg", self.path("run.svg"), "--merge", self.path("all.json")))
        picture = self.read("run.svg")
        texts = list(xml.etree.ElementTree.fromstring(picture).itertext())
        self.assertEqual(texts.count("file"), 2)
        self.assertEqual((picture.count(FILE), picture.count(COPY)), (1 + 2, 1 + 2))
        self.assertEqual((picture.count(HIDDEN), picture.count(EXPOSED)), (1, 1 + 2))
        for text in "copied to host", "run.ckpt: write, 6 ms, 2 MB":
            self.assertIn(text, texts)
        events = json.loads(self.read("all.json"))["traceEvents"]
        self.assertIn("file", [e["args"]["name"] for e in events if e["name"] == "thread_name"])
        merged = [(e["name"], e["cat"], e["args"]["axis"], e["args"]["bytes"])
                  for e in events if e["ph"] == "X" and e["args"]["stream"] == "file"]
        self.assertEqual(merged[0], ("run.ckpt", "copy to host", "", 4000000))
        self.assertEqual(len(merged), 4)
        self.write(0, [event("product", "compute", 0, 1)], ranks=1)
        self.assert_done(trace(self.name, "--svg", self.path("run.svg")))
        self.assertNotIn(FILE, self.read("run.svg"))

    def test_lost(self):
        self.write(0, [event("product", "compute", 0, 3000)], ranks=1, lost=5)
        self.assertIn("5 events were lost", self.assert_done(trace(self.name)))


class Files(Case):
    def write_two(self):
        self.write(0, [event("product", "compute", 10, 3000, name="a <\"&b\u00fc"),
                       event("all-reduce", "x reduce", 2010, 4000, 8e6), event("product", "compute", 4010, 2000)])
        self.write(1, [event("product", "compute", 10, 1000), event("all-reduce", "x reduce", 4010, 2000, 8e6)])

    def test_picture(self):
        self.write_two()
        self.assert_done(trace(self.name, "--svg", self.path("run.svg")))
        picture = self.read("run.svg")
        texts = list(xml.etree.ElementTree.fromstring(picture).itertext())
        for text in ("rank 1", "x1 y0 z0 d0", "compute", "x reduce", "0 ms", "2 ranks, grid 2x1x1x1: 6 ms",
                     "a <\"&b\u00fc: product, 3 ms (task 1 of pass 0)",
                     "fc: all-reduce, 2 ms, 8 MB sent (task 1 of pass 0)"):
            self.assertIn(text, texts)
        # 1 box in the key, then 2 pieces that overlap with products; 1 in the key, then 2 whole collectives.
        self.assertEqual((picture.count(HIDDEN), picture.count(EXPOSED)), (1 + 2, 1 + 2))

    def test_picture_of_a_long_run(self):
        """The last two passes of at most eight ranks, unless --last says otherwise; microseconds if they are
        suitable."""
        for rank in range(9):
            self.write(rank, [event("all-reduce", "x reduce", 1e6 * run, 100, run=run) for run in range(5)], ranks=9)
        for words, n_collectives, title in (((), 2, "the last 2 of 5 passes: 1000 ms"),
                                            (("--last", "1"), 1, "5 passes: 100 \u00b5s"),
                                            (("--last", "9"), 5, "Ranks 0 to 7 of 9, grid 9x1x1x1: 4 s")):
            self.assert_done(trace(self.name, "--svg", self.path("run.svg"), *words))
            picture = self.read("run.svg")
            self.assertEqual(picture.count(EXPOSED), 1 + 8 * n_collectives)
            self.assertIn(title, picture)

    def test_the_last_passes_end_with_a_step(self):
        """Not with the validation that follows it, or the file that is written then."""
        self.write(0, [event(kind, "compute", 1000 * run, 100 + run, run=run) for run, kind in enumerate(
            ("product", "adamw", "product", "adamw", "product", "product"))] + [event("write", "file", 9000, 5, run=5)],
                   ranks=1)
        out = self.assert_done(trace(self.name, "--last", "2", "--svg", self.path("run.svg")))
        self.assertIn("computing: 0.205 ms", out)
        self.assertNotIn("file write", out)
        self.assertIn("the last 2 of 4 passes: 1103 \u00b5s", self.read("run.svg"))
        self.assertIn("computing: 0.615 ms", self.assert_done(trace(self.name)))

    def test_merged(self):
        self.write_two()
        self.assert_done(trace(self.name, "--merge", self.path("all.json")))
        merged = json.loads(self.read("all.json"))
        events = [e for e in merged["traceEvents"] if e["ph"] == "X"]
        names = {(e["pid"], e["tid"], e["name"]): e["args"].get("name") for e in merged["traceEvents"]
                 if e["ph"] == "M"}
        self.assertEqual(names[1, 0, "process_name"], "rank 1 (x1 y0 z0 d0)")
        self.assertEqual(names[1, 1, "thread_name"], "x reduce")
        self.assertEqual([e["pid"] for e in events], [0, 0, 0, 1, 1])
        self.assertEqual((events[0]["ts"], events[0]["dur"], events[0]["name"]), (0, 3000, "a <\"&b\u00fc"))
        self.assertEqual((events[1]["ts"], events[1]["tid"]), (2000, 1))
        self.assertEqual(events[1]["args"], {"stream": "x reduce", "axis": "x", "task": 1, "run": 0, "bytes": 8000000,
                                             "flops": 0.0, "late_us": 2000})
        self.assertEqual(merged["otherData"]["ranks"], 2)

    def test_merged_last(self):
        self.write(0, [event("product", "compute", 1000 * run, 10, run=run) for run in range(3)], ranks=1)
        self.assert_done(trace(self.name, "--merge", self.path("all.json"), "--last", "2"))
        events = [e for e in json.loads(self.read("all.json"))["traceEvents"] if e["ph"] == "X"]
        self.assertEqual([e["ts"] for e in events], [0, 1000])

    def test_that_cannot_be_written(self):
        self.write_two()
        for option in ("--svg", "--merge"):
            done = trace(self.name, option, self.path("no/folder/file"))
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{option} ", done.err)
            if os.path.exists("/dev/full"):
                done = trace(self.name, option, "/dev/full")
                self.assertEqual(done.returncode, 1)
                self.assertIn("make room", done.err)


class Refused(Case):
    """One message each, exit code 2, nothing on standard output."""

    def test_files(self):
        self.assert_trace_refused("run.json.0 cannot be opened (No such file")
        good = [event("product", "compute", 0, 1)]
        self.write(0, good)
        self.assert_trace_refused("run.json.1 cannot be opened (No such file or directory); the run had 2 ranks")
        whole = json.dumps({"traceEvents": good, "quadrille": header(1)})
        for text, says in (("", "truncated"), (whole[:len(whole) // 2], "line 1"), (whole[:-1], "run.json.1"),
                           (whole + "}", "line 1"), ("\0", "damaged"), ("[]", "not a Quadrille trace"),
                           ("{}", "not a Quadrille trace"), ('{"quadrille": 3}', "not a Quadrille trace"),
                           (json.dumps({"quadrille": header(1)}), "no list of events")):
            self.write_text(1, text)
            self.assert_trace_refused(says)
        self.write_text(1, whole)
        self.assert_done(trace(self.name))

    def test_other_runs(self):
        good = [event("product", "compute", 0, 1)]
        self.write(0, good)
        self.write(1, good, id="2")
        self.assert_trace_refused("run 2, rank 0's file to run 1; files of different runs are mixed")
        self.write(1, good, ranks=4)
        self.assert_trace_refused("rank 1 of 4, not to rank 1 of 2")
        self.write(1, good, rank=0)
        self.assert_trace_refused("rank 0 of 2, not to rank 1 of 2")
        self.write(1, good, version=1)
        self.assert_trace_refused("version 1, this command reads version 3")

    def test_headers(self):
        for key, value in (("id", 5), ("rank", "0"), ("ranks", None), ("grid", [1, 1, 1]), ("place", {}), ("clock", 0),
                           ("clock", [{}]),
                           ("clock", [{"at": 0, "ahead": 1e300, "bound": 0}]),
                           ("clock", [{"at": 0, "ahead": 0, "bound": -1}]),
                           ("clock", [{"at": 0, "ahead": 0, "bound": 0}] * 3), ("lost", "x"), ("levels", 1),
                           ("levels", [1])):
            self.write(0, [event("product", "compute", 0, 1)], **{key: value})
            self.assert_trace_refused("its description of the run is damaged")
        for grid, place in (([1, 1, 1, 1], [0, 0, 0, 0]), ([2, 1, 1, 1], [2, 0, 0, 0]), ([2, 1, 1, 1], [0, -1, 0, 0]),
                            ([2, 2, 1, 1], [0, 0, 0, 0]), ([-2, -1, 1, 1], [0, 0, 0, 0]), ([0, 2, 1, 1], [0, 0, 0, 0]),
                            ([0, 0, 0, 0], [1, 0, 0, 0])):
            self.write(0, [event("product", "compute", 0, 1)], grid=grid, place=place)
            self.assert_trace_refused("its coordinates are outside the grid of its ranks")
        for levels in ([0, 1], [1, 0], [-1, -1], [3, 1], [2, 3], [4, 2], [8, 1], [2 ** 31 - 1, 2 ** 31 - 1]):
            self.write(0, [event("all-reduce", "d near", 0, 1)], ranks=4, grid=[1, 1, 1, 4], levels=levels)
            self.assert_trace_refused("its levels do not divide d")
        self.write(0, [event("all-reduce", "d near", 0, 1)], ranks=1, grid=[0] * 4, levels=[1, 1])
        self.assert_trace_refused("its levels do not divide d")
        for ranks in (0, -1, 2000000000):
            self.write(0, [], ranks=ranks)
            self.assert_trace_refused("invalid rank count")

    def test_events(self):
        args = event("product", "compute", 0, 1)["args"]
        for change, says in (({"ts": None}, "not found: ts"), ({"dur": "1"}, "got string"), ({"dur": -1}, "no time"),
                             ({"ts": 1e300}, "no time"), ({"name": None}, "not found: name"),
                             ({"cat": 3}, "Expected string"), ({"args": {}}, "not found: stream"),
                             ({"args": []}, "Expected object"), ({"ph": None}, "no ph"),
                             ({"args": {**args, "stream": "e reduce"}}, "stream has no known name"),
                             ({"args": {**args, "stream": "file"}}, "nothing that happens to a file")):
            changed = {**event("product", "compute", 0, 1), **change}
            self.write(0, [event("product", "compute", 0, 1), {k: v for k, v in changed.items() if v is not None}],
                       ranks=1)
            self.assert_trace_refused("event 2 of 2: ")
            self.assert_trace_refused(says)
        for run in (-1, 2 ** 31 - 1):
            self.write(0, [event("product", "compute", 0, 1, run=run)], ranks=1)
            self.assert_trace_refused("its run is not the number of a schedule")
        for sent in (-1, 1e300):
            self.write(0, [event("product", "compute", 0, 1, sent)], ranks=1)
            self.assert_trace_refused("invalid byte count")
        self.write(0, [3], ranks=1)
        self.assert_trace_refused("event 1 of 1")

    def test_empty(self):
        for rank in range(2):
            self.write(rank, [{"ph": "M", "name": "process_name"}])
        self.assert_trace_refused("nothing ran in it")
        self.write(1, [event("product", "compute", 5, 0)])
        self.assert_trace_refused("nothing ran in it")
        self.write(1, [event("product", "compute", 5, 1)])
        self.assert_done(trace(self.name))

    def test_words(self):
        self.write(0, [event("product", "compute", 0, 1)], ranks=1)
        self.assert_trace_refused("last", "--last", "0")
        self.assert_trace_refused("more", "more")
        done = trace()
        self.assertEqual(done.returncode, 2)
        self.assertIn("QDR_TRACE", done.err)


class NoSchedule(Case):
    def test_events_without_a_grid(self):
        """Damaged, but no reason to end with an arithmetic exception: who belongs together is not known."""
        channels = ["x reduce", "x gather", "y reduce", "y gather", "z gather", "z reduce", "d near", "d far",
                    "d copies"]
        self.write(0, [event("all-reduce", channel, 0, 1) for channel in channels], ranks=1, grid=[0] * 4,
                   levels=[0, 0])
        found = rows(self.assert_done(trace(self.name)))
        self.assertEqual(list(found), [*channels, "x", "y", "z", "d", "all"])


class Runs(Case):
    BENCH = ["bench", "linear", "-m", "64", "-n", "32", "-k", "16", "--iterations", "3", "--warmup", "0",
             "--threads", "1", "--local", "4", "--grid", "2x2x1x1"]

    def test_bytes(self):
        """Every collective of the schedules is there, with the bytes of the closed form."""
        self.assert_done(start(ARGUMENTS.quadrille, *self.BENCH, environment={"QDR_TRACE": self.name}))
        out = self.assert_done(trace(self.name))
        self.assertIn("# 4 ranks, grid 2x2x1x1", out)
        self.assertNotIn("clock", out)
        # f32, local m=64, n=16, k=8; an all-reduce among two sends all of it once.
        for name, columns in (("x reduce", 16), ("y reduce", 8)):
            self.assertEqual(rows(out)[name][0], 3)
            self.assertAlmostEqual(rows(out)[name][1], round(3e-6 * 64 * columns * 4, 3), delta=1e-9)
        names = [e["args"]["name"] for e in json.loads(self.read("run.json.2"))["traceEvents"]
                 if e["name"] == "process_name"]
        self.assertEqual(names, ["rank 2 (x0 y1 z0 d0)"])

    def test_runs_do_not_mix(self):
        for other in (self.name, self.path("other")):
            self.assert_done(start(ARGUMENTS.quadrille, *self.BENCH, environment={"QDR_TRACE": other}))
        os.replace(self.path("other.3"), self.name + ".3")
        self.assert_trace_refused("files of different runs are mixed")

    def test_that_cannot_be_written(self):
        for name, says in ((self.path("no/folder/run.json"), "folder"), ("x" * 3000, "3000 characters")):
            done = start(ARGUMENTS.quadrille, *self.BENCH, environment={"QDR_TRACE": name})
            self.assertEqual(done.returncode, 0)
            self.assertIn(says, done.err)


def collectives(events, groups):
    """{(stream, group, run, number of the call): [(begin, end) of each member]}; no member ends one before all have
    begun it."""
    found, counts = {}, {}
    for e in sorted((e for e in events if e["ph"] == "X" and e["tid"] > 0),
                    key=lambda e: (e["pid"], e["tid"], e["ts"])):
        stream, run = e["args"]["stream"], e["args"]["run"]
        count = counts[e["pid"], stream, run] = counts.get((e["pid"], stream, run), 0) + 1
        key = stream, groups(e["pid"], stream[0]), run, count
        found.setdefault(key, []).append((e["ts"], e["ts"] + e["dur"]))
    return found


def worst_gap(found):
    return max(max(begin for begin, _ in members) - min(end for _, end in members) for members in found.values())


class Clocks(Case):
    """Ranks whose clocks differ by seconds and run at speeds that differ by tenths."""

    def run_program(self, environment=()):
        if not ARGUMENTS.program:
            self.skipTest("no MPI")
        environment = {"MPIR_CVAR_NUM_CLIQUES": "2", "MPIR_CVAR_CLIQUES_BY_BLOCK": "1", "OPENBLAS_NUM_THREADS": "1",
                       **environment}
        done = start(ARGUMENTS.mpiexec, "-n", "4", ARGUMENTS.program, environment=environment)
        if done.returncode == 77:
            self.skipTest(done.out)
        self.assertEqual(done.returncode, 0, done.err)

    def groups(self, rank, axis):
        return rank // 2 if axis == "x" else rank % 2

    def test_aligned(self):
        self.run_program({"QDR_TRACE": self.name})
        parts = [json.loads(self.read(f"run.json.{rank}")) for rank in range(4)]
        if any(len(part["quadrille"]["clock"]) == 1 and part["quadrille"]["clock"][0]["bound"] == 0
               for part in parts[1:]):
            self.skipTest("this MPI takes all ranks for one node")
        raw = collectives([e for part in parts for e in part["traceEvents"]], self.groups)
        self.assertGreater(len(raw), 40)
        self.assertEqual({len(members) for members in raw.values()}, {2})
        self.assertGreater(worst_gap(raw), 4e6)
        out = self.assert_done(trace(self.name, "--merge", self.path("all.json")))
        self.assertIn("clocks differ and are aligned", out)
        merged = json.loads(self.read("all.json"))
        aligned = collectives(merged["traceEvents"], self.groups)
        self.assertEqual(set(aligned), set(raw))
        bound = merged["otherData"]["clock_bound_us"]
        self.assertGreater(bound, 0)
        self.assertLessEqual(worst_gap(aligned), bound)

    def test_rank_0_asks(self):
        """If only rank 0 has the variable, as with launchers that do not pass it on, all ranks are traced."""
        if not ARGUMENTS.program:
            self.skipTest("no MPI")
        words = [ARGUMENTS.mpiexec, "-n", "1", "env", "QDR_TRACE=" + self.name, ARGUMENTS.program, ":", "-n", "3",
                 ARGUMENTS.program]
        done = start(*words, environment={"OPENBLAS_NUM_THREADS": "1"})
        if done.returncode == 77:
            self.skipTest(done.out)
        self.assertEqual(done.returncode, 0, done.err)
        self.assertIn("# 4 ranks", self.assert_done(trace(self.name)))


if __name__ == "__main__":
    cases.main("quadrille", "--mpiexec", "--program")
