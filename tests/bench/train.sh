#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Whole training steps over a network, as Markdown: sh tests/bench/train.sh [BUILD [ROUNDS]]. examples/train on four
# nodes that are network namespaces with links of 200 Mbit/s, seconds per step with and without overlap, alternately;
# also the time of the step without any communication (four processes, each with its share of the sequences), and the
# minimum time for the bytes that a link carried. Needs root; use an idle machine: five minutes with three rounds.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
rounds=${2:-3}
steps=6
options="--hidden 384 --heads 6 --layers 4 --ctx 128 --threads 1 --steps $steps --val-every 100000 --val-windows 1
    --sample 1"
ninja -C "$build" examples/train >/dev/null
export OPENBLAS_NUM_THREADS=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
# Seconds per step, computed from the training time that the program prints, which excludes its start.
step_secs() { # step_secs SEQUENCES FILE...: of the slowest
    sequences=$1
    shift
    sed -n 's/^validation loss.*(\([0-9]*\) tokens.*/\1/p' "$@" | sort -g | head -n 1 |
        awk -v tokens=$((sequences * 128)) '{ print tokens / $1 }'
}
alone() { # alone SEQUENCES
    for i in 1 2 3 4; do
        # shellcheck disable=SC2086 # words
        "$build/examples/train" $options --batch $(($1 / 4)) --local 1 --grid 1x1x1x1 >/dev/null 2>"$work/alone$i" &
    done
    wait
    step_secs $(($1 / 4)) "$work"/alone?
}
on_wire() { # on_wire SEQUENCES GRID on|off
    # shellcheck disable=SC2086 # words
    sh tests/netlab/netlab.sh -n 4 -r 200mbit -- \
        "$build/examples/train" $options --batch "$1" --grid "$2" --overlap "$3" >"$work/out" 2>&1
    step_secs "$1" "$work/out"
}
# Validation and the initial weights are transferred, too: at most a hundredth of this.
wire_secs() {
    sed -n 's/^netlab: node 1 sent \([0-9]*\) bytes.*/\1/p' "$work/out" | awk -v n=$steps '{ print $1 / n / 25e6 }'
}

echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores; $rounds rounds; load before:" \
    "$(cut -d ' ' -f 1-3 /proc/loadavg)"
echo
echo '| grid, sequences | without communication, s | wire, s | no overlap, s | overlap, s | of the larger | gain |'
echo '| --- | --- | --- | --- | --- | --- | --- |'
compare() { # compare GRID SEQUENCES
    : >"$work/rounds"
    for _ in $(seq "$rounds"); do
        echo "$(alone "$2") $(on_wire "$2" "$1" off) $(on_wire "$2" "$1" on) $(wire_secs)" >>"$work/rounds"
    done
    awk '{ print $1 }' "$work/rounds" | median >"$work/compute"
    awk '{ print $4 }' "$work/rounds" | median >"$work/wire"
    echo "$1 $2 $(cat "$work/compute" "$work/wire" | tr '\n' ' ') $(awk '{ print $2 }' "$work/rounds" | median)" \
        "$(awk '{ print $3 }' "$work/rounds" | median) $(awk '{ print $2 / $3 }' "$work/rounds" | median)" |
        awk '{ larger = $3 > $4 ? $3 : $4
               printf "| %s, %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n",
                   $1, $2, $3, $4, $5, $6, $6 / larger, $7 }'
}
compare 1x1x1x4 72
compare 1x1x2x2 64
