#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# leaves.sh LEAVES_MODULE MPIEXEC COMMAND...: all ranks that communicate over TCP return from MPI_Finalize, in each of
# ten runs. With MPICH 4.0, a rank that begins to close its connections late hangs there in four of ten runs.
preloads=$1${LD_PRELOAD:+:$LD_PRELOAD} mpiexec=$2
export LEAVES
shift 2
for LEAVES in on-time on-time on-time late late late apart apart apart apart; do
    UCX_TLS=tcp,self timeout 20 "$mpiexec" -n 4 env LD_PRELOAD="$preloads" "$@" >/dev/null 2>&1 </dev/null
    code=$?
    [ $code -eq 0 ] || { echo "with ranks $LEAVES it ended with $code"; exit 1; }
done
