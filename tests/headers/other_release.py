#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the public headers of another release: each struct that begins with its size is shorter, or longer, than here.

An older release lacks the last members, of 8 bytes together; to its programs this library is one whose structs have
got a member. A newer release has one more, `newer`.

usage: other_release.py older|newer HEADERS FOLDER STAMP
"""
import os
import re
import sys

STRUCT = re.compile(r"(typedef struct (qdr_\w+) \{\n    size_t size;)(.*?)(\n\} \2;)", re.S)


def bytes_of(member):
    """At least 8, but for a list of ints and enums."""
    words = re.sub(r"\[[^\]]*\]", "", member)
    is_small = "*" not in words and re.match(r"\s*(int|qdr_\w+)\s", words) and not re.match(
        r"\s*qdr_(codecs|op_fn|\w+_fn|edge|block|topo_place)\s", words)
    return (4 if is_small else 8) * (words.count(",") + 1)


def shorter(match):
    head, _, body, end = match.groups()
    members = re.findall(r"[^;]+;", body)
    if re.match(r"\s*qdr_machine_", members[-1]):  # a part, which is no member that was added
        return match.group()
    removed = 0
    while members and removed < 8:
        removed += bytes_of(members.pop())
    return head + "".join(members) + end


def main():
    kind, headers, folder, stamp = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    n_changed = 0
    for name in sorted(os.listdir(headers)):
        with open(os.path.join(headers, name), encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        text, n = STRUCT.subn(shorter if kind == "older" else r"\1\3\n    void *newer;\4", text)
        n_changed += n
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    if n_changed < 40:
        sys.exit(f"other_release.py: only {n_changed} structs begin with their size: it no longer reads the headers")
    with open(stamp, "w", encoding="utf-8"):
        pass


if __name__ == "__main__":
    main()
