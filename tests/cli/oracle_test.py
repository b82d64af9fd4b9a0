#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The oracle of networks runs again, where PyTorch and transformers are: it gives the numbers of expected.json, and all
elements of its gradients are those of the library.

usage: oracle_test.py TEST_MODELS FOLDER-OF-NETWORKS
"""
import json
import os
import sys

try:
    import safetensors  # noqa: F401
    import torch  # noqa: F401
    import transformers
except ImportError as error:
    print(f"skipped: {error}; pip install torch 'transformers>=5' safetensors")
    sys.exit(77)
if int(transformers.__version__.split(".")[0]) < 5:
    print(f"skipped: this is transformers {transformers.__version__}; pip install 'transformers>=5'")
    sys.exit(77)

import cases
from cases import ARGUMENTS, start

GRIDS = ["1x1x1x1", "2x2x2x1"]
SAME, LATER = 1e-12, 1e-9  # AdamW's steps make more of a rounding


class Oracle(cases.Case):
    def assert_near(self, got, expected, bound, what):
        self.assertEqual(len(got), len(expected), what)
        for one, other in zip(got, expected):
            self.assertLessEqual(abs(one - other), bound, what)

    def test_again(self):
        names = sorted(name for name in os.listdir(ARGUMENTS.networks)
                       if os.path.isdir(os.path.join(ARGUMENTS.networks, name)))
        self.assert_done(start(sys.executable, "-B", os.path.join(ARGUMENTS.networks, "oracle.py"), self.folder, *names,
                               environment={"OMP_NUM_THREADS": "1"}, timeout=600))
        for name in names:
            with open(os.path.join(ARGUMENTS.networks, name, "expected.json"), encoding="utf-8") as file:
                expected = json.load(file)
            got = json.loads(self.read(f"{name}/expected.json"))
            self.assert_near([got["loss"]], [expected["loss"]], SAME * expected["loss"], name)
            self.assert_near(got["losses"], expected["losses"], LATER * expected["loss"], name)
            got["gradients"]["logits"], expected["gradients"]["logits"] = got["logits"], expected["logits"]
            self.assertEqual(set(got["gradients"]), set(expected["gradients"]))
            for key, numbers in expected["gradients"].items():
                self.assert_near(got["gradients"][key], numbers, SAME * numbers[0] + 1e-15, f"{name}: {key}")
        for grid in GRIDS:
            done = start(ARGUMENTS.models, "--grid", grid, *names, environment={"QDR_TEST_NETWORKS": self.folder},
                         timeout=600)
            self.assertEqual((done.returncode, done.err), (0, ""))
            self.assertEqual(done.out.count(": as transformers, element by element\n"), len(names))


if __name__ == "__main__":
    cases.main("models", "networks")
