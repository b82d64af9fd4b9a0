#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Draws the table that codec_loss.sh prints, with gnuplot: sh tests/bench/codec_loss_picture.sh TABLE.md PICTURE.svg.
# Bars: how much higher the validation loss is with the codecs than without, the mean of the seeds; below each the share
# of bytes that is sent.
set -eu
[ $# = 2 ] || { echo "usage: codec_loss_picture.sh TABLE.md PICTURE.svg" >&2 && exit 2; }
command -v gnuplot >/dev/null || { echo "gnuplot is missing; install gnuplot-nox" >&2 && exit 2; }
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
# preset, bytes, mean of the first grid, of the second
awk -F' *[|] *' '$3 ~ /^[0-9]+x/ { if (!($2 in bytes)) order[++n] = $2
    mean[$2, ++of[$2]] = $6; bytes[$2] = bytes[$2] (of[$2] > 1 ? ", " : "") $4; grid[of[$2]] = $3 }
    END { printf "preset \"%s\" \"%s\"\n", grid[1], grid[2]
          for (i = 1; i <= n; i++) printf "\"%s\\n{/=10 %s}\" %s %s\n", order[i], bytes[order[i]], mean[order[i], 1],
              mean[order[i], 2] }' "$1" >"$rows"
spread=$(sed -n 's/^Without codecs: .*, \([0-9.]*\) apart;.*/\1/p' "$1")
gnuplot <<EOP
set terminal svg size 860,380 font "sans-serif,12" background "white"
set output "$2"
set title "What codecs do to a GPT's loss: 2 layers, 4 ranks, 400 steps, all messages coded" offset 0,-0.3
set ylabel "validation loss above that without codecs\n(nats per byte)"
set xlabel "preset, and the share of bytes that is sent" offset 0,-1
set bmargin 6
set lmargin 12
set style data histograms
set style histogram clustered gap 1.2
set style fill solid border -1
set boxwidth 0.9
set yrange [-0.01:*]
set xrange [-0.6:6.6]
set grid ytics lc rgb "#dddddd"
set key top left
set xtics nomirror
plot "$rows" using 2:xtic(1) title columnheader(2) lc rgb "#1f5fa8", \
    '' using 3 title columnheader(3) lc rgb "#d9541e", \
    $spread with lines dt 2 lc rgb "#666666" title "between seeds without codecs"
EOP
