#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The figures of docs/model.md: the model against runs and collectives that others measured, published facts, and speed.
#
#   sh tests/bench/model.sh [-w] [-l] MEASURED [BUILD]
#
# MEASURED holds training_runs.csv and collectives.csv; BUILD is a build folder (default: build). -w writes the figures into
# docs/model.md instead of printing them; -l adds the judgement of models that were left out of the fit (half an hour).
set -eu
write='' left_out=''
while getopts wl option; do
    case $option in
    w) write=1 ;;
    l) left_out=1 ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || { sed -n '5,9p' "$0" >&2; exit 2; }
measured=$1 build=${2:-build}
quadrille=$build/src/quadrille
[ -x "$quadrille" ] || { echo "model.sh: no $quadrille; build first" >&2; exit 2; }

run() { printf '\n    $ quadrille %s\n' "$*"; "$quadrille" "$@" 2>/dev/null | sed 's/^/    /'; }

figures() {
    echo "Runs of others, with the constants of the machine files:"
    run predict "$measured/training_runs.csv" | sed -n '/^    source /,/^    all /p'
    if [ -n "$left_out" ]; then
        printf '\nEvery model judged by constants that were fitted without it (`tests/bench/fit.py --leave-one-out`):\n\n'
        python3 tests/bench/fit.py "$quadrille" "$measured/training_runs.csv" --leave-one-out | sed 's/^/    /'
    fi
    printf '\nAxoNN, 80B on 1,024 A100 of Perlmutter: published 57 %% of peak, with recomputation in the flops (4/3 of "of peak" below).\n'
    printf 'Assumed: 1,024 sequences of 2,048 tokens a step, everything recomputed.\n'
    run plan axonn-80b -n 1024 --machine perlmutter --batch 1024 --recompute full --top 1 | sed -n '1p;4,5p'
    printf '\nFrontier, weak scaling of 80B (8 sequences a GCD), tokens/s a GCD against 512; published 88.3 %%, 79.0 %%, 53.5 %%:\n\n'
    base=''
    for n in 512 8192 16384 32768; do
        rate=$("$quadrille" plan axonn-80b -n $n --machine frontier --batch $((8 * n)) --top 1 --csv 2>/dev/null |
            awk -F, -v n=$n 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "tokens_per_sec") c = i } NR == 2 { print $c / n }')
        base=${base:-$rate}
        awk -v n=$n -v r="$rate" -v b="$base" 'BEGIN { printf "    %6d GCDs %8.1f tokens/s each, %5.1f %%\n", n, r, 100 * r / b }'
    done
    printf '\nA whole search (P = 4,096):\n'
    start=$(date +%s%N)
    run plan llama-3.1-405b -n 4096 --machine dgx-h100 --batch 2048 --top 1 | tail -n 2
    printf '\n%d ms, the start of the program among them.\n' $((($(date +%s%N) - start) / 1000000))
}

if [ -z "$write" ]; then figures; exit; fi
figures >model-figures.tmp
awk '/^<!-- figures -->/ { print; print ""; while ((getline line < "model-figures.tmp") > 0) print line; skip = 1; next }
     /^<!-- end of figures -->/ { skip = 0; print "" } !skip' docs/model.md >model.tmp
mv model.tmp docs/model.md
rm -f model-figures.tmp
