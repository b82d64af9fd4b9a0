#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_debian.sh: builds the packages of packaging/debian from a copy of the tree, runs lintian, installs them into
# copies of this system's folders (overlays that only this process sees), uses them, and removes them again.
# 77: not possible here.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$top/tests/tools/verdict.sh"

# ---- second half: as root in a mount namespace, with the packages in $1 ----

# The files of this system except those that dpkg itself writes: caches, logs, its list of packages.
list_files() {
    find /usr /etc \( -path /usr/share/man -prune \) -o -print | grep -v '^/etc/ld.so.cache$' | sort
}

# overlay FOLDER: from now on writes to it go elsewhere.
overlay() {
    mkdir -p "$scratch/up$1" "$scratch/work$1"
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$scratch/up$1,workdir=$scratch/work$1" "$1"
}

use_packages() {
    cp "$top/examples/linear.c" "$scratch/linear.c"
    cd "$scratch"
    version=$(quadrille --version | awk '$1 == "quadrille" { print $2 }')
    [ "$(command -v quadrille)" = /usr/bin/quadrille ] || fail "the command is $(command -v quadrille)"
    [ "$version" = "$(pkg-config --modversion quadrille)" ] || fail "versions differ"
    [ "$(dpkg-query -W -f='${Version}' libquadrille0)" = "$version-1" ] || fail "the package has another version"
    quadrille verify -n 2 --cases 1 >/dev/null
    quadrille mem gpt2 -n 4 --machine perlmutter | grep -q '^# gpt2' || fail "no models"
    # shellcheck disable=SC2046 # flags are words
    cc -o linear linear.c $(pkg-config --cflags --libs quadrille)
    ./linear | grep -q 'rank 3 of 4 owns' || fail "linear"
    # shellcheck disable=SC2046
    cc -o linear_static linear.c \
        $(pkg-config --static --cflags --libs quadrille | sed 's/-lquadrille\>/-l:libquadrille.a/')
    ./linear_static | grep -q 'rank 3 of 4 owns' || fail "linear, static"
    transformer_layer --local 2 --grid 2x1x1x1 --hidden 16 --heads 2 --ctx 8 --iterations 1 >/dev/null
    train --help | grep -q '^usage: train ' || fail "no train"
    train_gpt --help | grep -q '^usage: train_gpt ' || fail "no train_gpt"
    ! readelf -d /usr/bin/quadrille /usr/bin/train linear | grep -q 'R.*PATH' ||
        fail "a search path in what a system's folders hold"
    if command -v cmake >/dev/null 2>&1; then
        cat >CMakeLists.txt <<'C'
cmake_minimum_required(VERSION 3.13)
project(stranger C)
find_package(quadrille 0.1 REQUIRED)
add_executable(linear_cmake linear.c)
target_link_libraries(linear_cmake quadrille::quadrille)
C
        cmake -S . -B by-cmake >/dev/null
        cmake --build by-cmake >/dev/null
        by-cmake/linear_cmake | grep -q 'rank 3 of 4 owns' || fail "linear, by CMake"
    fi
    man --version >/dev/null 2>&1 && man -w quadrille train train_gpt transformer_layer >/dev/null
    bash -c '. /usr/share/bash-completion/completions/quadrille'
}

install_and_remove() {
    scratch=$1
    shift
    mount -t tmpfs tmpfs "$scratch"
    for folder in /usr /etc /var; do overlay $folder; done
    ! dpkg-query -W libquadrille0 quadrille >/dev/null 2>&1 || fail "Quadrille's packages are installed on this system"
    list_files >"$scratch/before"
    dpkg -i "$@"
    use_packages
    cd /
    dpkg --purge quadrille libquadrille-dev libquadrille0 quadrille-data
    list_files >"$scratch/after"
    diff "$scratch/before" "$scratch/after" || fail "files are left, or missing"
    ! dpkg-query -W '*quadrille*' 2>/dev/null || fail "dpkg still knows them"
}

if [ "${1:-}" = --installed ]; then
    shift
    install_and_remove "$@"
    exit
fi

# ---- first half: build, and check the packages ----

for tool in dpkg-buildpackage dh lintian fakeroot; do
    command -v $tool >/dev/null 2>&1 || skip "no $tool"
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
version=$(sed -n '1s/.*(\(.*\)-.*/\1/p' "$top/packaging/debian/changelog")
tree=$scratch/quadrille-$version
mkdir "$tree"
# The files of a release: tracked files as they are now, and no build folder.
cd "$top"
git -c safe.directory='*' ls-files -z --cached --others --exclude-standard >"$scratch/files" 2>/dev/null ||
    find . -type f -not -path './build*' -not -path './.git/*' -print0 >"$scratch/files"
tar --null --ignore-failed-read -T "$scratch/files" -cf - 2>/dev/null | tar -C "$tree" -xf -
cd "$tree"
dpkg-checkbuilddeps packaging/debian/control 2>"$scratch/needs" || skip "$(cat "$scratch/needs")"
# As docs/install.md says.
sed -n '/^    tar -C/,/^    dpkg-buildpackage/s/^    //p' docs/install.md >"$scratch/build.sh"
grep -q '^dpkg-buildpackage' "$scratch/build.sh" || fail "no commands in docs/install.md"
DEB_BUILD_OPTIONS="parallel=$(nproc)" sh -eux "$scratch/build.sh"
cd "$scratch"
lintian --fail-on error --profile debian --allow-root ./*.changes || fail "lintian"
cat >"$scratch/wanted" <<'W'
libquadrille-dev
libquadrille0
quadrille
quadrille-data
W
for package in ./*.deb; do
    dpkg-deb -f "$package" Package
done | grep -v -- '-dbgsym$' | sort | diff "$scratch/wanted" - || fail "other packages than these"
if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
    skip "built, and lintian found no error; installing needs root and a mount namespace"
fi
mkdir "$scratch/system"
# shellcheck disable=SC2046 # names are words
unshare -m --propagation private sh "$top/tests/tools/check_debian.sh" --installed "$scratch/system" \
    $(find "$scratch" -maxdepth 1 -name '*.deb' -not -name '*-dbgsym*')
