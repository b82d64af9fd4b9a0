# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Read by run.sh, from the repository's top folder: finds CUDA, NCCL and the other libraries, and lets the compiler and
# the loader find them, too. Installs nothing.
#
#   use_folder FOLDER   Debian packages that were unpacked there (usr/include, usr/lib/...)
#   find_cuda FOLDER    sets CUDA_HOME, nccl_home, library_path; FOLDER: a place for links, where CUDA lies in several
#   find_sanitizer      prints the path of compute-sanitizer
#   need_all            says what is missing and what would help; 1 if nothing can be built

say() { printf '%s\n' "$*" >&2; }
missing() {
    say "missing: $1; $2"
    n_missing=$((n_missing + 1))
}
n_missing=0

# python_folder NAME: the folder of a Python package; nothing if it is not installed.
python_folder() {
    python3 -c '
import importlib.util, sys
try:
    print(list(importlib.util.find_spec(sys.argv[1]).submodule_search_locations)[0])
except (ImportError, AttributeError, IndexError, TypeError):
    pass' "$1" 2>/dev/null
}

# Prepends to a list of folders, as in PATH.
with_folder() { printf '%s%s' "$1" "${2:+:$2}"; }

use_folder() {
    deps=$(cd "$1" && pwd -P) || return 1
    pkg_config_dirs=
    for lib in "$deps"/usr/lib/*-linux-gnu "$deps"/usr/lib/*-linux-gnu/openblas* "$deps/usr/lib"; do
        [ -d "$lib" ] || continue
        LIBRARY_PATH=$(with_folder "$lib" "${LIBRARY_PATH:-}")
        library_path=$(with_folder "$lib" "$library_path")
        [ ! -d "$lib/pkgconfig" ] || pkg_config_dirs=$(with_folder "$lib/pkgconfig" "$pkg_config_dirs")
    done
    for include in "$deps"/usr/include "$deps"/usr/include/*-linux-gnu "$deps"/usr/include/*-linux-gnu/openblas*; do
        [ -d "$include" ] || continue
        C_INCLUDE_PATH=$(with_folder "$include" "${C_INCLUDE_PATH:-}")
        CPLUS_INCLUDE_PATH=$(with_folder "$include" "${CPLUS_INCLUDE_PATH:-}")
    done
    export LIBRARY_PATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH
    # Only these folders: the paths of other packages would get the prefix, too.
    export PKG_CONFIG_LIBDIR="$pkg_config_dirs" PKG_CONFIG_SYSROOT_DIR="$deps"
}

# first_file PATTERN...: the first that exists.
first_file() {
    for file; do
        [ ! -e "$file" ] || { printf '%s' "$file" && return 0; }
    done
    return 1
}

# Folders of the Python packages: CUDA 12 has one for each, later versions a common one.
name_wheels() {
    case $("$nvcc" --version) in
    *"release 12."*) wheels="nvidia.cuda_runtime nvidia.cublas nvidia.nvtx" wheels_cuda=12 ;;
    *) wheels=nvidia.cu13 ;;
    esac
}
wheels='' wheels_cuda=13

# in_wheels NAME: the first file of the Python packages whose path begins with NAME.
in_wheels() {
    for wheel in $wheels; do
        first_file "$(python_folder "$wheel")/$1"* && return 0
    done
    return 1
}

# link_library NAME: links lib64/libNAME.so in the folder of links to the first one found.
link_library() {
    file=$(first_file "$CUDA_HOME"/lib64/lib"$1".so* "$CUDA_HOME"/lib/lib"$1".so* \
        "$CUDA_HOME"/targets/*/lib/lib"$1".so* || in_wheels "lib/lib$1.so") || return 1
    ln -sf "$file" "$links/lib64/lib$1.so"
    library_path=$(with_folder "$(dirname "$file")" "$library_path")
}

# link_headers FOLDER...: links the headers in them that earlier folders did not have.
link_headers() {
    for folder; do
        for file in "$folder"/*; do
            name=$(basename "$file")
            if [ -e "$file" ] && [ ! -e "$links/include/$name" ]; then ln -s "$file" "$links/include/$name"; fi
        done
    done
}

# Headers and libraries of the toolkit, supplemented by the Python packages, as one folder.
link_cuda() {
    links=$1
    rm -rf "$links"
    mkdir -p "$links/include" "$links/lib64"
    links=$(cd "$links" && pwd -P)
    link_headers "$CUDA_HOME"/include "$CUDA_HOME"/targets/*/include
    for wheel in $wheels; do link_headers "$(python_folder "$wheel")"/include; done
    link_library cudart && link_library cublasLt && CUDA_HOME=$links
}

cuda_is_whole() {
    [ -e "$CUDA_HOME/include/cublasLt.h" ] && [ -e "$CUDA_HOME/include/cuda_runtime_api.h" ] &&
        [ -e "$CUDA_HOME/include/nvtx3/nvToolsExt.h" ] &&
        [ -e "$CUDA_HOME/lib64/libcublasLt.so" ] && [ -e "$CUDA_HOME/lib64/libcudart.so" ]
}

find_cuda() {
    nvcc=$(command -v nvcc) || nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
    [ -x "$nvcc" ] || return 1
    PATH=$(with_folder "$(dirname "$nvcc")" "$PATH")
    CUDA_HOME=${CUDA_HOME:-$(dirname "$(dirname "$(readlink -f "$nvcc")")")}
    tools=$CUDA_HOME
    name_wheels
    cuda_is_whole || link_cuda "$1" || return 1
    library_path=$(with_folder "$CUDA_HOME/lib64" "$library_path")
    nccl_home=
    if [ ! -e "$CUDA_HOME/include/nccl.h" ] || [ ! -e "$CUDA_HOME/lib64/libnccl.so" ]; then
        nccl_home=$(python_folder nvidia.nccl)
        [ -z "$nccl_home" ] || library_path=$(with_folder "$nccl_home/lib" "$library_path")
    fi
    export CUDA_HOME PATH
}

find_sanitizer() {
    command -v compute-sanitizer ||
        first_file "${tools:-}"/bin/compute-sanitizer "$tools"/compute-sanitizer/compute-sanitizer \
            /usr/local/cuda*/bin/compute-sanitizer
}

# The compiler's output for a header, here one of the toolkit or of NCCL's package if they have it.
read_header() {
    printf '#include <%s>\n' "$1" |
        cc -E -dM -I"${nccl_home:-$CUDA_HOME}/include" -I"$CUDA_HOME/include" -x c - 2>/dev/null
}
has_header() { read_header "$1" >/dev/null; }
nccl_version() {
    read_header nccl.h | awk '$2 ~ /^NCCL_(MAJOR|MINOR|PATCH)$/ { at[$2] = $3 }
                              END { if (NR) print at["NCCL_MAJOR"] "." at["NCCL_MINOR"] "." at["NCCL_PATCH"] }'
}

need_all() {
    for command in cc c++ meson ninja python3; do
        command -v "$command" >/dev/null 2>&1 ||
            missing "$command" "install it with the system's package manager, or meson and ninja with pip"
    done
    [ -x "$nvcc" ] || missing nvcc "install CUDA's toolkit 12.8 or later, or set CUDA_HOME"
    has_header jansson.h ||
        missing jansson "unpack libjansson-dev and libjansson4 into a folder and name it in QDR_TEST_DEPS"
    has_header zlib.h || missing zlib "unpack zlib1g-dev and zlib1g into a folder and name it in QDR_TEST_DEPS"
    pip_names="nvidia-cublas, nvidia-cuda-runtime and nvidia-nvtx (of CUDA 12 all with -cu12)"
    [ ! -x "$nvcc" ] || cuda_is_whole ||
        missing "cublasLt, cudart or NVTX" "install CUDA's toolkit whole, or with pip $pip_names"
    [ ! -x "$nvcc" ] || has_header nccl.h || missing NCCL "install libnccl-dev, or with pip nvidia-nccl-cu$wheels_cuda"
    return $((n_missing > 0))
}
