#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille ckpt with the package that others use: Python's safetensors reads what it writes, and the other way round.

usage: ckpt_foreign_test.py QUADRILLE
"""
import sys

try:
    import numpy
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}; pip install safetensors numpy")
    sys.exit(77)

import cases
from cases import ARGUMENTS, start


def ckpt(*words):
    start(ARGUMENTS.quadrille, "ckpt", *words, check=True)


class Foreign(cases.Case):
    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(1)

    def numbers(self, *shape, kind=numpy.float32):
        return self.random.standard_normal(shape).astype(kind)

    def test_copies(self):
        """Every type that both have, scalars, empty tensors and names beyond ASCII."""
        tensors = {"größe": self.numbers(3, 4), "half": self.numbers(5, kind=numpy.float16),
                   "empty": self.numbers(0, 2), "double": self.numbers(2, 2, 2, kind=numpy.float64),
                   "scalar": self.numbers(), "steps": numpy.arange(7), "mask": numpy.array([True, False])}
        save_file(tensors, self.path("a.safetensors"), metadata={"note": "n"})
        ckpt("convert", self.path("a.safetensors"), self.path("b.safetensors"))
        ckpt("diff", self.path("a.safetensors"), self.path("b.safetensors"))
        ckpt("verify", self.path("b.safetensors"))
        found = load_file(self.path("b.safetensors"))
        self.assertEqual(set(found), set(tensors))
        for name, values in tensors.items():
            self.assertEqual((found[name].dtype, found[name].shape), (values.dtype, values.shape))
            numpy.testing.assert_array_equal(found[name], values)
        with safe_open(self.path("b.safetensors"), framework="numpy") as file:
            self.assertEqual((file.metadata()["note"], file.metadata()["format"]), ("n", "pt"))


if __name__ == "__main__":
    cases.main("quadrille")
