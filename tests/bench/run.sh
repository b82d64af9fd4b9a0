#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The figures of docs/benchmarks.md, as Markdown on standard output: sh tests/bench/run.sh [BUILD]. Takes about five
# minutes; use an idle machine. BUILD is a release build, by default build/.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
ninja -C "$build" tests/bench/one_rank tests/bench/bench_device tests/bench/limit examples/train >/dev/null

echo "## $(date -u +%Y-%m-%d), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
echo
"$build/src/quadrille" --version | sed 's/^/    /'
echo "    load before: $(cut -d ' ' -f 1-3 /proc/loadavg)"
echo
echo "### One rank through the library"
echo
"$build/tests/bench/one_rank" | sed 's/^/    /'
echo
echo "### Training, tokens per second"
echo
echo "The GPT of examples/run.sh, 400 steps of 512 tokens, no validation; three runs each, in turn. The limit is what"
echo "its layers' products allow if nothing else is done, on as many threads."
echo
speed() { # speed NAME COMMAND...
    name=$1
    shift
    "$@" --steps 400 --val-every 100000 --val-windows 1 --sample 1 2>&1 </dev/null >/dev/null |
        sed -n "s/^validation loss.*(\([0-9]*\) tokens.*/    $name \1/p"
}
limit() { # limit THREADS
    "$build/tests/bench/limit" "$1" | sed -n "s/^\([0-9]*\) tokens.*/    limit, $1 threads            \1/p"
}
for i in 1 2 3; do
    limit 1
    limit 2
    speed '1x1x1x1 local, one thread ' "$build/examples/train" --local 1 --threads 1 --grid 1x1x1x1
    speed '1x1x1x2 local             ' "$build/examples/train" --local 2 --grid 1x1x1x2
    speed '1x1x1x2 mpi               ' mpiexec.mpich -n 2 "$build/examples/train" --grid 1x1x1x2
    speed '2x2x1x1 local             ' "$build/examples/train" --local 4 --grid 2x2x1x1
    speed '2x2x1x1 mpi               ' mpiexec.mpich -n 4 "$build/examples/train" --grid 2x2x1x1
    speed '2x2x1x1 mpi, scattered    ' mpiexec.mpich -n 4 "$build/examples/train" --grid 2x2x1x1 --layout scattered
done | sort
echo
echo "### The device"
echo
"$build/tests/bench/bench_device" 1 | sed 's/^/    /'
