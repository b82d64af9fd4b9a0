#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Coded collectives over a network, as Markdown: sh tests/bench/codecs.sh [BUILD [ROUNDS [PART]]]. Nodes are network
# namespaces. PART sums: an all-reduce of 16 MiB with each codec, beside the same without one, the bytes on the links,
# and that of PyTorch over gloo with messages of f16 (if python3-torch is there). PART steps: whole steps of
# examples/train (4 layers, hidden 384, context 128). Default: both. Each round runs all codecs one after the other;
# ratios are of one round. Needs root; use an idle machine: about ten minutes per round.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
ninja -C "$build" src/quadrille examples/train >/dev/null
export OPENBLAS_NUM_THREADS=1
exec python3 - "$build" "${2:-3}" "${3:-sums steps}" <<'EOP'
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

BUILD, ROUNDS, PARTS = sys.argv[1], int(sys.argv[2]), sys.argv[3].split()
CODECS = ["raw", "int16", "bf16", "int8", "int4", "int4/128+hadamard+feedback", "zfp:8"]
PYTORCH = "/usr/bin/python3"  # Debian's, which python3-torch is for
SIZE, CALLS, WARMUP = 16 << 20, 2, 1
STEPS, CONTEXT = 8, 128
TRAIN = ["--hidden", "384", "--heads", "6", "--layers", "4", "--ctx", str(CONTEXT), "--threads", "1", "--val-every",
         "1000000", "--val-windows", "1", "--sample", "1", "--steps", str(STEPS)]
# nodes, ranks of each, rate, grid, sequences
RUNS = [(4, 1, "200mbit", "1x1x1x4", 16), (4, 1, "200mbit", "1x1x1x4", 4), (4, 1, "200mbit", "1x1x4x1", 16),
        (4, 1, "200mbit", "2x2x1x1", 16), (4, 2, "200mbit", "2x1x1x4", 16), (4, 1, "200mbit", "1x1x1x4", 72),
        (4, 1, "1gbit", "1x1x1x4", 16)]
PRESETS = ["none", "lossless", "safe", "hybrid", "aggressive"]


def in_network(nodes, ranks, rate, command):
    lab = ["sh", "tests/netlab/netlab.sh", "-n", str(nodes), "-p", str(ranks), "-r", rate, "--", *command]
    done = subprocess.run(lab, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    sent = statistics.mean(float(n) for n in re.findall(r"netlab: node \d+ sent (\d+) bytes", done.stderr))
    return done.stdout, sent


def all_reduce(nodes, ranks, rate, codec):
    """Seconds of the median call, bytes that a node has sent of one, and seconds of its codecs."""
    command = [f"{BUILD}/src/quadrille", "bench", "coll", "--grid", f"1x1x1x{nodes * ranks}", "--axis", "d", "-b",
               str(SIZE), "-e", str(SIZE), "--codec", codec, "--iterations", str(CALLS), "--warmup", str(WARMUP),
               "--json"]
    out, sent = in_network(nodes, ranks, rate, command)
    row = json.loads(out)["rows"][0]
    return row["median_secs"], sent / (CALLS + WARMUP + 1), row["codec_secs"] or 0  # and the check


def by_pytorch(nodes, ranks, rate):
    """Seconds of the median call; None: PyTorch is missing."""
    out, _ = in_network(nodes, ranks, rate, ["env", "MASTER_ADDR=10.77.0.1", "GLOO_SOCKET_IFNAME=eth0", PYTORCH,
                                             "tests/bench/gloo_all_reduce.py", str(SIZE), str(CALLS), str(WARMUP)])
    return None if out.startswith("skipped") else float(out)


def step(nodes, ranks, rate, grid, batch, preset, folder):
    """Seconds of the median step."""
    log = os.path.join(folder, "log")
    if os.path.exists(log):
        os.remove(log)
    in_network(nodes, ranks, rate, [f"{BUILD}/examples/train", *TRAIN, "--grid", grid, "--batch", str(batch),
                                    "--codec", preset, "--log", log])
    with open(log, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return statistics.median(batch * CONTEXT / line["tokens_per_s"] for line in lines if "tokens_per_s" in line)


def compare_all_reduces():
    print("| all-reduce of 16 MiB | codec | ms | without / with | MB a node sent | codec, ms | of the larger |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for nodes, ranks, rate, bits in ((4, 1, "200mbit", 2e8), (4, 2, "1gbit", 1e9)):
        rounds, peers = [], []
        for _ in range(ROUNDS):
            rounds.append({codec: all_reduce(nodes, ranks, rate, codec) for codec in CODECS})
            peers.append(by_pytorch(nodes, ranks, rate))
        for codec in CODECS:
            secs, sent, spent = (statistics.median(each[codec][i] for each in rounds) for i in range(3))
            gain = statistics.median(each["raw"][0] / each[codec][0] for each in rounds)
            larger = statistics.median(each[codec][0] / max(8 * each[codec][1] / bits, each[codec][2])
                                       for each in rounds)
            print(f"| {nodes} nodes of {ranks}, {rate} | {codec} | {1e3 * secs:.0f} | {gain:.2f} | {1e-6 * sent:.2f} | "
                  f"{1e3 * spent:.0f} | {larger:.2f} |", flush=True)
        if None in peers:
            print("\nPyTorch is missing: install python3-torch\n", flush=True)
            continue
        gains = [peer / each["int8"][0] for peer, each in zip(peers, rounds)]
        print(f"| {nodes} nodes of {ranks}, {rate} | PyTorch, gloo, f16 | {1e3 * statistics.median(peers):.0f} | | | | "
              f"int8 is {statistics.median(gains):.2f} times as fast |", flush=True)


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
if "sums" in PARTS:
    compare_all_reduces()
if "steps" in PARTS:
    compare_steps()
EOP
