#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The figures of docs/model.md: the model compared with runs and collectives that others measured, published facts, and
# its speed.
#
#   sh tests/bench/model.sh [-w] [-l] MEASURED [BUILD]
#
# MEASURED holds training_runs.csv and collectives.csv; BUILD is a build folder (default: build). -w writes the figures
# into docs/model.md instead of printing them; -l adds the evaluation of models that were left out of the fit (half an
# hour).
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
[ $# -ge 1 ] || { sed -n '6,10p' "$0" >&2; exit 2; }
measured=$1 build=${2:-build}
quadrille=$build/src/quadrille
[ -x "$quadrille" ] || { echo "model.sh: no $quadrille; build first" >&2; exit 2; }

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

say() { printf '\n%s\n\n' "$*" | fold -s -w 120 | sed 's/ *$//'; }
told() { printf '    $ quadrille %s\n' "$*"; }
of() { "$quadrille" "$@" 2>/dev/null; }

# weak_scaling: each size's share of the peak relative to that on 512 GCDs.
weak_scaling() {
    first=''
    for pair in 512:5b 8192:80b 16384:160b 32768:320b; do
        n=${pair%:*} model=axonn-${pair#*:}
        share=$(of plan "$model" -n "$n" --machine frontier --batch 8192 --recompute full --top 1 --csv |
            awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "peak_share") c = i } NR == 2 { print $c }')
        first=${first:-$share}
        awk -v n="$n" -v m="$model" -v r="$share" -v f="$first" \
            'BEGIN { printf "    %6d GCDs %-11s %5.1f %% of peak without recomputation, %5.1f %% of 512\n",
                n, m, 100 * r, 100 * r / f }'
    done
}

# secs_of PLAN...: the seconds of a step of the first plan.
secs_of() {
    of plan "$@" --top 1 --csv |
        awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "secs") c = i } NR == 2 { print $c }'
}

overlap_on_off() {
    common='axonn-20b -n 256 --machine perlmutter --batch 512 --recompute full'
    for grid in x=1,y=4,z=8,d=8 x=1,y=1,z=64,d=4 x=4,y=4,z=4,d=4 x=8,y=4,z=8,d=1; do
        on=$(secs_of $common --fix $grid) off=$(secs_of $common --fix $grid --overlap off)
        awk -v g="$grid" -v a="$on" -v b="$off" \
            'BEGIN { printf "    %-16s %.2f s, without overlap %.2f s: %+.0f %%\n", g, a, b, 100 * (b / a - 1) }'
    done
}

three_levels() {
    common='gpt-neox-20b --machine frontier --seq 2048 --micro-batch 1 --order zdxy --mem 4T'
    for overlap in on off; do
        all="$common -n 384 --batch 1536 --overlap $overlap"
        three=$(secs_of $all --fix x=1,y=1,z=2,d=192 --levels 8,384)
        one=$(secs_of $all --fix x=1,y=1,z=384,d=1)
        secondary=$(secs_of $all --fix x=1,y=1,z=8,d=48 --levels 384,384)
        few=$(secs_of $common -n 8 --batch 32 --overlap $overlap --fix x=1,y=1,z=2,d=4 --levels 8,8)
        awk -v o="$overlap" -v a="$three" -v b="$one" -v c="$secondary" -v f="$few" 'BEGIN {
            printf "    overlap %-3s three levels %.2f s, hpZ %.2f s: %.2f times, ZeRO-3 %.2f s: %.2f times; %s\n",
                o, a, c, c / a, b, b / a, sprintf("efficiency from 8 GCDs %.2f", f / a) }'
    done
}

# complete OPTION...: what a complete search counts, and how long it takes.
complete() {
    start=$(date +%s%N)
    of plan llama-3.1-405b -n 4096 --machine dgx-h100 --batch 2048 --top 1 "$@" | grep ' plans, of which' |
        sed 's/^/    /'
    printf '    %d ms\n' $((($(date +%s%N) - start) / 1000000))
}

# strict TABLE: a table of others as predict reads it.
strict() { python3 tests/bench/strict_tables.py "$measured/$1.csv" 2>/dev/null >"$folder/$1.csv"; }

figures() {
    strict training_runs
    strict collectives
    say 'Runs measured by others, with the constants of the machine files:'
    told predict training_runs.csv
    of predict "$folder/training_runs.csv" | sed -n '/^source /,/^all /p' |
        grep -v ' 0  *[0-9]*  *-  *-  *0 ' | sed 's/^/    /'
    if [ -n "$left_out" ]; then
        say 'Every model evaluated with constants that were fitted without it (tests/bench/fit.py --leave-one-out):'
        python3 tests/bench/fit.py "$quadrille" "$folder/training_runs.csv" --leave-one-out | sed 's/^/    /'
    fi
    say 'Collectives measured by others:'
    told predict collectives.csv
    of predict "$folder/collectives.csv" | sed -n '/^machine /,/^all /p' | sed 's/^/    /'
    say 'AxoNN, 80B on 1,024 A100 of Perlmutter: published 57 % of peak, counting the flops of recomputation, which' \
        'is 4/3 of "of peak" here. The batch of those runs is not known; assumed: 1,024 sequences of 2,048 tokens per' \
        'step (2 million), with full recomputation.'
    told plan axonn-80b -n 1024 --machine perlmutter --batch 1024 --recompute full --top 1
    of plan axonn-80b -n 1024 --machine perlmutter --batch 1024 --recompute full --top 1 |
        sed -n '/^plan/p;/^1 /p' | sed 's/^/    /'
    echo
    for batch in 512 1024 2048 4096; do
        of plan axonn-80b -n 1024 --machine perlmutter --batch $batch --recompute full --top 1 --csv |
            awk -F, -v b=$batch 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "peak_share") c = i }
                NR == 2 { printf "    %4d sequences: %.1f %% of peak, counted as in the publication\n",
                    b, 400 / 3 * $c }'
    done
    say 'Frontier, weak scaling relative to 512 GCDs: published 88.3 % at 8,192, 79.0 % at 16,384, 53.5 % at 32,768.' \
        'Assumed: 8,192 sequences of 2,048 tokens per step at every size, full recomputation, any grid.'
    weak_scaling
    say 'AxoNN, 20B on Perlmutter, with and without overlap of communication and products: published a gain of nearly' \
        '53 %. Assumed: 256 A100, 512 sequences of 2,048 tokens, full recomputation; order, layout and micro-batch' \
        'are the best for each grid in both cases.'
    overlap_on_off
    say 'Three levels of partitioning on 384 GCDs of Frontier, a 20B GPT on 1,536 sequences of 2,048 tokens,' \
        'micro-batches of one: weights over a package (2), gradients over a node (8), optimizer state over all,' \
        'compared with hpZ (weights over a node, the rest over all) and ZeRO-3 over all; published: 1.71 times as' \
        'fast as ZeRO++, and a scaling efficiency of 0.94. At 8 GCDs, which have too little memory for it, 32' \
        'sequences.'
    three_levels
    say 'A complete search for P = 4,096, including the start of the program:'
    told plan llama-3.1-405b -n 4096 --machine dgx-h100 --batch 2048 --top 1
    complete
    told plan llama-3.1-405b -n 4096 --machine dgx-h100 --batch 2048 --top 1 --levels any
    complete --levels any
    say 'Its parts, on one core (tests/bench/model_speed):'
    "$build/tests/bench/model_speed" | sed 's/^/    /'
    if [ -x "$build/tests/referee/referee" ]; then
        say 'The simulation compared with SimGrid (tests/referee):'
        "$build/tests/referee/referee" 2>/dev/null | sed 's/^/    /'
    fi
    say 'Memory compared with that of the runtime, 12 grids, two layouts, f32 and bf16 (tests/unit/price/plan_memory):'
    "$build/tests/unit/unit_plan_memory" 2>&1 | grep '%' | sed 's/^/    /'
}

if [ -z "$write" ]; then figures; exit; fi
figures >model-figures.tmp
awk '/^<!-- figures -->/ { print; while ((getline line < "model-figures.tmp") > 0) print line; skip = 1; next }
     /^<!-- end of figures -->/ { skip = 0; print "" } !skip' docs/model.md >model.tmp
mv model.tmp docs/model.md
rm -f model-figures.tmp
