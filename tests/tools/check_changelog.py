#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A change of a public header needs a line in CHANGELOG.md: no declaration differs from its state when CHANGELOG.md was
last changed. Comments and blanks may change. The log begins with [Unreleased], then the version of meson.build.
77: there is no history here.

usage: check_changelog.py [FOLDER]    (the repository; default: the working directory)
"""
import os
import re
import shutil
import subprocess
import sys

HEADERS, LOG = "include/quadrille/", "CHANGELOG.md"


class NoHistory(Exception):
    pass


def git(folder, *words):
    command = ["git", "-c", "safe.directory=*", "-C", folder, *words]
    return subprocess.run(command, capture_output=True, check=True, text=True, encoding="utf-8").stdout


def last_change(folder):
    """The commit whose headers the log describes; None if the log is being changed now."""
    if not os.path.exists(os.path.join(folder, ".git")) or not shutil.which("git"):
        raise NoHistory("this is no clone")
    if git(folder, "status", "--porcelain", "--", LOG).strip():
        return None
    commit = git(folder, "log", "-1", "--format=%H %P", "--", LOG).split()
    shallow = git(folder, "rev-parse", "--is-shallow-repository").strip() == "true"
    if not commit or (shallow and len(commit) == 1):
        raise NoHistory(f"this clone does not reach back to the last change of {LOG}")
    return commit[0]


def declarations(text):
    """A header without comments and blanks. Its strings contain no comment signs."""
    return re.sub(r"/\*.*?\*/|//[^\n]*|\s+", " ", text, flags=re.DOTALL).split()


def headers_now(folder):
    place = os.path.join(folder, HEADERS)
    for name in sorted(os.listdir(place)) if os.path.isdir(place) else []:
        if name.endswith(".h"):
            with open(os.path.join(place, name), encoding="utf-8") as file:
                yield HEADERS + name, file.read()


def problems(folder):
    commit = last_change(folder)
    if commit is None:
        return []
    then = {path: git(folder, "show", f"{commit}:{path}")
            for path in git(folder, "ls-tree", "--name-only", commit, HEADERS).split() if path.endswith(".h")}
    now = dict(headers_now(folder))
    return [f"{path}: not as it was when {LOG} last changed ({commit[:7]}); say there what changed"
            for path in sorted({*then, *now})
            if declarations(then.get(path, "")) != declarations(now.get(path, ""))]


def sections(folder):
    """[Unreleased] takes what follows the last release, even if it is still empty."""
    with open(os.path.join(folder, LOG), encoding="utf-8") as file:
        first = re.findall(r"^## (.*)$", file.read(), re.M)[:2]
    with open(os.path.join(folder, "meson.build"), encoding="utf-8") as file:
        version = re.search(r"version: '(.*)'", file.read()).group(1)
    if not re.fullmatch(rf"\[Unreleased\]\n\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", "\n".join(first)):
        yield f"{LOG}: begins with {first}, and not with [Unreleased] and [{version}] - DATE"


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "."
    found = list(sections(folder))
    try:
        found += problems(folder)
    except NoHistory as why:
        print(why)
        if not found:
            return 77
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
