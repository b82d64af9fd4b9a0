#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# absent.sh [SOURCE [CASE...]]: each optional package is missing once, alone, and then all are. SOURCE (default: this
# repository) must then configure with its tests, build the programs that README names, and train for 20 steps. Packages
# are removed from an overlay over /usr in a separate mount namespace; another one over SOURCE receives the build.
# 77: no permission to mount here.
set -u
tools=$(cd "$(dirname "$0")" && pwd -P)
. "$tools/setup.sh"

cases="user openblas bible mpich cmocka cuda nvcc nccl cudnn hwloc onednn zfp mpiexec numpy c++ simgrid scalapack
pkg-config jansson zlib all order"
build_targets="examples/train examples/transformer_layer examples/linear src/quadrille"

# What is missing in a case: needs as in setup.sh, Debian packages, and files that belong to no package.
describe() {
    packages='' files=''
    case $1 in
    cmocka) needs=library:cmocka packages=libcmocka-dev ;;
    cuda)
        needs="library:cublasLt command:nvcc"
        files="/usr/local/cuda* /usr/lib/cuda* /opt/cuda* /usr/local/bin/nvcc /usr/bin/nvcc"
        ;;
    nvcc) needs=command:nvcc files="/usr/local/cuda*/bin/nvcc /usr/local/bin/nvcc /usr/bin/nvcc" ;;
    nccl)
        needs=library:nccl
        files="/usr/local/cuda*/include/nccl* /usr/local/cuda*/lib*/libnccl* /usr/include/nccl*
/usr/local/include/nccl*"
        ;;
    cudnn)
        needs=library:cudnn
        files="/usr/local/cuda*/include/cudnn* /usr/include/cudnn* /usr/include/*/cudnn* /usr/local/include/cudnn*"
        ;;
    hwloc) needs=library:hwloc packages=libhwloc-dev ;;
    onednn) needs=library:dnnl packages=libdnnl-dev ;;
    zfp) needs=library:zfp packages=libzfp-dev ;;
    openblas)
        needs=module:openblas
        packages="libopenblas-dev libopenblas-pthread-dev libopenblas-openmp-dev libopenblas-serial-dev"
        ;;
    mpich) needs="module:mpich command:mpiexec.mpich" packages="libmpich-dev mpich" ;;
    mpiexec) needs=command:mpiexec.mpich packages=mpich ;;
    bible) needs=command:bible packages="bible-kjv bible-kjv-text" ;;
    numpy) needs=python:numpy packages=python3-numpy ;;
    c++) needs="command:c++ command:g++ command:clang++" files="/usr/bin/*c++ /usr/bin/*g++* /usr/bin/clang++*" ;;
    simgrid) needs=module:simgrid packages=libsimgrid-dev ;;
    scalapack) needs=module:scalapack-mpich packages=libscalapack-mpich-dev ;;
    pkg-config) needs=command:pkg-config packages="pkg-config pkgconf pkgconf-bin" ;;
    jansson) needs=library:jansson packages=libjansson-dev ;;
    zlib) needs=library:zlib packages=zlib1g-dev ;;
    *) say "no such case: $1" && exit 2 ;;
    esac
}

# overlay FOLDER: all later changes there are discarded.
overlay() {
    n_overlays=$((n_overlays + 1))
    mkdir "$scratch/upper$n_overlays" "$scratch/work$n_overlays" &&
        mount -t overlay overlay \
            -o "lowerdir=$1,upperdir=$scratch/upper$n_overlays,workdir=$scratch/work$n_overlays" "$1"
}

# native PACKAGE...: those that are installed, with the architecture: where others have the same names, dpkg -L lists
# one of them, or none. A package for all architectures has none of its own.
native() {
    architecture=$(dpkg --print-architecture)
    for package; do
        for name in "$package:$architecture" "$package:all"; do
            dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null | grep -qx installed && echo "$name"
        done
    done
}

remove() {
    describe "$1"
    # shellcheck disable=SC2046,SC2086 # words and patterns
    {
        [ -z "$packages" ] || dpkg -L $(native $packages) 2>/dev/null | sed -n 's,^/lib/,/usr/lib/,; \,^/usr/,p' |
            while read -r file; do
                { [ -d "$file" ] && [ ! -L "$file" ]; } || rm -f "$file"
            done
        rm -rf $files
    }
    [ "$1" != numpy ] || for python in python3 /usr/bin/python3; do # it may be there from elsewhere
        while folder=$($python -c 'import numpy; print(numpy.__path__[0])' 2>/dev/null); do
            case $folder in /usr/*) ;; *) overlay "$(dirname "$folder")" || return 1 ;; esac
            rm -rf "$folder" || return 1
        done
    done
    hash -r # the shell remembers where commands were
    for need in $needs; do
        ! have "${need%%:*}" "${need#*:}" || { say "$need is still there" && return 1; }
    done
}

# The steps of README by hand. Objects compiled before are reused; what Meson detected is not.
by_hand() {
    rm -rf build/meson-private build/meson-info build/build.ninja
    # shellcheck disable=SC2086 # words
    meson setup build && ninja -C build $build_targets &&
        build/examples/train --grid 2x2x1x1 --local 4 --steps 20 --val-windows 4 --sample 8 --log out/absent.jsonl
}

# examples/run.sh without the right to install anything, in a clean folder: its output, and whether it exits.
as_user() {
    rm -rf out build-logs && mkdir out build-logs && mount -t tmpfs tmpfs "$PWD/build" &&
        chown 65534:65534 . build out build-logs &&
        mount --rbind "$PWD" /mnt && cd /mnt && # where nobody may go, which the folders above need not be
        setpriv --reuid 65534 --regid 65534 --clear-groups env HOME="$PWD/out" PATH=/usr/bin:/bin \
            sh examples/run.sh --steps 20 --val-windows 4 --sample 8 2>&1 </dev/null | tee out.txt
}

# says WORD...: one line of the run's output contains the words.
says() {
    line=$(grep 'apt-get install' out.txt)
    for word; do
        case $line in *"$word"*) ;; *) say "the sentence lacks \"$word\": $line" && return 1 ;; esac
    done
    [ "$(printf '%s\n' "$line" | wc -l)" = 1 ]
}

# examples/run.sh configures without tests; tests/run.sh then adds them in the same folder, and examples/run.sh keeps
# them there.
in_order() {
    mount -t tmpfs tmpfs "$PWD/build" || return 1
    (
        . tests/tools/setup.sh
        configure_in build -Dtests=false && [ "$(meson introspect --tests build)" = '[]' ] && : >build/kept &&
            configure_in build -Dtests=true && [ -e build/kept ] && [ "$(meson introspect --tests build)" != '[]' ] &&
            [ "$(recorded_options build)" = -Dtests=true ]
    )
}

within() {
    n_overlays=0
    mount -t tmpfs tmpfs "$scratch" && overlay /usr && overlay "$source" && cd "$source" && mkdir -p out || return 1
    case $1 in
    jansson | zlib) # which are required
        remove "$1" || return 1
        by_hand >out.txt 2>&1 && say "built without $1" && return 1
        cat out.txt
        grep -qE "ERROR:.*($1|library 'z')" out.txt || return 1
        as_user
        # shellcheck disable=SC2154 # set by remove
        says "cannot build without $packages" "apt-get install -y --no-install-recommends $packages"
        ;;
    all | user)
        for name in $cases; do
            case $name in
            jansson | zlib | all | user | order) ;;
            *) remove "$name" || return 1 ;;
            esac
        done
        [ "$1" = user ] || { by_hand && return; }
        as_user
        says 'going on without' libopenblas-dev mpich bible-kjv 'apt-get update && apt-get install' &&
            grep -q 'plain C' out.txt && grep -q 'threads' out.txt && [ -s out/run.jsonl ] && [ -s out/loss.svg ]
        ;;
    order) in_order ;;
    *) remove "$1" && by_hand ;;
    esac
}

# one CASE: its log, and its line.
one() {
    start=$(date +%s)
    if unshare -m sh "$tools/absent.sh" --within "$source" "$scratch/mount" "$1" >"$scratch/$1.log" 2>&1; then
        printf 'without %-10s ok, %d s\n' "$1" $(($(date +%s) - start))
    else
        printf 'without %-10s FAILED\n' "$1"
        tail -n 30 "$scratch/$1.log" | sed 's/^/    /'
        : >"$scratch/failed"
    fi
}

case ${1:-} in
--within | --one)
    source=$2 scratch=$3
    "${1#--}" "$4"
    exit
    ;;
esac

source=$(cd "${1:-$tools/../..}" && pwd -P) || exit 2
[ $# = 0 ] || shift
[ $# = 0 ] || cases=$*
command -v dpkg >/dev/null || { echo "packages are not Debian's here" && exit 77; }
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/mount" "$scratch/lower" || exit 1
# shellcheck disable=SC2016 # the inner shell's
unshare -m sh -c 'mount -t tmpfs tmpfs "$0/mount" && mkdir "$0/mount/upper" "$0/mount/work" &&
    mount -t overlay overlay -o "lowerdir=/usr,upperdir=$0/mount/upper,workdir=$0/mount/work" "$0/lower"' \
    "$scratch" 2>/dev/null ||
    { echo "no right to mount an overlay here" && exit 77; }

cd "$source" || exit 1
export OPENBLAS_NUM_THREADS=1
build_in build >"$scratch/base.log" 2>&1 || { tail -n 30 "$scratch/base.log" && exit 1; }

# Each processor takes the next case; the longest come first.
# shellcheck disable=SC2086 # cases are words
printf '%s\n' $cases | xargs -P "$(nproc)" -I '{}' sh "$tools/absent.sh" --one "$source" "$scratch" '{}'
[ ! -e "$scratch/failed" ]
