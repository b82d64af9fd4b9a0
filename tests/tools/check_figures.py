#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of README.md: each "1.5 times" and "1.5 to 2.5 times" stands in a paragraph that links a section of a page
under docs/, and the same numbers stand in that section.

usage: check_figures.py [FOLDER]    (the repository; default: the working directory)
"""
import os
import re
import sys

RATIO = re.compile(r"(\d+(?:\.\d+)?) (?:to (\d+(?:\.\d+)?) )?times\b")
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
    """Paragraphs, joined with the table that follows them, with their links as they are."""
    return re.sub(r":\n\n\|", ":\n|", text).split("\n\n")


def problems(folder):
    for part in parts(read(folder, "README.md")):
        numbers = [number for pair in RATIO.findall(part) for number in pair if number]
        links = LINK.findall(part)
        sections = [section(read(folder, path), anchor) for path, anchor in links]
        for (path, anchor), text in zip(links, sections):
            if not text:
                yield f"README.md: {path} has no section #{anchor}"
        if numbers and not links:
            yield f"README.md: {numbers[0]} times: link the section of docs/benchmarks.md with this figure"
        for number in numbers if links else []:
            if not any(re.search(rf"(?<![\d.]){re.escape(number)}(?![\d]|\.\d)", text) for text in sections):
                yield f"README.md: {number} times is not in {' or '.join('#'.join(link) for link in links)}"


def main():
    found = list(problems(sys.argv[1] if len(sys.argv) > 1 else "."))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
