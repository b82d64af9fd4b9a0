#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What codecs do to training, as Markdown: sh tests/bench/codec_loss.sh [BUILD [SEEDS [STEPS [CODECS [GRIDS]]]]]. A GPT
# of two layers on the King James Bible (examples/train, 8 sequences of 128 bytes), four ranks as 2x1x1x2 and
# 1x1x2x2, all messages coded, also those inside the node. Validation losses beside those of the same seed without
# codecs, and their means over the seeds. Then, as root, the time of a step with the ranks on four nodes (network
# namespaces, links of 200 Mbit/s). CODECS, GRIDS: some of them, separated by blanks. Half a minute a run on two cores;
# with activations in zfp (zhybrid, naive) four minutes. build/tests/bench/codec_picture draws the table.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
ninja -C "$build" examples/train >/dev/null
export OPENBLAS_NUM_THREADS=1
exec python3 - "$build" "${2:-3}" "${3:-400}" "${4:-}" "${5:-}" <<'EOP'
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

BUILD, SEEDS, STEPS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
GRIDS = sys.argv[5].split() or ["2x1x1x2", "1x1x2x2"]
# The most that the mean may be above that without codecs, in nats per byte; least: how much worse it must be.
CODECS = {"safe": (None, 0.005), "hybrid": (None, 0.005), "zhybrid": (None, 0.005), "mzhybrid": (None, 0.005),
          "aggressive": (None, 0.03), "int4/128": (0.04, None), "naive": (None, None)}


def run(grid, *words, before=()):
    command = [*before, f"{BUILD}/examples/train", "--grid", grid, "--layers", "2", "--batch", "8", "--val-every",
               "1000000", "--sample", "0", "--threads", "1", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done


def train(grid, seed, codec):
    """The validation loss of the whole validation text, and the share of bytes that was sent; NaN, if it diverged."""
    done = run(grid, "--local", "4", "--steps", str(STEPS), "--seed", str(seed), "--codec",
               codec if codec == "none" else codec + ",inside")
    loss = re.search(r"^validation loss (\S+) nats", done.stderr, re.M)
    bytes_sent = re.search(r"sent (\S+) MB instead of (\S+) MB", done.stderr)
    return float(loss[1]), float(bytes_sent[1]) / float(bytes_sent[2]) if bytes_sent else 1.0


def step_ms(grid, codec):
    """The median of 15 steps with each rank on its own node; "" where there are no network namespaces."""
    if os.geteuid() != 0:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        run(grid, "--steps", "15", "--val-windows", "1", "--codec", codec, "--log", log,
            before=["sh", "tests/netlab/netlab.sh", "-n", "4", "-r", "200mbit", "-q", "--"])
        with open(log, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    return f"{statistics.median(8 * 128e3 / line['tokens_per_s'] for line in lines if 'tokens_per_s' in line):.0f}"


def judged(codec, mean):
    least, most = CODECS[codec]
    if least is not None:
        return f"≥ {least:+g}: {'yes' if mean >= least else '**no**'}"
    if most is not None:
        return f"≤ {most:+g}: {'yes' if mean <= most else '**no**'}"
    return "reported"


base = {(grid, seed): train(grid, seed, "none")[0] for grid in GRIDS for seed in range(1, SEEDS + 1)}
spread = max(base.values()) - min(base.values())
print(f"Without codecs: {statistics.mean(base.values()):.4f} nats per byte, {spread:.3f} apart; {SEEDS} seeds, {STEPS} "
      "steps. Differences from the same seed without codecs.\n", flush=True)
print("| codecs | grid | bytes | by seed | mean | step, ms | required |\n" + "| --- " * 7 + "|", flush=True)
for grid in GRIDS:
    print(f"| none | {grid} | 1.00 | | 0 | {step_ms(grid, 'none')} | |", flush=True)
for codec in sys.argv[4].split() or CODECS:
    for grid in GRIDS:
        runs = [train(grid, seed, codec) for seed in range(1, SEEDS + 1)]
        more = [loss - base[grid, seed] for seed, (loss, _) in enumerate(runs, 1)]
        mean = statistics.mean(more)
        print(f"| {codec} | {grid} | {runs[0][1]:.2f} | {', '.join(f'{x:+.4f}' for x in more)} | {mean:+.4f} | "
              f"{step_ms(grid, codec)} | {judged(codec, mean)} |", flush=True)
EOP
