#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stopped.sh MPIEXEC PROGRAM WORD...: rank 1 of 3 is stopped forever; the others name it, and the job ends.
mpiexec=$1
shift
output=$(timeout 60 "$mpiexec" -n 3 "$@" 2>&1 </dev/null)
code=$?
echo "$output"
[ $code -ne 124 ] || { echo "the job did not end"; exit 1; }
for rank in 0 2; do
    echo "$output" | grep -q "^rank $rank named rank 1$" || { echo "rank $rank said nothing"; exit 1; }
done
