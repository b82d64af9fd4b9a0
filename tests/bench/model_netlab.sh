#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The model compared with measured layers over a network, as Markdown: sh tests/bench/model_netlab.sh [BUILD [ROUNDS
# [OPTION...]]]. Calibrates four nodes with two ranks each (network namespaces, links of 200 Mbit/s), then times a
# transformer layer (`quadrille bench layer` with OPTIONs) on all 20 grids in both layouts, ROUNDS times (default 3),
# and compares the medians with the times predicted after calibration. NODES, RANKS and RATE in the environment change
# the network; NODES=1 needs no network: all ranks are on one node. About ten minutes per round; needs root; use an idle
# machine.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
rounds=${2:-3}
[ $# -gt 2 ] && shift 2 || set -- --hidden 512 --context 256 --sequences 8 --iterations 2 --warmup 1
nodes=${NODES:-4} ranks=${RANKS:-2} rate=${RATE:-200mbit}
ninja -C "$build" src/quadrille >/dev/null
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

start() {
    if [ "$nodes" = 1 ]; then
        mpiexec.mpich -n "$ranks" "$build/src/quadrille" "$@" </dev/null
    else
        sh tests/netlab/netlab.sh -q -n "$nodes" -p "$ranks" -r "$rate" -- "$build/src/quadrille" "$@"
    fi
}

echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $nodes nodes of $ranks ranks," \
    "$rate; $rounds rounds of $*; load before: $(cut -d ' ' -f 1-3 /proc/loadavg)"
echo
echo '```'
start calibrate -o "$work/machine.json"
echo '```'
for round in $(seq "$rounds"); do
    for layout in replicated scattered; do
        start bench layer --grid all --layout "$layout" --machine "$work/machine.json" --csv "$@" \
            >"$work/$round-$layout.csv"
    done
done
PYTHONPATH=tests/bench python3 - "$work"/*.csv <<'EOP'
import csv, statistics, sys

from fit import spearman

rows = {}
for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["pass"] == "together":
                rows.setdefault((row["grid"], row["layout"]), []).append(row)


def figures(pairs):
    measured, said = [m for m, _ in pairs], [s for _, s in pairs]
    chosen = min(range(len(said)), key=said.__getitem__)
    mape = statistics.mean(abs(s / m - 1) for m, s in pairs)
    return (f"Spearman {spearman(measured, said):.3f}, MAPE {100 * mape:.1f} %, median of model / measured "
            f"{statistics.median(s / m for m, s in pairs):.3f}, "
            f"regret {100 * (measured[chosen] / min(measured) - 1):.1f} %")


def medians(key, measured, said):
    return [statistics.median(float(row[name]) for row in rows[key]) for name in (measured, said)]


overlapped = {key: medians(key, "median_secs", "predicted_secs") for key in rows}
serial = {key: medians(key, "serial_median_secs", "serial_predicted_secs") for key in rows}
print("\n| grid | layout | measured, ms | model, ms | error | no overlap, ms | model, ms | error |")
print("| --- | --- | --- | --- | --- | --- | --- | --- |")
for key in sorted(rows, key=lambda key: overlapped[key][0]):
    cells = [f"{1e3 * m:.0f} | {1e3 * s:.0f} | {100 * (s / m - 1):+.1f} %" for m, s in (overlapped[key], serial[key])]
    print(f"| {key[0].replace('x', '×')} | {key[1]} | {' | '.join(cells)} |")
print("\nAll:", figures(list(overlapped.values())))
for layout in ("replicated", "scattered"):
    print(f"\n{layout.capitalize()}:", figures([pair for key, pair in overlapped.items() if key[1] == layout]))
print("\nWithout overlap:", figures(list(serial.values())))
EOP
echo
echo "Load after: $(cut -d ' ' -f 1-3 /proc/loadavg)"
