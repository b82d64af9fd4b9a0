# SPDX-License-Identifier: Apache-2.0
# Read by tests/run.sh and examples/run.sh, from the repository's top: installs what is missing, builds.
#
#   install_needs LOG NEEDS NEEDS  installs what is missing of what is required and of what is wanted; a need is
#                                  "kind:name:package": the package is missing unless `have kind name`
#   configure_in FOLDER OPTION...  with options of meson; does nothing where that was done before
#   watch_log LOG, unwatch_log     show how far a command has come
#   build_in FOLDER OPTION...      configures, compiles; build_targets: what to build, all if unset

required_needs="command:gcc:gcc file:/usr/include/stdio.h:libc6-dev command:python3:python3 command:meson:meson
command:ninja:ninja-build library:jansson:libjansson-dev library:zlib:zlib1g-dev"
wanted_needs="command:pkg-config:pkg-config module:mpich:libmpich-dev command:mpiexec.mpich:mpich
module:hwloc:libhwloc-dev module:openblas:libopenblas-dev library:dnnl:libdnnl-dev
library:zfp:libzfp-dev"
quick_needs="command:g++:g++ library:cmocka:libcmocka-dev python:numpy:python3-numpy module:simgrid:libsimgrid-dev
command:clang-format-14:clang-format-14"
test_needs="$quick_needs command:ccache:ccache command:clang-14:clang-14
package:libclang-rt-14-dev:libclang-rt-14-dev command:clang-tidy-14:clang-tidy-14 command:nm:binutils
command:groff:groff command:cmake:cmake package:environment-modules:environment-modules"
slurm_needs="command:/usr/sbin/slurmctld:slurm-wlm command:/usr/sbin/munged:munge"
container_needs="command:podman:podman command:runc:runc command:/usr/sbin/debootstrap:debootstrap"
debian_needs="command:dpkg-buildpackage:dpkg-dev command:dh:debhelper command:lintian:lintian command:fakeroot:fakeroot"
aarch64_needs="command:aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu command:aarch64-linux-gnu-g++:g++-aarch64-linux-gnu
command:qemu-aarch64:qemu-user"

say() { printf '%s\n' "$*" >&2; }

# watch_log LOG: until unwatch_log, standard error shows the progress of the command that writes LOG: on a terminal in
# one line that is rewritten, otherwise now and then. It also ends with this shell.
watch_log() {
    : >"$1"
    show_log "$1" &
    watcher=$!
}

unwatch_log() {
    kill "$watcher" 2>/dev/null
    wait "$watcher" 2>/dev/null
    [ ! -t 2 ] || printf '\r\033[K' >&2
}

show_log() {
    shown='' n_secs=0 of=0
    while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        n_secs=$((n_secs + 1))
        [ -t 2 ] || [ $((n_secs % 20)) = 0 ] || continue
        line=$(tail -n 1 "$1" | cut -c 1-76)
        [ -n "$line" ] && [ "$line" != "$shown" ] || continue
        shown=$line
        # "[17/230] ..." of Ninja, " 17/230 ..." of Meson: what is left of that step alone
        # shellcheck disable=SC2046 # two numbers
        set -- "$1" $(printf '%s' "$line" | sed -n 's|^ *\[*\([1-9][0-9]*\)/\([0-9]*\).*|\1 \2|p')
        if [ $# = 3 ]; then
            [ "$of" = "$3" ] || { of=$3 before=$((n_secs - 1)) done_before=$(($2 - 1)); }
            secs=$(((n_secs - before) * ($3 - $2) / ($2 - done_before)))
            left=$((secs / 60)):$(printf '%02d' $((secs % 60)))
            line="$(printf '%s' "$line" | cut -c 1-51), $left left of this step"
        fi
        if [ -t 2 ]; then printf '\r%s\033[K' "$line" >&2; else say "    $line"; fi
    done
}

# have KIND NAME: whether a command, a pkg-config module, a library (as a module or as a header), a file, a Python
# module or a Debian package exists.
have() {
    case $1 in
    command) command -v "$2" >/dev/null 2>&1 ;;
    module) pkg-config --exists "$2" 2>/dev/null ;;
    library) have module "$2" || printf '#include <%s.h>\n' "$2" | gcc ${CFLAGS:-} -E - >/dev/null 2>&1 ;;
    file) [ -e "$2" ] ;;
    python) python3 -c "import $2" 2>/dev/null || /usr/bin/python3 -c "import $2" 2>/dev/null ;;
    package) dpkg-query -W -f='${db:Status-Status}' "$2" 2>/dev/null | grep -qx installed ;;
    esac
}

# The packages of those needs that are not met.
missing_packages() {
    for need; do
        kind=${need%%:*} rest=${need#*:}
        have "$kind" "${rest%:*}" || printf ' %s' "${rest##*:}"
    done
}

# Whether packages can be installed here; as_root is then the prefix of apt-get.
can_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" = 0 ]; then
        as_root="env DEBIAN_FRONTEND=noninteractive"
    elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        as_root="sudo DEBIAN_FRONTEND=noninteractive"
    else
        return 1
    fi
}

# All packages at once; one at a time if that fails, since some systems do not have all of them.
apt_install() {
    options="-y -q --no-install-recommends -o DPkg::Lock::Timeout=300"
    # shellcheck disable=SC2086 # words
    $as_root apt-get update -q </dev/null && $as_root apt-get install $options "$@" </dev/null && return 0
    for package; do
        # shellcheck disable=SC2086 # words
        $as_root apt-get install $options "$package" </dev/null
    done
}

# install_needs LOG REQUIRED WANTED: what could not be installed is named in one message, with the command that installs
# it, and stays in missing; exits if any of it is required.
install_needs() {
    # shellcheck disable=SC2086 # needs are words
    missing=$(missing_packages $2 $3)
    [ -n "$missing" ] || return 0
    if can_install; then
        say "installing$missing (a minute or two; log: $1)"
        # shellcheck disable=SC2086 # packages are words
        apt_install $missing >"$1" 2>&1
        # shellcheck disable=SC2086
        missing=$(missing_packages $2 $3)
        [ -n "$missing" ] || return 0
    fi
    if command -v apt-get >/dev/null 2>&1; then
        remedy="to install, run as root: apt-get update && apt-get install -y --no-install-recommends$missing"
    else
        remedy="install these, which have Debian's names here, with this system's package manager"
    fi
    # shellcheck disable=SC2086
    required=$(missing_packages $2)
    if [ -n "$required" ]; then
        say "cannot build without$required; not installed:$missing; $remedy"
        exit 1
    fi
    say "going on without$missing; $remedy"
}

# Whether FOLDER was configured at its present path.
configured() {
    [ -f "$1/build.ninja" ] && grep -qF "\"source\": \"$(pwd -P)\"" "$1/meson-info/meson-info.json" 2>/dev/null
}

# The options with which this script configured FOLDER; the kernels that tests/run.sh --ci hardly optimizes are slow.
recorded_options() {
    sed 's/ *without.*//; s/-Dgpu_compile_fast=true/-Dgpu_compile_fast=false/' "$1/setup.state" 2>/dev/null
}

# Configures a new folder; again if the options have changed, or packages were installed or removed since.
configure_in() {
    folder=$1
    shift
    # shellcheck disable=SC2086 # needs are words
    state="$* without$(missing_packages $wanted_needs $test_needs)"
    if ! configured "$folder"; then
        # What is not Meson's or Ninja's stays.
        rm -rf "$folder/meson-private" "$folder/meson-info" "$folder/build.ninja" "$folder/.ninja_deps" \
            "$folder/.ninja_log"
        meson setup "$folder" "$@" || return 1
    elif [ "$state" != "$(cat "$folder/setup.state" 2>/dev/null)" ]; then
        meson configure --clearcache "$folder" >/dev/null && meson setup --reconfigure "$folder" "$@" || return 1
    fi
    printf '%s\n' "$state" >"$folder/setup.state"
}

build_in() {
    configure_in "$@" || return 1
    # shellcheck disable=SC2086 # targets are words
    ninja -C "$1" ${build_targets:-}
}

# Old versions of Meson do not understand the build files.
check_meson() {
    version=$(meson --version)
    case $version in
    0.*) say "meson $version is too old, 1.0 is needed: pip install 'meson>=1.0'" && exit 1 ;;
    esac
}
