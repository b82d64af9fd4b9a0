#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No file of any program replaces another one.

usage: files_test.py QUADRILLE MACHINES [--examples FOLDER]

Which options there are is taken from --help of every command, so that a new one that names a file fails here until it is in PROGRAMS.
MACHINES is a folder of machine files.
"""
import itertools
import os
import re
import shutil
import stat
import subprocess
import unittest

from file_programs import ARGUMENTS, PROGRAMS, READ, SECONDS, WRITTEN, Case, command_of, main, programs, read, write

# What options take that name no file. Anything else is a file, and must be in PROGRAMS.
NO_FILES = {"2x2x1x1", "AXES", "AXIS", "AXIS=N", "B", "BYTES", "GP,OP", "GRID", "GXxGYxGZxGD", "GXxGYxGZxGD|auto", "K", "KEY=NUMBER",
            "KEY=VALUE", "KIND", "LAYOUT", "N", "NAME", "NORM", "ORDER", "P", "R", "RANK:SECONDS", "RATE", "S", "STDDEV", "TEXT", "TYPE",
            "WHAT", "WHOSE", "X", "cpu|cuda|cuda:N", "f32|f64|bf16|f16", "off|on", "on|off", "replicated|scattered", "stored|fp8"}
NO_FILE_OPTIONS = {("--rows", "M")}  # whose arguments are called as files are elsewhere


class Options(unittest.TestCase):
    """The table above is complete."""

    def help_of(self, program):
        done = subprocess.run([*command_of(program), "--help"], stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS,
                              check=True, text=True, encoding="utf-8")
        return done.stdout

    def all_programs(self):
        commands = re.findall(r"^  (\w+) {2,}", self.help_of("quadrille").split("Commands:")[1].split("Options:")[0], re.M)
        self.assertGreater(len(commands), 8)
        for name in commands:
            if name == "help":
                continue
            yield f"quadrille {name}"
            before = self.help_of(f"quadrille {name}").split("\nOptions:")[0]
            for part in re.findall(r"^  (\w+) {2,}", before, re.M) if name == "bench" else []:
                yield f"quadrille {name} {part}"
        if ARGUMENTS.examples:
            yield from ("train_gpt", "transformer_layer")

    def test_every_option_that_names_a_file_is_in_the_table(self):
        found = set()
        for program in self.all_programs():
            for option, argument in re.findall(r"^ +(?:-\w, )?(--[\w-]+) (\S+)", self.help_of(program), re.M):
                if argument in NO_FILES or (option, argument) in NO_FILE_OPTIONS or not re.search(rf"{option} {re.escape(argument)}\s", self.help_of(program)):
                    continue
                if re.match(r"^[a-z]", argument):
                    continue  # a word of the help: the option takes nothing
                with self.subTest(program=program, option=option, argument=argument):
                    slots = [slot.option for slot in PROGRAMS.get(program, ([], [], {}))[1]]
                    self.assertIn(option, slots, f"does {argument} name a file? then name it in PROGRAMS, else in NO_FILES")
                found.add((program, option))
        listed = {(program, slot.option) for program in programs() for slot in PROGRAMS[program][1] if slot.option.startswith("--")}
        self.assertEqual(found, listed)


class Conflicts(Case):
    """One file, named twice: refused before anything is written."""

    def assert_refused(self, program, *named, **keys):
        before = self.names()
        done = self.run_slots(program, *named, **keys)
        self.assertEqual(done.returncode, 2, done.err)
        self.assertIn("same file", done.err)
        for slot, _ in named:
            self.assertIn(slot.option, done.err)
        after = self.names()
        if "QDR_TRACE" in (slot.option for slot, _ in named):  # the library writes it at the end, where it replaces nothing
            after = {name: digest for name, digest in after.items() if name in before}
        self.assertEqual(after, before)

    def pairs(self):
        for program in programs():
            for a, b in itertools.combinations(PROGRAMS[program][1], 2):
                if WRITTEN in (a.use, b.use) and a.option != b.option:
                    yield program, a, b

    def place(self, slot, name):
        """A path for the slot, such that its file is, or may be called, `name` in the folder `made`; makes folders."""
        made = self.path("made")
        os.makedirs(made, exist_ok=True)
        file = slot.file("STEM")
        if file == "STEM":
            return os.path.join(made, name)
        if file.startswith("STEM/"):
            return made if name == file[5:] else None
        return os.path.join(made, name[:-2]) if name.endswith(file[4:]) else None

    def ways(self, a, b):
        """Names under which both slots can have one file."""
        for name in ("f.json", "f.0", "f.1", "y.npy", "dx.npy", "dw.npy", "db.npy"):
            if self.place(a, name) and self.place(b, name):
                return name, self.place(a, name), self.place(b, name)
        return None

    def test_all_pairs(self):
        n = 0
        for program, a, b in self.pairs():
            way = self.ways(a, b)
            if not way:
                continue
            with self.subTest(program=program, one=a.option, other=b.option):
                name, one, other = way
                file = os.path.join(self.path("made"), name)
                if READ in (a.use, b.use):
                    self.fill(a if a.use == READ else b, file)
                    self.assert_refused(program, (a, one), (b, other))
                else:
                    self.assert_refused(program, (a, one), (b, other.replace("/made", "/./made/../made")))
                    write(file, "precious")  # also what a refused run may have traced
                    self.assert_refused(program, (a, one), (b, other))
                n += 1
            shutil.rmtree(self.path("made"))
        self.assertGreater(n, 30 if ARGUMENTS.examples else 15)

    def fill(self, slot, file):
        """What a program reads before it looks at its outputs must be right."""
        source = {"the model": "model.json", "--machine": "machine.json"}.get(slot.option, "text.txt")
        shutil.copy(self.path(source), file)

    def test_links(self):
        """Both slots have paths of their own, one a link to the other."""
        for link in (os.link, os.symlink):
            for program, a, b in self.pairs():
                if a.file("x") != "x" and not a.file("x").startswith("x.") or b.file("x") != "x":
                    continue
                with self.subTest(program=program, link=link.__name__, one=a.option, other=b.option):
                    os.makedirs(self.path("made"))
                    one, other = self.path("made/one.json"), self.path("made/other.json")
                    self.fill(a, a.file(one))
                    link(a.file(one), other)
                    self.assert_refused(program, (a, one), (b, other))
                shutil.rmtree(self.path("made"))

    def test_link_to_a_file_that_is_to_come(self):
        os.makedirs(self.path("deep"))
        os.symlink("deep/new.json", self.path("link"))
        os.symlink("deep", self.path("shallow"))
        svg, out = [slot for slot in PROGRAMS["quadrille plan"][1] if slot.use == WRITTEN]
        self.assert_refused("quadrille plan", (svg, self.path("link")), (out, self.path("deep/new.json")))
        self.assert_refused("quadrille plan", (svg, self.path("shallow/a")), (out, self.path("deep/a")))

    def test_standard_output(self):
        """A file that standard output is added to, and that is named as well."""
        for program in ("quadrille plan", "quadrille topo", "quadrille predict"):
            slot = [slot for slot in PROGRAMS[program][1] if slot.use == WRITTEN][0]
            file = self.path("both")
            write(file, "precious")
            with self.subTest(program=program), open(file, "ab") as stdout:
                done = self.run_slots(program, (slot, file), stdout=stdout)
                self.assertEqual(done.returncode, 2, done.err)
                self.assertIn("standard output", done.err)
                self.assertEqual(read(file), b"precious")

    def test_one_device_may_have_many_uses(self):
        svg, out = [slot for slot in PROGRAMS["quadrille plan"][1] if slot.use == WRITTEN]
        done = self.run_slots("quadrille plan", (svg, "/dev/null"), (out, "/dev/null"))
        self.assertEqual((done.returncode, done.err), (0, ""))
        self.assertTrue(stat.S_ISCHR(os.lstat("/dev/null").st_mode))

    def test_older_logs_are_not_overwritten(self):
        """The log's older file would become log.1, which is the picture's name."""
        if not ARGUMENTS.examples:
            self.skipTest("no examples in this build")
        write(self.path("log"), "older")
        log, plot = [slot for slot in PROGRAMS["train_gpt"][1] if slot.option in ("--log", "--plot")]
        self.assert_refused("train_gpt", (log, self.path("log")), (plot, self.path("log.1")))


if __name__ == "__main__":
    main("files_test.py")
