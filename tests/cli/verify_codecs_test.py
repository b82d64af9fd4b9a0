#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille verify with codecs: bounds hold, and are not too wide.

usage: verify_codecs_test.py QUADRILLE PLANTED
PLANTED is the same command with half of the bound of each message.
"""
import subprocess
import sys
import unittest

QUADRILLE, PLANTED = sys.argv[1:3] if len(sys.argv) > 2 else (None, None)
CLASSES = ("xy.activation", "xy.activation-gradient", "z.weight", "z.gradient", "d.gradient")


def run(*words, program=None):
    done = subprocess.run([program or QUADRILLE, "verify", *words], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=240)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Codecs(unittest.TestCase):
    def rows(self, *words):
        code, out, err = run("-n", "4", "--cases", "4", *words)
        self.assertEqual((code, err), (0, ""), out)
        title, *rows = out.splitlines()
        self.assertEqual(len(rows), 10 * 2 * 4)  # grids, layouts, types
        return title, rows

    def test_bounds_hold(self):
        for seed in "34":
            _, plain = self.rows("--seed", seed)
            for codecs in ("int8", "aggressive", "int8+stochastic", "safe", "int4/32+hadamard+feedback"):
                with self.subTest(codecs=codecs, seed=seed):
                    title, coded = self.rows("--codec", codecs, "--seed", seed)
                    self.assertRegex(title, r"; codecs \S+inside\)$")
                    for type_name in ("f32", "f64", "bf16", "f16"):
                        differ = any(f" {type_name} " in one and one != other for one, other in zip(coded, plain))
                        self.assertEqual(differ, type_name != "f64")  # which is never coded

    def test_lossless_is_exact(self):
        self.assertEqual(self.rows("--codec", "lossless", "--seed", "5")[1], self.rows("--seed", "5")[1])

    def test_half_of_the_bound_is_exceeded(self):
        """By the messages of each class."""
        self.assertEqual(run("-n", "4", "--cases", "4", program=PLANTED)[0], 0)
        for traffic in CLASSES:
            words = ("-n", "4", "--cases", "16", "--seed", "3", "--dtype", "f32", "--codec", f"none,{traffic}=int8")
            with self.subTest(traffic=traffic):
                self.assertEqual(run(*words)[0], 0)
                code, out, err = run(*words, program=PLANTED)
                self.assertEqual(code, 4, out)
                self.assertIn("exceed their bound", err)

    def test_refuses(self):
        for codecs, says in (("int9", "nearest: int8"), ("naive", "known bound"), ("none,d.gradient=zfp:8", "zfp"),
                             ("auto:int8", "'auto:int8'")):
            with self.subTest(codecs=codecs):
                code, out, err = run("-n", "2", "--codec", codecs)
                self.assertEqual((code, out, len(err.splitlines())), (2, "", 1), err)
                self.assertIn(says, err)


if __name__ == "__main__":
    if PLANTED is None:
        sys.exit(__doc__)
    unittest.main(argv=["verify_codecs_test.py"], verbosity=1)
