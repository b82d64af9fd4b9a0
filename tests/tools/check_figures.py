#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of README.md, such as "1.5 to 2.5 times", "90 %" and "3 minutes": each stands in a paragraph that links a
section of docs/benchmarks.md, or in a block of code right above such a paragraph. That section has the same figure and
a command that measures it.

usage: check_figures.py [FOLDER]    (the repository; default: the working directory)
"""
import os
import re
import sys

NUMBER = r"\d+(?:[.,]\d+)*"
UNIT = (r"times|%|hours?|minutes?|seconds?|h|min|s|ms|µs|lines|(?:tokens|samples)/s|[kKMGT]i?B(?:/s)?|[kMG]bit/s|"
        r"[MGT]?FLOP(?:/s|S)?|(?<=\d)[x×](?!\s*\d)")
FIGURE = re.compile(rf"(?<![\w.,])({NUMBER})(?:\s*(?:to|or|and|,|–|-)\s*({NUMBER}))?\s*({UNIT})(?!\w|/)")
COMMAND = re.compile(r"(?:`|\n    )(?:(?:sh|python3) ([\w/.]+)|(?:build/|mpiexec\.mpich |quadrille )[\w-]+)")
PAGE = "docs/benchmarks.md"
LINK = re.compile(r"\]\((docs/[\w/.-]+\.md)#([\w-]+)\)")
HEADING = re.compile(r"(#+) (.*)")


def anchor_of(title):
    """As GitHub makes it from a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def section(text, anchor):
    """From the heading to the next one that is not below it; "" if there is no such heading."""
    found, level = [], 0
    for line in text.split("\n"):
        heading = HEADING.match(line)
        if heading and level and len(heading.group(1)) <= level:
            break
        if heading and not level and anchor_of(heading.group(2)) == anchor:
            level = len(heading.group(1))
        if level:
            found.append(line)
    return "\n".join(found)


def read(folder, path):
    if not os.path.exists(os.path.join(folder, path)):
        return ""
    with open(os.path.join(folder, path), encoding="utf-8") as file:
        return file.read()


def parts(text):
    """Paragraphs with their links as they are: a table joined with what is above it, code with what is below."""
    text = re.sub(r"((?:^|\n)    [^\n]*|\n```)\n\n(?!    )", r"\1\n", text)
    return re.sub(r":\n\n\|", ":\n|", text).split("\n\n")


def figures(text):
    """The numbers of a text with their units."""
    return [(number, unit) for *numbers, unit in FIGURE.findall(text) for number in numbers if number]


def has_figure(text, number, unit):
    """Ratios stand in tables, too, without the word."""
    if unit in ("times", "x", "×"):
        return re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d]|[.,]\d)", text)
    return (number, unit) in figures(text)


def has_command(folder, text):
    return any(not script or os.path.exists(os.path.join(folder, script)) for script in COMMAND.findall(text))


def problems(folder):
    for part in parts(read(folder, "README.md")):
        sections = {f"{path}#{anchor}": section(read(folder, path), anchor) for path, anchor in LINK.findall(part)}
        for link, text in sections.items():
            if not text:
                yield f"README.md: there is no section {link}"
        measured = {link: text for link, text in sections.items() if link.startswith(PAGE) and text}
        for number, unit in figures(part):
            having = [link for link, text in measured.items() if has_figure(text, number, unit)]
            if not measured:
                yield f"README.md: {number} {unit}: link the section of {PAGE} with this figure"
            elif not having:
                yield f"README.md: {number} {unit} is not in {' or '.join(measured)}"
            elif not any(has_command(folder, measured[link]) for link in having):
                yield f"README.md: {number} {unit}: {' and '.join(having)} has no command that measures it"


def main():
    found = list(problems(sys.argv[1] if len(sys.argv) > 1 else "."))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
