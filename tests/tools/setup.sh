# SPDX-License-Identifier: Apache-2.0
# Read by tests/run.sh and examples/run.sh, from the repository's top: installs what is missing, builds.
#
#   install_missing LOG NEED...   a need is "kind:name:package": the package is installed unless `have kind name`
#   configure_in FOLDER OPTION... with options of meson; does nothing where that was done before
#   watch_log LOG, unwatch_log    show how far a command has come
#   build_in FOLDER OPTION...     configures, compiles; build_targets: what to build, all if unset

build_needs="command:gcc:gcc file:/usr/include/stdio.h:libc6-dev command:python3:python3 command:meson:meson
command:ninja:ninja-build command:pkg-config:pkg-config module:mpich:libmpich-dev command:mpiexec.mpich:mpich
module:hwloc:libhwloc-dev module:openblas:libopenblas-dev module:jansson:libjansson-dev"

say() { printf '%s\n' "$*" >&2; }

# watch_log LOG: until unwatch_log, standard error shows how far the command that writes LOG has come: in one line that
# rewrites itself on a terminal, elsewhere now and then. It ends with this shell, too.
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
    shown='' n_secs=0
    while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        n_secs=$((n_secs + 1))
        [ -t 2 ] || [ $((n_secs % 20)) = 0 ] || continue
        line=$(tail -n 1 "$1" | cut -c 1-76)
        [ -n "$line" ] && [ "$line" != "$shown" ] || continue
        shown=$line
        if [ -t 2 ]; then printf '\r%s\033[K' "$line" >&2; else say "    $line"; fi
    done
}

# have KIND NAME: whether a command, a pkg-config module, a file, a Python module or a Debian package is there.
have() {
    case $1 in
    command) command -v "$2" >/dev/null 2>&1 ;;
    module) pkg-config --exists "$2" 2>/dev/null ;;
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

# apt as root or through sudo; 1 if there is neither.
apt_install() {
    options="-y -q --no-install-recommends -o DPkg::Lock::Timeout=300"
    if [ "$(id -u)" = 0 ]; then
        as_root="env DEBIAN_FRONTEND=noninteractive"
    elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        as_root="sudo DEBIAN_FRONTEND=noninteractive"
    else
        return 1
    fi
    # shellcheck disable=SC2086 # options are words
    $as_root apt-get update -q </dev/null && $as_root apt-get install $options "$@" </dev/null
}

# What the build cannot do without; leaves if it cannot be had.
install_missing() {
    log=$1
    shift
    packages=$(missing_packages "$@")
    [ -n "$packages" ] || return 0
    line="apt-get update && apt-get install -y --no-install-recommends$packages"
    if ! command -v apt-get >/dev/null 2>&1; then
        say "missing here (names of Debian's packages):$packages"
        say "install them with this system's package manager, then run this again"
        exit 1
    fi
    say "needed:$packages (installing takes a minute or two; log: $log)"
    # shellcheck disable=SC2086 # packages are words
    if ! apt_install $packages >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        say "could not install; as root, run:  $line"
        exit 1
    fi
    installed_something=1
}

# One package at a time, each may fail.
install_optional() {
    log=$1
    shift
    for package in $(missing_packages "$@"); do
        say "installing $package, which is optional"
        apt_install "$package" >>"$log" 2>&1 || say "went on without $package"
        installed_something=1
    done
}

# Whether FOLDER was configured, from this very place.
configured() {
    [ -f "$1/build.ninja" ] && grep -q "\"source\": \"$(pwd -P)\"" "$1/meson-info/meson-info.json" 2>/dev/null
}

configure_in() {
    folder=$1
    shift
    if ! configured "$folder"; then
        rm -rf "$folder"
        meson setup "$folder" "$@"
    elif [ -n "${installed_something:-}" ]; then
        meson setup --reconfigure "$folder" "$@"
    fi
}

build_in() {
    configure_in "$@" || return 1
    # shellcheck disable=SC2086 # targets are words
    ninja -C "$1" ${build_targets:-}
}

# Old mesons do not know what the build files say.
check_meson() {
    version=$(meson --version)
    case $version in
    0.*) say "meson $version is too old, 1.0 is needed: pip install 'meson>=1.0'" && exit 1 ;;
    esac
}
