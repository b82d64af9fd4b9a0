#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Code that is written twice: the same six lines or more, in two places of the folders that are installed. Blank lines,
comments, includes, lone braces and the amount of white space do not count.

usage: check_duplicates.py [FOLDER]    (the repository; default: the working directory)
"""
import os
import re
import sys

from check_style import C_ENDINGS
from tracked_files import tracked_files

LINES = 6
FOLDERS = ("lib/", "src/", "perfmodel/", "examples/")
# A comment; or a literal, in which none begins.
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"' r"|'(?:\\.|[^'\\\n])*'" r"|(/\*.*?\*/|//[^\n]*)", re.S)
NO_CODE = re.compile(r"\W*|\s*#\s*include\b.*")


def code_lines(text):
    """(number, text) of each line of code."""
    text = COMMENT.sub(lambda found: "\n" * found.group().count("\n") if found.group(1) else found.group(), text)
    return [(number, " ".join(line.split())) for number, line in enumerate(text.split("\n"), 1)
            if not NO_CODE.fullmatch(line)]


def same_lines(lines, i, others, j):
    """How many lines from i on are those of `others` from j on. Within one file the two runs do not overlap."""
    n, most = 0, min(len(lines) - i, (i if others is lines else len(others)) - j)
    while n < most and lines[i + n][1] == others[j + n][1]:
        n += 1
    return n


def problems(folder):
    code, first = {}, {}
    for path in tracked_files(folder):
        if path.startswith(FOLDERS) and path.endswith(C_ENDINGS):
            with open(os.path.join(folder, path), encoding="utf-8") as file:
                code[path] = code_lines(file.read())
    for path, lines in code.items():
        end = 0  # of the last run that was reported
        for i in range(len(lines) - LINES + 1):
            other, j = first.setdefault(tuple(line for _, line in lines[i:i + LINES]), (path, i))
            n = same_lines(lines, i, code[other], j)
            if n >= LINES and i >= end:
                there = f"{other}:{code[other][j][0]}"
                yield f"{path}:{lines[i][0]}: {n} lines of code that are also at {there}; write them once"
                end = i + n


def main():
    found = list(problems(sys.argv[1] if len(sys.argv) > 1 else "."))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
