#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Symbols: a shared library exports only names that begin with qdr_, and defines all of its own; those that it uses
from others are in libraries that it names itself, not in libraries that those happen to load.

usage: check_symbols.py [--needs NAMES] LIBRARY...    --needs: what it is linked with besides the C library
"""
import argparse
import os
import re
import subprocess
import sys

# Symbols that linkers add.
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
    yield from orphans(library)


def needs(library):
    listed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", listed)


def orphans(library):
    """Undefined symbols that none of the named libraries has."""
    listed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    files = {os.path.basename(line.split()[0]): line.split(" (")[0].split()[-1] for line in listed.splitlines()
             if "/" in line}
    found = set()
    for name in needs(library):
        if name in files:
            found.update(names(files[name], "--defined-only"))
        else:
            yield f"{library}: needs {name}, which is not here"
    listed = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True,
                            check=True).stdout
    for kind, name in (line.split() for line in listed.splitlines()):
        name = name.split("@")[0]
        if kind == "U" and name not in found and not name.startswith(("qdr_", "qdri_")):
            yield f"{library}: uses {name}, which no library has that it names"


def strange_needs(library, wanted):
    needed = {name.split(".so")[0] for name in needs(library)}
    wanted = {"lib" + name for name in wanted}
    for name in sorted(needed - wanted - {"libc", "libm", "libpthread", "libdl", "libgcc_s", "ld-linux-x86-64"}):
        yield f"{library}: needs {name}, which nobody expects"
    for name in sorted(wanted - needed):
        yield f"{library}: does not need {name}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--needs", type=str.split)
    parser.add_argument("libraries", nargs="+")
    arguments = parser.parse_args()
    found = [problem for library in arguments.libraries for problem in problems(library)]
    for library in arguments.libraries:
        if arguments.needs is not None:
            found += strange_needs(library, arguments.needs)
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
