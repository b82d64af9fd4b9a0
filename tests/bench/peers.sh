#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Quadrille compared with PDGEMM (Debian's ScaLAPACK), as Markdown: sh tests/bench/peers.sh [BUILD [ROUNDS]]. Each line
# is one shape on P ranks with one BLAS thread each; both run alternately, ROUNDS times (default 7), and the ratio is
# the median over the rounds. PDGEMM gets the best of several process grids and block sizes, Quadrille the given grid.
# Use an idle machine.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
rounds=${2:-7}
export OPENBLAS_NUM_THREADS=1
ninja -C "$build" src/quadrille tests/bench/pdgemm >/dev/null || {
    echo "PDGEMM is not there: install libscalapack-mpich-dev and configure $build anew" >&2
    exit 77
}

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
pdgemm() { # pdgemm RANKS M N K TYPE ROWS BLOCK ITERATIONS: median seconds
    ranks=$1
    shift
    mpiexec.mpich -n "$ranks" "$build/tests/bench/pdgemm" "$@" </dev/null | median
}
# quadrille RANKS M N K TYPE GRID ITERATIONS: median seconds, and the share of the limit
quadrille() {
    mpiexec.mpich -n "$1" "$build/src/quadrille" bench linear -m "$2" -n "$3" -k "$4" --dtype "$5" --grid "$6" \
        --iterations "$7" --warmup 1 --threads 1 --csv </dev/null | awk -F, 'NR == 2 { print $14, $19 }'
}
compare() { # compare RANKS M N K TYPE GRID ITERATIONS
    best=
    for rows in 1 2 4; do
        [ $(($1 % rows)) = 0 ] || continue
        for block in 64 128 256; do
            secs=$(pdgemm "$1" "$2" "$3" "$4" "$5" "$rows" "$block" 1)
            best=$(printf '%s\n%s' "$best" "$secs $rows $block" | sed '/^$/d' | sort -g | head -n 1)
        done
    done
    # shellcheck disable=SC2086 # three words
    set -- "$@" $best
    : >"$work/pairs"
    for round in $(seq "$rounds"); do
        ours=$(quadrille "$1" "$2" "$3" "$4" "$5" "$6" "$7")
        theirs=$(pdgemm "$1" "$2" "$3" "$4" "$5" "$9" "${10}" "$7")
        echo "$ours $theirs" >>"$work/pairs"
    done
    printf '| %s | %sx%sx%s | %s | %s | %.1f | %.3f | %.1f (%sx%s, %s) | %.2f |\n' "$1" "$2" "$3" "$4" "$5" "$6" \
        "$(awk '{ print 1e3 * $1 }' "$work/pairs" | median)" "$(awk '{ print $2 }' "$work/pairs" | median)" \
        "$(awk '{ print 1e3 * $3 }' "$work/pairs" | median)" "$9" "$(($1 / $9))" "${10}" \
        "$(awk '{ print $3 / $1 }' "$work/pairs" | median)"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores; $rounds rounds; load before:" \
    "$(cut -d ' ' -f 1-3 /proc/loadavg)"
echo
echo '| ranks | m x n x k | type | grid | Quadrille, ms | share of limit | PDGEMM, ms (process grid, block) | ratio |'
echo '| --- | --- | --- | --- | --- | --- | --- | --- |'
for type in f32 f64; do
    compare 2 4096 4096 4096 $type 1x1x1x2 3
    compare 2 4096 4096 1024 $type 1x1x1x2 5
    compare 2 65536 256 256 $type 1x1x1x2 9
    compare 2 256 256 65536 $type 2x1x1x1 9
done
for type in f32 f64; do
    compare 4 4096 4096 4096 $type 1x1x1x4 3
    compare 4 4096 4096 1024 $type 1x1x1x4 5
    compare 4 65536 256 256 $type 1x1x1x4 9
    compare 4 256 256 65536 $type 4x1x1x1 9
done
