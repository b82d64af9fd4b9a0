#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Style: clang-format, blanks, one licence line per file, lengths of lines, sizes of files and functions.

usage: check_style.py [FOLDER]    (the repository; default: the working directory)
"""
import os
import re
import shutil
import statistics
import subprocess
import sys
import unicodedata

from tracked_files import tracked_files

FILE_LINES, FUNCTION_LINES, COLUMNS = 600, 100, 120
C_ENDINGS = (".c", ".h", ".cpp", ".cu", ".cuh")
LICENSED = C_ENDINGS + (".py", ".sh", "meson.build", "meson_options.txt", ".clang-format", ".clang-tidy")
PROSE = (".md", ".in", ".1", ".3", ".7", ".txt", ".gitignore")
TEXT = LICENSED + PROSE + (".json",)
# Data has lines of any length.
LIMITED = LICENSED + PROSE + (".map", ".yaml", ".ci/run", "debian/control", "debian/rules")
LIST_ITEM = re.compile(r"\s*([-*+]|\d+[.)]) ")
UNBREAKABLE = re.compile(r"\s*(\||([-*+] |\d+[.)] |\[[^\]]+\]: |> )?\S+$)")  # a row of a table; one word


def functions(lines):
    """(first line, number of lines) of each function of a formatted C file: braces in the first column."""
    begin = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            begin = number
        elif line == "}" and begin:
            yield begin, number - begin + 1
            begin = None


def check_text(path, text):
    lines = text.split("\n")
    if "\r" in text:
        yield f"{path}: a carriage return"
    if text and not text.endswith("\n"):
        yield f"{path}: no newline at the end"
    if text.endswith("\n\n"):
        yield f"{path}: blank lines at the end"
    for number, line in enumerate(lines, 1):
        if "\t" in line:
            yield f"{path}:{number}: a tab"
        if line != line.rstrip():
            yield f"{path}:{number}: blanks at the end of the line"


def markdown_lines(lines):
    """The numbers and lines that can be broken: not rows of tables, words such as links, and the output of programs,
    which is indented, or fenced as console or without the name of a language."""
    fence, in_list, indented, before = None, False, False, ""
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fence = line.strip("` ") or "console" if fence is None else None
        elif fence is None and line:
            in_list = bool(LIST_ITEM.match(line)) or in_list and line.startswith(" ")
            indented = line.startswith("    ") and not in_list and (indented or not before)
        if fence != "console" and not (fence is None and indented) and not UNBREAKABLE.match(line):
            yield number, line
        before = line


def check_columns(path, text):
    lines = text.split("\n")
    for number, line in markdown_lines(lines) if path.endswith(".md") else enumerate(lines, 1):
        columns = sum(not unicodedata.combining(character) for character in line)
        if columns > COLUMNS:
            yield f"{path}:{number}: {columns} columns, more than {COLUMNS}"


def check_source(path, text, lengths):
    lines = text.split("\n")
    if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
        yield f"{path}: no SPDX line at the top"
    if len(lines) - 1 > FILE_LINES:
        yield f"{path}: {len(lines) - 1} lines, more than {FILE_LINES}; split it"
    if not path.endswith(C_ENDINGS):
        return
    for number, line in enumerate(lines, 1):
        if path.startswith("lib/") and path.endswith((".cu", ".cuh")) and "<<<" in line:
            yield f"{path}:{number}: <<< launches by statics that nothing guards; use launch() of launch.cuh"
    for begin, length in functions(lines):
        lengths.append(length)
        if length > FUNCTION_LINES:
            yield f"{path}:{begin}: a function of {length} lines, more than {FUNCTION_LINES}; split it"


def check_format(folder, paths):
    program = shutil.which("clang-format-14")
    if not program:
        yield "clang-format-14 is missing: apt-get install clang-format-14"
        return
    if not paths:
        return
    done = subprocess.run([program, "--dry-run", "-Werror", "--ferror-limit=3", *paths], cwd=folder,
                          capture_output=True, text=True)
    if done.returncode:
        yield "clang-format-14 -i would change:"
        yield from (line for line in done.stderr.split("\n") if "error:" in line)


def problems(folder):
    paths, lengths = tracked_files(folder), []
    found = []
    for path in paths:
        if not path.endswith(TEXT + LIMITED):
            continue
        with open(os.path.join(folder, path), encoding="utf-8", newline="") as file:
            text = file.read()
        if path.endswith(TEXT):
            found += check_text(path, text)
        if path.endswith(LIMITED):
            found += check_columns(path, text)
        if path.endswith(LICENSED):
            found += check_source(path, text, lengths)
    found += check_format(folder, [path for path in paths if path.endswith(C_ENDINGS)])
    return found, lengths


def main():
    found, lengths = problems(sys.argv[1] if len(sys.argv) > 1 else ".")
    for problem in found:
        print(problem)
    if lengths:
        print(f"{len(lengths)} functions, median {statistics.median(lengths):g} lines, longest {max(lengths)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
