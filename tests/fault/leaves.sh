#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# leaves.sh MPIEXEC COMMAND...: ranks that talk over TCP all come out of MPI_Finalize, each of ten times. A rank that begins to
# close its connections late hangs there with MPICH 4.0, four times in ten.
mpiexec=$1
shift
for round in 1 2 3 4 5 6 7 8 9 10; do
    UCX_TLS=tcp,self timeout 20 "$mpiexec" -n 4 "$@" >/dev/null 2>&1 </dev/null
    code=$?
    [ $code -eq 0 ] || { echo "round $round ended with $code"; exit 1; }
done
