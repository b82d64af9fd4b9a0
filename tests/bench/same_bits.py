#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether two builds train alike, to the last bit: train on every grid of p ranks in both layouts and in f32, f64
and bf16, with one panel and one part of the batch. Compares the losses of each step, printed with all their digits, and
the sample.

usage: same_bits.py BEFORE AFTER [--ranks P ...] [--steps N]    (build folders; exit code 1: some differ)
"""
import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile

NETWORK = ["--layers", "2", "--hidden", "48", "--heads", "6", "--ctx", "16", "--batch", "12", "--val-windows", "2",
           "--sample", "40"]
FIELDS = ("step", "loss", "val_loss")
TEXT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "LICENSE")


def grids(n_ranks):
    return [grid for grid in itertools.product(range(1, n_ranks + 1), repeat=4)
            if grid[0] * grid[1] * grid[2] * grid[3] == n_ranks]


def program_of(build):
    """Builds of 0.1.0 have it by its older name."""
    path = os.path.join(build, "examples/train")
    return path if os.path.exists(path) else path + "_gpt"


def train(build, options):
    """What can differ, or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        command = [program_of(build), TEXT, *NETWORK, *options, "--log", log]
        env = dict(os.environ, OPENBLAS_NUM_THREADS="1")
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"exit code {done.returncode}: {done.stderr[-300:]}"
        with open(log, encoding="utf-8") as file:
            steps = [json.loads(line) for line in file]
    return [[step.get(field) for field in FIELDS] for step in steps if "loss" in step], done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 6, 8])
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    n_same = n_different = 0
    for ranks in options.ranks:
        for grid, layout, dtype in itertools.product(grids(ranks), ("replicated", "scattered"), ("f32", "f64", "bf16")):
            case = ["--local", str(ranks), "--grid", "x".join(map(str, grid)), "--layout", layout, "--dtype", dtype,
                    "--panels", "1", "--batch-parts", "1", "--steps", str(options.steps)]
            before, after = train(options.before, case), train(options.after, case)
            same = before == after and not isinstance(before, str)
            n_same += same
            n_different += not same
            if not same:
                print(" ".join(case), before, after, sep="\n    ", flush=True)
        print(f"{ranks} ranks: {n_same} the same so far, {n_different} different", flush=True)
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())
