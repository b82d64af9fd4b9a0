#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What gpu_ranks does where there is no GPU: no_gpu.sh GPU_RANKS. Ranks that are threads all end the process at once.
set -u
for round in 1 2 3 4 5; do
    for how in "2" "--threads 2" "--threads 4"; do
        # shellcheck disable=SC2086 # words
        said=$("$1" $how 2>&1)
        code=$?
        case $code$said in
        77*"there is no GPU"*) ;;
        *)
            printf 'gpu_ranks %s, round %s: exit code %s\n%s\n' "$how" "$round" "$code" "$said"
            exit 1
            ;;
        esac
    done
done
