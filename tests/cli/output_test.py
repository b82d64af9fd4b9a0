#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files appear complete or not at all, files that are not regular stay what they are, and losing standard output is an
error.

usage: output_test.py QUADRILLE MACHINES [--examples FOLDER]
"""
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import threading
import time

from file_programs import ARGUMENTS, PROGRAMS, SECONDS, TINY, Case, command_of, main, outputs, read, write


class Whole(Case):
    """Files appear complete or not at all."""

    def fill_output(self, slot):
        """Creates an older file at the output's path. Returns the path for the option, and the file."""
        path = self.path("out")
        file = slot.file(path)
        if file != path:
            os.makedirs(path, exist_ok=True)
        write(file, "older")
        return path, file

    def older(self, program, slot, file):
        """Plans replace only plans."""
        if (program, slot.option) != ("quadrille plan", "--out"):
            return
        os.remove(file)
        self.assertEqual(self.run_slots(program, (slot, file)).returncode, 0)

    def assert_kept(self, program, slot, done, before, code=1):
        self.assertEqual(done.returncode, code, (program, slot.option, done.err))
        self.assertIn("plan" if slot.option == "--out" and program == "quadrille plan" else slot.option, done.err)
        self.assertEqual(self.names(), before)

    def test_limit_on_files(self):
        """ulimit -f: a message, no signal, nothing left behind."""
        for program, slot in outputs():
            with self.subTest(program=program, option=slot.option, file=slot.file("out")):
                path, file = self.fill_output(slot)
                self.older(program, slot, file)
                before = self.names()
                done = self.run_slots(program, (slot, path),
                                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
                self.assert_kept(program, slot, done, before)
                self.assertIn("ulimit -f", done.err)
                self.assertIn("File too large", done.err)
            shutil.rmtree(self.path("out"), ignore_errors=True)
            if os.path.exists(self.path("out")):
                os.remove(self.path("out"))

    def test_full_disk(self):
        """On a file system of 8 KiB that other files have filled; it is mounted in a separate namespace."""
        probe = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", self.folder.name], check=False,
                               capture_output=True)
        if probe.returncode:
            self.skipTest(f"no file system can be mounted here: {probe.stderr.decode().strip()}")
        os.makedirs(self.path("disk"))
        script = ('mount -t tmpfs -o size=8k none "$DISK" && mkdir "$DISK/folder" && cp "$OLDER" "$DISK/out" && '
                  'cp "$OLDER" "$DISK/folder/y.npy" && { cat /dev/zero >"$DISK/filler" 2>/dev/null; "$@"; code=$?; '
                  'cmp "$OLDER" "$DISK/out" && cmp "$OLDER" "$DISK/folder/y.npy" || exit 90; '
                  'test "$(ls -A "$DISK" "$DISK/folder" | grep -c part)" = 0 || exit 91; exit $code; }')
        for program, slot in outputs():
            with self.subTest(program=program, option=slot.option):
                older = self.path("older")
                write(older, "older")
                self.older(program, slot, older)
                path = self.path("disk/out" if slot.file("x") == "x" else "disk/folder")
                line, environment = self.words(program, (slot, path))
                done = subprocess.run(["unshare", "-rm", "sh", "-c", script, "sh", *command_of(program), *line],
                                      stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=SECONDS,
                                      env={**os.environ, **environment, "DISK": self.path("disk"), "OLDER": older})
                self.assertEqual(done.returncode, 1, (program, slot.option, done.stderr.decode()))
                self.assertIn("No space left", done.stderr.decode())
                os.remove(older)

    def test_limit_on_files_of_the_library(self):
        """A program that does not handle the signal of the limit survives it, too."""
        if not ARGUMENTS.examples:
            self.skipTest("no examples in this build")
        before = self.names()
        for size in (0, 100):
            done = self.run_program("linear", environment={"QDR_TRACE": self.path("trace")},
                                    preexec_fn=lambda size=size: resource.setrlimit(resource.RLIMIT_FSIZE,
                                                                                    (size, size)))
            self.assertEqual(done.returncode, 0, done.err)
            self.assertIn("File too large", done.err)
            self.assertEqual(self.names(), before)

    def test_planted_links(self):
        """Links under names that are predictable, or were used before: the files to which they lead stay."""
        for program, slot in outputs():
            with self.subTest(program=program, option=slot.option):
                path = self.path("out")
                file = slot.file(path)
                if file != path:
                    os.makedirs(path, exist_ok=True)
                write(self.path("victim"), "precious")
                for planted in (".part", ".new", ".tmp"):
                    os.symlink(self.path("victim"), file + planted)
                done = self.run_slots(program, (slot, path))
                self.assertEqual(done.returncode, 0, done.err)
                self.assertEqual(read(self.path("victim")), b"precious")
                self.assertFalse(os.path.islink(file))
                for planted in (".part", ".new", ".tmp"):
                    os.remove(file + planted)
            shutil.rmtree(self.path("out"), ignore_errors=True)
            if os.path.exists(self.path("out")):
                os.remove(self.path("out"))

    def test_leftovers_of_killed_runs(self):
        for program, slot in outputs():
            with self.subTest(program=program, option=slot.option):
                path, file = self.fill_output(slot)
                self.older(program, slot, file)
                folder, name = os.path.split(file)
                left = os.path.join(folder, f".{name}.0123456789abcdef.part")
                others = os.path.join(folder, f".{name}.part")
                write(left, "half")
                write(others, "somebody else's")
                done = self.run_slots(program, (slot, path))
                self.assertEqual(done.returncode, 0, done.err)
                self.assertFalse(os.path.exists(left))
                self.assertTrue(os.path.exists(others))
                os.remove(others)
            shutil.rmtree(self.path("out"), ignore_errors=True)
            if os.path.exists(self.path("out")):
                os.remove(self.path("out"))


class Special(Case):
    """Files that are not regular are written to, and stay what they are."""

    def test_pipes(self):
        for program, slot in outputs():
            if slot.file("x") != "x" or slot.is_regular:
                continue  # names of its own in a folder
            with self.subTest(program=program, option=slot.option):
                fifo, got = self.path("fifo"), []
                os.mkfifo(fifo)
                reader = threading.Thread(target=lambda: got.append(read(fifo)), daemon=True)
                reader.start()
                done = self.run_slots(program, (slot, fifo))
                self.assertEqual(done.returncode, 0, done.err)
                reader.join(SECONDS)
                self.assertTrue(got and got[0])
                self.assertTrue(stat.S_ISFIFO(os.lstat(fifo).st_mode))
                os.remove(fifo)

    def test_dev_stdout_is_a_pipe(self):
        out = [slot for slot in PROGRAMS["quadrille plan"][1] if slot.option == "--out"][0]
        done = self.run_slots("quadrille plan", (out, "/dev/stdout"))
        self.assertEqual((done.returncode, done.err), (0, ""))
        self.assertIn(b'"quadrille_plan": 3', done.stdout)

    def test_a_pipe_without_a_reader(self):
        os.mkfifo(self.path("fifo"))
        out = [slot for slot in PROGRAMS["quadrille plan"][1] if slot.option == "--out"][0]
        done = self.run_slots("quadrille plan", (out, self.path("fifo")))
        self.assertEqual(done.returncode, 2, done.err)
        self.assertIn("no program reads", done.err)

    def device(self, name, like):
        path = self.path(name)
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.stat(like).st_rdev)
            with open(path, "wb"):
                pass
        except OSError as error:
            self.skipTest(f"no device to be had: {error}")
        return path

    def test_devices(self):
        """A device of our own: the system's are not for experiments."""
        null, full = self.device("null", "/dev/null"), self.device("full", "/dev/full")
        for program, slot in outputs():
            if slot.file("x") != "x":
                continue
            with self.subTest(program=program, option=slot.option):
                done = self.run_slots(program, (slot, null))
                if slot.is_regular:
                    self.assertEqual(done.returncode, 2, done.err)
                    self.assertIn(f"{slot.option} {null}: ", done.err)
                    continue
                self.assertEqual(done.returncode, 0, done.err)
                done = self.run_slots(program, (slot, full))
                self.assertEqual(done.returncode, 1, done.err)
                self.assertIn("No space left", done.err)
                for path in (null, full):
                    self.assertTrue(stat.S_ISCHR(os.lstat(path).st_mode))

    def test_tuning_into_a_device(self):
        if not ARGUMENTS.examples:
            self.skipTest("no examples in this build")
        null = self.device("null", "/dev/null")
        done = self.run_program("transformer_layer", "--local", "1", "--hidden", "256", "--ctx", "256",
                                "--iterations", "1", environment={"QDR_TUNE": null})
        self.assertEqual(done.returncode, 1, done.err)
        self.assertIn("not a file", done.err)
        self.assertTrue(stat.S_ISCHR(os.lstat(null).st_mode))

    def test_tuning_through_a_link(self):
        if not ARGUMENTS.examples:
            self.skipTest("no examples in this build")
        os.symlink("choices.json", self.path("link"))
        done = self.run_program("transformer_layer", "--local", "1", "--hidden", "256", "--ctx", "256",
                                "--iterations", "1", environment={"QDR_TUNE": self.path("link")})
        self.assertEqual(done.returncode, 0, done.err)
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertIn(b"quadrille_tune", read(self.path("choices.json")))


class Logs(Case):
    def setUp(self):
        super().setUp()
        if not ARGUMENTS.examples:
            self.skipTest("no examples in this build")

    def test_older_ones_are_kept(self):
        write(self.path("log"), "older\n")
        for i in (1, 2):
            done = self.run_program("train", self.path("text.txt"), *TINY, "--log", self.path("log"))
            self.assertEqual(done.returncode, 0, done.err)
            self.assertIn(f"log.{i}", done.err)
            self.assertEqual(len(read(self.path("log")).splitlines()), 1 + 3)
        self.assertEqual(read(self.path("log.1")), b"older\n")
        self.assertEqual(len(read(self.path("log.2")).splitlines()), 1 + 3)

    def test_can_be_read_meanwhile_and_after_an_interrupt(self):
        log = self.path("log")
        words = [*command_of("train"), self.path("text.txt"), *TINY, "--steps", "100000000", "--log", log]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as run:
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline and not (os.path.exists(log) and read(log).count(b"\n") > 2):
                time.sleep(0.02)
            seen = read(log)
            run.send_signal(signal.SIGINT)
            run.wait(SECONDS)
        self.assertGreater(seen.count(b"\n"), 2)
        self.assertTrue(read(log).startswith(seen))
        for line in read(log).splitlines():
            json.loads(line)
        self.assertEqual([name for name in os.listdir(self.folder.name) if "part" in name], [])


class StandardOutput(Case):
    """Printed output that was lost is an error, with a message."""

    def commands(self):
        model, machine = self.path("model.json"), self.path("machine.json")
        yield "quadrille --help", []
        yield "quadrille --version", []
        yield "quadrille plan", [model, "-n", "2", "--machine", machine]
        yield "quadrille mem", [model]
        yield "quadrille topo", []
        yield "quadrille predict", [self.path("runs.csv")]
        yield "quadrille trace", [self.path("run")]
        yield "quadrille verify", ["--ranks", "1", "--cases", "1", "--dtype", "f32"]
        yield "quadrille bench linear", ["--local", "1", "-m", "8", "-n", "8", "-k", "8", "--iterations", "1"]
        if not ARGUMENTS.examples:
            return
        yield "train", [self.path("text.txt"), *TINY]
        yield "train --help", []
        yield "transformer_layer", ["--local", "1", "--hidden", "64", "--heads", "1", "--ctx", "8", "--iterations", "1"]
        yield "transformer_layer --json", ["--local", "1", "--hidden", "64", "--heads", "1",
                                           "--ctx", "8", "--iterations", "1"]
        for name in ("linear", "replace_matmul", "link_from_cxx"):
            if os.path.exists(os.path.join(ARGUMENTS.examples, name)):
                yield name, []
        yield "linear --help", []
        yield "replace_matmul --help", []

    def test_full_device(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        for program, words in self.commands():
            with self.subTest(program=program), open("/dev/full", "wb") as full:
                done = self.run_program(program, *words, stdout=full)
                self.assertEqual(done.returncode, 1, done.err)
                self.assertIn("standard output", done.err)
                self.assertNotIn("Input/output", done.err)

    def test_closed_streams(self):
        """A file of the run gets the number of a closed stream, but not what is printed there."""
        if not ARGUMENTS.examples:
            self.skipTest("no examples in this build")
        log = self.path("log")
        for closed, code in (("<&- >&-", 1), ("<&- 2>&-", 0), ("<&- >&- 2>&-", 1)):
            with self.subTest(closed=closed):
                done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command_of("train"),
                                       self.path("text.txt"), *TINY, "--log", log],
                                      capture_output=True, timeout=SECONDS)
                self.assertEqual(done.returncode, code, done.stderr)
                for line in read(log).splitlines():
                    json.loads(line)

    def test_closed_pipe(self):
        for program, words in self.commands():
            if program.split()[0] in ("linear", "replace_matmul", "link_from_cxx"):
                continue  # the shortest programs do not change the handling of SIGPIPE
            with self.subTest(program=program):
                reader, writer = os.pipe()
                os.close(reader)
                with os.fdopen(writer, "wb") as pipe:
                    done = self.run_program(program, *words, stdout=pipe)
                self.assertEqual(done.returncode, 128 + signal.SIGPIPE, done.err)
                self.assertNotIn("written", done.err)

    def test_head(self):
        """What has been read is whole, and nothing is said of the rest."""
        words = [*command_of("quadrille"), "plan", "gpt2", "-n", "16", "--machine", "perlmutter", "--explain"]
        runs = [(words, b"# gpt2")]
        if ARGUMENTS.examples:
            runs.append(([*command_of("train"), self.path("text.txt"), *TINY, "--steps", "100000000", "--log",
                          "/dev/stdout"], b'{"run":'))
        for words, begin in runs:
            with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as run:
                self.assertTrue(run.stdout.readline().startswith(begin))
                run.stdout.close()
                said = run.stderr.read()
                self.assertIn(run.wait(SECONDS), (0, 128 + signal.SIGPIPE))  # 0: all of it was in the pipe already
            self.assertNotIn(b"written", said)
            self.assertNotIn(b"Broken", said)


if __name__ == "__main__":
    main("output_test.py")
