#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Symbols: a shared library exports names that begin with qdr_ and nothing else, and lacks none of its own.

usage: check_symbols.py LIBRARY...
"""
import subprocess
import sys

# What linkers add by themselves.
LINKER = {"_init", "_fini", "__bss_start", "_edata", "_end"}


def names(library, *options):
    listed = subprocess.run(["nm", "-D", *options, library], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1].split("@")[0] for line in listed.splitlines()]


def problems(library):
    exported = [name for name in names(library, "--defined-only") if name not in LINKER]
    if not exported:
        yield f"{library}: exports nothing"
    for name in exported:
        if not name.startswith("qdr_"):
            yield f"{library}: exports {name}; make it static, or hidden"
    for name in names(library, "--undefined-only"):
        if name.startswith(("qdr_", "qdri_")):
            yield f"{library}: uses {name}, which nobody defines"


def main():
    found = [problem for library in sys.argv[1:] for problem in problems(library)]
    for problem in found:
        print(problem)
    return 1 if found or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
