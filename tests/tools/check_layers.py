#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layers: lower modules never include higher ones, each foreign header is included in one place, and one file reads the
environment.

usage: check_layers.py [FOLDER]    (the repository; default: the working directory)
"""
import os
import re
import sys

from tracked_files import tracked_files

ROOMS = ["core", "files", "topo", "dev", "codec", "comm", "grid", "tensor", "ops", "linear", "optim"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Headers of C and of POSIX, which may be included anywhere.
STANDARD = {"assert", "ctype", "errno", "fenv", "float", "inttypes", "limits", "locale", "math", "setjmp", "signal",
            "stdarg", "stdatomic", "stdbool", "stddef", "stdint", "stdio", "stdlib", "string", "tgmath", "time",
            "dirent", "dlfcn", "fcntl", "getopt", "glob", "libgen", "poll", "pthread", "sched", "strings", "unistd",
            "immintrin"}
# A pure module computes: no threads, no clock, no files. Files have one place in it; self.c asks the loader for the
# library's path.
PURE = ("lib/core/", "perfmodel/")
FILES = ("lib/core/input.c", "lib/core/self.c")
IMPURE = {"pthread.h", "sched.h", "time.h", "unistd.h", "fcntl.h", "poll.h", "dlfcn.h", "signal.h"}
# Foreign headers that a public header may include.
PUBLIC = {"stddef.h", "stdint.h", "stdio.h"}
# Where foreign headers may be included: prefixes of paths. Tests may include anything.
HOMES = {
    "cblas.h": ["lib/dev/cpu/"],
    "dnnl": ["lib/dev/cpu/"],
    "oneapi/dnnl": ["lib/dev/cpu/"],
    "mpi.h": ["lib/comm/mpi", "include/quadrille/mpi.h"],
    "quadrille/mpi.h": ["lib/comm/mpi", "lib/grid/context_mpi.c", "src/", "examples/"],
    "hwloc": ["lib/topo/"],
    "linux/futex.h": ["lib/dev/bell.c"],
    "jansson.h": ["lib/core/", "src/", "examples/"],
    "cuda": ["lib/dev/cuda/", "include/quadrille/cuda.h"],
    "cublas": ["lib/dev/cuda/"],
    "nvtx": ["lib/dev/cuda/"],
    "nccl": ["lib/comm/nccl"],
    "zfp": ["lib/codec/"],
}
# One table names the environment variables. Literal names of other software's variables are allowed; here names are
# computed.
GETENV = re.compile(r'\b(?:secure_)?getenv\s*\((?!\s*"(?!QDR_))')
GETENV_HOMES = ("lib/core/environment.c", "lib/comm/launcher.c", "lib/comm/nccl_join.c", "lib/dev/cuda/cudnn.c")


def home_of(header):
    for name, home in HOMES.items():
        if header == name or (not name.endswith(".h") and header.startswith(name)):
            return home
    return None


def check_foreign(path, header, angled):
    if path.startswith("include/") and not angled:  # our own, under any name
        return
    home = home_of(header)
    if home is not None:
        if not path.startswith(tuple(home)):
            yield f"<{header}> belongs to {' '.join(home)}"
        return
    if not angled:
        return
    stem = header[:-2] if header.endswith(".h") else header
    system = stem in STANDARD or header.startswith("sys/")
    cxx = path.endswith(".cpp") and "." not in header
    if not system and not cxx and not header.startswith("quadrille/"):
        yield f"<{header}> has no home; name one in tests/tools/check_layers.py"
    if path.startswith(PURE) and path not in FILES and (header in IMPURE or header.startswith("sys/")):
        yield f"<{header}> in a pure room: no threads, no clock, no files here"
    if path.startswith("include/") and header not in PUBLIC:
        yield f"<{header}> in a public header"


def room_number(name):
    return ROOMS.index(name) if name in ROOMS else None


def check_room(path, header):
    """Includes of files of lib/ by files of lib/."""
    own, target = path.split("/")[1], header.split("/")[0]
    if ".." in header.split("/"):
        yield f'"{header}": name it from lib/, as "room/file.h"'
    elif target in ROOMS and own in ROOMS and room_number(target) > room_number(own):
        yield f'"{header}": {own} lies below {target}'


def check_include(path, header, angled):
    if path.startswith("tests/"):
        return
    yield from check_foreign(path, header, angled)
    if header.startswith("quadrille/") or angled:
        return
    inside = header.split("/")[0] in ROOMS
    if path.startswith("lib/"):
        yield from check_room(path, header)
    elif path.startswith("perfmodel/"):
        if inside and not header.startswith("core/"):
            yield f'"{header}": perfmodel uses core only'
    elif inside or "lib/" in header or header == "config.h":
        yield f'"{header}": {path.split("/")[0]} uses public headers only'


def problems(folder):
    for path in tracked_files(folder):
        if not path.endswith((".c", ".h", ".cpp")):
            continue
        with open(os.path.join(folder, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                match = INCLUDE.match(line)
                if GETENV.search(line) and not path.startswith(("tests/", *GETENV_HOMES)):
                    yield (f"{path}:{number}: only lib/core/environment.c reads variables of Quadrille; "
                           "see quadrille/environment.h")
                if match:
                    for problem in check_include(path, match.group(2), match.group(1) == "<"):
                        yield f"{path}:{number}: {problem}"


def main():
    found = list(problems(sys.argv[1] if len(sys.argv) > 1 else "."))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
