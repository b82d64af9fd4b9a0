#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a program on the fake CUDA repeatedly, each time with another call of CUDA that fails, and checks each time that
the program ends in an orderly way: with an exit code of its own, one message that names the cause, no leak, no race, no
hang.

    failures.py [--every] PROGRAM ARGUMENT...

--every tries each call, otherwise calls at growing distances. The calls of each kind are tried until the program no
longer reaches them. FAIL_ALSO=KIND,…: these kinds, too. FAIL_ONLY=KIND: only that one.
"""
import os
import subprocess
import sys
import time

KINDS = ["malloc", "create", "host", "copy", "launch", "product", "sync"]
LEFT = (1, 2, 3)  # the programs' exit codes: something failed, the input cannot be run here, memory is short
WAIT_SECS = 120
ENOUGH, FIRST = 3, 40  # after this many successive successful runs, from this call on, there are no more such calls


def complaint(code, lines, program):
    """What is wrong with a run, or None. It may succeed if the library can do without the call."""
    told = [line for line in lines if line.startswith(program + ": ")]
    found = [line for line in lines if line.startswith("fake cuda: ")]
    if found:
        return found[0]
    if code not in (0,) + LEFT:
        return f"exit code {code}"
    if len(told) != (code != 0):
        return f"{len(told)} sentences with exit code {code}"
    if told and told[0].endswith("had arrived"):
        return f"no cause: {told[0]}"
    return None


def run(failure, seed, command):
    """(exit code, complaint)"""
    env = dict(os.environ, FAKE_CUDA_FAIL=failure, FAKE_CUDA_SEED=str(seed))
    program = os.path.basename(command[0])
    try:
        done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              timeout=WAIT_SECS, check=False)
    except subprocess.TimeoutExpired:
        return None, f"it hung for {WAIT_SECS} s"
    lines = done.stderr.splitlines()
    wrong = complaint(done.returncode, lines, program)
    return done.returncode, wrong and wrong + "".join("\n    " + line for line in lines)


def next_number(number, every):
    return number + 1 if every else number + max(1, number // 2)


def try_kind(kind, every, seed, command):
    """(runs that failed as they should, complaints)"""
    number, n_failed, n_well, wrongs = 1, 0, 0, 0
    while n_well < ENOUGH or number <= FIRST:
        code, wrong = run(f"{kind}:{number}", seed + number, command)
        n_well = n_well + 1 if code == 0 else 0
        n_failed += code != 0
        if wrong:
            wrongs += 1
            print(f"FAKE_CUDA_FAIL={kind}:{number} FAKE_CUDA_SEED={seed + number}: {wrong}", flush=True)
        number = next_number(number, every)
    return n_failed, wrongs


def main(arguments):
    every = arguments[0] == "--every"
    kinds = KINDS + [kind for kind in os.environ.get("FAIL_ALSO", "").split(",") if kind]
    if os.environ.get("FAIL_ONLY"):
        kinds = [os.environ["FAIL_ONLY"]]
    seed = int(os.environ.get("QDR_TEST_SEED", time.time_ns() % 1000000))
    command = arguments[every:]
    print(f"QDR_TEST_SEED={seed}")
    wrongs = 0
    for kind in kinds:
        n_failed, n_wrong = try_kind(kind, every, seed, command)
        print(f"{kind}: {n_failed} failed, {n_wrong} of them not as they should", flush=True)
        wrongs += n_wrong + (n_failed == 0)  # it never reached such a call: nothing was tried
    return wrongs != 0


sys.exit(main(sys.argv[1:]))
