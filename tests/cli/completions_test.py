#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completions: bash and fish are asked what would follow a command line, zsh whether it accepts its file. All commands
and options of --help are offered, and the names of machines and models.

usage: completions_test.py QUADRILLE
"""
import argparse
import os
import re
import shutil
import subprocess
import tempfile
import unittest

QUADRILLE = None


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


def ask_bash(script, line):
    words = words_of_bash(line)
    text = (f'. {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() {{ :; }}; _quadrille; '
            'printf "%s\\n" "${COMPREPLY[@]}"')
    return set(run("bash", "-c", text, "bash", *words, env=environment()).split())


def ask_fish(script, line):
    text = f"source {script}; complete -C '{line}'"
    return {answer.split("\t")[0].split("=")[-1]
            for answer in run("fish", "--no-config", "-c", text, env=environment()).splitlines()}


def commands_of_help():
    """{"bench gemm": {"--rows", ...}}, from the output of --help."""
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
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.script = {}
        for shell in ("bash", "zsh", "fish"):
            cls.script[shell] = os.path.join(cls.folder.name, shell)
            with open(cls.script[shell], "w", encoding="utf-8") as file:
                file.write(run(QUADRILLE, "completions", shell))

    def ask(self, line):
        """The words that each installed shell offers; they offer the same words, apart from files."""
        yield "bash", ask_bash(self.script["bash"], line)
        if shutil.which("fish"):
            yield "fish", ask_fish(self.script["fish"], line)

    def offers(self, line, *wanted, unwanted=()):
        for shell, words in self.ask(line):
            with self.subTest(shell=shell, line=line):
                self.assertLessEqual(set(wanted), words)
                self.assertFalse(words & set(unwanted))

    def test_every_command_and_every_option_of_help_is_offered(self):
        found = commands_of_help()
        self.assertIn("bench gemm", found)
        self.offers("quadrille ", *(name for name in found if name and " " not in name))
        for name, options in found.items():
            self.assertIn("--help", options)
            self.offers(f"quadrille {name} --" if name else "quadrille --", *options)

    def test_values_are_offered(self):
        self.offers("quadrille plan --layout ", "replicated", "scattered", unwanted=["--layout", "plan"])
        self.offers("quadrille plan gpt2 --overlap o", "on", "off")
        self.offers("quadrille bench coll --kind all-r", "all-reduce", unwanted=["all-gather"])
        self.offers("quadrille verify --dtype ", "f32", "bf16", "all")
        self.offers("quadrille mem --dtype ", "f32", "bf16", unwanted=["all"])
        self.offers("quadrille bench ", "gemm", "coll")
        self.offers("quadrille ckpt ", "ls", "verify", "diff", "convert")
        self.offers("quadrille ckpt convert a.safetensors --from g", "gpt2")
        self.offers("quadrille help pl", "plan")

    def test_machines_and_models_are_offered(self):
        self.offers("quadrille plan gpt2 --machine perl", "perlmutter", unwanted=["frontier"])
        self.offers("quadrille plan gpt2 --machine=perl", "perlmutter")
        self.offers("quadrille predict -m fron", "frontier")
        self.offers("quadrille plan llama-2", "llama-2-7b", "llama-2-70b", unwanted=["gpt2"])
        self.offers("quadrille mem gpt2-", "gpt2-xl")

    def test_files_are_offered_where_a_file_is_wanted(self):
        path = os.path.join(self.folder.name, "recorded.xml")
        with open(path, "w", encoding="utf-8"):
            pass
        for line in (f"quadrille topo --xml {path[:-4]}", f"quadrille trace {path[:-4]}",
                     f"quadrille ckpt ls {path[:-4]}", f"quadrille ckpt diff {path} {path[:-4]}"):
            self.offers(line, path)

    def test_shells_understand_their_files(self):
        for shell in ("bash", "zsh", "fish"):
            if shutil.which(shell):
                run(shell, "-n", self.script[shell])

    def test_unknown_shells_are_refused(self):
        done = subprocess.run([QUADRILLE, "completions", "csh"], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("bash, zsh, fish", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("quadrille")
    QUADRILLE = os.path.abspath(parser.parse_args().quadrille)
    unittest.main(argv=[__file__])
