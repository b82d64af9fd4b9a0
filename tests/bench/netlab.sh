#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The gain of overlap and panels over a network, as Markdown: sh tests/bench/netlab.sh [BUILD [RATE [OPTION...]]]. One
# transformer layer (examples/transformer_layer with OPTIONs) on four nodes that are network namespaces, one rank and
# one BLAS thread each, links of RATE (default 1gbit). Milliseconds of forward and backward together, median of 6
# iterations. Needs root; use an idle machine.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
rate=${2:-1gbit}
[ $# -gt 2 ] && shift 2 || set -- --hidden 2048 --ctx 64 --batch 4
ninja -C "$build" examples/transformer_layer >/dev/null

# step OPTION...: milliseconds, or the line that states why there are none
step() {
    sh tests/netlab/netlab.sh -q -n 4 -r "$rate" -- \
        "$build/examples/transformer_layer" --threads 1 --iterations 6 --json "$@" 2>&1 |
        python3 -c 'import json, sys; text = sys.stdin.read(); r = json.loads(text[text.index("{"):])
print("%.1f" % (1e3 * (r["forward_secs"] + r["backward_secs"])))' 2>/dev/null || echo failed
}

echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, links of $rate, $*; load before:" \
    "$(cut -d ' ' -f 1-3 /proc/loadavg)"
echo
echo '| grid | layout | no overlap | overlap | 2 panels | 4 panels | 8 panels | chosen by cost |'
echo '| --- | --- | --- | --- | --- | --- | --- | --- |'
for grid in 4x1x1x1 2x2x1x1 1x1x4x1 1x1x1x4 1x4x1x1; do
    for layout in replicated scattered; do
        case $grid-$layout in 1x1x*-scattered) continue ;; esac
        line="| $grid | $layout | $(step "$@" --grid $grid --layout $layout --overlap off --panels 1)"
        for panels in 1 2 4 8; do
            line="$line | $(step "$@" --grid $grid --layout $layout --panels $panels)"
        done
        echo "$line | $(step "$@" --grid $grid --layout $layout) |"
    done
done
