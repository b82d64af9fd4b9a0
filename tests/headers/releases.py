#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that were built with the headers of an older and of a newer release do the same with this library.

usage: releases.py PRESENT OLDER NEWER    (releases.c, built with each)
"""
import subprocess
import sys


def run(program):
    done = subprocess.run([program], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"{program} exits with {done.returncode}: {done.stderr}")
    sizes, *lines = done.stdout.splitlines()
    return [int(size) for size in sizes.split()[1:]], lines


def main():
    (sizes, lines), older, newer = map(run, sys.argv[1:])
    if not all(a < b < c for a, b, c in zip(older[0], sizes, newer[0])):
        sys.exit(f"structs have {older[0]}, {sizes} and {newer[0]} bytes: they should grow from release to release")
    for name, (_, others) in (("older", older), ("newer", newer)):
        if others != lines:
            sys.exit(f"with {name} headers the program prints\n  " + "\n  ".join(others) + "\nand not\n  "
                     + "\n  ".join(lines))
    print(f"{len(lines)} equal lines of three programs")


if __name__ == "__main__":
    main()
