#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rank 1 of 3 is stopped inside a call of MPI, or at any time: the others name it within the time limit and ten
seconds, the job ends, and no process is left.

usage: stops_test.py MPIEXEC LIBRARY TRAIN few|sweep|random [N]     LIBRARY: stop_at.c

few: in one call of each kind, and after the last one, when only the launcher waits for it; sweep: in each of the first
and the last N (40) calls; random: at N (100) times.
"""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

LIMIT_SECS = float(os.environ.get("QDR_TEST_LIMIT", "2"))
FEW = ["MPI_Init_thread 1", "MPI_Comm_split 1", "MPI_Comm_split_type 1", "MPI_Iallgather 1", "MPI_Comm_free 1",
       "MPI_Isend 30", "MPI_Sendrecv 1", "MPI_Finalize 1"]
SPARE_SECS = 10
LAUNCHER_SECS = 20  # the launcher's own limit, for jobs whose stopped rank nobody else waits for


class Job:
    """train on three ranks of MPI."""

    def __init__(self, mpiexec, library, program, folder, stop_at=None, limit=LIMIT_SECS):
        self.mark = f"QDR_TEST_MARK={os.getpid()}-{time.monotonic_ns()}"
        self.text = os.path.join(folder, "text")
        with open(self.text, "w", encoding="ascii") as text:
            text.write("the quick brown fox jumps over the lazy dog\n" * 200)
        environment = dict(os.environ, QDR_TIMEOUT=f"{limit:g}", OPENBLAS_NUM_THREADS="1", QDR_TEST_STOP_RANK="1",
                           QDR_TEST_STOP_AT=stop_at or "none", **dict([self.mark.split("=")]))
        command = [mpiexec, "-n", "3", "env", f"LD_PRELOAD={library}", program, self.text, "--grid", "1x1x1x3",
                   "--layers", "1", "--hidden", "24", "--heads", "4", "--ctx", "16", "--steps", "6", "--batch", "6",
                   "--sample", "0", "--val-windows", "2", "--levels", "zero2"]
        self.output = tempfile.TemporaryFile("w+")
        self.begin = time.monotonic()
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=self.output,
                                        stderr=subprocess.STDOUT)

    def stops(self):
        """Whether a rank has stopped itself."""
        return b"stops in" in os.pread(self.output.fileno(), 1 << 16, 0)

    def processes(self):
        """{rank: process} of those that are there."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/environ", "rb") as environ:
                    words = environ.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            ranks = [word[9:] for word in words if word.startswith("PMI_RANK=")]
            if self.mark in words and ranks:
                found[int(ranks[0])] = int(name)
        return found

    def wait(self, secs):
        """The exit code (None: it had to be killed), what it said, seconds, ranks that were left."""
        try:
            code = self.process.wait(secs)
        except subprocess.TimeoutExpired:
            code = None
        secs = time.monotonic() - self.begin
        until = time.monotonic() + 2
        left = self.processes()
        while code is not None and left and time.monotonic() < until:
            time.sleep(0.05)
            left = self.processes()
        for process in left.values():
            os.kill(process, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.output.seek(0)
        return code, self.output.read(), secs, left


def judge(what, code, said, secs, left, most_secs, names):
    """Prints what is wrong; returns whether something is."""
    wrong = []
    if code is None:
        wrong.append(f"it had not ended after {secs:.1f} s")
    elif secs > most_secs:
        wrong.append(f"it ended after {secs:.1f} s; at most {most_secs:.1f} s are allowed")
    if code == 0:
        wrong.append("it ended with 0")
    if left:
        wrong.append(f"left behind: ranks {sorted(left)}")
    if not any(re.search(names, line) for line in said.splitlines()):
        wrong.append("nobody named rank 1")
    stop = re.search(r"stops in (\w+)", said)
    line = next((line for line in said.splitlines() if re.search(names, line)), "")
    print(f"{what}{' in ' + stop[1] if stop else ''}: {secs:.1f} s, code {code}: {line}", flush=True)
    if wrong:
        print(f"WRONG: {what}: {'; '.join(wrong)}\n{said}", flush=True)
    return bool(wrong)


# The waiting rank and the missing one are in the same sentence.
NAMES = r"rank [02]\b.* has waited .*\brank 1\b"


def run_at(arguments, stop_at):
    """Whether something is wrong; None: there was no such call."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(*arguments, folder, stop_at)
        code, said, secs, left = job.wait(60)
    if code == 0 and "stops in" not in said:
        print(f"{stop_at}: there was no such call")
        return None
    return judge(stop_at, code, said, secs, left, LIMIT_SECS + SPARE_SECS + 10, NAMES)


def is_wrong_in_the_end(arguments):
    """Rank 1 stops when it has left MPI_Finalize: the others end, and the launcher's limit ends the job."""
    os.environ["MPIEXEC_TIMEOUT"] = str(LAUNCHER_SECS)
    with tempfile.TemporaryDirectory() as folder:
        job = Job(*arguments, folder, "end 1")
        while time.monotonic() < job.begin + LAUNCHER_SECS - 5 and not (job.stops() and list(job.processes()) == [1]):
            time.sleep(0.1)
        ranks = list(job.processes())
        code, said, secs, left = job.wait(60)
    del os.environ["MPIEXEC_TIMEOUT"]
    is_good = ranks == [1] and code and not left and "has waited" not in said and "validation loss" in said
    print(f"end 1: ranks {ranks} were left, {secs:.1f} s, code {code}" + ("" if is_good else f"\nWRONG:\n{said}"))
    return not is_good


def count(arguments):
    with tempfile.TemporaryDirectory() as folder:
        code, said, _, _ = Job(*arguments, folder, "count", limit=60).wait(120)
    found = re.search(r"calls (\d+) without looks (\d+)", said)
    if code or not found:
        sys.exit(f"the job without a stop ended with {code}:\n{said}")
    return int(found[1]), int(found[2])


def sweep(arguments, n):
    n_all, n_waits = count(arguments)
    print(f"{n_all} calls, {n_waits} without looks")
    cases = [f"any {i}" for i in range(1, n + 1)]
    cases += [f"waits {i}" for i in range(max(1, n_waits - n + 1), n_waits + 1)]
    results = [run_at(arguments, case) for case in cases]
    return sum(map(bool, results)) + (results.count(None) > len(cases) / 4)


def at_random(arguments, n):
    seed = int(os.environ.get("QDR_TEST_SEED", time.time_ns() % 1000000))
    print(f"QDR_TEST_SEED={seed}")
    source, n_wrong = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        job = Job(*arguments, folder, limit=60)
        whole_secs = job.wait(120)[2]
        for i in range(n):
            after, rank = source.uniform(0, whole_secs), source.randrange(3)
            job = Job(*arguments, folder)
            time.sleep(after)
            process = job.processes().get(rank)
            stopped_secs = time.monotonic() - job.begin
            if process:
                try:
                    os.kill(process, signal.SIGSTOP)
                except ProcessLookupError:
                    process = None
            code, said, secs, left = job.wait(60)
            what = f"{i}: rank {rank} after {after:.2f} s"
            if code is None and list(left) == [rank]:
                print(f"{what}: the others had ended, and the launcher waited for it")
                continue
            if code == 0:
                print(f"{what}: the job was over, or had not begun")
                continue
            names = rf"has waited .*\brank {rank}\b" if process else "."
            n_wrong += judge(what, code, said, secs, left, stopped_secs + LIMIT_SECS + SPARE_SECS, names)
    return n_wrong


def main():
    mpiexec, library, program, mode = sys.argv[1:5]
    arguments = [mpiexec, os.path.abspath(library), os.path.abspath(program)]
    n = int(sys.argv[5]) if len(sys.argv) > 5 else {"sweep": 40}.get(mode, 100)
    if mode == "few":
        n_wrong = sum(run_at(arguments, case) is not False for case in FEW) + is_wrong_in_the_end(arguments)
    else:
        n_wrong = sweep(arguments, n) if mode == "sweep" else at_random(arguments, n)
    print(f"{n_wrong} wrong")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
