#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tests of `quadrille ckpt` share: running it, and a folder for each test."""
import json
import math
import os

import cases
from cases import ARGUMENTS, start
from ckpt_files import pack, read, write

SEED = int(os.environ.get("QDR_TEST_SEED", "1"))


def ckpt(*words, **more):
    return start(ARGUMENTS.quadrille, "ckpt", *words, **more)


class Case(cases.Case):
    def file(self, name, tensors, metadata=None):
        write(self.path(name), tensors, metadata)
        return self.path(name)

    def good(self, *words, **more):
        done = ckpt(*words, **more)
        self.assertEqual((done.returncode, done.err), (0, ""), words)
        return done.out

    def json(self, *words, code=0):
        done = ckpt(*words, "--json")
        self.assertEqual(done.returncode, code, done.err)
        return json.loads(done.out)

    def bad(self, code, *words, says=(), **more):
        """One sentence, which has these parts."""
        done = ckpt(*words, **more)
        self.assertEqual(done.returncode, code, (words, done.out, done.err))
        self.assertEqual(len(done.err.splitlines()), 1, done.err)
        self.assertTrue(done.err.startswith("quadrille: "), done.err)
        for part in says:
            self.assertIn(part, done.err)
        return done.out

    def convert(self, source, target, *words):
        self.good("convert", source, self.path(target), *words)
        self.good("verify", self.path(target))
        return read(self.path(target))


SAMPLE = {
    "w": ("F32", [2, 3], pack("F32", [1, -2, 3, math.nan, math.inf, 0.5])),
    "scalar": ("F64", [], pack("F64", [2.5])),
    "empty": ("F32", [0, 4], b""),
    "Gewicht.größe": ("BF16", [2], pack("BF16", [1, 2])),
    "steps": ("I64", [2], pack("I64", [7, -8])),
}


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    print(f"seed {SEED}")
    cases.main("quadrille")
