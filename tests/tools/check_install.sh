#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_install.sh BUILD: installs into a folder with a blank in its name and uses that as a new user would: the
# commands, and the same C and the same C++ program through pkg-config, CMake and Meson, shared and static; then
# everything again after the tree was moved. Neither LD_LIBRARY_PATH nor ldconfig tells where the library is. Also the
# commands and the code of README.md.
set -eu
command -v pkg-config >/dev/null 2>&1 || { echo "no pkg-config" && exit 77; }
build=$(cd "$1" && pwd)
top=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset LD_LIBRARY_PATH LIBRARY_PATH CPATH QDR_DATA_PATH CMAKE_PREFIX_PATH DESTDIR
mpi=$("$build/src/quadrille" --version | awk '$1 == "mpi" { print $2 }')
libdir=$(meson introspect --buildoptions "$build" |
    python3 -c 'import json, sys; print({o["name"]: o["value"] for o in json.load(sys.stdin)}["libdir"])')

fail() {
    echo "failed: $*" >&2
    [ ! -s "$scratch/output" ] || cat "$scratch/output" >&2
    exit 1
}

# expect WORDS NUMBER COMMAND...: NUMBER lines of the command's output contain the words.
expect() {
    words=$1 wanted=$2
    shift 2
    (cd / && "$@") >"$scratch/output" 2>&1 </dev/null || fail "$*"
    [ "$(grep -c -e "$words" "$scratch/output")" = "$wanted" ] || fail "$* (not $wanted lines with '$words')"
}

# quietly COMMAND...: shows its output only if it fails.
quietly() { "$@" >"$scratch/output" 2>&1 </dev/null || fail "$*"; }

# compile NAME FLAGS: warnings are errors. The flags are quoted for a shell, as by pkg-config.
compile() {
    case $1 in
    *.cpp) compiler="${CXX:-c++} -std=c++17 -o '$scratch/made'" ;;
    *) compiler="${CC:-cc} -std=c11 -o '$scratch/made'" ;;
    esac
    rm -f "$scratch/made"
    eval "$compiler -O1 -Wall -Wextra -Werror '$scratch/$1' $2" 2>"$scratch/output" || fail "$1 $2"
}

# ---- the programs ----

has_cpp=
if command -v "${CXX:-c++}" >/dev/null 2>&1; then has_cpp=1; else echo "no C++ compiler: C++ was not tried"; fi
cp "$top/examples/linear.c" "$top/examples/link_from_cxx.cpp" "$scratch/"

cat >"$scratch/model.c" <<'C'
#include <quadrille/network.h>
#include <stdio.h>
int main(void)
{
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    if (qdr_network_load("gpt2", &network) == QDR_OK && qdr_network_params(&network, &counts) == QDR_OK)
        printf("gpt2 has %lld parameters\n", (long long)counts.total);
    else
        printf("%s\n", qdr_last_error());
    return 0;
}
C

# The lines of README.md in a function that declares what they use.
lines=$(awk '/^```c$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' "$top/README.md")
cat >"$scratch/lines.c" <<C
#include <quadrille/quadrille.h>
#include <stdio.h>
enum { M = 8, K = 6, N = 4 };
#define CHECK(call) do { if ((call) < 0) goto out; } while (0)
static int run_rank(qdr_context *ctx, void *user)
{
    static _Thread_local float x_part[M * K / 2] = {1, 2, 3, 4}, y_part[M * N / 2];
    static _Thread_local float dy_part[M * N / 2], dx_part[M * K / 2];
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
        printf("%s, %d ranks\n", qdr_get_versions()->quadrille, qdr_context_size(ctx));
        qdr_context_destroy(&ctx);
        failed = 0;
    } else {
        fprintf(stderr, "%s\n", qdr_last_error());
    }
    MPI_Finalize();
    return failed;
}
C

# runs FOLDER: runs everything that the three build systems built there, and checks which library each program uses.
runs() {
    for kind in shared static; do
        expect 'of 4 owns' 4 "$1/linear_$kind"
        [ -z "$has_cpp" ] || expect '^Y\[0,[0-4]\] = ' 5 "$1/cxx_$kind"
        uses_shared "$1/linear_$kind" $kind
        [ ! -e "$1/model_$kind" ] || expect 'gpt2 has 124439808 parameters' 1 "$1/model_$kind"
    done
}

# uses_shared PROGRAM KIND: it needs libquadrille.so if and only if the kind is shared.
uses_shared() {
    found=static
    ! readelf -d "$1" | grep -q 'NEEDED.*libquadrille' || found=shared
    [ "$found" = "$2" ] || fail "$1 uses the $found library, not the $2 one"
}

# ---- the ways to link ----

try_pkg_config() {
    shared=$(pkg-config --cflags --libs quadrille)
    for kind in shared static; do
        flags=$shared
        # The same flags, with the archive named in full: the linker would take the shared library, which is in the same
        # folder.
        [ $kind = shared ] ||
            flags=$(pkg-config --static --cflags --libs quadrille | sed 's/-lquadrille\>/-l:libquadrille.a/')
        compile linear.c "$flags"
        expect 'of 4 owns' 4 "$scratch/made"
        uses_shared "$scratch/made" $kind
        [ -n "$has_cpp" ] || continue
        compile link_from_cxx.cpp "$flags"
        expect '^Y\[0,[0-4]\] = ' 5 "$scratch/made"
    done
    compile lines.c "$shared"
    expect 'Y begins with' 4 "$scratch/made"
    compile model.c "$(pkg-config --cflags --libs quadrille_perf)"
    expect 'gpt2 has 124439808 parameters' 1 "$scratch/made"
}

cat >"$scratch/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.13)
project(stranger C)
set(CMAKE_C_STANDARD 11)
add_compile_options(-Wall -Wextra -Werror)
find_package(quadrille 0.1 REQUIRED)
foreach(kind shared static)
  set(suffix "")
  if(kind STREQUAL static)
    set(suffix _static)
  endif()
  add_executable(linear_${kind} linear.c)
  target_link_libraries(linear_${kind} PRIVATE quadrille::quadrille${suffix})
  add_executable(model_${kind} model.c)
  target_link_libraries(model_${kind} PRIVATE quadrille::perf${suffix})
  if(HAS_CPP)
    enable_language(CXX)
    set(CMAKE_CXX_STANDARD 17)
    add_executable(cxx_${kind} link_from_cxx.cpp)
    target_link_libraries(cxx_${kind} PRIVATE quadrille::quadrille${suffix})
  endif()
endforeach()
find_package(quadrille 0.1.0 EXACT QUIET CONFIG)
find_package(quadrille 9.0 QUIET CONFIG)
if(quadrille_FOUND)
  message(FATAL_ERROR "version 9.0 was asked for, and ${quadrille_VERSION} taken")
endif()
C

try_cmake() {
    command -v cmake >/dev/null 2>&1 || { echo "no cmake: find_package was not tried" && return 0; }
    rm -rf "$scratch/by cmake"
    quietly cmake -S "$scratch" -B "$scratch/by cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DHAS_CPP="$has_cpp"
    quietly ninja -C "$scratch/by cmake"
    runs "$scratch/by cmake"
}

# One project for both: dependency() finds the installed library, or else uses the subproject.
mkdir -p "$scratch/by meson/subprojects"
ln -s "$top" "$scratch/by meson/subprojects/quadrille"
cat >"$scratch/by meson/meson.build" <<'C'
project('stranger', 'c', default_options: ['c_std=c11', 'cpp_std=c++17', 'warning_level=2', 'werror=true'])
options = ['warning_level=3', 'cuda=disabled']
has_cpp = add_languages('cpp', native: false, required: false)
foreach kind : ['shared', 'static']
  is_static = kind == 'static'
  quadrille = dependency('quadrille', version: '>=0.1', static: is_static, fallback: 'quadrille',
    default_options: options)
  perf = dependency('quadrille_perf', static: is_static, fallback: 'quadrille')
  executable('linear_' + kind, 'linear.c', dependencies: quadrille)
  executable('model_' + kind, 'model.c', dependencies: perf)
  if has_cpp
    executable('cxx_' + kind, 'link_from_cxx.cpp', dependencies: quadrille)
  endif
endforeach
C
cp "$scratch/linear.c" "$scratch/model.c" "$scratch/link_from_cxx.cpp" "$scratch/by meson/"

# try_meson FOLDER OPTION...
try_meson() {
    folder="$scratch/by meson/$1"
    shift
    rm -rf "$folder"
    quietly meson setup "$folder" "$scratch/by meson" --buildtype=plain "$@"
    # shellcheck disable=SC2086 # names are words
    quietly ninja -C "$folder" linear_shared linear_static model_shared model_static ${has_cpp:+cxx_shared cxx_static}
    runs "$folder"
}

try_mpi() {
    if [ "$mpi" = none ]; then
        echo "no MPI in this build: a program that calls MPI was not tried"
        return
    elif pkg-config --exists "$mpi"; then
        compile own_mpi.c "$(pkg-config --cflags --libs quadrille "$mpi")"
    else
        CC=$mpi compile own_mpi.c "$(pkg-config --cflags --libs quadrille)"
    fi
    [ "$mpi" = mpich ] || return 0
    expect ', 2 ranks' 2 mpiexec.mpich -n 2 "$scratch/made"
    CC=mpicc.mpich compile own_mpi.c "$(pkg-config --cflags --libs quadrille)" # the other way that README.md names
    compile linear.c "$(pkg-config --cflags --libs quadrille)"
    expect 'of 4 owns' 4 mpiexec.mpich -n 4 "$scratch/made" --mpi
}

# ---- the tree ----

# check_tree: the programs, and that data and plugin are those of this tree, recognised by files that no other tree has.
check_tree() {
    data="$prefix/share/quadrille"
    expect "^quadrille  *$version\$" 1 "$prefix/bin/quadrille" --version
    for name in train train_gpt transformer_layer; do
        expect "^usage: $name" 1 "$prefix/bin/$name" --help
        cmp "$top/docs/man/$name.1" "$prefix/share/man/man1/$name.1"
    done
    printf 'ab' >"$scratch/text"
    expect '"tokens": 1,' 1 "$prefix/bin/train" --eval "$scratch/text" --init 0
    ln -sf "$prefix/bin/quadrille" "$scratch/link"
    expect "^quadrille  *$version\$" 1 "$scratch/link" --version
    cp "$data/models/gpt2.json" "$data/models/only-here.json"
    expect 'only-here on grid' 1 "$prefix/bin/quadrille" mem only-here -n 4 --machine perlmutter
    sed 's/"gpt2"/"only-here"/' "$scratch/model.c" >"$scratch/only.c"
    compile only.c \
        "$(pkg-config --static --cflags --libs quadrille_perf | sed 's/-lquadrille_perf\>/-l:libquadrille_perf.a/')"
    mv "$scratch/made" "$prefix/bin/only"
    expect 'gpt2 has 124439808 parameters' 1 "$prefix/bin/only"
    expect 'gpt2 has 124439808 parameters' 1 env PATH="$prefix/bin:$PATH" only
    rm "$data/models/only-here.json" "$prefix/bin/only"
}

# An empty plugin cannot be loaded, and the loader reports which file it tried.
check_plugin() {
    rm -f "$lib/libquadrille_cuda.so"
    : >"$lib/libquadrille_cuda.so"
    (cd / && "$prefix/bin/quadrille" doctor) >"$scratch/output" 2>&1 </dev/null || :
    grep -q "$prefix/.*/libquadrille_cuda.so: file too short" "$scratch/output" ||
        fail "the plugin of the tree is not found"
}

check_versions() {
    [ "$(pkg-config --modversion quadrille)" = "$version" ] || fail "the version of quadrille.pc is not $version"
    grep -q "set(PACKAGE_VERSION \"$version\")" "$lib/cmake/quadrille/quadrilleConfigVersion.cmake" ||
        fail "CMake's version"
    grep -q "QDR_VERSION_STRING \"$version\"" "$prefix/include/quadrille/types.h" || fail "the version of types.h"
    head -n 1 "$top/packaging/debian/changelog" | grep -q "($version-" || fail "Debian's version is not $version"
    readelf -d "$lib/libquadrille.so" | grep -q 'SONAME.*\[libquadrille\.so\.0\]' || fail "the soname"
    [ "$(readlink "$lib/libquadrille.so.0")" = "libquadrille.so.$version" ] || fail "the file of the soname"
}

# All public headers are installed, and no others. No installed file contains the path of a build folder; links in the
# documentation lead to installed files.
check_files() {
    for name in LICENSE README.md CHANGELOG.md docs/tutorial.md docs/images/loss.svg examples/linear.c \
        examples/common/gpt.c; do
        cmp "$top/$name" "$prefix/share/doc/quadrille/$name"
    done
    [ -s "$prefix/share/bash-completion/completions/quadrille" ] || fail "no completions"
    for folder in checkpoints models machines; do
        diff -r "$top/perfmodel/$folder" "$prefix/share/quadrille/$folder"
    done
    diff -r "$top/include/quadrille" "$prefix/include/quadrille"
    [ ! -e "$prefix/include/quadrille_private" ] || fail "private headers are installed"
    ! grep -rlF -e "$build" -e "$top" -e "$scratch" "$lib/pkgconfig" "$lib/cmake" "$prefix/share/modulefiles" ||
        fail "files that name folders of the build"
    ! grep -n -v '^Installing ' "$scratch/install.log" || fail "meson install says more than what it installs"
}

check_module() {
    for modulecmd in /usr/lib/*/modulecmd.tcl /usr/share/lmod/lmod/libexec/lmod; do
        [ -e "$modulecmd" ] || continue
        MODULEPATH="$prefix/share/modulefiles" "$modulecmd" sh load quadrille >"$scratch/module.sh" 2>"$scratch/output"
        # shellcheck disable=SC2016 # for the other shell
        expect "$prefix/bin/quadrille" 1 sh -c '. "$1" && command -v quadrille' sh "$scratch/module.sh"
        # shellcheck disable=SC2016
        expect "^$version\$" 1 sh -c '. "$1" && pkg-config --modversion quadrille' sh "$scratch/module.sh"
        return
    done
    echo "neither Environment Modules nor Lmod: the module file was not loaded"
}

DESTDIR="$scratch/staged" meson install -C "$build" --no-rebuild >"$scratch/install.log" 2>&1 ||
    { tail -n 5 "$scratch/install.log" >&2 && fail "meson install"; }
configured=$(meson introspect --buildoptions "$build" |
    python3 -c 'import json, sys; print({o["name"]: o["value"] for o in json.load(sys.stdin)}["prefix"])')
for name in 'first prefix' 'moved to here'; do
    if [ -d "$scratch/first prefix" ]; then
        mv "$scratch/first prefix" "$scratch/$name"
    else
        mv "$scratch/staged$configured" "$scratch/$name" # as for DESTDIR, and moved already
    fi
    prefix="$scratch/$name" lib="$scratch/$name/$libdir"
    version=$(PKG_CONFIG_PATH="$lib/pkgconfig" pkg-config --modversion quadrille)
    export PKG_CONFIG_PATH="$lib/pkgconfig"
    check_versions
    check_files
    check_tree
    check_module
    try_pkg_config
    try_cmake
    try_meson installed
done
try_mpi
check_plugin
unset PKG_CONFIG_PATH
try_meson subproject --force-fallback-for=quadrille
