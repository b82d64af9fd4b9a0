#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each member of each description in the public headers, and each number that a call on a grid, a stack, a layer or an
optimizer takes, is varied on one rank by test_same, or exempted there with a reason.

usage: descriptions.py TEST_SAME HEADERS
"""
import os
import re
import subprocess
import sys

STRUCT = re.compile(r"typedef struct (qdr_\w+) \{(.*?)\n\} \1;", re.S)
FUNCTION = re.compile(r"QDR_API (?:QDR_NODISCARD )?(?:qdr_status|void)\s+(qdr_\w+)\(([^)]*)\);", re.S)
OBJECT = re.compile(r"qdr_(?:grid|stack|linear|adamw) \*\w+$")
NUMBER = re.compile(r"(?:int|int64_t|uint64_t|size_t|double|qdr_edge|qdr_layout|qdr_dtype|qdr_axis|const char \*)\s*"
                    r"(\w+)$")
CALLS_OF = ("stack.h", "operations.h", "linear.h", "optim.h", "matrix.h")


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def members_of(body):
    """Names of a struct's members; a declaration may name several."""
    for declaration in body.split(";"):
        declaration = re.sub(r"\[[^\]]*\]", "", declaration).strip()
        if not declaration:
            continue
        first, *others = declaration.split(",")
        yield re.search(r"(\w+)$", first.strip()).group(1)
        for other in others:
            yield other.strip().lstrip("*")


def descriptions(folder):
    """The structs that begin with their size and that the library only reads: callers fill them."""
    texts = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            texts[name] = without_comments(file.read())
    read = set(re.findall(r"\bconst (qdr_\w+) \*\w+[,)]", "".join(texts.values())))
    for name, text in texts.items():
        for struct, body in STRUCT.findall(text):
            if body.split(";")[0].strip() == "size_t size" and struct in read and "(*" not in body:
                yield from (f"{struct}.{member}" for member in members_of(body))
        if name not in CALLS_OF:
            continue
        for function, parameters in FUNCTION.findall(text):
            first, *others = [" ".join(parameter.split()) for parameter in parameters.split(",")]
            if OBJECT.match(first):
                yield from (f"{function}({found.group(1)})" for found in map(NUMBER.match, others) if found)


def is_excused(what, excuses):
    struct, _, member = what.partition(".")
    return what in excuses or f"{struct}.*" in excuses or f"*.{member}" in excuses


def main():
    program, folder = sys.argv[1:]
    listed = subprocess.run([program, "--list"], check=True, capture_output=True, encoding="utf-8").stdout.splitlines()
    varied = {line for line in listed if ": " not in line}
    excuses = {line.split(": ")[0] for line in listed if ": " in line}
    there = list(descriptions(folder))
    if len(there) < 100:
        sys.exit(f"only {len(there)} members and arguments were found in {folder}: this script no longer reads them")
    missing = [what for what in there if what not in varied and not is_excused(what, excuses)]
    for what in missing:
        print(f"{what}: ranks may pass different ones, and no test says what happens; compare it "
              "(lib/linear/describe.c), and add a line to tests/dist/same_cases.h")
    needless = [what for what in excuses if not any(is_excused(one, {what}) for one in there)]
    for what in needless:
        print(f"{what}: excused in tests/dist/same_cases.h, but it is not there any more")
    print(f"{len(there)} members and arguments, {len(varied)} variations, {len(excuses)} excuses")
    return 1 if missing or needless else 0


if __name__ == "__main__":
    sys.exit(main())
