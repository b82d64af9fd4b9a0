#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_install.sh BUILD: installs into a scratch folder, then compiles, links and runs programs of a stranger with
# pkg-config alone: the one in README.md, and one that calls MPI itself.
set -eu
build=$(cd "$1" && pwd)
readme=$(cd "$(dirname "$0")/../.." && pwd)/README.md
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
DESTDIR=$scratch meson install -C "$build" --no-rebuild >/dev/null
pc=$(find "$scratch" -name quadrille.pc)
library=$(find "$scratch" -name libquadrille.so)
export PKG_CONFIG_PATH="$scratch/pkgconfig" LD_LIBRARY_PATH="${library%/*}"

# As installed with --prefix there. (A sysroot would move the headers of MPI, too, to where they are not.)
mkdir "$PKG_CONFIG_PATH"
sed "s|^prefix=|prefix=$scratch|" "$pc" >"$PKG_CONFIG_PATH/quadrille.pc"
mpi=$("$build/src/quadrille" --version | awk '$1 == "mpi" { print $2 }')

# compile NAME MODULE...: warnings are errors.
compile() {
    name=$1
    shift
    # shellcheck disable=SC2046 # flags are words
    ${CC:-cc} -O2 -Wall -Wextra -Werror -o "$scratch/$name" "$scratch/$name.c" $(pkg-config --cflags --libs "$@")
}

# expect WORDS NUMBER COMMAND...: the output of the command has so many lines with the words.
expect() {
    words=$1 wanted=$2
    shift 2
    "$@" >"$scratch/output" </dev/null || { echo "failed: $*" && cat "$scratch/output" && exit 1; }
    [ "$(grep -c "$words" "$scratch/output")" = "$wanted" ] || { echo "unexpected: $*" && cat "$scratch/output" && exit 1; }
}

awk '/^```c$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' "$readme" >"$scratch/prog.c"
grep -q 'int main' "$scratch/prog.c" || { echo "README.md has no whole program" && exit 1; }
compile prog quadrille
expect 'Y begins with' 4 "$scratch/prog" 4

cat >"$scratch/own_mpi.c" <<'C'
#include <quadrille/mpi.h>
#include <quadrille/quadrille.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int provided, failed = 1;
    qdr_context *ctx;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (qdr_context_create_mpi(MPI_COMM_WORLD, NULL, &ctx) == QDR_OK) {
        printf("%s, %d ranks\n", qdr_get_versions().quadrille, qdr_context_size(ctx));
        qdr_context_destroy(&ctx);
        failed = 0;
    } else {
        fprintf(stderr, "%s\n", qdr_last_error());
    }
    MPI_Finalize();
    return failed;
}
C
if [ "$mpi" = none ]; then
    echo "no MPI in this build: a program that calls MPI was not tried"
elif pkg-config --exists "$mpi"; then
    compile own_mpi quadrille "$mpi"
else
    CC=$mpi compile own_mpi quadrille
fi
if [ "$mpi" = mpich ]; then
    expect ', 2 ranks' 2 mpiexec.mpich -n 2 "$scratch/own_mpi"
    expect 'Y begins with' 4 mpiexec.mpich -n 4 "$scratch/prog"
    CC=mpicc.mpich compile own_mpi quadrille # the other way that README.md names
fi
readelf -d "$library" | grep -q 'SONAME.*libquadrille\.so\.0\]'
