#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program formed by the C blocks of docs/tutorial.md, in order, followed by files that compare it with plain
loops.

usage: tutorial_program.py TUTORIAL FILE... OUTPUT
"""
import os
import re
import sys


def main():
    tutorial, *tails, output = sys.argv[1:]
    with open(tutorial, encoding="utf-8") as file:
        text = file.read()
    program = []
    for block in re.finditer(r"^```c\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, block.start()) + 2
        program.append(f'#line {line} "docs/tutorial.md"\n{block.group(1)}')
    if not program:
        sys.exit(f"{tutorial}: no C blocks")
    for tail in tails:
        with open(tail, encoding="utf-8") as file:
            program.append(f'#line 1 "tests/cli/{os.path.basename(tail)}"\n{file.read()}')
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join(program))


if __name__ == "__main__":
    main()
