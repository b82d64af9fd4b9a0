#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Symbols: a shared library exports only names that begin with qdr_, and defines all of its own; those that it uses
from others are in libraries that it names itself, not in libraries that those happen to load.

usage: check_symbols.py [--needs NAMES] [--headers INCLUDE] LIBRARY...

--needs: what it is linked with besides the C library. --headers: a header declares what it exports, as QDR_API, or as
QDR_PRIVATE_API if and only if it has the version of private symbols.
"""
import argparse
import glob
import os
import re
import subprocess
import sys

# Symbols that linkers add.
LINKER = {"_init", "_fini", "__bss_start", "_edata", "_end"}


def names(library, *options):
    listed = subprocess.run(["nm", "-D", *options, library], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1].split("@")[0] for line in listed.splitlines()]


def exported(library):
    """{name: its version, or ""}; the versions' own names are not among them."""
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    symbols = [line.split()[-1].partition("@@") for line in listed.splitlines() if line.split()[-2] != "A"]
    return {name: version for name, _, version in symbols if name not in LINKER}


def undeclared(library, headers):
    declared = {}
    for path in glob.glob(os.path.join(headers, "*", "*.h")):
        with open(path, encoding="utf-8") as file:
            found = re.findall(r"^QDR_(PRIVATE_)?API\b[^;(]*?\b(qdr_\w+)\(", file.read(), re.M)
        declared.update({name: bool(private) for private, name in found})
    for name, version in exported(library).items():
        if name not in declared:
            yield f"{library}: exports {name}, which no header declares"
        elif declared[name] != version.startswith("QDR_PRIVATE_"):
            yield f"{library}: exports {name} with the version '{version}'; see lib/private.map.in"


def problems(library):
    functions = exported(library)
    if not functions:
        yield f"{library}: exports nothing"
    for name in functions:
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
    parser.add_argument("--headers")
    parser.add_argument("libraries", nargs="+")
    arguments = parser.parse_args()
    found = [problem for library in arguments.libraries for problem in problems(library)]
    for library in arguments.libraries:
        if arguments.needs is not None:
            found += strange_needs(library, arguments.needs)
        if arguments.headers:
            found += undeclared(library, arguments.headers)
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
