#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The gain of overlapping collectives over a network: sh tests/bench/overlap.sh [BUILD [ROUNDS]]. Stacks of four
# transformer layers on nodes that are network namespaces with links of 200 Mbit/s, where waiting occupies no core;
# sizes at which products and collectives take about as long (on two cores of 70 to 90 GFLOP/s). Each case prints the
# table of tests/bench/overlap.c. Needs root; use an idle machine: half an hour with three rounds.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
rounds=${2:-3}
ninja -C "$build" tests/bench/overlap >/dev/null
export OPENBLAS_NUM_THREADS=1
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores; load before:" \
    "$(cut -d ' ' -f 1-3 /proc/loadavg)"
overlap() { # overlap RANKS_PER_NODE OPTION...
    per_node=$1
    shift
    echo "-- 4 nodes x $per_node: $*"
    sh tests/netlab/netlab.sh -q -n 4 -p "$per_node" -r 200mbit -- "$build/tests/bench/overlap" -n "$rounds" "$@" 2>&1
}
overlap 1 -g 1x1x4x1 -h 384 -a 6 -c 128 -b 64 -f 2
overlap 1 -g 1x1x1x4 -h 384 -a 6 -c 128 -b 72
overlap 1 -g 4x1x1x1 -h 5120 -a 40 -c 16 -b 4 -q 2
overlap 1 -g 2x2x1x1 -h 2560 -a 20 -c 16 -b 8 -q 2
overlap 2 -g 2x2x2x1 -h 512 -a 8 -c 128 -b 16 -f 2 -q 2
