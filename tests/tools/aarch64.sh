#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# aarch64.sh: compiles all but the plugin for GPUs for aarch64, with Debian's cross compiler, in build-aarch64, and
# runs tests under QEMU. Debian's packages for aarch64 are unpacked in build-aarch64/root: this system stays as it is.
# 77: not possible here.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/tools/setup.sh
. tests/tools/verdict.sh
build='build-aarch64'
root=$PWD/$build/root

# Those of required_needs, wanted_needs and quick_needs that are used here, with what they need themselves, and
# libmpich-dev without its Fortran compiler.
packages="libc6-dev libjansson-dev zlib1g-dev libhwloc-dev libopenblas-dev libdnnl-dev libzfp-dev libcmocka-dev
libmpich12"
alone=libmpich-dev

# Fetches the packages with a list of installed ones of its own, which is empty.
fetch() {
    mkdir -p "$1/lists/partial" "$1/archives/partial" && : >"$1/status" || return 1
    cat >"$1/apt.conf" <<A
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "$(id -un)";
Debug::NoLocking "true";
Dir::State "$1";
Dir::State::status "$1/status";
Dir::Cache "$1";
A
    # shellcheck disable=SC2086 # packages are words
    APT_CONFIG=$1/apt.conf apt-get update -q &&
        APT_CONFIG=$1/apt.conf apt-get install -y -q --no-install-recommends --download-only $packages &&
        (cd "$1/archives" && APT_CONFIG=$1/apt.conf apt-get download -q $alone)
}

# Unpacks the libraries among them; without dpkg's scripts, some links have to be made or mended.
unpack() {
    for package in "$1"/lib*.deb "$1"/linux-libc-dev*.deb "$1"/zlib*.deb; do
        dpkg -x "$package" "$root" || return 1
    done
    libraries=$root/usr/lib/aarch64-linux-gnu
    ln -s openblas-pthread/libopenblas.so openblas-pthread/libopenblas.so.0 "$libraries" &&
        ln -s ../openblas-pthread/pkgconfig/openblas.pc "$libraries/pkgconfig" || return 1
    find "$root" -lname '/*' | while read -r link; do
        ln -sfr "$root$(readlink "$link")" "$link" || return 1
    done
}

make_root() {
    [ "$(cat "$root/packages" 2>/dev/null)" != "$packages $alone" ] || return 0
    rm -rf "$root"
    scratch=$(mktemp -d) || return 1
    if fetch "$scratch" && mkdir -p "$root" && unpack "$scratch/archives"; then
        echo "$packages $alone" >"$root/packages"
    fi
    rm -rf "$scratch"
    [ -e "$root/packages" ]
}

# emulated COMMAND...: where programs of aarch64 can be started. Unless this system knows how, a namespace is told.
emulated() {
    QEMU_LD_PREFIX=$root "$build/hello" 2>/dev/null && { QEMU_LD_PREFIX=$root "$@"; return; }
    # shellcheck disable=SC2016 # the inner shell's; \x is for the kernel
    QEMU_LD_PREFIX=$root unshare --user --map-root-user --mount sh -c '
        formats=/proc/sys/fs/binfmt_misc
        header="\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
        mask="\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
        mount -t binfmt_misc none $formats &&
            printf "%s" ":aarch64:M::$header:$mask:$(command -v qemu-aarch64):F" >$formats/register &&
            "$0" && exec "$@"' "$build/hello" "$@"
}

# What is compiled by default, except tests.
targets() {
    meson introspect --targets $build | python3 -c '
import json, os, sys
for target in json.load(sys.stdin):
    folder = os.path.relpath(os.path.dirname(target["defined_in"]))
    if target["build_by_default"] and not folder.startswith("tests"):
        print(os.path.relpath(target["filename"][0], sys.argv[1]))' $build
}

# Tests of a single process, two ranks of each kind as threads, and four of some under mpiexec; without those of
# left_out, "NAME: WHY".
mpi='coll mpi 4; stack mpi 4, two nodes'
left_out='topo: a thread of QEMU itself stays unbound
memory_file: QEMU does not limit the address space
checkpoints: QEMU takes minutes for its file of 1 GiB
gpu records: runs nothing that was compiled'
chosen() {
    meson test -C $build --list 2>/dev/null | awk -F ' / ' -v mpi="$mpi" -v left_out="$left_out" '
        NF < 2 { next }
        BEGIN { n = split(mpi, names, /; */); for (i = 1; i <= n; i++) chosen[names[i]] = 1 }
        BEGIN { n = split(left_out, names, /: [^\n]*\n?/); for (i = 1; i < n; i++) out[names[i]] = 1 }
        $2 in out { next }
        $2 in chosen { print $2; delete chosen[$2]; next }
        $1 ~ /large|long|fake|fault|netlab|mpi/ { next }
        / local [0-9]/ { if ($2 ~ / local 2$/) print $2; next }
        $1 ~ /:(unit|conform|.*threadless)/ { print $2 }
        END { for (name in chosen) { print "there is no test " name >"/dev/stderr"; exit 1 } }'
}

within() {
    PATH=/usr/lib/ccache:$PATH
    printf "[constants]\nroot = '%s'\n" "$root" >$build/root.ini
    configure_in $build --cross-file $build/root.ini --cross-file tests/tools/aarch64.ini -Dcuda=disabled || return 1
    # shellcheck disable=SC2046 # targets are words
    ninja -C $build $(targets) || return 1
    readelf -h $build/lib/libquadrille.so | grep -q AArch64 || return 1
    chosen >$build/tests.list || return 1
    echo "$left_out" | sed 's/^/SKIPPED /'
    xargs -d '\n' meson test -C $build --print-errorlogs --num-processes "$(nproc)" --timeout-multiplier 30 \
        --wrapper "python3 $PWD/tests/tools/on_one_cpu.py" <$build/tests.list
}

if [ "${1:-}" = --within ]; then
    within
    exit
fi

[ "$(uname -m)" != aarch64 ] || skip "this machine is one of aarch64: the other stages test it"
for need in $aarch64_needs; do
    kind=${need%%:*} rest=${need#*:}
    have "$kind" "${rest%:*}" || skip "${rest##*:} is not installed"
done
command -v apt-get >/dev/null || skip "packages are not Debian's here"
make_root || skip "Debian's packages for aarch64 cannot be had"
echo 'int main(void) { return 0; }' | aarch64-linux-gnu-gcc --sysroot="$root" -x c - -o $build/hello || exit 1
emulated true || skip "programs of aarch64 start neither by themselves nor in a namespace, as of Linux 6.7"
emulated sh tests/tools/aarch64.sh --within
