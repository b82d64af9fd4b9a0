#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# killed.sh MPIEXEC PROGRAM WORD...: rank 1 of 3 is killed by SIGKILL while the others wait for it; the job ends within
# ten seconds, says so, and leaves no process behind.
mpiexec=$1
shift
timeout 10 "$mpiexec" -n 3 "$@" </dev/null
code=$?
[ $code -ne 124 ] || { echo "the job has not ended after ten seconds"; exit 1; }
[ $code -eq 9 ] || { echo "exit code $code, not that of the signal"; exit 1; }
for process in /proc/[0-9]*; do
    [ "$(tr '\0' ' ' 2>/dev/null <"$process/cmdline")" != "$* " ] || { echo "left behind: ${process#/proc/}"; exit 1; }
done
