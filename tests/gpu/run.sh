#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a GPU: builds, checks, measures, and writes a record, within eight minutes. See usage below.
set -u
usage() {
    cat <<'END'
usage: sh tests/gpu/run.sh [-o FOLDER] [-b BUILD] [PART...]

Builds everything that needs a GPU, checks it, measures it, and writes a record: a Markdown file and a compressed JSON
file named after the GPU, the date and the minute, which never replace others. Takes eight minutes at most, and
continues after a failure. Exit code 1 if a part failed, or one that was named cannot run; figures that do not meet
their requirement are listed at the end, and are not failures. The record is written after each part, and all logs
become one archive, so both are there even if a later part fails or a signal ends the run (and its parts).

  -o FOLDER   where the record and the archive logs.tar.gz go (default: docs/benchmarks/gpu, and the archive stays with
              the logs)
  -b BUILD    where to build (default: build-gpu); logs go to BUILD/gpu-run

parts, all of them by default, in this order:
  build       the plugin, tests, examples and programs of tests/gpu
  kernels     products and kernels of the GPU compared with the CPU's
  graph       the bits of a recorded step compared with an enqueued one; the time of both
  nccl        the library's assumptions about NCCL, with one rank
  correct     communicators, layers on all grids of 8, GPT, stack, norm, optimizer, ... with 8 ranks on one GPU
  sanitize    compute-sanitizer's memcheck on a small training run, racecheck on the kernels
  losses      losses of a training run on the GPU, on the CPU, and in float64
  checkpoint  a training run that is saved, and continued on the GPU, on other ranks, and on the CPU
  codec       codecs compared with a copy on the GPU; first, their bits with the CPU's
  linear      a linear layer compared with the fastest algorithms of cuBLASLt
  host        the host's time for enqueueing
  layer       a transformer layer compared with PyTorch's, with own attention, and with cuDNN's if it is found
  overlap     overlap of collectives with products, in a trace
  ranks       at most four minutes: NCCL and the suites with two and four ranks on one GPU, training on two compared
              with one. Needs NCCL 2.30 or later: build-nccl (or QDR_TEST_NCCL), a folder that tests/gpu/thin_nccl.py
              has filled
  figures     at most four minutes: products on fewer multiprocessors and in fp8, layers of three contexts with own
              attention and cuDNN's, a training step beside PyTorch's; with clocks and power

kernels, correct, sanitize and the suites of ranks use managed memory, since they read results in place; the others
do not.

Needs a GPU of compute capability 8.0 or later, its driver, CUDA's toolkit (nvcc, cudart, cublasLt, NVTX; CUDA_HOME),
NCCL (the toolkit's, the system's, or nvidia-nccl of pip), jansson, zlib, meson, ninja, python3, a C and a C++ compiler;
cmocka for most of `kernels`. MPI, hwloc and OpenBLAS may be absent. Without root: QDR_TEST_DEPS names a folder of
unpacked Debian packages (libjansson-dev, libjansson4, zlib1g-dev, zlib1g, libcmocka-dev, libcmocka0). QDR_CUDNN names
cuDNN's file, if it is not found. Of several GPUs the first one in CUDA_VISIBLE_DEVICES is used. Without a GPU nothing
runs, unless QDR_CUDA_PLUGIN names a plugin that needs none: then the checks run, nothing is measured, and the record
goes to BUILD/gpu-run/record.
END
}
caller=$PWD
cd "$(dirname "$0")/../.." || exit 2
absolute() { case $1 in /*) printf '%s' "$1" ;; *) printf '%s' "$caller/$1" ;; esac; }
# shellcheck source=tests/gpu/find.sh
. tests/gpu/find.sh

# Checks come first: parts for which no time remains are not run.
all_parts="build kernels graph nccl correct sanitize losses checkpoint codec linear host layer overlap ranks figures"
measured="graph nccl codec linear host layer overlap sanitize" # they make no sense without a GPU
output=docs/benchmarks/gpu build=build-gpu secs_in_all=470 library_path=
archive='' grow='' is_recorded='' # nothing is recorded yet
while getopts o:b:h-: option; do
    case $option${OPTARG:-} in
    o*) output=$(absolute "$OPTARG") archive=$output/logs.tar.gz ;;
    b*) build=$(absolute "$OPTARG") ;;
    h | -help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
done
shift $((OPTIND - 1))
for part; do
    case " $all_parts " in
    *" $part "*) ;;
    *) say "run.sh: there is no part \"$part\"; the parts are: $all_parts" && exit 2 ;;
    esac
done
parts=" ${*:-$all_parts} " named=" $* "

began=$(date +%s)
work=$build/gpu-run
running='' n_running=0 most_running=4

# ---- running parts ----

secs_left() { echo $((secs_in_all - $(date +%s) + began)); }

# run_one NAME SECONDS COMMAND...: its output goes to NAME.log, its standard output, if it measures, to *.jsonl. Prints
# one line.
run_one() {
    name=$1 limit=$2 start=$(date +%s) left=$(secs_left) result=ok note=
    shift 2
    [ "$limit" -le "$left" ] || limit=$left
    if [ "$limit" -lt 5 ]; then
        result="FAILED" note="not run: the time is over"
    else
        timeout -k 5 "$limit" "$@" >"$work/$name.log" 2>&1 </dev/null &
        wait $!
        code=$?
        [ $code = 0 ] || result=FAILED
        [ $code != 124 ] || note="stopped after $limit s"
        [ $code = 0 ] || [ -n "$note" ] || note=$(tail -n 1 "$work/$name.log" | tr '\t' ' ' | cut -c 1-200)
    fi
    secs=$(($(date +%s) - start))
    printf '%s\t%s\t%d\t%s\n' "$name" "$result" "$secs" "$note" >>"$work/parts"
    printf '%-24s %s, %d s%s\n' "$name" "$result" "$secs" "${note:+: $note}"
    [ "$result" = ok ] || [ ! -f "$work/$name.log" ] || tail -n 12 "$work/$name.log" | cut -c 1-300 | sed 's/^/    /'
}

# The same in the background; join waits for all of them.
start() {
    (
        trap 'end_parts; exit 143' HUP TERM
        run_one "$@"
    ) &
    running="$running $!" n_running=$((n_running + 1))
    [ $n_running -lt $most_running ] || join
}
join() {
    wait
    running='' n_running=0
}

# Records what has been done so far; the record grows with each part.
write_record() {
    # shellcheck disable=SC2086 # no word or one
    python3 tests/gpu/record.py $grow "$work" "$output" >"$work/record.log" 2>&1 || return 1
    grow=--grow
    tar czf "$archive" -C "$work" --exclude=./logs.tar.gz --exclude=./record . 2>>"$work/record.log"
}

# `timeout` passes a signal on to the program and to everything that it has started.
end_parts() {
    trap '' HUP INT TERM
    # shellcheck disable=SC2086 # numbers
    kill $running ${!-} 2>/dev/null
    wait
}

# stop CODE: exits after the running parts have ended, with a record of those that had ended before.
stop() {
    end_parts
    [ -z "$is_recorded" ] || write_record
    exit "$1"
}

# measure NAME SECONDS COMMAND...: alone on the GPU; its standard output are results.
measure() {
    name=$1 limit=$2
    shift 2
    # shellcheck disable=SC2016 # for the inner shell
    run_one "$name" "$limit" sh -c 'file=$1; shift; "$@" >"$file" || { cat "$file" >&2; exit 1; }' - \
        "$work/$name.jsonl" "$@"
}

# skip NAME REASON: a part that was named has failed.
skip() {
    result=skipped
    case $named in *" $1 "*) result=FAILED ;; esac
    printf '%s\t%s\t0\t%s\n' "$1" "$result" "$2" >>"$work/parts"
    printf '%-24s %s: %s\n' "$1" "$result" "$2"
}

# ---- the parts ----

part_build() { run_one build 240 sh tests/gpu/build.sh "$build" "$nccl_home"; }

part_kernels() {
    run_one products 60 "$build/tests/gpu/gpu_products"
    for name in elements losses attention codec fp8 fused cudnn; do
        # What nvcc compiled, without the plugin:
        case $fake$name in 1elements | 1losses | 1attention | 1codec) continue ;; esac
        program=$build/tests/gpu/gpu_kernels_$name device=cpu
        case $name in fp8 | fused) program=$build/tests/conform/conform_device_$name device=cuda ;; esac
        [ $name != cudnn ] || program=$build/tests/conform/conform_device_attention device=cuda
        if [ ! -x "$program" ]; then
            skip "kernels-$name" "not built; it needs cmocka"
        else
            attention=own aligned=
            [ $name != cudnn ] || attention=cudnn aligned=QDR_TEST_ALIGNED=1
            start "kernels-$name" 60 env QDR_DEVICE=$device QDR_CUDA_MEMORY=managed QDR_ATTENTION=$attention $aligned \
                "$program"
        fi
    done
    join
}

part_correct() {
    tests=$build/tests
    export QDR_DEVICE=cuda QDR_CUDA_MEMORY=managed
    for n in 1 2 4 8; do start comm-$n 60 "$tests/conform/conform_comm" --local $n; done
    for n in 4 6; do start coded-$n 60 "$tests/conform/conform_coded" --local $n; done
    for check in sweep bitwise bytes; do start linear-$check 110 "$tests/dist/test_linear" $check --ranks 8; done
    start gpt-f32 110 "$tests/dist/test_gpt" --ranks 8 --dtype f32 --steps 5
    start gpt-bf16 60 "$tests/dist/test_gpt" --ranks 8 --grid 1x2x2x2 --dtype bf16 --steps 5
    for name in stack norm optim tokens redistribute coll values share activations; do
        start $name 90 "$tests/dist/test_$name" --local 8
    done
    unset QDR_CUDA_MEMORY # what follows reads nothing in place
    head -c 20000 "$text" >"$work/short.txt"
    # shellcheck disable=SC2086 # words
    start device-train 60 "$build/examples/train" "$work/short.txt" --local 8 --grid 2x2x2x1 $tiny \
        --batch 8 --steps 3
    # shellcheck disable=SC2086 # words
    start device-codec 60 "$build/examples/train" "$work/short.txt" --local 8 --grid 2x1x2x2 $tiny \
        --batch 8 --steps 3 --codec aggressive,least=1K,inside
    start device-layer 60 "$build/examples/transformer_layer" --local 8 --grid 2x2x1x2 --layout scattered --dtype bf16 \
        --hidden 128 --heads 4 --ctx 64 --batch 8 --iterations 2
    start own-operation 60 "$build/examples/own_operation_gpu" 2x2x2x1
    join
    unset QDR_DEVICE
}

part_graph() { measure graph 60 "$build/tests/gpu/gpu_graph"; }
part_nccl() {
    measure nccl 60 env NCCL_DEBUG=WARN NCCL_DEBUG_FILE="$work/nccl-warnings.log" "$build/tests/gpu/gpu_ranks" 1
}

# Ranks that share the GPU, which NCCL allows from 2.30 on: processes that take turns, then threads, which need more of
# the environment (docs/gpu.md). A rehearsal has threads only, each with a GPU where processes are meant. Whatever hangs
# is stopped early.
part_ranks() {
    in_all=$secs_in_all brief=30 long=60
    if [ -n "$fake" ]; then
        brief=300 long=300 # a busy machine
    elif [ "$(secs_left)" -gt 240 ]; then
        secs_in_all=$(($(date +%s) - began + 240))
    fi
    if use_shared_nccl; then
        ranks_by_ways
        ranks_of_training
        ranks_as_threads
        ranks_of_nccl
        ranks_of_suites
    fi
    secs_in_all=$in_all
}

# The library for shared GPUs, unpacked.
use_shared_nccl() {
    folder=$(absolute "${QDR_TEST_NCCL:-$PWD/build-nccl}") gpu_ranks=$build/tests/gpu/gpu_ranks sharing=QDR_TIMEOUT=20
    if [ -n "$fake" ]; then
        gpu_ranks="$build/tests/fake_cuda/fake_gpu_ranks --threads"
        sharing="$sharing QDR_TEST_BOOT=threads FAKE_CUDA_SMS=132 FAKE_NCCL_VERSIONS=23007 FAKE_CUDA_GPUS=8"
        return 0
    fi
    [ -f "$folder/libnccl.so.2.xz" ] || {
        skip ranks "there is no $folder/libnccl.so.2.xz; tests/gpu/thin_nccl.py writes it"
        return 1
    }
    mkdir -p "$build-nccl"
    python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"))' \
        "$folder/libnccl.so.2.xz" "$build-nccl/libnccl.so.2" || {
        skip ranks "$folder/libnccl.so.2.xz cannot be unpacked"
        return 1
    }
    sharing="$sharing NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,P2P"
    sharing="$sharing LD_LIBRARY_PATH=$(cd "$build-nccl" && pwd -P):$LD_LIBRARY_PATH"
}

# on_one_gpu HOW NAME SECONDS COMMAND...: HOW is measure, run_one or start; NCCL's logs are nccl-NAME.PID.
on_one_gpu() {
    how=$1 title=$2 limit=$3
    shift 3
    # shellcheck disable=SC2086 # words
    $how "$title" "$limit" env $sharing NCCL_DEBUG_FILE="$work/nccl-$title.%p" "$@"
}
is_ok() { awk -F '\t' -v name="$1" '$1 == name && $2 == "ok" { found = 1 } END { exit !found }' "$work/parts"; }

# The first way that works is the one for all that follows.
ranks_by_ways() {
    for way in '' NCCL_CUMEM_ENABLE=0 NCCL_P2P_DISABLE=1; do
        # shellcheck disable=SC2086 # words
        on_one_gpu measure "ranks-2${way:+-$way}" "$long" $way $gpu_ranks 2
        is_ok "ranks-2${way:+-$way}" && break
    done
    sharing="$sharing $way"
}

ranks_of_nccl() {
    # shellcheck disable=SC2086 # words
    on_one_gpu measure ranks-4 "$long" $gpu_ranks 4
    # shellcheck disable=SC2086 # words
    on_one_gpu measure ranks-10-ctas "$brief" $gpu_ranks --short --ctas 10 2
    # How many multiprocessors sends and receives take, if a communicator may use 10.
    channels=$(sed -n 's/.* \([0-9]*\) p2p channels,.*/\1/p' "$work"/nccl-ranks-10-ctas.* 2>/dev/null | sort -nu |
        tr '\n' ' ')
    printf '{"benchmark": "NCCL", "case": "%s", "values": {}, "bars": {}, "limits": {}, "words": {"%s": "%s"}}\n' \
        "stem and parts with maxCTAs 10" "p2p channels" "${channels:-not said}" >"$work/channels.jsonl"
}

# train_ranks NAME PROGRAM WORD...: the losses compared with those of one rank.
train_ranks() {
    ranks=$1
    shift
    # shellcheck disable=SC2086 # words
    on_one_gpu run_one "train-$ranks" "$brief" "$@" $shape --log "$work/train-$ranks.losses"
    [ "$ranks" = one-rank ] || measure "losses-$ranks" 10 python3 tests/gpu/losses.py "GPT of 2 layers, $ranks" \
        "$work/train-$ranks.losses" "$work/train-one-rank.losses"
}
ranks_of_training() {
    head -c 20000 "$text" >"$work/short.txt"
    shape="--hidden 128 --heads 4 --ctx 64 --steps 10"
    [ -z "$fake" ] || shape="--hidden 32 --heads 2 --ctx 16 --steps 3"
    shape="$shape --layers 2 --batch 4 --seed 1 --sample 0 --device cuda"
    boot=$build/tests/common/boot_train
    train_ranks one-rank "$build/examples/train" "$work/short.txt"
    train_ranks 2-processes-2x1x1x1 "$boot" "$work/short.txt" --local 2 --grid 2x1x1x1
    train_ranks 2-processes-1x1x2x1 "$boot" "$work/short.txt" --local 2 --grid 1x1x2x1
    train_ranks 2-processes-1x1x2x1-recorded "$boot" "$work/short.txt" --local 2 --grid 1x1x2x1 --graph on
}

# No suites: they free managed memory, which waits for all kernels of the process, so for another rank's collective,
# too, which may wait for the rank that frees.
ranks_as_threads() {
    of_processes=$sharing
    sharing="$sharing QDR_CUDA_COMM=nccl NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_LAUNCH_ORDER_IMPLICIT=0 QDR_NCCL_MAX_CTAS=2"
    sharing="$sharing CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32"
    [ -z "$fake" ] || sharing="$sharing FAKE_CUDA_GPUS=1"
    # shellcheck disable=SC2086 # words
    on_one_gpu measure ranks-2-threads "$brief" ${gpu_ranks% --threads} --threads 2
    train_ranks 2-threads-2x1x1x1 "$build/examples/train" "$work/short.txt" --local 2 --grid 2x1x1x1
    train_ranks 2-threads-1x1x2x1 "$build/examples/train" "$work/short.txt" --local 2 --grid 1x1x2x1
    sharing=$of_processes
}

# Several at once: most of their time passes while communicators are made.
ranks_of_suites() {
    of_others=$sharing
    sharing="$sharing QDR_DEVICE=cuda QDR_CUDA_MEMORY=managed" # they read results in place
    tests=$build/tests
    on_one_gpu start comm-2-processes "$long" "$tests/conform/conform_comm" --boot 2
    on_one_gpu start linear-2-processes "$long" "$tests/dist/test_linear" sweep --boot 2
    on_one_gpu start redistribute-2-processes "$long" "$tests/dist/test_redistribute" --boot 2
    on_one_gpu start coded-2-processes "$long" "$tests/conform/conform_coded" --boot 2
    on_one_gpu start gpt-2-processes "$long" "$tests/dist/test_gpt" --boot 2 --dtype f32 --steps 2
    on_one_gpu start stack-2-processes "$long" "$tests/dist/test_stack" --boot 2
    on_one_gpu start comm-4-processes "$long" "$tests/conform/conform_comm" --boot 4
    join
    sharing=$of_others
}

part_sanitize() {
    sanitizer=$(find_sanitizer) || { skip sanitize "there is no compute-sanitizer"; return; }
    head -c 3000 "$text" >"$work/tiny.txt"
    start sanitize-memcheck 100 "$sanitizer" --tool memcheck --error-exitcode 9 "$build/examples/train" \
        "$work/tiny.txt" --device cuda --local 2 --grid 2x1x1x1 --layers 1 --hidden 256 --heads 4 --ctx 64 \
        --dtype bf16 --batch 2 --steps 1 --sample 0 --val-windows 2
    # Of the kernels alone, whose names are in no namespace: with products of cuBLAS the sanitizer failed on an H200.
    for name in codec losses elements; do race_check "$name" "sanitize-$name" 90; done
    # As a whole, those of attention never ended.
    for piece in 0 1 2 3 4 5 6 7; do race_check attention "sanitize-attention-$piece" 60 QDR_TEST_PIECE=$piece/8; done
    join
}

# race_check KERNELS NAME SECONDS [VARIABLE=VALUE]
race_check() {
    program=$build/tests/gpu/gpu_kernels_$1
    [ -x "$program" ] || { skip "$2" "not built; it needs cmocka"; return; }
    start "$2" "$3" env QDR_TEST_SHORT=1 QDR_DEVICE=cpu QDR_CUDA_MEMORY=managed ${4:+"$4"} "$sanitizer" \
        --tool racecheck --kernel-name kns=_GLOBAL__N_ --error-exitcode 9 "$program"
}

# Compared with the fastest algorithms: the library with those that it uses by default, and with those that it finds by
# measuring.
part_linear() {
    measure linear 60 "$build/tests/gpu/gpu_linear"
    measure linear-tuned 90 env QDR_TUNE="$work/tune.json" "$build/tests/gpu/gpu_linear"
}
part_codec() { measure codec 60 "$build/tests/gpu/gpu_codec"; }
part_host() { measure host-cost 30 "$build/tests/gpu/gpu_host_cost"; }

# Alternately, so that both run in the same state of the GPU.
part_layer() {
    measure layer-not-tuned 60 env QDR_ATTENTION=own "$build/tests/gpu/gpu_block"
    measure layer-gelu-by-kernels 60 env QDR_ATTENTION=own QDR_FUSE_GELU=0 "$build/tests/gpu/gpu_block"
    for round in 1 2; do
        measure layer-$round 60 env QDR_TUNE="$work/tune.json" QDR_ATTENTION=own "$build/tests/gpu/gpu_block"
        measure layer-cudnn-$round 60 env QDR_TUNE="$work/tune.json" QDR_ATTENTION=cudnn "$build/tests/gpu/gpu_block"
        beside_torch layer-torch-$round 60 tests/gpu/layer_torch.py
    done
}

# beside_torch NAME SECONDS SCRIPT [WORD...]: PyTorch's figures, if it is installed.
beside_torch() {
    if LD_LIBRARY_PATH="$caller_library_path" python3 -c 'import torch' 2>/dev/null; then
        name=$1 limit=$2
        shift 2
        measure "$name" "$limit" env LD_LIBRARY_PATH="$caller_library_path" python3 "$@"
    else
        skip "$1" "python3 has no torch"
    fi
}

part_overlap() {
    for grid in 2x1x1x1 1x1x2x1; do
        rm -f "$work/trace-$grid".*
        QDR_TRACE=$work/trace-$grid run_one trace-$grid 60 "$build/examples/transformer_layer" --device cuda --local 2 \
            --grid $grid --layout scattered --panels 4 --hidden 4096 --heads 32 --ctx 2048 --batch 4 --dtype bf16 \
            --iterations 4
        measure overlap-$grid 30 python3 tests/gpu/overlap.py \
            "$grid scattered, 4 panels, layer of hidden 4096, 2 ranks on one GPU" \
            "$work/trace-$grid.0" "$work/trace-$grid.1"
    done
}

# Each sample of a program's alternatives is taken beside the others', with the GPU's clock and power. Without a GPU the
# same programs run small shapes, except for those that call cuBLASLt themselves.
part_figures() {
    in_all=$secs_in_all
    [ "$(secs_left)" -le 240 ] || secs_in_all=$(($(date +%s) - began + 240))
    products="8192 8192 8192 16384 4096 4096" training="8 1600 25 1024 8 50304"
    layers="4096x32x2048x4 4096x32x8192x1 4096x32x1024x8"
    [ -z "$fake" ] || products="32 32 32" training="1 32 2 8 2 32" layers="32x2x8x2"
    units=$(sed -n 's/.*"sms": *\([0-9]*\).*/\1/p' "$work/info.json" 2>/dev/null)
    # shellcheck disable=SC2086 # words
    if [ -n "$fake" ]; then
        skip units "no GPU"
    else
        measure units 60 "$build/tests/gpu/gpu_units" "$units,$((units - 8)),$((units - 16))" $products
    fi
    # shellcheck disable=SC2086 # words
    measure fp8 40 "$build/tests/gpu/gpu_fp8" $products
    for shape in $layers; do
        # shellcheck disable=SC2046 # words
        measure "layers-$shape" 40 env QDR_TUNE="$work/tune.json" "$build/tests/gpu/gpu_layers" \
            $(echo "$shape" | tr x ' ')
    done
    for round in 1 2; do
        # shellcheck disable=SC2086 # words
        measure training-$round 40 env QDR_TUNE="$work/tune.json" "$build/tests/gpu/gpu_training" $training
        # shellcheck disable=SC2086 # words
        beside_torch training-torch-$round 40 tests/gpu/training_torch.py $training
    done
    secs_in_all=$in_all
}

part_losses() {
    shape="--layers 2 --hidden 128 --heads 4 --ctx 64 --batch 4 --steps 50 --seed 1 --sample 0 --val-windows 4"
    # shellcheck disable=SC2086 # words
    for run in "cuda --dtype f32" "cuda --dtype f32 --graph on" "cpu --dtype f32" "cpu --dtype f64"; do
        name=train-$(echo "$run" | sed 's/ *--[a-z]* */-/g')
        start $name 90 "$build/examples/train" "$text" $shape --device $run --log "$work/$name.losses"
    done
    join
    for run in cuda-f32 cuda-f32-on; do
        measure losses-$run 20 python3 tests/gpu/losses.py \
            "GPT of 2 layers, hidden 128, 50 steps, $run (on: steps recorded)" \
            "$work/train-$run.losses" "$work/train-cpu-f32.losses" "$work/train-cpu-f64.losses"
    done
}

part_checkpoint() {
    start checkpoint-ranks 90 env QDR_DEVICE=cuda "$build/tests/dist/test_checkpoint" --local 4
    start checkpoint-resumed 90 python3 tests/gpu/resumed.py "$build/examples/train" "$text" "$work"
    join
}

# ---- the run ----

# fact NAME COMMAND...: the first line of the command's output.
fact() {
    name=$1
    shift
    line=$("$@" 2>/dev/null | head -n 1)
    printf '%s\t%s\n' "$name" "${line:-unknown}" >>"$work/facts"
}
nvcc_version() { "$nvcc" --version | sed -n 's/.*release.*V/V/p'; }
cpu_name() { sed -n 's/^model name[^:]*: //p' /proc/cpuinfo; }
commit_name() { echo "${QDR_TEST_COMMIT:-$(git rev-parse HEAD 2>/dev/null)}"; }
torch_version() { python3 -c 'from importlib.metadata import version; print(version("torch"))'; }

note_facts() {
    : >"$work/facts"
    [ -n "$fake" ] || fact GPU nvidia-smi -i "$gpu" --query-gpu=name --format=csv,noheader
    fact date date -u '+%Y-%m-%d %H:%M UTC'
    fact commit commit_name
    [ -n "$fake" ] || fact driver nvidia-smi --query-gpu=driver_version --format=csv,noheader
    fact nvcc nvcc_version
    fact NCCL nccl_version
    fact PyTorch torch_version
    fact processor cpu_name
    fact cores nproc
    [ ! -x "$build/tests/gpu/gpu_info" ] || "$build/tests/gpu/gpu_info" >"$work/info.json" 2>"$work/info.log" ||
        say "$(cat "$work/info.log")"
}

trap 'stop 129' HUP
trap 'stop 130' INT
trap 'stop 143' TERM
mkdir -p "$work"
work=$(cd "$work" && pwd -P)
rm -f "$work"/*.jsonl "$work"/*.log "$work"/*.losses "$work"/nccl-* "$work"/parts "$work"/info.json \
    "$work"/tune.json "$work"/logs.tar.gz
archive=${archive:-$work/logs.tar.gz}
mkdir -p "$(dirname "$archive")"
: >"$work/parts"
text=$work/text.txt
cat README.md docs/*.md >"$text"
tiny="--layers 1 --hidden 64 --heads 4 --ctx 32 --sample 0"
caller_library_path=${LD_LIBRARY_PATH:-}
export OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
cudnn=$(python_folder nvidia.cudnn)/lib/libcudnn.so.9 # PyTorch's
[ -n "${QDR_CUDNN:-}" ] || [ ! -e "$cudnn" ] || export QDR_CUDNN="$cudnn"

[ -z "${QDR_TEST_DEPS:-}" ] || use_folder "$(absolute "$QDR_TEST_DEPS")" || exit 1
[ -z "${QDR_CUDA_PLUGIN:-}" ] || QDR_CUDA_PLUGIN=$(absolute "$QDR_CUDA_PLUGIN")
case ${QDR_CUDNN:-} in */*) QDR_CUDNN=$(absolute "$QDR_CUDNN") && export QDR_CUDNN ;; esac
nvcc='' nccl_home=''
find_cuda "$build-cuda" || say "CUDA's toolkit was not found whole"
need_all || exit 1
say "CUDA: $CUDA_HOME; NCCL $(nccl_version)${nccl_home:+: $nccl_home}"
library_path=$library_path${caller_library_path:+:$caller_library_path}
export LD_LIBRARY_PATH="$library_path"

# Without a GPU the checks run on the plugin named by QDR_CUDA_PLUGIN, which needs none, and nothing is measured: a
# rehearsal.
fake=
if ! nvidia-smi -L >/dev/null 2>&1 && [ ! -e /dev/nvidia0 ]; then
    [ -n "${QDR_CUDA_PLUGIN:-}" ] || { say "there is no GPU here (nvidia-smi -L finds none); nothing was run"; exit 1; }
    fake=1 output=$work/record
fi
# One GPU, of any number, with the same number as in nvidia-smi.
gpu=${CUDA_VISIBLE_DEVICES:-0} gpu=${gpu%%,*}
[ -n "$fake" ] || export CUDA_VISIBLE_DEVICES="$gpu" CUDA_DEVICE_ORDER=PCI_BUS_ID
# runs PART: whether it was requested, and can run here.
runs() {
    case $parts in *" $1 "*) ;; *) return 1 ;; esac
    case $fake" $measured " in 1*" $1 "*) skip "$1" "no GPU" && return 1 ;; esac
}

runs build && part_build
QDR_CUDA_PLUGIN=${QDR_CUDA_PLUGIN:-$(cd "$build" && pwd -P)/lib/libquadrille_cuda.so}
export QDR_CUDA_PLUGIN
note_facts
is_recorded=1
write_record
for part in ${all_parts#build}; do
    if runs "$part"; then
        "part_$part"
        write_record
    fi
done

n_failed=$(awk -F '\t' '$2 == "FAILED" { n++ } END { print n + 0 }' "$work/parts")
write_record || n_failed=$((n_failed + 1))
cat "$work/record.log"
printf 'total %d s, %d parts, %d failed; logs: %s\n' $(($(date +%s) - began)) "$(grep -c . "$work/parts")" \
    "$n_failed" "$archive"
[ "$n_failed" = 0 ]
