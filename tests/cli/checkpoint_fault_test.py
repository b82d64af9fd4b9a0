#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs of train whose checkpoints cannot be written: full disks, files that may not be written, limits, two runs on
one path, ranks that stop or are late, processes that are killed. Training goes on, and the older file stays whole.

usage: checkpoint_fault_test.py EXAMPLES_DIR [--mpiexec PROGRAM] [--seed N]
"""
import fcntl
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time

import cases
from cases import ARGUMENTS
import checkpoint_test as base

WIDE = ["--layers", "2", "--hidden", "128", "--heads", "4", "--ctx", "8", "--batch", "4", "--val-windows", "3",
        "--val-every", "100", "--sample", "0"]  # 5.5 MB
MIB = 1 << 20


def contents_of(path):
    with open(path, "rb") as file:
        return file.read()


class Faults(base.Case):
    def check_whole(self, path):
        base.Bytes.check_file(self, path)
        self.assertFalse(os.path.exists(path + ".partial"))

    def start(self, words, **variables):
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True, env=os.environ | variables, start_new_session=True)
        self.addCleanup(self.end_group, process)
        return process

    @staticmethod
    def end_group(process):
        """What a failed test has left."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.communicate()

    def wait_for(self, condition, what):
        for _ in range(6000):
            if condition():
                return
            time.sleep(0.005)
        self.fail(what)


class FullDisks(Faults):
    def setUp(self):
        super().setUp()
        self.disk = self.path("disk")
        os.mkdir(self.disk)
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", self.disk],
                                               capture_output=True).returncode != 0:
            self.skipTest("no disk of 20 MB: this process may not mount one")
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)

    def check_disk(self, grid, background, by_mpi):
        file, filler = os.path.join(self.disk, "a.safetensors"), os.path.join(self.disk, "filler")
        words = [*WIDE, "--save", file, "--save-every", "1", "--save-background", background]
        self.train(grid, *words, "--steps", "2", by_mpi=by_mpi)
        old = contents_of(file)
        with open(filler, "wb") as other:
            os.posix_fallocate(other.fileno(), 0, 20 * MIB - len(old) - MIB)
        losses, said = self.train(grid, *words, "--resume", file, "--steps", "5", by_mpi=by_mpi, code=1)
        self.assertEqual(sorted(losses), [3, 4, 5])
        self.assertEqual(re.findall(r"warning: step (\d) was not saved: .*No space left.*make room", said),
                         ["3", "4", "5"], said)
        self.assertIn("the last step was not saved", said)
        self.assertEqual(contents_of(file), old)
        self.check_whole(file)
        os.unlink(filler)
        _, said = self.train(grid, *words, "--resume", file, "--steps", "3", by_mpi=by_mpi)
        self.assertIn("saved step 3", said)
        self.check_whole(file)
        os.unlink(file)

    @staticmethod
    def takes(file, n_bytes):
        """Not while a draft is beside the file."""
        try:
            os.posix_fallocate(file.fileno(), 0, n_bytes)
            return True
        except OSError:
            return False

    def test_a_full_disk(self):
        for grid, background in (("1x1x1x1", "on"), ("2x1x1x2", "off"), ("1x1x1x2", "on")):
            with self.subTest(grid=grid, background=background):
                self.check_disk(grid, background, False)

    def test_a_full_disk_under_mpiexec(self):
        if not base.ARGUMENTS.mpiexec:
            self.skipTest("no mpiexec")
        self.check_disk("1x1x1x2", "on", True)

    def test_a_disk_that_fills_up_meanwhile(self):
        """Room for one file, then for none, then again."""
        file, filler = os.path.join(self.disk, "a"), os.path.join(self.disk, "filler")
        process = self.start(base.words_of("1x1x1x2", self.text, *WIDE, "--save", file, "--save-every", "1", "--steps",
                                           "1000000"))
        said = []

        def read_until(words):
            said.append("")
            while words not in said[-1]:
                said.append(process.stderr.readline())
                self.assertTrue(said[-1], said)
        read_until("saved step 2")
        with open(filler, "wb") as other:
            self.wait_for(lambda: self.takes(other, 20 * MIB - os.path.getsize(file) - MIB), "no room between saves")
        read_until("No space left")
        read_until("No space left")
        os.unlink(filler)
        read_until("saved step")
        process.terminate()
        last = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 0, last)
        self.check_whole(file)


class Others(Faults):
    """Files that are not what they seem."""

    def test_a_rank_with_a_folder_of_its_own(self):
        """As on a disk of each node, on the second of which a dead run has left a file."""
        if not base.ARGUMENTS.mpiexec:
            self.skipTest("no mpiexec")
        for name in ("one", "two"):
            os.mkdir(self.path(name))
        with open(self.path("two/a.partial"), "wb"):
            pass
        program = os.path.abspath(os.path.join(base.ARGUMENTS.examples_dir, "train"))
        words = [base.ARGUMENTS.mpiexec]
        for name in ("one", "two"):
            words += [*([":"] if len(words) > 1 else []), "-n", "1", "sh", "-c", 'cd "$0" && exec "$@"',
                      self.path(name), program, self.text, *base.TINY, "--grid", "1x2x1x1", "--steps", "2", "--save",
                      "a"]
        said = self.run_words(words, 1)
        self.assertIn("on rank 1 is not the file that rank 0 has made", said)
        self.assertFalse(os.path.exists(self.path("one/a")))
        os.unlink(self.path("two/a.partial"))
        self.assertIn("cannot be opened on rank 1", self.run_words(words, 1))

    def test_a_rank_that_sees_another_file(self):
        """Of another length, time or header; a copy that differs in none of them will do."""
        if not base.ARGUMENTS.mpiexec:
            self.skipTest("no mpiexec")
        for name in ("one", "two"):
            os.mkdir(self.path(name))
        one, two = self.path("one/a"), self.path("two/a")
        self.train("1x1x1x1", *base.TINY, "--steps", "1", "--save", one)
        self.train("1x1x1x1", *base.TINY, "--steps", "1", "--seed", "2", "--save", two)
        whole, other = contents_of(one), contents_of(two)
        self.assertEqual(len(whole), len(other))
        program = os.path.abspath(os.path.join(base.ARGUMENTS.examples_dir, "train"))
        words = [base.ARGUMENTS.mpiexec]
        for name in ("one", "two"):
            words += [*([":"] if len(words) > 1 else []), "-n", "1", "sh", "-c", 'cd "$0" && exec "$@"',
                      self.path(name), program, self.text, "--load", "a", "--steps", "0", "--sample", "0",
                      "--val-windows", "1", "--val-every", "9"]
        for content, secs, code in ((whole, 0, 0), (whole, 2, 1), (whole + b"x", 0, 1), (other, 0, 1)):
            self.write(two, content)
            os.utime(one, (10 ** 9, 10 ** 9))
            os.utime(two, (10 ** 9, 10 ** 9 + secs))
            said = self.run_words(words, code)
            self.assertEqual(said.count("a on rank 1 is another file than on rank 0"), code, said)

    def test_names_of_drafts(self):
        """The longest name leaves room for those of drafts and older files; permissions are kept."""
        file = self.path(230 * "n")
        self.train("1x1x1x1", *base.TINY, "--steps", "1", "--save", file)
        os.chmod(file, 0o640)
        self.train("1x1x1x1", *base.TINY, "--steps", "3", "--save", file, "--save-every", "1", "--keep", "2")
        for name in (file, file + ".1", file + ".2"):
            self.assertEqual(os.stat(name).st_mode & 0o777, 0o640)
            self.check_whole(name)
        for n in (232, 240, 250, 300):
            self.assertIn("too long", self.run_words(base.words_of("1x1x1x1", self.text, *base.TINY, "--steps", "1",
                                                                   "--save", self.path(n * "n")), 1 if n < 256 else 2))
        self.assertEqual(len(os.listdir(self.folder)), 5)

    def test_a_run_that_is_killed_while_names_change(self):
        """The damaged FILE is kept, but not in the place of a sound one, before the new one is there."""
        if subprocess.run(["strace", "-e", "trace=none", "true"], capture_output=True, check=False).returncode:
            self.skipTest("strace is not installed, or may not trace")
        file = self.path("a")
        self.train("1x1x1x1", *base.TINY, "--steps", "4", "--save", file, "--save-every", "2", "--keep", "1")
        with open(file, "r+b") as damaged:
            damaged.seek(-3, os.SEEK_END)
            damaged.write(b"???")
        words = base.words_of("1x1x1x1", self.text, "--save", file, "--keep", "1", "--resume", "auto", "--steps", "6",
                              "--sample", "0", "--save-background", "off")
        for call in ("linkat", "renameat"):
            killed = self.start(["strace", "-f", "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when=1",
                                 *words])
            killed.communicate(timeout=60)
            self.assertNotEqual(killed.returncode, 0)
            base.Bytes.check_file(self, file + ".1")
        said = self.run_words(words)
        self.assertIn("continuing after step 2 of " + file + ".1", said)
        self.check_whole(file)
        self.assertFalse(os.path.exists(file + ".0"))


class Paths(Faults):
    def refuse(self, path, words):
        said = self.run_words(base.words_of("1x1x1x2", self.text, *base.TINY, "--save", path), 2)
        self.assertIn(words, said)
        self.assertIn("--save", said)

    def test_paths_that_are_no_file(self):
        self.refuse(self.path("."), "Is a directory")
        self.refuse(self.path("no/such"), "No such file")
        self.refuse(self.text + "/a", "Not a directory")
        os.mkfifo(self.path("pipe"))
        self.refuse(self.path("pipe"), "no regular file")
        said = self.run_words(base.words_of("1x1x1x2", self.text, "--load", self.path("pipe")), 2)
        self.assertIn("no regular file", said)  # and nobody waits for a writer

    def test_what_may_not_be_written(self):
        if os.geteuid() == 0:
            self.skipTest("root may write everything")
        folder, file = self.path("folder"), self.path("a")
        os.mkdir(folder, 0o555)
        self.refuse(os.path.join(folder, "a"), "Permission denied")
        self.train("1x1x1x1", *base.TINY, "--steps", "1", "--save", file)
        os.chmod(file, 0o444)
        old = contents_of(file)
        self.refuse(file, "Permission denied")
        self.assertEqual(contents_of(file), old)

    def test_a_limit_on_files(self):
        file = self.path("a")
        self.train("1x1x1x1", *base.TINY, "--steps", "1", "--save", file)
        old = contents_of(file)
        for background in ("on", "off"):
            words = base.words_of("1x1x1x2", self.text, "--resume", file, "--save", file, "--steps", "3",
                                  "--save-every", "1", "--sample", "0", "--save-background", background)
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, 1 << 14)))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(len(re.findall("warning: step . was not saved: .*ulimit -f", done.stderr)), 2, done.stderr)
            self.assertEqual(contents_of(file), old)
            self.check_whole(file)


class TwoRuns(Faults):
    def test_another_run_has_the_path(self):
        file = self.path("a")
        self.train("1x1x1x1", *base.TINY, "--steps", "1", "--save", file)
        old = contents_of(file)
        with open(file + ".partial", "wb") as other:
            other.write(b"of another run")
            other.flush()
            fcntl.flock(other, fcntl.LOCK_EX)
            losses, said = self.train("1x1x1x2", "--resume", file, "--save", file, "--steps", "3", "--sample", "0",
                                      code=1)
            self.assertEqual(sorted(losses), [2, 3])
            self.assertRegex(said, "warning: step 3 was not saved: .*another run is writing .*name another file")
            self.assertEqual(contents_of(file + ".partial"), b"of another run")
        self.assertEqual(contents_of(file), old)
        self.train("1x1x1x2", "--resume", file, "--save", file, "--steps", "3", "--sample", "0")  # it has ended
        self.check_whole(file)

    def test_two_runs_at_once(self):
        file = self.path("a")
        runs = [self.start(base.words_of("1x1x1x2", self.text, *base.TINY, "--steps", "150", "--save", file,
                                         "--save-every", "1", "--save-background", background))
                for background in ("on", "off")]
        for run in runs:
            said = run.communicate(timeout=120)[1]
            steps = [int(step) for step in re.findall(r"saved step (\d+)", said)]
            refused = re.findall(r"warning: step (\d+) was not saved: .*another run is writing", said)
            self.assertEqual(sorted(steps + [int(step) for step in refused]), list(range(1, 151)), said)
            self.assertEqual(run.returncode, 0 if steps and steps[-1] == 150 else 1, said)
        self.check_whole(file)


class Ranks(Faults):
    def test_a_rank_that_stops_in_a_save(self):
        """It is stopped at some time; most of the time is that of saves."""
        if not base.ARGUMENTS.mpiexec:
            self.skipTest("no mpiexec")
        file = self.path("stops.safetensors")
        process = self.start(base.words_of("1x1x1x3", self.text, *WIDE, "--batch", "3", "--steps", "1000000", "--save",
                                           file, "--save-every", "1", "--save-background", "off", by_mpi=True),
                             QDR_TIMEOUT="3")
        self.wait_for(lambda: os.path.exists(file), "nothing was saved")
        self.wait_for(lambda: os.path.exists(file + ".partial"), "no save was seen")
        found = subprocess.run(["pgrep", "-f", "train .*" + file], capture_output=True, text=True, check=True)
        ranks = [pid for pid in map(int, found.stdout.split()) if "mpi" not in self.program_of(pid)]
        self.assertEqual(len(ranks), 3)
        stopped = random.choice(ranks)
        os.kill(stopped, signal.SIGSTOP)
        said = process.communicate(timeout=60)[1]
        self.assertNotEqual(process.returncode, 0, said)
        self.assertIn("has waited 3 s", said)
        base.Bytes.check_file(self, file)
        _, said = self.train("1x1x1x1", "--resume", file, "--save", file, "--stop-after", "1")
        self.check_whole(file)

    @staticmethod
    def program_of(pid):
        with open(f"/proc/{pid}/comm", encoding="ascii") as file:
            return file.read()

    def test_a_rank_that_is_late(self):
        file = self.path("a")
        words = [*base.TINY, "--steps", "6", "--save", file, "--save-every", "1"]
        plain, _ = self.train("1x1x1x2", *words)
        for background in ("on", "off"):
            late, said = self.train("1x1x1x2", *words, "--save-background", background, "--late", "1:0.5")
            self.assertEqual(late, plain)
            self.assertEqual(re.findall(r"saved step (\d+)", said), list("123456"))
            self.check_whole(file)

    def test_a_draft_that_a_killed_run_leaves(self):
        file = self.path("a")
        process = self.start(base.words_of("1x1x1x2", self.text, *WIDE, "--steps", "1000000", "--save", file,
                                           "--save-every", "1", "--save-background", "off"))
        self.wait_for(lambda: os.path.exists(file), "nothing was saved")
        for _ in range(1000):  # stopped first: a save may end in between
            self.wait_for(lambda: os.path.exists(file + ".partial"), "no save was seen")
            os.kill(process.pid, signal.SIGSTOP)
            if os.path.exists(file + ".partial"):
                break
            os.kill(process.pid, signal.SIGCONT)
        process.kill()
        process.communicate(timeout=60)
        self.assertTrue(os.path.exists(file + ".partial"))
        base.Bytes.check_file(self, file)
        self.train("1x1x1x1", "--resume", file, "--save", file, "--stop-after", "1", "--sample", "0")
        self.check_whole(file)


def setUpModule():
    random.seed(ARGUMENTS.seed)
    print(f"--seed {ARGUMENTS.seed}", file=sys.stderr)


if __name__ == "__main__":
    cases.main("examples_dir", "--mpiexec", seed=random.randrange(1 << 30))
