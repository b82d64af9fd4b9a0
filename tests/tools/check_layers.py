#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layers: lower modules never include or call higher ones, each foreign header is included in one place, and one file
reads the environment.

usage: check_layers.py [--objects BUILD] [FOLDER]

FOLDER: the repository; default: the working directory. --objects: also reads the symbols of the objects in a build
folder, by which calls are seen whose declaration is in a lower module, and circles of files that call each other.
"""
import argparse
import json
import os
import re
import subprocess
import sys

from tracked_files import tracked_files

ROOMS = ["core", "schedule", "files", "perfmodel", "topo", "dev", "codec", "comm", "context", "grid", "tensor",
         "linear", "optim", "checkpoint"]
# Folders of a room, from the lowest to the highest. Those in one set do not know each other; "" are files in none.
FOLDERS = {
    "perfmodel": [{"machine"}, {"network"}, {"price"}, {"search"}],
    "src": [{"common"}, {"bench"}, {"calibrate", "ckpt", "doctor", "linear", "plan", "predict", "topo", "trace"}, {""}],
    "comm": [{""}, {"local"}, {"decorators", "mpi", "nccl"}],
    "dev": [{""}, {"cpu", "cuda"}],
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Headers of C and of POSIX, which may be included anywhere.
STANDARD = {"assert", "ctype", "errno", "fenv", "float", "inttypes", "limits", "locale", "math", "setjmp", "signal",
            "stdarg", "stdatomic", "stdbool", "stddef", "stdint", "stdio", "stdlib", "string", "tgmath", "time",
            "dirent", "dlfcn", "fcntl", "getopt", "glob", "libgen", "poll", "pthread", "sched", "strings", "unistd",
            "immintrin"}
# A pure module computes: no threads, no clock, no files. Files have one place in it; self.c asks the loader for the
# library's path.
PURE = ("lib/core/", "lib/schedule/", "perfmodel/")
FILES = ("lib/core/input.c", "lib/core/self.c")
IMPURE = {"pthread.h", "sched.h", "time.h", "unistd.h", "fcntl.h", "poll.h", "dlfcn.h", "signal.h"}
# Foreign headers that a public header may include.
PUBLIC = {"stddef.h", "stdint.h", "stdio.h"}
# Where foreign headers may be included: prefixes of paths. Tests may include anything.
HOMES = {
    "cblas.h": ["lib/dev/cpu/"],
    "dnnl": ["lib/dev/cpu/"],
    "oneapi/dnnl": ["lib/dev/cpu/"],
    "mpi.h": ["lib/comm/mpi/", "include/quadrille/mpi.h"],
    "quadrille/mpi.h": ["lib/comm/mpi/", "lib/context/context_mpi.c", "src/", "examples/"],
    "quadrille_private/": ["lib/", "perfmodel/", "src/", "examples/common/"],  # not where strangers look or copy
    "hwloc": ["lib/topo/"],
    "link.h": ["src/doctor/build.c"],
    "linux/futex.h": ["lib/dev/wake_event.c"],
    "jansson.h": ["lib/core/", "lib/schedule/", "src/", "examples/"],
    "cuda": ["lib/dev/cuda/", "include/quadrille/cuda.h"],
    "cublas": ["lib/dev/cuda/"],
    "nvtx": ["lib/dev/cuda/"],
    "nccl": ["lib/comm/nccl/"],
    "zfp": ["lib/codec/"],
    "zlib.h": ["lib/checkpoint/crc.c"],
}
# One table names the environment variables. Literal names of other software's variables are allowed; here names are
# computed.
GETENV = re.compile(r'\b(?:secure_)?getenv\s*\((?!\s*"(?!QDR_))')
GETENV_HOMES = ("lib/core/variables.c", "lib/comm/launcher.c", "lib/comm/mates.c", "lib/comm/nccl/join.c",
                "lib/dev/cuda/cudnn.c")



def home_of(header):
    for name, home in HOMES.items():
        if header == name or (not name.endswith(".h") and header.startswith(name)):
            return home
    return None


def check_foreign(path, header, angled):
    if path.startswith("include/") and not angled:  # our own, under any name
        if path.startswith("include/quadrille/") and "/" in header:
            yield f'"{header}": public headers include public ones only'
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
    cxx = path.endswith((".cpp", ".cu", ".cuh")) and "." not in header
    if not system and not cxx and not header.startswith("quadrille/"):
        yield f"<{header}> has no home; name one in tests/tools/check_layers.py"
    if path.startswith(PURE) and path not in FILES and (header in IMPURE or header.startswith("sys/")):
        yield f"<{header}> in a pure room: no threads, no clock, no files here"
    if path.startswith("include/") and header not in PUBLIC:
        yield f"<{header}> in a public header"


def place_of(path):
    """(room, folder in it) of a file of the repository; None: not in a room."""
    parts = path.split("/")
    if parts[0] == "lib" and len(parts) > 2:
        parts = parts[1:]
    if parts[0] not in ROOMS and parts[0] != "src":
        return None
    return parts[0], parts[1] if len(parts) > 2 and parts[0] in FOLDERS else ""


def complaint(user, used):
    """Why one file may not know another, or None."""
    own, target = place_of(user), place_of(used)
    if own is None or target is None or own == target:
        return None
    if own[0] != target[0]:
        low = own[0] in ROOMS and target[0] in ROOMS and ROOMS.index(own[0]) < ROOMS.index(target[0])
        return f"{own[0]} lies below {target[0]}" if low else None
    level = {name: number for number, names in enumerate(FOLDERS[own[0]]) for name in names}
    for name in (own[1], target[1]):
        if name not in level:
            return f"{own[0]}/{name} has no level; give it one in tests/tools/check_layers.py"
    if level[own[1]] < level[target[1]]:
        return f"{own[0]}/{own[1]} lies below {own[0]}/{target[1]}"
    if level[own[1]] == level[target[1]]:
        return f"{own[0]}/{own[1]} and {own[0]}/{target[1]} do not know each other"
    return None


def check_room(path, header):
    if ".." in header.split("/"):
        yield f'"{header}": name it from {path.split("/")[0]}/'
        return
    if path.startswith("src/"):
        used = "src/" + header
    elif any(header.split("/")[0] in names for names in FOLDERS["perfmodel"]):
        used = "perfmodel/" + header
    else:
        used = "lib/" + header
    why = complaint(path, used)
    if why:
        yield f'"{header}": {why}'


def check_include(path, header, angled):
    if path.startswith("tests/"):
        return
    yield from check_foreign(path, header, angled)
    if header.startswith(("quadrille/", "quadrille_private/")) or angled:
        return
    inside = header.split("/")[0] in ROOMS
    if path.startswith("examples/") and header.startswith("src/") and not header.startswith("src/common/"):
        yield f'"{header}": examples share src/common only'
    of_src = path.startswith("src/") and any(header.split("/")[0] in names for names in FOLDERS["src"])
    if header == "config.h" and path.startswith(("lib/", "perfmodel/")):
        return
    if of_src:
        yield from check_room(path, header)
    elif path.startswith("perfmodel/") and inside and not header.startswith(("core/", "schedule/", "files/")):
        yield f'"{header}": perfmodel uses core, schedule and files only'
    elif path.startswith(("lib/", "perfmodel/")):
        yield from check_room(path, header)
    elif inside or "lib/" in header or header == "config.h":
        yield f'"{header}": {path.split("/")[0]} uses the headers of include only'


def problems(folder):
    for path in tracked_files(folder):
        if not path.endswith((".c", ".h", ".cpp", ".cu", ".cuh")):
            continue
        with open(os.path.join(folder, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                match = INCLUDE.match(line)
                if GETENV.search(line) and not path.startswith(("tests/", *GETENV_HOMES)):
                    yield (f"{path}:{number}: only lib/core/variables.c reads variables of Quadrille; "
                           "see quadrille/environment.h")
                if match:
                    for problem in check_include(path, match.group(2), match.group(1) == "<"):
                        yield f"{path}:{number}: {problem}"


def objects(build):
    """For each library and program of this repository: {source: object}."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    units = {}
    for command in commands:
        folder = os.path.join(build, command["directory"])
        source = os.path.relpath(os.path.join(folder, command["file"]), os.path.join(build, ".."))
        target = os.path.dirname(command["output"])
        if place_of(source) and target.startswith(("lib/", "src/")):
            unit = "the plugin" if "cuda" in target else "src" if target.startswith("src/") else "the library"
            units.setdefault(unit, {})[source] = os.path.join(folder, command["output"])
    return units


def symbols(paths, *options):
    """(object, symbol) of each symbol."""
    listed = subprocess.run(["nm", "-A", *options, *paths], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        path, rest = line.split(":", 1)
        yield path, rest.split()[-1]


def circles(uses):
    """Lists of files of which each uses each other, through others or not."""
    reached = {}
    for source in uses:
        found, left = set(), [source]
        while left:
            new = uses.get(left.pop(), {}).keys() - found
            found |= new
            left += new
        reached[source] = found
    all_circles = {frozenset(other for other in found if source in reached.get(other, ()))
                   for source, found in reached.items()}
    return sorted(sorted(circle) for circle in all_circles if circle)


def check_circles(uses):
    for circle in circles(uses):
        arrows = [f"{source} -> {other} by {uses[source][other]}"
                  for source in circle for other in sorted(uses[source].keys() & circle)]
        yield f"{', '.join(circle)} call each other: {', '.join(arrows)}"


def check_objects(build):
    for sources in objects(build).values():
        of_object = {made: source for source, made in sources.items() if os.path.exists(made)}
        home = {name: of_object[made] for made, name in symbols(of_object, "--defined-only", "--extern-only")}
        uses = {}
        for made, name in symbols(of_object, "--undefined-only"):
            source, other = of_object[made], home.get(name)
            why = complaint(source, other) if other else None
            if why:
                yield f"{source}: uses {name} of {other}: {why}"
            if other:
                uses.setdefault(source, {})[other] = name
        yield from check_circles(uses)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", metavar="BUILD")
    parser.add_argument("folder", nargs="?", default=".")
    options = parser.parse_args()
    found = list(problems(options.folder)) + (list(check_objects(options.objects)) if options.objects else [])
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
