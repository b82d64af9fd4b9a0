#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The main example: trains a small GPT on the King James Bible with 4 ranks on a 2x2x1x1 grid, then generates a few
# lines of text.
# sh examples/run.sh [OPTION OF train...]. Installs what is missing (Debian, Ubuntu), builds in build/, writes to
# out/.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tools/setup.sh

mkdir -p build-logs out
text_needs="command:bible:bible-kjv package:bible-kjv-text:bible-kjv-text"
install_needs build-logs/install.log "$required_needs" "$wanted_needs $text_needs"
check_meson
case $missing in
*libopenblas-dev*) say "without OpenBLAS products are plain C, and training is several times slower" ;;
esac

say "building (log: build-logs/examples.log)"
build_targets="examples/train examples/transformer_layer examples/linear src/quadrille"
# An existing build folder keeps its configuration, with tests or without.
options=-Dtests=false
! configured build || options=$(recorded_options build)
watch_log build-logs/examples.log
# shellcheck disable=SC2086 # options are words
build_in build $options >>build-logs/examples.log 2>&1
built=$?
unwatch_log
if [ $built != 0 ]; then
    tail -n 30 build-logs/examples.log >&2
    say "the build failed"
    exit 1
fi

# Ranks are processes if mpiexec matches the library's MPI, otherwise threads of one process.
start="mpiexec.mpich -n 4" local=
if ! $start build/examples/linear --mpi >>build-logs/examples.log 2>&1 </dev/null; then
    say "mpiexec.mpich does not work with this build (log: build-logs/examples.log); ranks will be threads"
    start="" local="--local 4"
fi
# The learning rate falls along half a cosine to the end, so the number of steps is fixed: under three minutes on two
# cores.
# shellcheck disable=SC2086 # words
$start build/examples/train --grid 2x2x1x1 $local --steps 2600 --log out/run.jsonl --plot out/loss.svg "$@" \
    </dev/null || exit $?

cat >&2 <<EOF

log of each step   out/run.jsonl
picture            out/loss.svg
try next
  data parallel    mpiexec.mpich -n 2 build/examples/train --grid 1x1x1x2 --layers 2 --steps 10000
  your own text    mpiexec.mpich -n 4 build/examples/train FILE --grid 2x1x2x1 --layout scattered
  without MPI      build/examples/train --local 4 --grid 1x2x2x1
  one layer        mpiexec.mpich -n 4 build/examples/transformer_layer --grid 2x2x1x1
  all options      build/examples/train --help
EOF
