#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A network on one machine: nodes are network namespaces on a bridge, each connected by a link of a given rate. Starts
# PROGRAM there with mpiexec.mpich, prints the bytes that each link carried, and removes everything again, also after an
# interrupt.
set -u

usage() {
    cat <<'EOF'
usage: netlab.sh [-n NODES] [-p RANKS_PER_NODE] [-r RATE] [-q] [--] PROGRAM [ARGUMENT...]

  -n NODES   nodes, 1 to 64 (default 4)
  -p RANKS   ranks on each node (default 1)
  -r RATE    of each link in each direction, as tc writes it: 200mbit, 1gbit (default 1gbit)
  -q         do not print what the links have carried
  -h         print this text

Ranks on one node share memory, ranks on different nodes only the wire. Environment variables are passed on.
Exit code: PROGRAM's; 2 usage; 77 where namespaces cannot be made (they need root, iproute2 and the kernel's support).

examples:
  netlab.sh -n 4 -r 200mbit build/examples/transformer_layer --grid 1x1x1x4
  netlab.sh -n 2 -p 2 -r 1gbit build/examples/train --grid 1x2x1x2 --steps 20
EOF
}

say() { printf 'netlab: %s\n' "$*" >&2; }
bad() {
    say "$*"
    exit 2
}

nodes=4 ranks=1 rate=1gbit quiet=
while getopts n:p:r:qh option; do
    case $option in
    n) nodes=$OPTARG ;;
    p) ranks=$OPTARG ;;
    r) rate=$OPTARG ;;
    q) quiet=1 ;;
    h)
        usage
        exit 0
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || bad "no program to run; see -h"
case $nodes in '' | *[!0-9]* | ???*) bad "-n $nodes: give 1 to 64 nodes" ;; esac
case $ranks in '' | *[!0-9]* | ???*) bad "-p $ranks: give 1 to 99 ranks" ;; esac
[ "$nodes" -ge 1 ] && [ "$nodes" -le 64 ] || bad "-n $nodes: give 1 to 64 nodes"
[ "$ranks" -ge 1 ] || bad "-p $ranks: give 1 to 99 ranks"
case ${rate%%[kmg]bit} in
'' | *[!0-9]* | 0* | ???????*) bad "-r $rate: give a number from 1 to 999999 and kbit, mbit or gbit, such as 200mbit" ;;
esac
case $rate in *[kmg]bit) ;; *) bad "-r $rate: give a number and kbit, mbit or gbit, such as 200mbit" ;; esac

command -v ip >/dev/null && command -v tc >/dev/null || {
    say "skipped: ip and tc are missing; install iproute2"
    exit 77
}
command -v mpiexec.mpich >/dev/null && command -v cc >/dev/null || {
    say "skipped: mpiexec.mpich or cc is missing; install mpich and gcc"
    exit 77
}
here=$(cd "$(dirname "$0")" && pwd)

lab=qdrlab$$
work=$(mktemp -d) || exit 1

# Namespaces outlive the process that created them: those of labs whose process no longer exists are removed, too.
remove_lab() {
    for space in $(ip netns list 2>/dev/null | sed -n "s/^\($1[hn][0-9]*\)\( .*\)*$/\1/p"); do
        for process in $(ip netns pids "$space" 2>/dev/null); do kill -9 "$process" 2>/dev/null; done
        ip netns delete "$space" 2>/dev/null
    done
}
clean() {
    trap '' EXIT INT TERM HUP
    [ -z "${running:-}" ] || kill "$running" 2>/dev/null
    remove_lab "$lab"
    rm -rf "$work"
}
trap clean EXIT
trap 'clean; exit 130' INT
trap 'clean; exit 143' TERM HUP
for old in $(ip netns list 2>/dev/null | sed -n 's/^qdrlab\([0-9]*\)h.*/\1/p'); do
    kill -0 "$old" 2>/dev/null || remove_lab "qdrlab$old"
done

# The bridge is in a namespace of its own, together with mpiexec, which reaches its nodes over the same links.
hub=${lab}h
build_lab() {
    ip netns add "$hub" &&
        ip -n "$hub" link add br0 type bridge &&
        ip -n "$hub" addr add 10.77.0.254/24 dev br0 &&
        ip -n "$hub" link set br0 up && ip -n "$hub" link set lo up || return 1
    for k in $(seq "$nodes"); do
        node=${lab}n$k
        ip netns add "$node" &&
            ip -n "$node" link add eth0 type veth peer name "v$k" netns "$hub" &&
            ip -n "$node" addr add "10.77.0.$k/24" dev eth0 &&
            ip -n "$node" link set eth0 up && ip -n "$node" link set lo up &&
            ip -n "$hub" link set "v$k" master br0 up &&
            tc -n "$node" qdisc add dev eth0 root tbf rate "$rate" burst 128kb latency 200ms &&
            tc -n "$hub" qdisc add dev "v$k" root tbf rate "$rate" burst 128kb latency 200ms || return 1
    done
}
cc -O1 -shared -fPIC -o "$work/leave.so" "$here/leave.c" || exit 1
if ! build_lab 2>"$work/errors"; then
    say "skipped: network namespaces cannot be made here ($(head -n 1 "$work/errors")); run as root"
    exit 77
fi

cat >"$work/in-node.sh" <<'EOF'
#!/bin/sh
while :; do case $1 in -*) shift ;; *) break ;; esac; done
host=$1
shift
exec ip netns exec "$NETLAB_NAME"n"${host##*.}" sh -c "$*"
EOF
chmod +x "$work/in-node.sh"
hosts=
for k in $(seq "$nodes"); do hosts=$hosts${hosts:+,}10.77.0.$k:$ranks; done

carried() { # node, direction
    ip netns exec "${lab}n$1" cat "/sys/class/net/eth0/statistics/${2}_bytes"
}
for k in $(seq "$nodes"); do carried "$k" tx >"$work/tx$k"; carried "$k" rx >"$work/rx$k"; done

# UCX would find shared memory across the namespaces.
NETLAB_NAME=$lab UCX_TLS=tcp,self ip netns exec "$hub" mpiexec.mpich -launcher ssh -launcher-exec "$work/in-node.sh" \
    -iface br0 -hosts "$hosts" -n $((nodes * ranks)) \
    env LD_PRELOAD="$work/leave.so${LD_PRELOAD:+:$LD_PRELOAD}" "$@" </dev/null &
running=$!
wait "$running"
result=$?
running=
for k in $(seq "$nodes"); do
    [ -z "$quiet" ] || break
    say "node $k sent $(($(carried "$k" tx) - $(cat "$work/tx$k"))) bytes," \
        "received $(($(carried "$k" rx) - $(cat "$work/rx$k")))"
done
exit "$result"
