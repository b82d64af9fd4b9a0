#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a program on the fake CUDA with several seeds of its streams' delays; stops at the first that fails.
#
#   seeds.sh N PROGRAM ARGUMENT...     seeds 1 to N; QDR_TEST_FIRST_SEED=S: S to S+N-1
set -u
n=$1 seed=${QDR_TEST_FIRST_SEED:-1}
shift
last=$((seed + n - 1))
while [ "$seed" -le "$last" ]; do
    FAKE_CUDA_SEED=$seed "$@" >/dev/null
    code=$?
    if [ $code != 0 ]; then
        echo "seeds.sh: FAKE_CUDA_SEED=$seed $*: exit code $code" >&2
        exit $code
    fi
    seed=$((seed + 1))
done
