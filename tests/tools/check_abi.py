#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of the last release work with these libraries: what the public headers declared is there and as it was.
Structs that begin with their size, and enums, may have grown at their ends; `double room[N]` may have become members.
The end of an enum is before a last QDR_N_WORDS, which counts its values, if arrays of QDR_MAX_WORDS have room for more.

usage: check_abi.py [--write] BUILD    (--write: when releasing; what is declared now becomes the last release's)

Declarations are compared as text, with the libraries that have each function. The text of the last release is in
tests/headers/last_release.abi. mpi.h is not in it, as its function has another type with each MPI.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import check_symbols

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(REPOSITORY, "tests", "headers"))
import structs  # noqa: E402 # pylint: disable=wrong-import-position

RELEASE = os.path.join(REPOSITORY, "tests", "headers", "last_release.abi")
FUNCTION = re.compile(r"^QDR_API\b[^;(]*?\b(qdr_\w+)\([^;]*\);", re.M)
CONSTANT = re.compile(r"^#define (QDR_(?!API|NODISCARD|VERSION)\w+) ([^\\\n]+)$", re.M)
STRUCT = re.compile(r"typedef struct (qdr_\w+) \{([^}]*)\} \w+;")
ENUM = re.compile(r"(?:typedef )?enum (\w*) ?\{([^}]*)\} ?\w*;")


def describe(headers, runtime, model):
    """The headers as one text. At the end of a function is which libraries have it."""
    def mark(match):
        found = " IN_BOTH;" if match.group(1) in model else " IN_RUNTIME;" if match.group(1) in runtime else ";"
        return match.group()[:-1] + found

    names, constants = sorted(set(os.listdir(headers)) - {"mpi.h"}), []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            with open(os.path.join(headers, name), encoding="utf-8") as file:
                text = re.sub(r" */\*.*?\*/|#include <[^>]*>", "", file.read(), flags=re.S)
            constants += (match.group() + "\n" for match in CONSTANT.finditer(text))
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(FUNCTION.sub(mark, text))
        flat = subprocess.run(["cc", "-E", "-P", "-U__GNUC__", "-I" + folder, "-"], capture_output=True, text=True,
                              check=True, input="".join(f'#include "{name}"\n' for name in names)).stdout
    return "".join(constants) + flat


def members(body):
    """One for each declared name, and for each of the room."""
    for declaration in (text.strip() for text in body.split(";") if text.strip()):
        first, *others = (" ".join(part.split()) for part in declaration.split(","))
        room = re.fullmatch(r"double room\[(\d+)(?: - (\d+))?\]", first)
        if room:
            yield from ["double room"] * (int(room.group(1)) - int(room.group(2) or 0))
            continue
        yield first
        yield from (re.match(r"(const )?\w+ ", first).group() + other for other in others)


def enumerators(body):
    value = -1
    for name, _, given in (part.partition("=") for part in body.split(",") if part.strip()):
        value = int(given, 0) if given.strip() else value + 1
        yield f"{name.strip()} = {value}"


def declarations(text):
    """{name: list of parts}, {function: its libraries}."""
    found = {name: [value.strip()] for name, value in CONSTANT.findall(text)}
    libraries = {}
    text = CONSTANT.sub("", text)
    found.update(("struct " + name, list(members(body))) for name, body in STRUCT.findall(text))
    for name, body in ENUM.findall(text):
        values = list(enumerators(body))
        found["enum " + (name or "of " + values[0].split()[0])] = values
    for statement in (" ".join(part.split()) for part in ENUM.sub("", STRUCT.sub("", text)).split(";")):
        declared, _, place = statement.partition(" IN_")
        if place:
            name = re.search(r"\b(qdr_\w+)\(", declared).group(1)
            found[name] = [re.sub(r"(\w+[ *]+)\w+(?=[,)[])", r"\1", declared).replace(" )", ")")]  # without names
            libraries[name] = place
        elif statement.startswith("typedef"):
            found[statement] = []
    return found, libraries


def may_grow(name, parts):
    if name.startswith("struct "):
        return parts[0] == "size_t size" and name.split()[1] not in structs.FROZEN
    return name.startswith("enum ")


def counts(part, grown, was):
    """Whether it counted the values of an enum, still does, and arrays have room for more."""
    name = part.split()[0]
    return name.replace("QDR_N_", "QDR_MAX_") in was and grown[-1] == f"{name} = {len(grown) - 1}"


def problems(then, now):
    (was, places), (is_now, places_now) = declarations(then), declarations(now)
    for name, parts in was.items():
        if name not in is_now:
            yield f"{name} is gone"
            continue
        grown = is_now[name]
        if len(grown) > len(parts) and not may_grow(name, parts):
            yield f"{name} has '{grown[len(parts)]}', and may not grow"
        for number, part in enumerate(parts):
            there = grown[number] if number < len(grown) else "nothing"
            if there != part and not (part == "double room" and re.fullmatch(r"double \w+", there)) and \
                    not counts(part, grown, was):
                yield f"{name} has '{there}' where it had '{part}'"
                break
        if places.get(name) == "BOTH" != places_now.get(name):
            yield f"{name} is not in libquadrille_perf any more"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("build")
    arguments = parser.parse_args()
    runtime, model = (check_symbols.exported(os.path.join(arguments.build, "lib", name))
                      for name in ("libquadrille.so", "libquadrille_perf.so"))
    now = describe(os.path.join(REPOSITORY, "include", "quadrille"), runtime, model)
    public = {name for name, version in runtime.items() if not version} - {"qdr_context_create_mpi"}
    for name in public - declarations(now)[1].keys():
        sys.exit(f"check_abi.py: {name} was not found in the headers: it no longer reads them")
    if arguments.write:
        with open(RELEASE, "w", encoding="utf-8") as file:
            file.write(now)
    with open(RELEASE, encoding="utf-8") as file:
        then = file.read()
    found = list(problems(then, now))
    for problem in found:
        print(f"since the last release: {problem}; a program that was built with it breaks (CONTRIBUTING.md)")
    print(f"{len(declarations(then)[0])} declarations of the last release")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
