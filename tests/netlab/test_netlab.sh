#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_netlab.sh PROGRAM: the lab runs PROGRAM (fault/peer.c) on its nodes, returns its exit code, counts the bytes that
# the links carry, refuses wrong arguments, and leaves nothing behind, also after an interrupt. 77: no namespaces here.
set -u
lab=$(dirname "$0")/netlab.sh
program=$1
output=$(mktemp)
trap 'rm -f "$output"' EXIT
failed=0

wrong() {
    echo "wrong: $*"
    sed 's/^/    /' "$output"
    failed=1
}
# expect CODE WORDS COMMAND...: the command ends with that code, and its output contains WORDS.
expect() {
    code=$1 words=$2
    shift 2
    timeout 100 "$@" >"$output" 2>&1 </dev/null
    got=$?
    [ $got = 77 ] && tail -n 1 "$output" && exit 77
    [ $got = "$code" ] && { [ -z "$words" ] || grep -q -e "$words" "$output"; } ||
        wrong "code $got, not $code with '$words': $*"
}
# Labs of others may be running.
nothing_left() {
    sleep 1
    ip netns list >"$output"
    for process in $(sed -n 's/^qdrlab\([0-9]*\).*/\1/p' "$output" | sort -u); do
        kill -0 "$process" 2>/dev/null || wrong "namespaces are left after $*"
    done
}
# wait_for_program PROCESS: until that lab runs its program on the last of two nodes.
wait_for_program() {
    for _ in $(seq 100); do
        [ -n "$(ip netns pids "qdrlab${1}n2" 2>/dev/null)" ] && return
        sleep 0.3
    done
    wrong "the program did not start"
}

expect 0 'node 2 sent [0-9]* bytes' sh "$lab" -n 2 -r 1gbit -- "$program" late
expect 0 'node 2 sent [0-9]* bytes' sh "$lab" -n 2 -p 2 -r 200mbit -- "$program" wrong-token
nothing_left "a program that ended"
expect 3 '' sh "$lab" -q -n 2 -- sh -c 'exit 3'
nothing_left "a program that failed"
expect 2 'no program' sh "$lab" -n 2
expect 2 '64 nodes' sh "$lab" -n 65 true
expect 2 '99 ranks' sh "$lab" -p 0 true
expect 2 '200mbit' sh "$lab" -r 0mbit true
expect 2 '200mbit' sh "$lab" -r fast true
expect 2 '999999' sh "$lab" -r 9999999gbit true
expect 0 'examples:' sh "$lab" -h

for signal in INT TERM; do
    # A shell starts what runs in the background with SIGINT ignored, and no shell can undo that.
    env --default-signal=INT setsid sh "$lab" -q -n 2 -- sleep 60 >"$output" 2>&1 &
    running=$!
    wait_for_program $running
    kill -s $signal $running
    wait $running
    got=$?
    [ $got -gt 128 ] || wrong "SIG$signal ended the lab with code $got"
    nothing_left "SIG$signal"
done
# A lab whose process was killed is removed by the next one.
setsid sh "$lab" -q -n 2 -- sleep 60 >"$output" 2>&1 &
running=$!
wait_for_program $running
kill -s KILL $running
wait $running # until then its process exists
expect 0 '' sh "$lab" -q -n 1 true
nothing_left "SIGKILL, and another lab"
exit $failed
