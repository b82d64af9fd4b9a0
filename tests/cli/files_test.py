#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files that programs name.

usage: files_test.py QUADRILLE MACHINES [--examples FOLDER]

The options are taken from --help of every command, so that a new one that names a file fails here until it is in
PROGRAMS. MACHINES is a folder of machine files.
"""
import json
import re
import subprocess
import unittest

from file_programs import ARGUMENTS, ENVIRONMENT, PROGRAMS, SECONDS, Case, command_of, main, programs

# Arguments of options that name no file. All others are files, and must be in PROGRAMS.
NO_FILES = {"2x2x1x1", "AXES", "AXIS", "AXIS=N", "B", "BYTES", "CODEC", "CODECS", "GP,OP", "GRID", "GRID[:LEVELS]",
            "GXxGYxGZxGD", "GXxGYxGZxGD|auto", "K", "KEY=NUMBER", "KEY=VALUE", "KIND", "LAYOUT", "N", "NAME", "NORM",
            "ORDER", "P", "R", "RANK:SECONDS", "RATE", "S", "SECS", "STDDEV", "TEXT", "TOKEN|idx", "TYPE",
            "WHAT", "WHOSE", "X",
            "cpu|cuda|cuda:N", "f32|f64|bf16|f16", "off|on", "on|off", "replicated|scattered", "stored|fp8"}
# Arguments that have the same names as files elsewhere; and a file that --save, alone, may replace.
NO_FILE_OPTIONS = {("--rows", "M"), ("--resume", "FILE|auto"), ("--eval", "FILE|val"),
                   ("--data", "FILE[:WEIGHT],...")}


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
            yield from ("train", "transformer_layer")

    def test_help_fits_in_100_columns(self):
        parts = re.findall(r"^  (\w+) {2,}", self.help_of("quadrille ckpt").split("\nOptions:")[0], re.M)
        self.assertGreater(len(parts), 3)
        for program in ("quadrille", *(f"quadrille ckpt {part}" for part in parts), *self.all_programs()):
            lines = self.help_of(program).splitlines()
            self.assertGreater(len(lines), 9)
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


class Refusals(Case):
    def test_refused_command_lines_leave_no_trace(self):
        before = self.names()
        for program in ("train", "transformer_layer") if ARGUMENTS.examples else ():
            for word, code in (("--unknown", 2), ("--help", 0)):
                done = self.run_program(program, word, environment={"QDR_TRACE": self.path("trace")})
                self.assertEqual(done.returncode, code, done.err)
        self.assertEqual(self.names(), before)


if __name__ == "__main__":
    main("files_test.py")
