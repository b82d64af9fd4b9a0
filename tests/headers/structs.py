#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The public headers: structs can get members without breaking a program that was built with earlier headers.

 - A struct begins with `size_t size`, or it is frozen (below), or programs only see the library's own, through pointers
   to const that functions return or callbacks get.
 - Only frozen structs, and those that end with `room`, lie in other structs: others would move what follows them.
 - No function returns a struct.
 - No array is as long as an enum, which grows.

usage: structs.py HEADERS
"""
import os
import re
import sys

# Structs that no member will be added to, and why.
FROZEN = {
    "qdr_block": "a width and its unit; lists of it lie in descriptions",
    "qdr_range": "begin and end; lists of it lie in qdr_owned",
    "qdr_codec": "what else a codec needs to know becomes a flag or a kind; it lies in qdr_codecs",
    "qdr_codecs": "by axis and class; it lies in qdr_plan, and what else there is to say becomes its member",
    "qdr_setting": "a name and a value; programs write lists of it",
    "qdr_parameter_run": "a rectangle; the library fills lists of it",
    "qdr_topo_place": "where a rank is; programs pass lists of it",
    "qdr_machine_tile": "an extent and its efficiency; lists of it lie in qdr_machine",
    "qdr_tensor": "a tensor as the format describes it; programs pass lists of it",
}
MOST_FROZEN = 10
CLOSED = {"QDR_N_AXES", "QDR_N_PASSES"}
STRUCT = re.compile(r"typedef struct (qdr_\w+) \{\n(.*?)\n\} \1;", re.S)
FUNCTION = re.compile(r"^QDR_API (?:QDR_NODISCARD )?([^;(]*?)\b(qdr_\w+)\(([^;]*)\);", re.M | re.S)


def read(folder):
    texts = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            texts.append(re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S))
    return "\n".join(texts)


def members(body):
    return [" ".join(member.split()) for member in body.split(";") if member.strip()]


def problems(text):
    structs = {name: members(body) for name, body in STRUCT.findall(text)}
    functions = FUNCTION.findall(text)
    if len(structs) < 50 or len(functions) < 200:
        yield f"only {len(structs)} structs and {len(functions)} functions were found: this test no longer reads them"
    if len(FROZEN) > MOST_FROZEN:
        yield f"{len(FROZEN)} structs are frozen, of at most {MOST_FROZEN}"
    yield from (f"{name}: frozen here, but it is not there any more" for name in FROZEN.keys() - structs.keys())
    taken = {name for _, _, parameters in functions for name in re.findall(r"\b(qdr_\w+) \*", parameters)}
    lying = {}
    for outer, body in structs.items():
        for member in body:
            found = re.match(r"(?:const )?(qdr_\w+) \w", member)
            if found and found.group(1) in structs:
                lying.setdefault(found.group(1), outer)
            for length in re.findall(r"\[(QDR_N_\w+)\]", member):
                if length not in CLOSED:
                    yield f"{outer}: '{member}' is as long as an enum, which grows; give it a fixed length with room"
    for name, body in structs.items():
        is_sized = body[0] == "size_t size"
        if name in FROZEN:
            continue
        if name in lying and not body[-1].startswith("double room["):
            yield f"{name}: it lies in {lying[name]}, which it would move if it grew; let that point to it"
        if not is_sized and name not in lying and name in taken:
            yield f"{name}: programs pass it, so it must begin with size_t size"
    for result, function, parameters in functions:
        name = result.split()[-1] if result.split() else ""
        if name in structs:
            yield f"{function}: it returns a struct, {name}; let the caller pass one"
        for length in re.findall(r"\[(QDR_N_\w+)\]", parameters):
            if length not in CLOSED:
                yield f"{function}: an array is as long as an enum, which grows"


def main():
    found = list(problems(read(sys.argv[1])))
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
