#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses of one training run on two devices, step by step, compared with a run in float64.

usage: losses.py TITLE GPU-LOG CPU-LOG FLOAT64-LOG    (logs of train)
       losses.py TITLE RANKS-LOG ONE-RANK-LOG         of several ranks and of one, on GPUs, in float32

tests/dist/test_gpt.c requires the losses of float32 to be within 1e-4 of float64, relatively, at each of 50 steps, on
every grid: so must both devices, so they are within 2e-4 of each other. Prints one JSON object. Exit code 1: they are
not.
"""
import json
import math
import sys

TOLERANCE = 1e-4  # relative to float64


def read_losses(path):
    with open(path, encoding="utf-8") as file:
        return [line["loss"] for line in map(json.loads, filter(str.strip, file)) if "loss" in line]


def largest_difference(ours, others):
    """Relative; infinite if a step is missing or a loss is not a number."""
    if len(ours) != len(others) or not ours or None in ours or None in others:
        return float("inf")
    return max(abs(a - b) / abs(b) for a, b in zip(ours, others))


def compare(title, gpu, cpu, exact):
    values = {
        "steps": [len(gpu)],
        "GPU to float64": [largest_difference(gpu, exact)],
        "CPU to float64": [largest_difference(cpu, exact)],
        "GPU to CPU": [largest_difference(gpu, cpu)],
    }
    limits = {"GPU to float64": TOLERANCE, "CPU to float64": TOLERANCE, "GPU to CPU": 2 * TOLERANCE}
    ends = ["none" if loss is None else f"{loss:.6f}" for loss in gpu[:1] + gpu[-1:]]
    words = {"first and last loss on the GPU": ", ".join(ends)} if gpu else {}
    return {"benchmark": "losses", "case": title, "values": values, "bars": {}, "limits": limits, "words": words}


def compare_ranks(title, ranks, alone):
    values = {"steps": [len(ranks)], "ranks to one rank": [largest_difference(ranks, alone)]}
    return {"benchmark": "losses", "case": title, "values": values, "bars": {},
            "limits": {"ranks to one rank": 2 * TOLERANCE}, "words": {}}


def main():
    if len(sys.argv) not in (4, 5):
        print(__doc__, file=sys.stderr)
        return 2
    evaluate = compare if len(sys.argv) == 5 else compare_ranks
    result = evaluate(sys.argv[1], *(read_losses(path) for path in sys.argv[2:]))
    printed = {name: [one if math.isfinite(one) else None for one in samples]
               for name, samples in result["values"].items()}
    print(json.dumps({**result, "values": printed}, allow_nan=False))
    return 0 if all(result["values"][name][0] <= limit for name, limit in result["limits"].items()) else 1


if __name__ == "__main__":
    sys.exit(main())
