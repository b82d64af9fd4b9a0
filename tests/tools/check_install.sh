#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_install.sh BUILD: installs into a scratch folder, then compiles and runs a program of a stranger with pkg-config alone.
set -eu
build=$(cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
DESTDIR=$scratch meson install -C "$build" --no-rebuild >/dev/null
pc=$(find "$scratch" -name quadrille.pc)
export PKG_CONFIG_PATH="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$scratch"
cat >"$scratch/stranger.c" <<'C'
#include <quadrille/quadrille.h>
#include <stdio.h>
#if __has_include(<mpi.h>)
#include <quadrille/mpi.h>
#endif
int main(void)
{
    qdr_context *ctx;
    if (qdr_context_create_self(NULL, &ctx)) return 1;
    printf("%s, %d rank\n", qdr_get_versions().quadrille, qdr_context_size(ctx));
    qdr_context_destroy(&ctx);
    return 0;
}
C
# shellcheck disable=SC2046 # flags are words
cc -o "$scratch/stranger" "$scratch/stranger.c" $(pkg-config --cflags --libs quadrille)
LD_LIBRARY_PATH=$(dirname "$(find "$scratch" -name 'libquadrille.so')") "$scratch/stranger"
readelf -d "$(find "$scratch" -name 'libquadrille.so')" | grep -q 'SONAME.*libquadrille\.so\.0\]'
