# SPDX-License-Identifier: Apache-2.0
"""What tests of programs share: their options, starting a program, a folder for each test, sentences of refusals."""
import argparse
import math
import os
import subprocess
import sys
import tempfile
import unittest

ARGUMENTS = argparse.Namespace()  # of the test, from main()


def start(*words, environment=(), timeout=120, **more):
    """A program that has ended; its output is in .out and .err."""
    if "input" not in more:
        more["stdin"] = subprocess.DEVNULL
    done = subprocess.run(words, capture_output=True, timeout=timeout, encoding="utf-8",
                          **{"env": {**os.environ, **dict(environment)}, **more})
    done.out, done.err = done.stdout, done.stderr
    return done


def ranks_of(grid):
    return math.prod(map(int, grid.split("x")))


def calibrated(calibrate):
    """On a busy machine times may not show a rate, which is refused: tried five times."""
    for _ in range(5):
        done = calibrate()
        if "more bytes took no longer" not in done.err + done.out:
            break
    return done


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name, content=None):
        """Of a file in the folder, which is written if there is content: text or bytes."""
        path = os.path.join(self.folder, name)
        if content is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
        return path

    def write(self, name, content):
        return self.path(name, content)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def read_bytes(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def assert_done(self, done, code=0):
        """@return what it printed; with code 0 it has said nothing else"""
        self.assertEqual(done.returncode, code, done.stderr)
        if code == 0:
            self.assertEqual(done.stderr, "")
        return done.stdout

    def assert_refused(self, done, *parts, code=2):
        """One sentence, which has these parts, and no output."""
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("quadrille: "), done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)


def main(*names, flags=(), **numbers):
    """Takes the options of these names, flags, and numbers with their defaults; others choose tests."""
    parser = argparse.ArgumentParser()
    for name in names:
        parser.add_argument(name)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    for name, default in numbers.items():
        parser.add_argument("--" + name, type=int, default=default)
    _, rest = parser.parse_known_args(namespace=ARGUMENTS)
    for name in names:
        if name in ARGUMENTS:  # a path, which is one in other folders, too
            setattr(ARGUMENTS, name, os.path.abspath(getattr(ARGUMENTS, name)))
    unittest.main(argv=[sys.argv[0], *rest])
