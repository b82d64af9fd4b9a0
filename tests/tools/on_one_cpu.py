# SPDX-License-Identifier: Apache-2.0
"""Runs a command on one of the processors that it may use: on several, QEMU 7.2 lets the loads of a program of aarch64
overtake its sequentially consistent stores (LDAR, STLR), which no processor does, so that wake-ups get lost.

usage: on_one_cpu.py COMMAND...
"""
import os
import sys

cpus = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cpus[os.getpid() % len(cpus)]})
os.execvp(sys.argv[1], sys.argv[1:])
