#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files that all programs read and write, and how to start a program with some of them. Used by files_test.py and
output_test.py."""
import argparse
import hashlib
import json
import os
import shutil
import stat
import struct
import subprocess
import tempfile
import unittest

ARGUMENTS = argparse.Namespace(quadrille=None, machines=None, examples=None)
SECONDS = 60  # no run waits for anything
READ, WRITTEN = "read", "written"
MADE = "made"  # there must be none of that name, and it is removed
TINY = ["--layers", "1", "--hidden", "8", "--heads", "1", "--ctx", "4", "--batch", "1", "--steps", "3", "--sample", "4",
        "--val-windows", "1", "--local", "1", "--threads", "1"]


class Slot:
    """A file of a program: its name in messages, and the options that name it on the command line."""

    def __init__(self, option, use, words=None, file=None, environment=None, is_regular=False):
        self.option, self.use = option, use
        self.is_regular = is_regular  # devices and pipes are refused
        self.words = words or (lambda path: [option, path])
        self.file = file or (lambda path: path)  # the file that is read or written for this path
        self.environment = environment or (lambda path: {})


def operand(name):
    return Slot(name, READ, lambda path: [path])


def ranks(slot, number):
    """A file of one rank: the option is given its name without the number."""
    slot.file = lambda path: f"{path}.{number}"
    return slot


def variable(name, number=None, use=WRITTEN):
    slot = Slot(name, use, lambda path: [], environment=lambda path: {name: path})
    return slot if number is None else ranks(slot, number)


def result(name):
    return Slot("--out", WRITTEN, file=lambda path: os.path.join(path, name))


RESULTS = [result(name + ".npy") for name in ("y", "dx", "dw", "db")]
ARRAYS = [Slot(option, READ) for option in ("--x", "--w", "--b", "--dy")]
ENVIRONMENT = [variable("QDR_TUNE"), variable("QDR_TRACE", 0), variable("QDR_CUDA_PLUGIN", use=READ),
               variable("QDR_CUDNN", use=READ), variable("QDR_MACHINE", use=READ)]
WITHOUT_MACHINE = ENVIRONMENT[:-1]  # it may measure QDR_MACHINE anew
MACHINE = Slot("--machine", READ)
SOFTWARE = Slot("--software", READ)
MODEL = Slot("--model", READ)
# Each with the options that it also needs; a default is used for a file that a pair does not name.
PROGRAMS = {
    "quadrille bench ckpt": ([], [Slot("--file", MADE)], {}),
    "quadrille bench codec": ([], [Slot("--data", READ)], {}),
    "quadrille bench layer": ([], [MACHINE, MODEL], {}),
    "quadrille calibrate": (["--local", "1", "--quick", "--force"],
                            [Slot("--for", READ), Slot("--base", READ), Slot("--out", WRITTEN), *WITHOUT_MACHINE],
                            {"--base": "machine.json"}),
    "quadrille linear": (["--grid", "1x1x1x1", "--local", "1"], [*ARRAYS, *RESULTS, *ENVIRONMENT],
                         {"--x": "x.npy", "--w": "w.npy", "--dy": "dy.npy", "--out": "result"}),
    "quadrille mem": ([], [operand("the model"), MACHINE, SOFTWARE], {}),
    "quadrille plan": (["-n", "2", "--top", "1"],
                       [operand("the model"), MACHINE, SOFTWARE, Slot("--svg", WRITTEN), Slot("--out", WRITTEN)],
                       {"the model": "model.json", "--machine": "machine.json"}),
    "quadrille predict": ([], [operand("the table"), MACHINE, SOFTWARE, Slot("--out", WRITTEN)],
                          {"the table": "runs.csv"}),
    "quadrille topo": ([], [Slot("--xml", READ), Slot("--svg", WRITTEN)], {}),
    "quadrille trace": ([], [ranks(operand("the trace"), 0), ranks(operand("the trace"), 1), Slot("--merge", WRITTEN),
                             Slot("--svg", WRITTEN)], {"the trace": "run"}),
    "train": (TINY, [operand("the text"), MACHINE, MODEL, Slot("--plan", READ), Slot("--load", READ),
                         Slot("--save", WRITTEN, is_regular=True), Slot("--log", WRITTEN), Slot("--plot", WRITTEN),
                         *ENVIRONMENT], {"the text": "text.txt"}),
    "transformer_layer": (["--local", "1"], [MACHINE, MODEL, Slot("--plan", READ), *ENVIRONMENT], {}),
}


def command_of(program):
    words = program.split()
    if words[0] == "quadrille":
        return [ARGUMENTS.quadrille, *words[1:]]
    return [os.path.join(ARGUMENTS.examples, words[0]), *words[1:]]


def programs():
    return [name for name in PROGRAMS if ARGUMENTS.examples or name.startswith("quadrille")]


def write(path, text):
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def read(path):
    with open(path, "rb") as file:
        return file.read()


def npy(*shape):
    """A NumPy file of zeros."""
    sides = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({sides}), }}".ljust(117) + "\n"
    n_elems = 1
    for side in shape:
        n_elems *= side
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + bytes(4 * n_elems)


def trace(rank):
    event = {"ph": "X", "name": "fc", "cat": "product", "pid": 0, "tid": 0, "ts": 0, "dur": 1,
             "args": {"stream": "compute", "axis": "", "task": 1, "run": 0, "bytes": 0, "flops": 0.0}}
    header = {"version": 3, "id": "1", "rank": rank, "ranks": 2, "grid": [2, 1, 1, 1],
              "levels": [1, 1], "place": [rank, 0, 0, 0],
              "clock": [{"at": 0, "ahead": 0, "bound": 0}], "lost": 0}
    return json.dumps({"traceEvents": [event], "quadrille": header})


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        config = {"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 1, "n_positions": 64, "vocab_size": 100}
        write(self.path("model.json"), json.dumps(config))
        shutil.copy(os.path.join(ARGUMENTS.machines, "laptop.json"), self.path("machine.json"))
        write(self.path("text.txt"), "".join(f"{i} and {i * i}\n" for i in range(300)))
        for name, shape in (("x", (30, 20)), ("w", (10, 20)), ("dy", (30, 10))):
            write(self.path(name + ".npy"), npy(*shape))
        for rank in (0, 1):
            write(self.path(f"run.{rank}"), trace(rank))
        write(self.path("runs.csv"), "machine,gpus,model,layers,hidden,heads,sequence,vocab,batch,step_secs\n"
                                     "dgx-a100,8,small,24,2048,16,1024,51200,64,1\n")

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def names(self):
        """Of all files, with digests of their contents."""
        found = {}
        for folder, _, files in os.walk(self.folder.name):
            for name in files:
                path = os.path.join(folder, name)
                is_file = stat.S_ISREG(os.stat(path).st_mode) if os.path.exists(path) else False
                digest = hashlib.sha256(read(path)).hexdigest() if is_file else None
                found[os.path.relpath(path, self.folder.name)] = digest
        return found

    def words(self, program, *named):
        """The command line and the environment of a run in which the slots have these paths."""
        words, _, defaults = PROGRAMS[program]
        line, environment, seen = [*words], {}, set()
        for slot, path in named:
            if slot.environment("x"):
                environment.update(slot.environment(path))
            else:
                is_operand = not slot.words("x")[0].startswith("-")
                line = [*slot.words(path), *line] if is_operand else [*line, *slot.words(path)]
            seen.add(slot.option)
        for option, name in defaults.items():
            if option not in seen:
                path = self.path(name)
                line = [*line, option, path] if option.startswith("-") else [path, *line]
        return line, environment

    def run_program(self, program, *words, environment=None, stdout=subprocess.PIPE, seconds=SECONDS, **keys):
        variables = {name: value for name, value in os.environ.items()
                     if name not in [slot.option for slot in ENVIRONMENT]}
        done = subprocess.run([*command_of(program), *words], stdin=subprocess.DEVNULL, stdout=stdout,
                              stderr=subprocess.PIPE, timeout=seconds, env={**variables, **(environment or {})}, **keys)
        done.err = done.stderr.decode()
        return done

    def run_slots(self, program, *named, **keys):
        line, environment = self.words(program, *named)
        return self.run_program(program, *line, environment=environment, **keys)


def outputs():
    """Each program with one of its regular outputs, and that slot."""
    for program in programs():
        for slot in PROGRAMS[program][1]:
            if (slot.use == WRITTEN and not slot.environment("x") and program != "quadrille calibrate"
                    and slot.option != "--log"):
                yield program, slot


def main(name):
    parser = argparse.ArgumentParser()
    parser.add_argument("quadrille")
    parser.add_argument("machines")
    parser.add_argument("--examples")
    _, rest = parser.parse_known_args(namespace=ARGUMENTS)
    for key, value in vars(ARGUMENTS).items():
        setattr(ARGUMENTS, key, os.path.abspath(value) if value else value)
    unittest.main(module="__main__", argv=[name, *rest])
