#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sh tests/gpu/rehearse.sh BUILD PLUGIN CUDNN: `run.sh kernels`, for GPUs of several compute capabilities, and `run.sh
# figures`, with the programs of BUILD, on a CUDA and a cuDNN that need no GPU. Exit code 77: there is a GPU, on which
# run.sh would run.
set -u
build=$(cd "$1" && pwd -P) plugin=$2 cudnn=$3
if nvidia-smi -L >/dev/null 2>&1 || [ -e /dev/nvidia0 ]; then exit 77; fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
unset QDR_DEVICE QDR_CUDA_MEMORY QDR_FUSE_GELU QDR_ATTENTION # run.sh says them itself
wanted=products tab=$(printf '\t')
[ ! -x "$build/tests/conform/conform_device_fused" ] || wanted="products kernels-fp8 kernels-fused kernels-cudnn"
for capability in 80 89; do # the first without products in fp8, and with
    place=$folder/$capability
    mkdir "$place"
    ln -s "$build/tests" "$place/tests"
    FAKE_CUDA_CAPABILITY=$capability QDR_CUDA_PLUGIN=$plugin sh "$(dirname "$0")/run.sh" -b "$place" kernels || exit 1
    for part in $wanted; do
        grep -q "^$part${tab}ok$tab" "$place/gpu-run/parts" || { echo "rehearse.sh: $part is not done"; exit 1; }
    done
done

place=$folder/figures
mkdir "$place"
ln -s "$build/tests" "$place/tests"
QDR_CUDA_PLUGIN=$plugin QDR_CUDNN=$cudnn sh "$(dirname "$0")/run.sh" -o "$folder/out" -b "$place" figures || exit 1
for figure in "layers: hidden 32" "linear, fp8: 32x32" "training step: 1 layers" "layer, own/cuDNN"; do
    grep -q "$figure" "$place"/gpu-run/record/*.md || { echo "rehearse.sh: the record lacks $figure"; exit 1; }
done
tar tzf "$folder/out/logs.tar.gz" | grep -q training-2.log || { echo "rehearse.sh: the logs are not whole"; exit 1; }
