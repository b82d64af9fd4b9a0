#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the model says of codecs, compared with measured layers over a network, as Markdown:
# sh tests/bench/codec_model.sh [BUILD [ROUNDS [OPTION...]]]. Calibrates four nodes (network namespaces, links of 200
# Mbit/s), then times a transformer layer (`quadrille bench layer` with OPTIONs) on eight grids with five presets;
# medians of ROUNDS (default 3), and the error of the fastest iterations, which other work of the machine
# disturbs least. Then which preset the model would choose on each grid, beside the fastest. NODES, RANKS
# and RATE in the environment change the network. Ten minutes per round; needs root; use an idle machine.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
rounds=${2:-3}
[ $# -gt 2 ] && shift 2 || set -- --hidden 512 --context 256 --sequences 8 --iterations 2 --warmup 1
export OPENBLAS_NUM_THREADS=1 PYTHONPATH=tests/bench
ninja -C "$build" src/quadrille >/dev/null
exec python3 - "$build" "$rounds" "${NODES:-4}" "${RANKS:-1}" "${RATE:-200mbit}" "$@" <<'EOP'
import csv
import io
import os
import statistics
import subprocess
import sys
import tempfile

from fit import spearman

BUILD, ROUNDS, NODES, RANKS, RATE, OPTIONS = sys.argv[1], int(sys.argv[2]), *sys.argv[3:6], sys.argv[6:]
GRIDS = {2: ["1x1x1x2", "1x1x2x1", "2x1x1x1", "1x2x1x1"],
         4: ["1x1x1x4", "1x1x4x1", "1x1x2x2", "2x1x1x2", "1x2x1x2", "2x2x1x1", "4x1x1x1", "2x1x2x1"],
         8: ["1x1x1x8", "1x1x8x1", "1x1x2x4", "1x1x4x2", "2x1x1x4", "1x2x1x4", "2x2x1x2", "2x2x2x1"]}
PRESETS = ["none", "lossless", "safe", "hybrid", "aggressive"]


def in_network(*command):
    lab = ["sh", "tests/netlab/netlab.sh", "-q", "-n", NODES, "-p", RANKS, "-r", RATE, "--", f"{BUILD}/src/quadrille"]
    done = subprocess.run([*lab, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def accuracy(times, said):
    pairs = [(statistics.median(times[key]), said[key]) for key in times]
    return (f"MAPE {100 * statistics.mean(abs(s / m - 1) for m, s in pairs):.1f} %, mean error "
            f"{100 * statistics.mean(s / m - 1 for m, s in pairs):+.1f} %, Spearman {spearman(*zip(*pairs)):.3f}")


def main():
    grids = GRIDS[int(NODES) * int(RANKS)]
    with tempfile.TemporaryDirectory() as folder:
        machine = os.path.join(folder, "netlab.json")
        in_network("calibrate", "--threads", "1", "-o", machine)
        times, said, serial_times, serial_said, fastest = {}, {}, {}, {}, {}
        for _ in range(ROUNDS):
            for grid in grids:
                for preset in PRESETS:
                    out = in_network("bench", "layer", "--grid", grid, "--codec", preset, "--machine", machine,
                                     "--csv", "--threads", "1", *OPTIONS)
                    row = next(row for row in csv.DictReader(io.StringIO(out)) if row["pass"] == "together")
                    times.setdefault((grid, preset), []).append(float(row["median_secs"]))
                    fastest.setdefault((grid, preset), []).append(float(row["min_secs"]))
                    said[grid, preset] = float(row["predicted_secs"])
                    serial_times.setdefault((grid, preset), []).append(float(row["serial_median_secs"]))
                    serial_said[grid, preset] = float(row["serial_predicted_secs"])
    measured = {key: statistics.median(series) for key, series in times.items()}
    print(f"{NODES} nodes of {RANKS}, links of {RATE}, {' '.join(OPTIONS)}; medians of {ROUNDS} rounds, ms: measured, "
          f"model; load {os.getloadavg()[0]:.1f}\n")
    print("| grid | " + " | ".join(PRESETS) + " |\n|" + " --- |" * (1 + len(PRESETS)))
    for grid in grids:
        cells = [f"{1e3 * measured[grid, p]:.0f}, {1e3 * said[grid, p]:.0f} "
                 f"({100 * (said[grid, p] / measured[grid, p] - 1):+.0f} %)" for p in PRESETS]
        print(f"| {grid.replace('x', '×')} | " + " | ".join(cells) + " |")
    print("\n" + accuracy(times, said) + "; without overlap " + accuracy(serial_times, serial_said)
          + "; fastest iterations, with overlap " + accuracy({k: [min(v)] for k, v in fastest.items()}, said))
    for grid in grids:
        chosen = min(PRESETS, key=lambda p: said[grid, p])
        best = min(measured[grid, p] for p in PRESETS)
        slower, gain = 100 * (measured[grid, chosen] / best - 1), measured[grid, "none"] / measured[grid, chosen]
        print(f"\n{grid}: the model chooses {chosen}, which is {slower:.1f} % slower than the fastest preset and "
              f"{gain:.2f} times as fast as none")


main()
EOP
