#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completions: bash is asked what would follow a command line. All commands and options of --help are offered, and the
names of machines and models.

usage: completions_test.py QUADRILLE SCRIPT
"""
import argparse
import os
import re
import subprocess
import tempfile
import unittest

QUADRILLE = SCRIPT = None


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
                          **more)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def environment():
    return {**os.environ, "PATH": os.path.dirname(QUADRILLE) + ":" + os.environ["PATH"]}


def words_of_bash(line):
    """Split as readline does: at blanks, with = as a word of its own."""
    words = re.findall(r"=|[^\s=]+", line)
    return words if line and not line.endswith((" ", "=")) else words + ([""] if not line.endswith("=") else [])


def ask_bash(line):
    words = words_of_bash(line)
    text = (f'. {SCRIPT}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() {{ :; }}; _quadrille; '
            'printf "%s\\n" "${COMPREPLY[@]}"')
    return set(run("bash", "-c", text, "bash", *words, env=environment()).split())


def commands_of_help():
    """{"bench linear": {"--rows", ...}}, from the output of --help."""
    def section(text, name):
        match = re.search(rf"^{name}:\n((?:  .*\n)+)", text, re.M)
        return match.group(1) if match else ""

    def options(text):
        return set(re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", text[text.index("\nOptions:"):], re.M))

    main = run(QUADRILLE, "--help")
    found = {"": options(main)}
    for name in re.findall(r"^  (\w+) ", section(main, "Commands"), re.M):
        if name == "help":
            continue
        text = run(QUADRILLE, name, "--help")
        found[name] = options(text)
        usage = text.split("\n", 1)[0]
        if "BENCHMARK" in usage or "PART" in usage:
            for part in re.findall(r"^  (\w+)  +\S", text[:text.index("\nOptions:")], re.M):
                found[f"{name} {part}"] = options(run(QUADRILLE, name, part, "--help"))
    return found


class Completions(unittest.TestCase):
    def offers(self, line, *wanted, unwanted=()):
        with self.subTest(line=line):
            words = ask_bash(line)
            self.assertLessEqual(set(wanted), words)
            self.assertFalse(words & set(unwanted))

    def test_every_command_and_every_option_of_help_is_offered(self):
        found = commands_of_help()
        self.assertIn("bench linear", found)
        self.offers("quadrille ", *(name for name in found if name and " " not in name))
        for name, options in found.items():
            self.assertIn("--help", options)
            self.offers(f"quadrille {name} --" if name else "quadrille --", *options)

    def test_values_are_offered(self):
        self.offers("quadrille list ", "models", "machines", "software", unwanted=["list"])
        self.offers("quadrille plan gpt2 --overlap o", "on", "off")
        self.offers("quadrille bench ", "linear", "coll")
        self.offers("quadrille ckpt ", "ls", "verify", "diff", "convert")
        self.offers("quadrille help pl", "plan")

    def test_machines_and_models_are_offered(self):
        self.offers("quadrille plan gpt2 --machine perl", "perlmutter", unwanted=["frontier"])
        self.offers("quadrille plan gpt2 --machine=perl", "perlmutter")
        self.offers("quadrille predict -m fron", "frontier")
        self.offers("quadrille plan gpt2 --software ne", "nemo", unwanted=["torchtitan"])
        self.offers("quadrille plan llama-2", "llama-2-7b", "llama-2-70b", unwanted=["gpt2"])
        self.offers("quadrille mem gpt2-", "gpt2-xl")

    def test_files_are_offered_where_a_file_is_wanted(self):
        path = os.path.abspath(__file__)
        for line in (f"quadrille topo --xml {path[:-4]}", f"quadrille trace {path[:-4]}",
                     f"quadrille ckpt ls {path[:-4]}", f"quadrille ckpt diff {path} {path[:-4]}"):
            self.offers(line, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("quadrille")
    parser.add_argument("script")
    QUADRILLE, SCRIPT = map(os.path.abspath, vars(parser.parse_args()).values())
    unittest.main(argv=[__file__])
