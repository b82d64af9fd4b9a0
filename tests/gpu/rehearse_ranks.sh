#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sh tests/gpu/rehearse_ranks.sh BUILD PLUGIN: `run.sh ranks` with the programs of BUILD, on a CUDA that needs no GPU
# and connects threads. Exit code 77: there is a GPU, on which run.sh would run.
set -u
build=$(cd "$1" && pwd -P) plugin=$2
if nvidia-smi -L >/dev/null 2>&1 || [ -e /dev/nvidia0 ]; then exit 77; fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
unset QDR_DEVICE QDR_CUDA_MEMORY QDR_CUDA_COMM # run.sh says them itself
ln -s "$build/tests" "$build/examples" "$folder"
QDR_CUDA_PLUGIN=$plugin sh "$(dirname "$0")/run.sh" -b "$folder" ranks || exit 1
for subject in "2 threads, maxCTAs 2, collectives" "4 threads, maxCTAs 2, a rank is missing" \
    "GPT of 2 layers, 2-processes-1x1x2x1-recorded"; do
    grep -q "$subject" "$folder"/gpu-run/record/*.md || { echo "rehearse_ranks.sh: no \"$subject\""; exit 1; }
done
