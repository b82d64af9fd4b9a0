#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sh tests/run.sh            a verdict in minutes: checkers, one build, and the tests that find most mistakes
# sh tests/run.sh --ci       everything that a change must pass: also other grids and numbers of ranks, faults, the
#                            emulated GPU, sanitizers, other processors, packages that are not there
# sh tests/run.sh --full     the same, and what takes hours; a real Slurm; the Debian packages; a container; aarch64
# Installs what is missing (Debian, Ubuntu). Prints one line per stage; the log of each stage is build-logs/STAGE.log;
# the last line has the totals.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tools/setup.sh

scope=quick full=
case ${1:-} in
'') ;;
--ci) scope=ci ;;
--full) scope=ci full=1 ;;
*) say "usage: sh tests/run.sh [--ci | --full]" && exit 2 ;;
esac

logs=build-logs
passed=0 failed=0 skipped=0
began=$(date +%s)
export PYTHONDONTWRITEBYTECODE=1
# One BLAS thread per rank unless a test requests more; otherwise ranks and threads compete for the cores.
export OPENBLAS_NUM_THREADS=1
# Failing allocations are tested: an impossible size must be reported as an error, not end the program.
# yield.c is loaded before the sanitizer; it allocates nothing.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:verify_asan_link_order=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=allocator_may_return_null=1:halt_on_error=1:second_deadlock_stack=1

# Prints the last lines, and ends.
totals() {
    printf 'total      %d s\n' "$(($(date +%s) - began))"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
    exit
}

# count NUMBER-PASSED NUMBER-FAILED NUMBER-SKIPPED
count() {
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

# The numbers of a Meson log: passed (including expected failures), failed, skipped.
meson_counts() {
    awk '/^(Ok|Expected Fail):/ { p += $NF } /^(Fail|Unexpected Pass|Timeout):/ { f += $NF } /^Skipped:/ { s += $NF }
         END { print p + 0, f + 0, s + 0 }' "$1"
}

# stage NAME COMMAND...: runs it with output to its log. It counts as one test in addition to those it runs.
stage() {
    name=$1
    shift
    start=$(date +%s) killed=$(killed_for_memory)
    watch_log "$logs/$name.log"
    "$@" >>"$logs/$name.log" 2>&1 </dev/null
    code=$?
    unwatch_log
    # shellcheck disable=SC2046 # three numbers
    set -- $(meson_counts "$logs/$name.log")
    count "$@"
    tests=
    [ "$1$2$3" = 000 ] || tests=", tests: $1 passed, $2 failed, $3 skipped"
    if [ $code = 0 ]; then
        count 1 0 0
        result=ok
    elif [ $code = 77 ]; then
        count 0 0 1
        result="skipped ($(tail -n 1 "$logs/$name.log"))"
    else
        count 0 1 0
        result=FAILED
    fi
    printf '%-10s %s, %d s%s\n' "$name" "$result" "$(($(date +%s) - start))" "$tests"
    [ "$killed" = "$(killed_for_memory)" ] || echo "    the machine ran out of memory: its kernel killed processes"
    [ "$result" = FAILED ] && failures "$logs/$name.log" | sed 's/^/    /'
    sed -n 's/^SKIPPED /    skipped: /p' "$logs/$name.log"
    return 0
}

# Processes that the kernel has killed for want of memory since it began.
killed_for_memory() { awk '$1 == "oom_kill" { print $2 }' /proc/vmstat 2>/dev/null; }

# What is worth seeing of the log of a stage that failed: the output of its first failed tests, and the end.
failures() {
    awk '/^ *[0-9]+\/[0-9]+ / { shown = / (FAIL|TIMEOUT|ERROR|UNEXPECTEDPASS) / } shown' "$1" | head -n 120
    echo ...
    tail -n 60 "$1"
}

# Names the skipped tests of Meson runs, with the last line that each printed: skips FILE.json... (a run without tests
# writes none)
skips() {
    python3 -c '
import json, os, sys
for name in filter(os.path.exists, sys.argv[1:]):
    for line in open(name, encoding="utf-8"):
        test = json.loads(line)
        if test["result"] == "SKIP":
            words = (test.get("stdout", "") + test.get("stderr", "")).strip().splitlines() or ["no reason"]
            print("SKIPPED", test["name"].split(" / ")[-1] + ":", words[-1])' "$@"
}

# suites FOLDER OPTION...: the tests of a build, without the long ones unless --full. Those under mpiexec run one at a
# time, and spend much of it waiting for time-outs; the others use the cores meanwhile (tests/support/yield.c). Of these
# there is one more than cores, since some wait for disks or time-outs, too.
suites() {
    folder=$1 mpi_log=$logs/$name-mpi.log
    shift
    [ -n "$full" ] || set -- "$@" --no-suite long
    yield=$(ls "$PWD/$folder/tests/support/libtest_yield.so" 2>/dev/null)
    LD_PRELOAD=$yield meson test -C "$folder" --no-rebuild --print-errorlogs --logbase mpi --suite mpi "$@" \
        >"$mpi_log" 2>&1 &
    mpi_tests=$!
    LD_PRELOAD=$yield meson test -C "$folder" --no-rebuild --print-errorlogs \
        --num-processes $(($(processes) + 1)) --no-suite mpi "$@"
    code=$?
    if wait $mpi_tests; then tail -n 10 "$mpi_log"; else cat "$mpi_log" && code=1; fi
    skips "$folder/meson-logs/mpi.json" "$folder/meson-logs/testlog.json"
    return $code
}

# Every kind of test once. Ranks are threads, two and four of them; under mpiexec one of each kind.
quick() {
    # shellcheck disable=SC2086 # options are words
    configure_in build $release_options || return 1
    meson test -C build --no-rebuild --list 2>/dev/null | awk -F ' / ' -v mpi="$quick_mpi" '
        NF < 2 { next }
        BEGIN { n = split(mpi, names, /; */); for (i = 1; i <= n; i++) chosen[names[i]] = 1 }
        $1 ~ /large|long|fake|fault|netlab/ { next }
        $1 ~ /:mpi/ { has_mpi = 1; if ($2 in chosen) print $2; delete chosen[$2]; next }
        / local [0-9]/ { if ($2 ~ / local [24]( |,|$)/) print $2; next }
        { print $2 }
        END { for (name in chosen) if (has_mpi) { print "there is no test " name >"/dev/stderr"; exit 1 } }
        ' >"$logs/quick.list" || return 1
    xargs -d '\n' meson test -C build --print-errorlogs --logbase quick --num-processes "$(processes)" \
        --no-suite large --no-suite long --no-suite fake <"$logs/quick.list"
    code=$?
    skips build/meson-logs/quick.json
    return $code
}
quick_mpi="comm mpi 4; coll mpi 4; stack mpi 4, two nodes; linear sweep mpi 4; bytes mpi 4; checkpoint mpi 4; \
levels mpi 4; coded mpi 4, two nodes; settings mpi 2; tutorial mpi 4; stuck mpi late; stuck mpi killed"

# The same with a sanitizer, which takes longer: without the large tests, and each program with one number of ranks,
# unless --full.
sanitized() {
    [ -n "$full" ] || set -- "$@" --no-suite large --no-suite again
    suites "$@" --no-suite headers
}

# ahead FOLDER...: compiles them for later stages, on what the tests of this one leave idle of the cores.
ahead() {
    # shellcheck disable=SC2016 # the inner shell's
    nice -n 19 sh -c 'trap "kill \$!; exit" TERM; for folder; do ninja -C "$folder" & wait $! || exit; done' \
        ahead "$@" >"$logs/ahead.log" 2>&1 &
    ahead=$!
}
ahead=''
trap '[ -z "$ahead" ] || kill "$ahead" 2>/dev/null; exit 130' INT
await_ahead() { [ -z "$ahead" ] || wait "$ahead"; }

# Tests start several ranks each: no more tests at once than there are cores, beside the one under mpiexec.
processes() { nproc 2>/dev/null || echo 2; }

packages() {
    [ -z "$missing" ] || { echo "not installed:$missing" && return 77; }
}
checkers() { python3 tests/tools/test_checkers.py; }
style() { python3 tests/tools/check_style.py && python3 tests/tools/check_duplicates.py; }
changelog() { python3 tests/tools/check_changelog.py; }
layers() { python3 tests/tools/check_layers.py && python3 tests/tools/check_collective.py; }
# Other processors add in another order: two ranks of each kind with the instructions that every x86-64 has and, where
# AVX-512 is the usual choice, with those of AVX2.
cores() {
    [ "$(uname -m)" = x86_64 ] || { echo "core types are those of x86-64" && return 77; }
    on_core Prescott base && if grep -qw avx512f /proc/cpuinfo; then on_core Haswell avx2; fi
}
# on_core TYPE KERNELS: of OpenBLAS, and the most that the library's own kernels may use.
on_core() {
    meson test -C build --list 2>/dev/null | sed -n '/planned/d; s|^.* / \(.* local 2\)$|\1|p' |
        OPENBLAS_CORETYPE=$1 QDR_KERNELS=$2 xargs -d '\n' meson test -C build --no-rebuild --print-errorlogs \
            --logbase "core-$1" --num-processes "$(processes)" --no-suite long --no-suite large
}
tidy() { python3 tests/tools/check_tidy.py build ${full:+--full}; }
symbols() {
    python3 tests/tools/check_layers.py --objects build &&
        python3 tests/tools/check_symbols.py --headers include build/lib/libquadrille.so \
            build/lib/libquadrille_perf.so &&
        python3 tests/tools/check_abi.py build &&
        if [ -e build/lib/libquadrille_cuda.so ]; then
            python3 tests/tools/check_symbols.py --needs 'cudart cublasLt nccl' build/lib/libquadrille_cuda.so
        fi
}
manuals() { sh tests/tools/check_manuals.sh; }
absent() { sh tests/tools/absent.sh; }
consumer() { sh tests/tools/check_install.sh build; }
debian() { sh tests/tools/check_debian.sh; }
container() { sh tests/tools/check_container.sh; }
slurm() { python3 tests/slurm/slurm_test.py build; }
aarch64() {
    sh tests/tools/aarch64.sh
    code=$?
    [ $code = 77 ] || skips build-aarch64/meson-logs/testlog.json
    return $code
}
# Kernels for one kind of GPU, which compile in half the time, and for --ci hardly optimized, in a fifth of that: where
# there is a GPU, tests check what they compute, not how fast. Each option is given each time, as folders keep the last.
architectures=90 fast=false
if [ -n "$full" ]; then
    architectures=80,90
elif [ $scope = ci ] && nvcc --help 2>/dev/null | grep -q -e '--Ofast-compile'; then
    fast=true
fi
# Sanitizers, which see nothing of them, link the kernels for emulated GPUs that the release build has compiled.
fake_kernels=$PWD/build/tests/fake_cuda/emulated/libfake_cuda_kernels.a
release_options="-Dtests=true -Dgpu_architectures=$architectures -Dgpu_compile_fast=$fast"
# shellcheck disable=SC2086 # options are words
release() {
    build_in build $release_options || { rm -f "$fake_kernels"; return 1; }
    folders=
    with_addresses configure_in && folders=build-asan
    with_threads configure_in && folders="$folders build-tsan"
    # shellcheck disable=SC2086 # folders are words
    ahead $folders
    suites build
}
# Of debug information, the lines that reports name: compiling takes three quarters of the time.
lines="${CFLAGS:-} -g1"
# with_addresses COMMAND: build_in or configure_in. With -O2 compiling takes twice as long.
with_addresses() {
    CFLAGS=$lines CXXFLAGS=$lines "$1" build-asan --buildtype=debugoptimized -Doptimization=1 \
        -Db_sanitize=address,undefined -Dcuda=disabled "-Dfake_kernels=$(ls "$fake_kernels" 2>/dev/null)"
}
addresses() {
    await_ahead
    with_addresses build_in || return 1
    sanitized build-asan --timeout-multiplier 5 --no-suite netlab
}
# Without oneDNN, whose own locks the sanitizer does not see.
with_threads() {
    command -v clang-14 >/dev/null || { echo "clang-14 is not installed" && return 77; }
    CC=clang-14 CXX=clang++-14 CFLAGS=$lines CXXFLAGS=$lines "$1" build-tsan \
        --buildtype=debugoptimized -Doptimization=1 -Db_sanitize=thread -Dmpi=none -Dexamples=false -Dcuda=disabled \
        -Donednn=disabled "-Dfake_kernels=$(ls "$fake_kernels" 2>/dev/null)"
}
threads() {
    with_threads build_in || return
    # The model is arithmetic, and one thread reads files.
    sanitized build-tsan --timeout-multiplier 10 --no-suite threadless --no-suite fuzz
}
# As on a machine where nothing is installed. Builds only what these suites need, and that in half the time.
no_mpi() {
    configure_in build-nompi --buildtype=release -Doptimization=1 -Dmpi=none -Dhwloc=disabled -Dblas=disabled \
        -Dcuda=disabled -Dexamples=false &&
        meson test -C build-nompi --print-errorlogs --suite unit --suite conform --suite cli \
            --no-suite long --no-suite large --no-suite threadless # the model knows no MPI
}

mkdir -p "$logs"
needs="$wanted_needs $test_needs"
[ $scope = ci ] || needs="$wanted_needs $quick_needs"
install_needs "$logs/install.log" "$required_needs" \
    "$needs ${full:+$debian_needs $container_needs $slurm_needs $aarch64_needs}"
check_meson

stage packages packages
stage checkers checkers
stage style style
stage layers layers
stage changelog changelog
if [ $scope = quick ]; then
    stage quick quick
    echo "left to --ci: other numbers of ranks, most tests under mpiexec, large tests, faults, emulated nodes and GPUs,"
    echo "sanitizers, other processors, missing packages"
    totals
fi
stage release release
stage cores cores
stage tidy tidy
stage symbols symbols
stage manuals manuals
stage consumer consumer
[ -z "$full" ] || stage debian debian
[ -z "$full" ] || stage container container
[ -z "$full" ] || stage slurm slurm
[ -z "$full" ] || stage aarch64 aarch64
stage no-mpi no_mpi
stage asan addresses
stage tsan threads
stage absent absent # its overlay must not lie over a folder in which another stage compiles

totals
