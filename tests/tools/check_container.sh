#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_container.sh: builds the target cpu of packaging/Containerfile, compares its files with those of the Debian
# packages, runs README's main job in it, and prints its size. With podman these are images, in a folder of their own
# that is removed; where podman is missing or runs nothing, the file's steps run in clean roots (container_roots.sh).
# debootstrap makes these roots, and the base image where it cannot be fetched. 77: not possible here.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
file=$top/packaging/Containerfile
. "$top/tests/tools/verdict.sh"
. "$top/tests/tools/container_roots.sh"

# runc knows both versions of control groups.
images() { podman --root "$scratch/images" --runroot "$scratch/run" --runtime runc "$@"; }

remove_images() {
    images image unmount --all >/dev/null 2>&1 || :
    images rmi --all --force >/dev/null 2>&1 || :
    umount "$scratch/images/overlay" 2>/dev/null || :
}

clean_up() {
    [ $way = roots ] || remove_images
    rm -rf "$scratch"
}

# build TARGET
build() {
    # shellcheck disable=SC2086 # options are words
    if [ $way = roots ]; then
        follow "$file" "$1"
    else
        images build $limits --pull-never --network host -f "$file" --target "$1" -t "quadrille-$1" "$top"
    fi
}

# root_of TARGET: the folder with its files.
root_of() { if [ $way = roots ]; then echo "$scratch/roots/$1"; else images image mount "quadrille-$1"; fi; }

# in_container COMMAND...
in_container() {
    # shellcheck disable=SC2086 # options are words
    if [ $way = roots ]; then
        chrooted cpu "$@"
    else
        images run --rm $limits --network none --shm-size 256m quadrille-cpu "$@"
    fi
}

size() {
    if [ $way = roots ]; then
        du -s --apparent-size --block-size=MB "$scratch/roots/cpu" | sed 's/MB.*/ MB/'
    else
        images images --format '{{.Repository}} {{.Size}}' | sed -n 's|^localhost/quadrille-cpu ||p'
    fi
}

compare_files() {
    packages=$(root_of packages)/packages
    system=$(root_of cpu)
    set -- "$packages"/*.deb
    [ $# = 3 ] || fail "other packages than three: $*"
    mkdir "$scratch/tree"
    for package; do dpkg-deb -x "$package" "$scratch/tree"; done
    (cd "$scratch/tree" && find . -not -type d | sort) >"$scratch/wanted"
    [ -s "$scratch/wanted" ] || fail "the packages are empty"
    # Whatever has a name of Quadrille's, but for what dpkg writes about it.
    (cd "$system" && find . -path ./var/lib/dpkg -prune -o -not -type d \( -path '*quadrille*' -o -name train \
        -o -name 'train.1*' -o -name 'train_gpt*' -o -name 'transformer_layer*' \) -print | sort) >"$scratch/found"
    diff "$scratch/wanted" "$scratch/found" || fail "other files than those of the packages"
    while read -r path; do
        [ "$(stat -c '%A %U %G %N' "$scratch/tree/$path" | sed "s|$scratch/tree||")" = \
            "$(stat -c '%A %U %G %N' "$system/$path" | sed "s|$system||")" ] || fail "$path has other rights"
        [ -L "$system/$path" ] || cmp "$scratch/tree/$path" "$system/$path" || fail "$path has other bytes"
    done <"$scratch/wanted"
    echo "$(wc -l <"$scratch/wanted") files, those of the Debian packages"
    [ $way = roots ] || images image unmount --all >/dev/null
}

# As examples/run.sh does, with fewer steps.
train() {
    in_container mpiexec.mpich -n 4 train --grid 2x2x1x1 --steps 40 >"$scratch/log" 2>&1 </dev/null ||
        fail "train: $(cat "$scratch/log")"
    cat "$scratch/log"
    grep -q '^4 ranks of .* as grid 2x2x1x1' "$scratch/log" || fail "there are not four ranks"
    # A model that has learnt nothing needs ln 256 = 5.5 nats.
    awk '/^validation loss .* after 40 steps/ { right = $3 > 1 && $3 < 4 } END { exit !right }' "$scratch/log" ||
        fail "the validation loss is not that of a model that has begun to learn"
}

# Whether podman has the base image, or can be given it, and runs it.
podman_works() {
    command -v podman >/dev/null 2>&1 && command -v runc >/dev/null 2>&1 || return 1
    if ! images pull -q "$base" >"$scratch/log" 2>&1; then
        make_base
        tar -C "$scratch/base" -c . | images import - "$base" >"$scratch/log" 2>&1 || return 1
        echo "$base cannot be fetched here; Debian's packages make one like it"
    fi
    # shellcheck disable=SC2086 # options are words
    images run --rm $limits --network none "$base" true 2>"$scratch/log"
}

[ "$(id -u)" = 0 ] || skip "needs root"
PATH=$PATH:/usr/sbin:/sbin
scratch=$(mktemp -d) way=podman
trap clean_up EXIT
trap 'exit 1' HUP INT TERM
# Podman's own are higher, and raising a limit may not be allowed here.
limits="--ulimit nofile=1024:1024 --ulimit nproc=4096:4096"
base=$(sed -n 's/^ARG DEBIAN=//p' "$file")
if ! podman_works; then
    remove_images
    way=roots
    unshare --mount --propagation private --pid --fork true 2>/dev/null ||
        skip "neither podman nor a mount namespace can be used here"
    echo "podman does not work here ($(tail -n 1 "$scratch/log" 2>/dev/null)); the steps run in clean roots"
    make_base
fi
build packages
build cpu
compare_files
in_container quadrille verify -n 2 --cases 1
in_container mpiexec.mpich -n 4 quadrille doctor </dev/null || fail "doctor finds something broken"
train
echo "size of the image: $(size)"
