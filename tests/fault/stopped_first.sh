#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stopped_first.sh MPIEXEC COMMAND...: rank 0 of 3, which otherwise speaks for all, is stopped forever during their
# work; the others name it, and the job ends. The command must run for a long time.
mpiexec=$1
shift
output=$(mktemp)
trap 'rm -f "$output"' EXIT
mark=stopped-first-$$

# The process of this job's rank 0; empty as long as there is none.
first_rank() {
    for folder in /proc/[0-9]*; do
        cat "$folder/environ" 2>/dev/null | tr '\0' '\n' | grep -Fxc -e "MARK=$mark" -e PMI_RANK=0 | grep -qx 2 &&
            echo "${folder#/proc/}"
    done
}

MARK=$mark QDR_TIMEOUT=2 timeout 60 "$mpiexec" -n 3 "$@" >"$output" 2>&1 </dev/null &
job=$!
for _ in 1 2 3 4 5; do
    sleep 1
    first=$(first_rank)
    [ -n "$first" ] && break
done
sleep 1
# shellcheck disable=SC2086 # nothing is no process
kill -STOP $first || { echo "rank 0 was not found"; cat "$output"; exit 1; }
wait $job
code=$?
cat "$output"
[ $code -ne 0 ] && [ $code -ne 124 ] || { echo "the job ended with $code"; exit 1; }
grep -q 'has waited 2 s .*rank 0' "$output" || { echo "nobody named rank 0"; exit 1; }
