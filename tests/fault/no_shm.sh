#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# no_shm.sh MPIEXEC COMMAND...: if /dev/shm is too small for MPI, the command says so and what to do; the remedy works.
# 77: this user may not mount.
unshare -m sh -c 'mount -t tmpfs -o size=64k none /dev/shm' 2>/dev/null ||
    { echo "skipped: needs root, to mount"; exit 77; }
small() { # small COMMAND...: in a name space of its own
    timeout 30 unshare -m sh -c 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"' sh "$@" 2>&1 </dev/null
}
mpiexec=$1
shift
output=$(unset UCX_TLS; small "$mpiexec" -n 2 "$@")
echo "$output" |
    grep -q 'may need about 10 MiB in /dev/shm to start 2 ranks, and 0.1 MiB are free there; .*UCX_TLS=tcp,self' ||
    { echo "$output"; echo "nothing was said of /dev/shm"; exit 1; }
output=$(UCX_TLS=tcp,self small "$mpiexec" -n 2 "$@")
code=$?
[ $code -eq 0 ] || { echo "$output"; echo "with UCX_TLS=tcp,self it ended with $code"; exit 1; }
# A run leaves no file there.
left=$(unset UCX_TLS; unshare -m sh -c 'mount -t tmpfs -o size=1g none /dev/shm && "$@" >/dev/null && ls -A /dev/shm' \
    sh timeout 30 "$mpiexec" -n 2 "$@" 2>&1 </dev/null) ||
    { echo "$left"; echo "with enough memory it failed"; exit 1; }
[ -z "$left" ] || { echo "left in /dev/shm: $left"; exit 1; }
