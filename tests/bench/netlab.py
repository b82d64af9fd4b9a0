#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gain of panels over a network, and whether the automatic choice of panels is the best one, as Markdown.

One transformer layer (examples/transformer_layer) on four nodes that are network namespaces. First `quadrille
calibrate` writes the network's machine file, by which stacks then choose their panels. In each round every choice runs
once; the table has medians of the rounds, in milliseconds of forward and backward. Needs root; use an idle machine.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHOICES = {"no overlap": ["--overlap", "off", "--panels", "1"]}
CHOICES.update({f"{panels} panel{'s' if panels > 1 else ''}": ["--panels", str(panels)] for panels in (1, 2, 4, 8)})
CHOICES["chosen"] = []
GRIDS = {1: ["4x1x1x1", "2x2x1x1"], 2: ["2x2x2x1"]}


def in_network(arguments, command):
    """The output of a command on the nodes."""
    lab = ["sh", f"{ROOT}/tests/netlab/netlab.sh", "-q", "-n", "4", "-p", str(arguments.per_node), "-r", arguments.rate]
    run = subprocess.run([*lab, "--", *command], capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{' '.join(command)}: exit code {run.returncode}\n{run.stdout}{run.stderr}")
    return run.stdout


def calibrate(arguments, folder):
    path = os.path.join(folder, "netlab.json")
    quick = ["--quick"] if arguments.quick else []
    in_network(arguments, [f"{arguments.build}/src/quadrille", "calibrate", "--threads", "1", "-o", path, *quick])
    return path


def step_ms(arguments, options, extra):
    program = f"{arguments.build}/examples/transformer_layer"
    out = in_network(arguments, [program, "--threads", "1", "--iterations", str(arguments.iterations), "--json",
                                 *options, *extra])
    record = json.loads(out[out.index("{"):])
    return 1e3 * (record["forward_secs"] + record["backward_secs"])


def measure_case(arguments, options, extra):
    """Prints one row: medians, and what the choice costs compared with the fastest number of panels."""
    times = {name: [] for name in CHOICES}
    for _ in range(arguments.rounds):
        for name, choice in CHOICES.items():
            times[name].append(step_ms(arguments, [*options, *choice], extra))
    medians = {name: statistics.median(series) for name, series in times.items()}
    best = min((name for name in CHOICES if name not in ("chosen", "no overlap")), key=medians.get)
    ratio = statistics.median(a / b for a, b in zip(times["chosen"], times[best]))
    cells = " | ".join(f"{medians[name]:.1f}" for name in CHOICES)
    print(f"| {options[1]} | {options[3]} | {cells} | {ratio:.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Further options are passed to transformer_layer.")
    parser.add_argument("--build", default="build", help="build folder (default: build)")
    parser.add_argument("--rate", default="1gbit", help="of each link (default: 1gbit)")
    parser.add_argument("--per-node", type=int, choices=[1, 2], default=1, help="ranks of a node (default: 1)")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--iterations", type=int, default=6, help="of which each run takes the median (default: 6)")
    parser.add_argument("--machine", help="machine file of this network (default: calibrate)")
    parser.add_argument("--quick", action="store_true", help="calibrate roughly")
    arguments, extra = parser.parse_known_args()
    arguments.build = os.path.abspath(arguments.build)
    extra = extra or ["--hidden", "2048", "--heads", "16", "--ctx", "64", "--batch", "4"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["QDR_MACHINE"] = os.path.abspath(arguments.machine or calibrate(arguments, folder))
        options = " ".join(extra)
        print(f"4 nodes of {arguments.per_node}, links of {arguments.rate}, {options}; medians of {arguments.rounds} "
              f"rounds of {arguments.iterations}; load before: {os.getloadavg()[0]:.1f}\n")
        print(f"| grid | layout | {' | '.join(CHOICES)} | chosen / best |")
        print(f"|{' --- |' * (len(CHOICES) + 3)}", flush=True)
        for grid in GRIDS[arguments.per_node]:
            for layout in ("replicated", "scattered"):
                measure_case(arguments, ["--grid", grid, "--layout", layout], extra)


if __name__ == "__main__":
    main()
