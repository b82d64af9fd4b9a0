#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_container.sh: builds the target cpu of packaging/Containerfile with podman, compares its files with those of
# the Debian packages, runs README's main job in it, and prints its size. Where the base image cannot be fetched,
# debootstrap makes one like it. Images are kept in a folder of their own, which is removed. 77: not possible here.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
file=$top/packaging/Containerfile
. "$top/tests/tools/verdict.sh"

# runc knows both versions of control groups.
images() { podman --root "$scratch/images" --runroot "$scratch/run" --runtime runc "$@"; }

clean_up() {
    images image unmount --all >/dev/null 2>&1 || :
    images rmi --all --force >/dev/null 2>&1 || :
    umount "$scratch/images/overlay" 2>/dev/null || :
    rm -rf "$scratch"
}

# like_slim NAME: Debian 12 with as few packages and, as in the slim image, without documents.
like_slim() {
    mkdir "$scratch/root"
    debootstrap --variant=minbase bookworm "$scratch/root" >"$scratch/log" 2>&1 ||
        skip "debootstrap has no packages of Debian: $(tail -n 1 "$scratch/log")"
    cat >"$scratch/root/etc/dpkg/dpkg.cfg.d/slim" <<'C'
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/lintian/overrides/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
C
    (cd "$scratch/root" && rm -rf var/cache/apt/archives/*.deb var/lib/apt/lists/* usr/share/locale/* usr/share/man/* &&
        find usr/share/doc -type f -not -name copyright -delete)
    tar -C "$scratch/root" -c . | images import - "$1" >/dev/null 2>&1 || skip "podman cannot keep images here"
    rm -rf "$scratch/root"
}

# build TARGET NAME
build() {
    # shellcheck disable=SC2086 # options are words
    images build $limits --pull-never --network host -f "$file" --target "$1" -t "$2" "$top"
}

# in_container COMMAND...
in_container() {
    # shellcheck disable=SC2086 # options are words
    images run --rm $limits --network none --shm-size 256m quadrille "$@"
}

compare_files() {
    packages=$(images image mount quadrille-packages)/packages
    system=$(images image mount quadrille)
    set -- "$packages"/*.deb
    [ $# = 3 ] || fail "other packages than three: $*"
    mkdir "$scratch/tree"
    for package; do dpkg-deb -x "$package" "$scratch/tree"; done
    (cd "$scratch/tree" && find . -not -type d | sort) >"$scratch/wanted"
    [ -s "$scratch/wanted" ] || fail "the packages are empty"
    # Whatever has a name of Quadrille's, but for what dpkg writes about it.
    (cd "$system" && find . -path ./var/lib/dpkg -prune -o -not -type d \( -path '*quadrille*' -o -name 'train_gpt*' \
        -o -name 'transformer_layer*' \) -print | sort) >"$scratch/found"
    diff "$scratch/wanted" "$scratch/found" || fail "other files than those of the packages"
    while read -r path; do
        [ "$(stat -c '%A %U %G %N' "$scratch/tree/$path" | sed "s|$scratch/tree||")" = \
            "$(stat -c '%A %U %G %N' "$system/$path" | sed "s|$system||")" ] || fail "$path has other rights"
        [ -L "$system/$path" ] || cmp "$scratch/tree/$path" "$system/$path" || fail "$path has other bytes"
    done <"$scratch/wanted"
    echo "$(wc -l <"$scratch/wanted") files, those of the Debian packages"
    images image unmount --all >/dev/null
}

# As examples/run.sh does, with fewer steps.
train() {
    in_container mpiexec.mpich -n 4 train_gpt --grid 2x2x1x1 --steps 40 >"$scratch/log" 2>&1 </dev/null ||
        fail "train_gpt: $(cat "$scratch/log")"
    cat "$scratch/log"
    grep -q '^4 ranks of .* as grid 2x2x1x1' "$scratch/log" || fail "there are not four ranks"
    # A model that has learnt nothing needs ln 256 = 5.5 nats.
    awk '/^validation loss .* after 40 steps/ { right = $3 > 1 && $3 < 4 } END { exit !right }' "$scratch/log" ||
        fail "the validation loss is not that of a model that has begun to learn"
}

for tool in podman runc; do
    command -v $tool >/dev/null 2>&1 || skip "no $tool"
done
[ "$(id -u)" = 0 ] || skip "needs root"
scratch=$(mktemp -d)
trap clean_up EXIT
trap 'exit 1' HUP INT TERM
# Podman's own are higher, and raising a limit may not be allowed here.
limits="--ulimit nofile=1024:1024 --ulimit nproc=4096:4096"
base=$(sed -n 's/^ARG DEBIAN=//p' "$file")
if ! images pull -q "$base" >"$scratch/log" 2>&1; then
    PATH=$PATH:/usr/sbin:/sbin
    command -v debootstrap >/dev/null 2>&1 || skip "no debootstrap, and no image $base: $(tail -n 1 "$scratch/log")"
    like_slim "$base"
    echo "$base cannot be fetched here; Debian's packages make one like it"
fi
# shellcheck disable=SC2086 # options are words
images run --rm $limits --network none "$base" true 2>"$scratch/log" ||
    skip "podman cannot run containers here: $(tail -n 1 "$scratch/log")"
build packages quadrille-packages
build cpu quadrille
compare_files
in_container quadrille verify -n 2 --cases 1
in_container mpiexec.mpich -n 4 quadrille doctor </dev/null || fail "doctor finds something broken"
train
images images --format '{{.Repository}} {{.Size}}' | sed -n 's|^localhost/quadrille |size of the image: |p'
