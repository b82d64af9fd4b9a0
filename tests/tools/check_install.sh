#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_install.sh BUILD: installs into a scratch folder, then compiles, links and runs programs of a stranger with
# pkg-config alone: the lines of README.md, the shortest example, and one that calls MPI itself.
set -eu
build=$(cd "$1" && pwd)
top=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
DESTDIR=$scratch meson install -C "$build" --no-rebuild >/dev/null
pc=$(find "$scratch" -name quadrille.pc)
library=$(find "$scratch" -name libquadrille.so)
export PKG_CONFIG_PATH="$scratch/pkgconfig" LD_LIBRARY_PATH="${library%/*}"

# As installed with --prefix there. (A sysroot would move the headers of MPI, too, to where they are not.)
mkdir "$PKG_CONFIG_PATH"
for name in quadrille quadrille_perf; do
    sed "s|^prefix=|prefix=$scratch|" "${pc%/*}/$name.pc" >"$PKG_CONFIG_PATH/$name.pc"
done
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

cp "$top/examples/linear.c" "$scratch/linear.c"
compile linear quadrille
expect 'of 4 owns' 4 "$scratch/linear"

# The lines of README.md in a function that has what they speak of.
lines=$(awk '/^```c$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' "$top/README.md")
cat >"$scratch/lines.c" <<C
#include <quadrille/quadrille.h>
#include <stdio.h>
enum { M = 8, K = 6, N = 4 };
#define CHECK(call) do { if ((call) < 0) goto out; } while (0)
static int run_rank(qdr_context *ctx, void *user)
{
    static _Thread_local float x_part[M * K / 2] = {1, 2, 3, 4}, y_part[M * N / 2], dy_part[M * N / 2], dx_part[M * K / 2];
    qdr_grid *grid = NULL;
    qdr_stack *net = NULL;
    qdr_linear *fc;
    qdr_edge x, y;
    int failed = 1;
    (void)user;
$lines
    printf("Y begins with %g\\n", (double)y_part[0]);
    failed = y_part[0] == 0;
out:
    if (failed) fprintf(stderr, "%s\\n", qdr_last_error());
    qdr_stack_destroy(&net);
    qdr_grid_destroy(&grid);
    return failed;
}
int main(void)
{
    int code = 1;
    return qdr_launch(4, NULL, run_rank, NULL, &code) < 0 ? 1 : code;
}
C
compile lines quadrille
expect 'Y begins with' 4 "$scratch/lines"

# The model alone, with its data files.
cat >"$scratch/network.c" <<'C'
#include <quadrille/network.h>
#include <stdio.h>
int main(void)
{
    qdr_network network;
    qdr_network_counts counts;
    if (qdr_network_load("gpt2", &network) == QDR_OK && qdr_network_params(&network, &counts) == QDR_OK)
        printf("gpt2 has %lld parameters\n", (long long)counts.total);
    else
        printf("%s\n", qdr_last_error());
    return 0;
}
C
compile network quadrille_perf
data=$(find "$scratch" -path '*/share/quadrille')
expect 'gpt2 has 124439808 parameters' 1 env QDR_DATA_PATH="$data" "$scratch/network"
cmp "$data/models/gpt2.json" "$top/perfmodel/models/gpt2.json"
[ "$(find "$data/models" -name '*.json' | wc -l)" = "$(find "$top/perfmodel/models" -name '*.json' | wc -l)" ]

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
    expect 'of 4 owns' 4 mpiexec.mpich -n 4 "$scratch/linear" --mpi
    CC=mpicc.mpich compile own_mpi quadrille # the other way that README.md names
fi
readelf -d "$library" | grep -q 'SONAME.*libquadrille\.so\.0\]'
