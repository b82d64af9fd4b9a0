#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Coded collectives over a network, as Markdown: sh tests/bench/codecs.sh [BUILD [ROUNDS]]. Nodes are network
# namespaces. First an all-reduce of 16 MiB with each codec, beside the same without one, and the bytes on the links;
# then whole steps of examples/train_gpt (4 layers, hidden 384, context 128). Each round runs all presets one after the
# other; ratios are of one round. Needs root; use an idle machine: about ten minutes per round.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
ninja -C "$build" src/quadrille examples/train_gpt >/dev/null
export OPENBLAS_NUM_THREADS=1
exec python3 - "$build" "${2:-3}" <<'EOP'
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

BUILD, ROUNDS = sys.argv[1], int(sys.argv[2])
CODECS = ["raw", "int16", "bf16", "int8", "int4", "int4/128+hadamard+feedback"]
SIZE, CALLS, WARMUP = 16 << 20, 2, 1
STEPS, CONTEXT = 8, 128
TRAIN = ["--hidden", "384", "--heads", "6", "--layers", "4", "--ctx", str(CONTEXT), "--threads", "1", "--val-every",
         "1000000", "--val-windows", "1", "--sample", "1", "--steps", str(STEPS)]
# nodes, ranks of each, rate, grid, sequences
RUNS = [(4, 1, "200mbit", "1x1x1x4", 16), (4, 1, "200mbit", "1x1x1x4", 4), (4, 1, "200mbit", "1x1x4x1", 16),
        (4, 1, "200mbit", "2x2x1x1", 16), (4, 2, "200mbit", "2x1x1x4", 16), (4, 1, "200mbit", "1x1x1x4", 72),
        (4, 1, "1gbit", "1x1x1x4", 16)]
PRESETS = ["none", "safe", "hybrid", "aggressive"]


def in_network(nodes, ranks, rate, command):
    lab = ["sh", "tests/netlab/netlab.sh", "-n", str(nodes), "-p", str(ranks), "-r", rate, "--", *command]
    done = subprocess.run(lab, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    sent = statistics.mean(float(n) for n in re.findall(r"netlab: node \d+ sent (\d+) bytes", done.stderr))
    return done.stdout, sent


def all_reduce(nodes, ranks, rate, codec):
    """Seconds of the median call, and bytes that a node has sent of one."""
    command = [f"{BUILD}/src/quadrille", "bench", "coll", "--grid", f"1x1x1x{nodes * ranks}", "--axis", "d", "-b",
               str(SIZE), "-e", str(SIZE), "--codec", codec, "--iterations", str(CALLS), "--warmup", str(WARMUP),
               "--json"]
    out, sent = in_network(nodes, ranks, rate, command)
    return json.loads(out)["rows"][0]["median_secs"], sent / (CALLS + WARMUP + 1)  # and the check


def step(nodes, ranks, rate, grid, batch, preset, folder):
    """Seconds of the median step."""
    log = os.path.join(folder, "log")
    if os.path.exists(log):
        os.remove(log)
    in_network(nodes, ranks, rate, [f"{BUILD}/examples/train_gpt", *TRAIN, "--grid", grid, "--batch", str(batch),
                                    "--codec", preset, "--log", log])
    with open(log, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return statistics.median(batch * CONTEXT / line["tokens_per_s"] for line in lines if "tokens_per_s" in line)


def compare_all_reduces():
    print("| all-reduce of 16 MiB | codec | ms | without / with | MB a node sent |")
    print("| --- | --- | --- | --- | --- |")
    for nodes, ranks, rate in ((4, 1, "200mbit"), (4, 2, "1gbit")):
        rounds = [{codec: all_reduce(nodes, ranks, rate, codec) for codec in CODECS} for _ in range(ROUNDS)]
        for codec in CODECS:
            secs = statistics.median(each[codec][0] for each in rounds)
            gain = statistics.median(each["raw"][0] / each[codec][0] for each in rounds)
            sent = statistics.median(each[codec][1] for each in rounds)
            print(f"| {nodes} nodes of {ranks}, {rate} | {codec} | {1e3 * secs:.0f} | {gain:.2f} | {1e-6 * sent:.2f} |",
                  flush=True)


def compare_steps():
    print("\n| grid, sequences | " + " | ".join(f"{preset}, s" for preset in PRESETS) + " | "
          + " | ".join(f"none / {preset}" for preset in PRESETS[1:]) + " |")
    print("| --- " * (2 * len(PRESETS)) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for run in RUNS:
            nodes, ranks, rate, grid, batch = run
            rounds = [{preset: step(*run, preset, folder) for preset in PRESETS} for _ in range(ROUNDS)]
            secs = [statistics.median(each[preset] for each in rounds) for preset in PRESETS]
            gains = [statistics.median(each["none"] / each[preset] for each in rounds) for preset in PRESETS[1:]]
            cells = " | ".join(f"{x:.2f}" for x in secs + gains)
            print(f"| {grid}, {batch}; {nodes} x {ranks}, {rate} | {cells} |", flush=True)


with open("/proc/cpuinfo", encoding="utf-8") as cpus:
    print(re.search(r"model name\s*: (.*)", cpus.read()).group(1) + f", {os.cpu_count()} cores; {ROUNDS} rounds\n")
compare_all_reduces()
compare_steps()
EOP
