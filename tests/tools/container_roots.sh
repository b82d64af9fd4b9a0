# SPDX-License-Identifier: Apache-2.0
# container_roots.sh, sourced by check_container.sh: stages of a Containerfile as folders below $scratch/roots, entered
# by chroot. Only the instructions that packaging/Containerfile uses.
# shellcheck disable=SC2154 # scratch and top are that script's

# Debian 12 with as few packages and, as in the slim image, without documents, in $scratch/base.
make_base() {
    [ ! -d "$scratch/base" ] || return 0
    command -v debootstrap >/dev/null 2>&1 || skip "no debootstrap, and podman has no image of Debian"
    debootstrap --variant=minbase bookworm "$scratch/base" >"$scratch/log" 2>&1 ||
        skip "debootstrap has no packages of Debian: $(tail -n 1 "$scratch/log")"
    cat >"$scratch/base/etc/dpkg/dpkg.cfg.d/slim" <<'C'
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/lintian/overrides/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
C
    (cd "$scratch/base" && rm -rf var/cache/apt/archives/*.deb var/lib/apt/lists/* usr/share/locale/* usr/share/man/* &&
        find usr/share/doc -type f -not -name copyright -delete)
}

# chrooted STAGE COMMAND...: with the stage's variables, and with /dev/shm and processes of its own.
chrooted() {
    stage=$1
    shift
    # shellcheck disable=SC2016,SC2046 # the inner shell's; variables are words
    unshare --mount --propagation private --pid --fork sh -ec '
        root=$1
        shift
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs -o size=256m tmpfs "$root/dev/shm"
        exec chroot "$root" "$@"' sh "$scratch/roots/$stage" /usr/bin/env -i HOME=/root \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        $(env | grep -i '^[a-z]*_proxy=') $(cat "$scratch/roots/$stage.variables") "$@"
}

# begin STAGE IMAGE
begin() {
    mkdir -p "$scratch/roots"
    : >"$scratch/roots/$1.variables"
    if [ "$2" = scratch ]; then mkdir "$scratch/roots/$1"; else cp -a "$scratch/base" "$scratch/roots/$1"; fi
}

# copy STAGE FOLDER [--from=STAGE] SOURCE... TO: the files of a source that is a folder.
copy() {
    to=$scratch/roots/$1 folder=$2 from=$top
    shift 2
    case $1 in --from=*) from=$scratch/roots/${1#--from=} && shift ;; esac
    for last; do :; done
    case $last in /*) to=$to$last ;; *) to=$to$folder/$last ;; esac
    mkdir -p "$to"
    while [ $# -gt 1 ]; do
        source=$from/$1
        [ ! -d "$source" ] || source=$source/.
        cp -R --preserve=mode,timestamps,links "$source" "$to" || return 1
        shift
    done
}

# follow FILE TARGET: the steps of its stages up to this one, each stage once.
follow() {
    sed -e '/^#/d' -e ':a' -e '/\\$/{ N; s/\\\n//; ba' -e '}' "$1" >"$scratch/steps"
    name='' is_new=
    while read -r word rest <&3; do
        if [ "$word" = FROM ]; then
            [ "$name" != "$2" ] || return 0
            name=${rest##* } folder=/ is_new=
            [ -d "$scratch/roots/$name" ] || { is_new=1 && begin "$name" "${rest%% *}"; }
            continue
        fi
        if [ -z "$is_new" ] || [ -z "$word" ]; then continue; fi
        echo "$name: $word $rest"
        # shellcheck disable=SC2086 # words
        case $word in
        COPY) copy "$name" "$folder" $rest ;;
        RUN) chrooted "$name" sh -c "cd $folder && $rest" </dev/null ;;
        ENV) printf '%s\n' $rest >>"$scratch/roots/$name.variables" ;;
        WORKDIR) folder=$rest && mkdir -p "$scratch/roots/$name$folder" ;;
        CMD) ;;
        *) fail "unknown step: $word" ;;
        esac || fail "$name: $word $rest"
    done 3<"$scratch/steps"
}
