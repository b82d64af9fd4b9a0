#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sh tests/gpu/build.sh FOLDER [NCCL]: builds the programs of run.sh in FOLDER; NCCL: the folder of its include and lib.
# A file that does not compile affects only its own program.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=$1 nccl_home=${2:-}
wanted="lib/libquadrille_cuda.so examples/train examples/transformer_layer examples/own_operation_gpu
tests/conform/conform_comm tests/conform/conform_coded tests/dist/test_share tests/dist/test_activations
tests/dist/test_linear tests/dist/test_gpt tests/dist/test_stack tests/dist/test_norm tests/dist/test_optim
tests/dist/test_tokens tests/dist/test_checkpoint tests/dist/test_redistribute tests/dist/test_coll
tests/dist/test_values tests/gpu/gpu_info tests/gpu/gpu_products tests/gpu/gpu_codec
tests/gpu/gpu_kernels_attention tests/gpu/gpu_kernels_codec
tests/gpu/gpu_kernels_elements tests/gpu/gpu_kernels_losses
tests/conform/conform_device_attention tests/conform/conform_device_fp8 tests/conform/conform_device_fused
tests/gpu/gpu_layers tests/gpu/gpu_training tests/gpu/gpu_fp8 tests/gpu/gpu_units
tests/gpu/gpu_linear tests/gpu/gpu_host_cost tests/gpu/gpu_block tests/gpu/gpu_graph tests/gpu/gpu_ranks
tests/common/boot_train"

[ -f "$build/build.ninja" ] ||
    meson setup "$build" --buildtype=release -Dwerror=false -Dcuda=enabled -Dnccl="$nccl_home" -Dmpi=auto || exit 1
ninja -C "$build" -t targets all | cut -d: -f1 >"$build/gpu-targets"
targets=
for target in $wanted; do
    if grep -qx "$target" "$build/gpu-targets"; then
        targets="$targets $target"
    else
        echo "there is no target $target"
    fi
done
# shellcheck disable=SC2086 # words
ninja -C "$build" -k 0 $targets
