#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training run on the GPU that is saved after half of its steps and continued: on the same GPU with the same bits, on
other ranks and on the CPU with losses within the tolerances of docs/numerics.md, for two devices.

usage: resumed.py TRAIN_GPT TEXT FOLDER
"""
import os
import subprocess
import sys

from losses import largest_difference, read_losses

SHAPE = ["--layers", "2", "--hidden", "64", "--heads", "4", "--ctx", "32", "--batch", "4", "--val-windows", "4",
         "--sample", "0", "--seed", "1"]
TOLERANCES = {"f32": 2e-4, "bf16": 4e-2}


def train(program, text, log, *words):
    if os.path.exists(log):
        os.remove(log)
    done = subprocess.run([program, text, "--log", log, *words], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return read_losses(log)


def check(program, text, folder, dtype, background):
    file, log = os.path.join(folder, f"resumed-{dtype}.safetensors"), os.path.join(folder, "resumed.losses")
    words = [*SHAPE, "--dtype", dtype, "--steps", "12"]
    whole = train(program, text, log, *words, "--device", "cuda")
    first = train(program, text, log, *words, "--device", "cuda", "--save", file, "--stop-after", "6",
                  "--save-background", background)
    rest = ["--resume", file, "--sample", "0", "--val-windows", "4"]
    again = train(program, text, log, *rest, "--device", "cuda")
    if first + again != whole:
        sys.exit(f"{dtype}: other bits than without a stop: {whole[5:8]}, {(first + again)[5:8]}")
    for other in (["--device", "cuda", "--local", "4", "--grid", "1x1x2x2"],
                  ["--device", "cuda", "--local", "4", "--grid", "2x1x1x2", "--levels", "zero1"], ["--device", "cpu"]):
        difference = largest_difference(train(program, text, log, *rest, *other), whole[6:])
        print(f"{dtype}, continued with {' '.join(other)}: losses differ by {difference:.1e}")
        if not difference <= TOLERANCES[dtype]:
            sys.exit(f"{dtype}, {' '.join(other)}: {difference} is more than {TOLERANCES[dtype]}")
    os.remove(file)


def main():
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    check(*sys.argv[1:], "f32", "on")
    check(*sys.argv[1:], "bf16", "off")
    return 0


if __name__ == "__main__":
    sys.exit(main())
