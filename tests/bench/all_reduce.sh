#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# All-reduce of 16 MiB compared with MPI's own: sh tests/bench/all_reduce.sh [BUILD [ROUNDS]]. Inside the machine with 2
# and 4 processes; then between 4 nodes that are network namespaces, with 2 processes each and links of 1 Gbit/s (needs
# root), once alternating with MPI's own, once alone so that the bytes that the links carried can be compared with those
# that the library counted. Use an idle machine.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
rounds=${2:-51}
bytes=16777216
ninja -C "$build" tests/bench/all_reduce >/dev/null
export OPENBLAS_NUM_THREADS=1
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores; load before:" \
    "$(cut -d ' ' -f 1-3 /proc/loadavg)"
for ranks in 2 4; do
    echo "-- $ranks processes on this machine"
    mpiexec.mpich -n $ranks "$build/tests/bench/all_reduce" $bytes "$rounds" </dev/null
done
echo '-- 4 nodes x 2 processes, 1 Gbit/s'
sh tests/netlab/netlab.sh -q -n 4 -p 2 -r 1gbit -- "$build/tests/bench/all_reduce" $bytes 5
echo '-- the same without MPI_Allreduce, 10 rounds, and what the links carried'
sh tests/netlab/netlab.sh -n 4 -p 2 -r 1gbit -- "$build/tests/bench/all_reduce" -l $bytes 10 2>&1
