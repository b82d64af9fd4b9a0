#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Functions in which ranks synchronize: before the last synchronization no rank leaves, or skips one, because of an
event on this rank alone; the others would wait for it forever. Failures are agreed upon first.

A statement that is the same on all ranks says so in a comment: /* the same on all ranks */. A failing MPI call does not
count: ranks cannot agree with a broken MPI.

usage: check_collective.py [FOLDER]    (the repository; default: the working directory)
"""
import os
import re
import sys

from tracked_files import tracked_files

ROOMS = ("lib/comm/", "lib/context/", "lib/grid/")
# Calls in which ranks synchronize. The first set returns the same status on all of them.
AGREEING = {"qdri_comm_agree", "qdri_comm_agree_same", "qdri_comm_any", "qdri_comm_broadcast", "qdri_comm_split",
            "qdri_mpi_agree", "qdri_mpi_exchange", "qdri_mpi_broadcast",
            "qdri_barrier_join", "qdri_barrier_agree", "qdri_barrier_exchange", "qdri_barrier_broadcast", "boot_agree",
            "boot_exchange", "qdri_local_world_agree", "qdri_boot_barrier"}
WAITING = {"MPI_Comm_split", "MPI_Comm_split_type", "MPI_Comm_idup", "MPI_Bcast", "MPI_Allreduce", "MPI_Allgather",
           "MPI_Ibarrier"}
# What says it in words, a NULL of the caller's, and the error of a device that has told all ranks already.
SAME = re.compile(r"the same (on all ranks|everywhere)|\bNULL\b|MPI_SUCCESS|rank < 0|qdri_dev_raise|check_context\(")
FUNCTION = re.compile(r"^(?!typedef|enum|struct|static const)([A-Za-z_][^\n;={}]*?)\b(\w+)\([^;{}]*?\)"
                      r"(?:\n\{\n(.*?)^\}| \{ (.*?) \}$)", re.M | re.S)
# Public calls and the work of streams are not creating functions.
CREATING = re.compile(r"create|split|join|make|prepare|greet|begin|build|wrap|check_same|find_nodes|hand_out|map_block|"
                      r"pair|init|abandon")
CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
# What may end a function early, or set a status: the text of the expression.
LEAVE = re.compile(r"\bQDR_TRY(?:_OUT)?\((?:status, )?(.*)\);|\breturn (QDR_FAIL\(.*)|\breturn (\w+);|\bgoto out;")
ASSIGN = re.compile(r"\b(?:qdr_status )?(\w+) = (.*);")
PLAIN = {"if", "for", "while", "switch", "return", "sizeof"}


def functions(path, text):
    for found in FUNCTION.finditer(text):
        part = 3 if found.group(3) is not None else 4
        yield found.group(2), found.group(part), text.count("\n", 0, found.start(part)) + 1, "static" in found.group(1)


def statements(body, line):
    """(line, text) of each statement, which may go over several lines."""
    text, begin = "", line
    for number, part in enumerate(body.split("\n"), line):
        if not text.strip():
            begin = number
        text += " " + part.strip()
        code = re.sub(r"/\*.*?\*/", "", text)
        if code.count("(") == code.count(")") and re.search(r"[;{}:]\s*$", code):
            yield begin, text.strip()
            text = ""


def calls(text):
    return [name for name in CALL.findall(re.sub(r'"[^"]*"|/\*.*?\*/', "", text)) if name not in PLAIN]


class Source:
    def __init__(self, files):
        self.bodies = [(path, name, list(statements(body, line)), static)
                       for path, text in files for name, body, line, static in functions(path, text)]
        self.own = {(path, name) for path, name, _, static in self.bodies if static}
        self.meets = {(None, name) for name in AGREEING | WAITING}
        before = -1
        while before != len(self.meets):
            before = len(self.meets)
            for path, name, body, static in self.bodies:
                if any(self.first_wait(path, text) for _, text in body):
                    self.meets.add((path if static else None, name))

    def first_wait(self, path, text):
        """Static functions of other files may have the same name."""
        for call in calls(text):
            if (path if (path, call) in self.own else None, call) in self.meets:
                return call
        return None

    def is_agreed(self, text):
        return any(call in AGREEING for call in calls(text))

    def check(self, path, body):
        waits = [number for number, (_, text) in enumerate(body) if self.first_wait(path, text)]
        alone = set()  # variables with a status of this rank alone
        for number, (line, text) in enumerate(body):
            later = waits and number < waits[-1]
            code = re.sub(r"/\*.*?\*/", "", text)
            wait = self.first_wait(path, code)
            condition = re.match(r"if \((.*?)\) ", code)
            if wait and condition and not SAME.search(text):
                for name in alone & set(re.findall(r"\w+", condition.group(1))):
                    yield f"{path}:{line}: others wait in {wait}() for a rank whose `{name}` is an error"
            leave = LEAVE.search(code)
            if leave and later and not SAME.search(text):
                what = next((group for group in leave.groups() if group), "goto")
                names = set(re.findall(r"\w+", what))
                local = bool(calls(what)) and not self.first_wait(path, what) and not what.startswith("MPI_")
                if local or (not self.first_wait(path, code) and names & alone):
                    then = self.first_wait(path, body[next(m for m in waits if m > number)][1])
                    yield f"{path}:{line}: this rank alone may leave here, and others wait in {then}()"
            assign = ASSIGN.search(code)
            if assign:
                name, value = assign.groups()
                if self.is_agreed(value):
                    alone.discard(name)
                elif calls(value) or set(re.findall(r"\w+", value)) & alone:
                    alone.add(name)
            elif "QDR_TRY_OUT" in code and self.is_agreed(code):
                alone.discard("status")


def problems(folder):
    files = []
    for path in tracked_files(folder):
        if path.startswith(ROOMS) and path.endswith(".c"):
            with open(os.path.join(folder, path), encoding="utf-8") as file:
                files.append((path, file.read()))
    source = Source(files)
    return [problem for path, name, body, _ in source.bodies if CREATING.search(name)
            for problem in source.check(path, body)]


def main():
    found = problems(sys.argv[1] if len(sys.argv) > 1 else ".")
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
