#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No program's file replaces another file.

usage: files_test.py QUADRILLE MACHINES [--examples FOLDER]

The options are taken from --help of every command, so that a new one that names a file fails here until it is in
PROGRAMS. MACHINES is a folder of machine files.
"""
import itertools
import json
import os
import re
import shutil
import stat
import subprocess
import unittest

from file_programs import (ARGUMENTS, ENVIRONMENT, PROGRAMS, READ, SECONDS, WRITTEN, Case, command_of, main, programs,
                           read, write)

# Arguments of options that name no file. All others are files, and must be in PROGRAMS.
NO_FILES = {"2x2x1x1", "AXES", "AXIS", "AXIS=N", "B", "BYTES", "CODEC", "CODECS", "GP,OP", "GRID", "GRID[:LEVELS]",
            "GXxGYxGZxGD", "GXxGYxGZxGD|auto", "K", "KEY=NUMBER", "KEY=VALUE", "KIND", "LAYOUT", "N", "NAME", "NORM",
            "ORDER", "P", "R", "RANK:SECONDS", "RATE", "S", "SECS", "STDDEV", "TEXT", "TYPE", "WHAT", "WHOSE", "X",
            "cpu|cuda|cuda:N", "f32|f64|bf16|f16", "off|on", "on|off", "replicated|scattered", "stored|fp8"}
# Arguments that have the same names as files elsewhere; and a file that --save, alone, may replace.
NO_FILE_OPTIONS = {("--rows", "M"), ("--resume", "FILE|auto"), ("--eval", "FILE|val")}


class Options(unittest.TestCase):
    """The table above is complete."""

    def help_of(self, program):
        done = subprocess.run([*command_of(program), "--help"], stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=SECONDS, check=True, text=True, encoding="utf-8")
        return done.stdout

    def all_programs(self):
        commands = re.findall(r"^  (\w+) {2,}", self.help_of("quadrille").split("Commands:")[1].split("Options:")[0],
                              re.M)
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

    def test_help_fits_in_100_columns(self):
        parts = re.findall(r"^  (\w+) {2,}", self.help_of("quadrille ckpt").split("\nOptions:")[0], re.M)
        self.assertGreater(len(parts), 3)
        for program in ("quadrille", *(f"quadrille ckpt {part}" for part in parts), *self.all_programs()):
            lines = self.help_of(program).splitlines()
            self.assertGreater(len(lines), 10)
            self.assertEqual([line for line in lines if len(line) > 100], [], program)

    def test_every_option_that_names_a_file_is_in_the_table(self):
        found = set()
        for program in self.all_programs():
            for option, argument in re.findall(r"^ {2,6}(?:-\w, )?(--[\w-]+) (\S+)", self.help_of(program), re.M):
                if (argument in NO_FILES or (option, argument) in NO_FILE_OPTIONS
                        or not re.search(rf"{option} {re.escape(argument)}\s", self.help_of(program))):
                    continue
                if re.match(r"^[a-z]", argument):
                    continue  # a word of the help text: the option has no argument
                with self.subTest(program=program, option=option, argument=argument):
                    slots = [slot.option for slot in PROGRAMS.get(program, ([], [], {}))[1]]
                    self.assertIn(option, slots,
                                  f"does {argument} name a file? then name it in PROGRAMS, else in NO_FILES")
                found.add((program, option))
        listed = {(program, slot.option) for program in programs() for slot in PROGRAMS[program][1]
                  if slot.option.startswith("--")}
        self.assertEqual(found, listed)

    def test_every_variable_that_names_a_file_is_in_the_table(self):
        done = subprocess.run([*command_of("quadrille"), "env", "--json"], stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=SECONDS, check=True)
        found = {variable["name"] for variable in json.loads(done.stdout)["variables"]
                 if re.search(r"\bfile\b", variable["values"])}
        self.assertEqual(found, {slot.option for slot in ENVIRONMENT})


class Conflicts(Case):
    """One file, named twice: refused before anything is written."""

    def assert_refused(self, program, *named, **keys):
        before = self.names()
        done = self.run_slots(program, *named, **keys)
        self.assertEqual(done.returncode, 2, done.err)
        self.assertIn("same file", done.err)
        for slot, _ in named:
            self.assertIn(slot.option, done.err)
        self.assertEqual(self.names(), before)

    def pairs(self):
        for program in programs():
            for a, b in itertools.combinations(PROGRAMS[program][1], 2):
                if WRITTEN in (a.use, b.use) and a.option != b.option:
                    yield program, a, b

    def place(self, slot, name):
        """A path for the slot, such that its file is, or may be, `name` in the folder `made`; creates folders."""
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
                    write(file, "precious")
                    self.assert_refused(program, (a, one), (b, other))
                n += 1
            shutil.rmtree(self.path("made"))
        self.assertGreater(n, 30 if ARGUMENTS.examples else 15)

    def fill(self, slot, file):
        """A file that a program reads before it checks its outputs must be valid."""
        source = {"the model": "model.json", "--machine": "machine.json",
                  "QDR_MACHINE": "machine.json"}.get(slot.option, "text.txt")
        shutil.copy(self.path(source), file)

    def test_links(self):
        """Both slots have paths of their own, one of which is a link to the other."""
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
        """A file to which standard output is appended, and which is also named."""
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

    def data(self, kind, name, source):
        """A file that is found by its name in QDR_DATA_PATH. Returns its path, and the variable."""
        folder = self.path("own")
        os.makedirs(os.path.join(folder, kind), exist_ok=True)
        file = os.path.join(folder, kind, name + ".json")
        shutil.copy(self.path(source), file)
        return file, folder

    def assert_data_kept(self, program, slot, file, folder, **variables):
        before = self.names()
        line, _ = self.words(program, (slot, file))
        done = self.run_program(program, *line, environment={"QDR_DATA_PATH": folder, **variables})
        self.assertEqual(done.returncode, 2, done.err)
        self.assertIn("same file", done.err)
        self.assertEqual(self.names(), before)

    def test_data_files_found_by_name(self):
        """Named by a variable, by default, in a table, or perhaps by another machine's file."""
        file, folder = self.data("machines", "laptop", "machine.json")
        model, _ = self.data("models", "mine", "model.json")
        link = self.path("own/machines/linked.json")
        os.symlink("../../machine.json", link)
        for program, option in (("quadrille plan", "--svg"), ("quadrille predict", "--out"),
                                ("quadrille topo", "--svg"), ("quadrille trace", "--merge"), ("train_gpt", "--plot"),
                                ("train_gpt", "--log")):
            if program == "train_gpt" and not ARGUMENTS.examples:
                continue
            slot = [slot for slot in PROGRAMS[program][1] if slot.option == option][0]
            with self.subTest(program=program, option=option):
                self.assert_data_kept(program, slot, file, folder)
                self.assert_data_kept(program, slot, model, folder)
                if program == "train_gpt":
                    self.assert_data_kept(program, slot, self.path("machine.json"), folder, QDR_MACHINE="linked")

    def test_machines_may_be_measured_anew(self):
        file, folder = self.data("machines", "laptop", "machine.json")
        for machine in ("laptop", file):
            done = self.run_program("quadrille calibrate", "--local", "1", "--quick", "--force", "--out", file,
                                    environment={"QDR_DATA_PATH": folder, "QDR_MACHINE": machine})
            self.assertEqual(done.returncode, 0, done.err)

    def test_refused_command_lines_leave_no_trace(self):
        before = self.names()
        for program in ("train_gpt", "transformer_layer") if ARGUMENTS.examples else ():
            for word, code in (("--unknown", 2), ("--help", 0)):
                done = self.run_program(program, word, environment={"QDR_TRACE": self.path("trace")})
                self.assertEqual(done.returncode, code, done.err)
        self.assertEqual(self.names(), before)

    def test_older_logs_are_not_overwritten(self):
        """The older log would be renamed to log.1, which is the picture's name."""
        if not ARGUMENTS.examples:
            self.skipTest("no examples in this build")
        write(self.path("log"), "older")
        log, plot = [slot for slot in PROGRAMS["train_gpt"][1] if slot.option in ("--log", "--plot")]
        self.assert_refused("train_gpt", (log, self.path("log")), (plot, self.path("log.1")))


if __name__ == "__main__":
    main("files_test.py")
