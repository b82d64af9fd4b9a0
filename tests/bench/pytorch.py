#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quadrille compared with PyTorch on the CPU, as Markdown.

usage: pytorch.py [--build BUILD] [--python PYTHON] [--rounds N] [--only WORDS] gpt|llama|layer|wire

gpt: whole training steps of one network on two cores: one process with two threads, or two processes.
llama: the same of a Llama; and the processor time of one process with one thread.
layer: forward and backward of one transformer layer on 2 and on 4 processes: FSDP2, DDP and tensor parallelism.
wire: whole steps on four nodes (network namespaces, links of 200 Mbit/s) of two ranks: FSDP2 and HSDP beside
  ZeRO-3 and levels 2,8 of Quadrille. Needs root.
PYTHON (default: python3) has torch 2.6 or later: `python3 -m venv V && V/bin/pip install torch numpy`. Each round
launches all programs of a row one after the other, the next in reverse order; a ratio is the median of the ratios by
round, with the least and the largest. --only: only rows with all of these words. Use an idle machine: ten minutes.
"""
import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = "/usr/share/common-licenses/GPL-3"
GPTS = [{"layers": 4, "hidden": 128, "heads": 4, "context": 128, "sequences": 4, "steps": 80},
        {"layers": 4, "hidden": 256, "heads": 4, "context": 256, "sequences": 8, "steps": 12}]
LLAMA = {"layers": 4, "hidden": 256, "heads": 4, "key_heads": 2, "ffn": 688, "context": 256, "sequences": 8}
LLAMA_CONFIG = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4,
                "num_key_value_heads": 2, "intermediate_size": 688, "max_position_embeddings": 256, "vocab_size": 256,
                "rms_norm_eps": 1e-5}
LAYER = {"hidden": 1024, "heads": 16, "context": 256, "sequences": 4, "steps": 3}
WIRE = {"layers": 4, "hidden": 256, "heads": 4, "context": 128, "sequences": 32, "micro_batch": 1, "steps": 5}
# The torch allocator's way to keep memory, which it needs to be fast on a CPU.
KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "1000000000000"}


def run(command, ranks, nodes=1, environment=()):
    """What a program prints to standard output and standard error."""
    if nodes > 1:
        command = ["sh", f"{HERE}/../netlab/netlab.sh", "-n", str(nodes), "-p", str(ranks // nodes), "-r", "200mbit",
                   "--", *command]
    elif ranks > 1:
        command = ["mpiexec.mpich", "-n", str(ranks), *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                          env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **dict(environment)})
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def torch(case, shape, way, ranks, nodes=1):
    """Seconds of a step of PyTorch."""
    threads = max(1, os.cpu_count() // ranks) if ranks else 1  # 0: one process with one thread
    asked = {"case": case, "way": way, "dtype": "f32", "threads": threads, "text": TEXT, **shape}
    peers = {"MASTER_ADDR": "10.77.0.1", "GLOO_SOCKET_IFNAME": "eth0"} if nodes > 1 else {}
    out, _ = run([ARGS.python, f"{HERE}/pytorch_rank.py", json.dumps(asked)], ranks, nodes,
                 {**KEEP, **peers, "OMP_NUM_THREADS": str(threads)})
    return float(out.split()[-1])


def ours_layer(shape, grid, ranks):
    out, _ = run([f"{ARGS.build}/examples/transformer_layer", "--grid", grid, "--hidden", str(shape["hidden"]),
                  "--heads", str(shape["heads"]), "--ctx", str(shape["context"]), "--batch", str(shape["sequences"]),
                  "--iterations", str(shape["steps"]), "--json"], ranks)
    found = json.loads(out)
    return found["forward_secs"] + found["backward_secs"]


def ours_steps(shape, grid, ranks, nodes=1, levels="none", dtype="f32"):
    micro = ["--micro-batch", str(shape["micro_batch"])] if "micro_batch" in shape else []
    return trained(shape, grid, ranks, ["--layers", str(shape["layers"]), "--hidden", str(shape["hidden"]), "--heads",
                                        str(shape["heads"]), "--levels", levels, "--dtype", dtype, *micro], nodes)


def trained(shape, grid, ranks, words, nodes=1):
    """Seconds of the median step, from the log."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        run([f"{ARGS.build}/examples/train", TEXT, "--grid", grid, *words, "--ctx", str(shape["context"]),
             "--batch", str(shape["sequences"]), "--steps", str(shape["steps"]), "--val-every", "1000000",
             "--val-windows", "1", "--sample", "1", "--log", log], ranks, nodes)
        with open(log, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    tokens = shape["sequences"] * shape["context"]
    return statistics.median(tokens / line["tokens_per_s"] for line in lines if "tokens_per_s" in line)


def on_two_cores(theirs, ours):
    return {"PyTorch, one process, compiled": lambda: theirs("compile", 1),
            "PyTorch, one process": lambda: theirs("eager", 1),
            "PyTorch, DDP": lambda: theirs("ddp", 2),
            "Quadrille, 1x1x1x2": lambda: ours("1x1x1x2", 2),
            "Quadrille, one rank of two threads": lambda: ours("1x1x1x1", 1)}  # both cores by default


def rows_gpt():
    for shape in GPTS:
        for dtype in "f32", "bf16":
            name = f"{dtype}, hidden {shape['hidden']}, {shape['sequences'] * shape['context']} tokens a step"
            yield name, on_two_cores(
                lambda way, ranks, s=shape, d=dtype: torch("gpt", {**s, "dtype": d}, way, ranks),
                lambda grid, ranks, s=shape, d=dtype: ours_steps(s, grid, ranks, dtype=d))


def torch_llama(dtype, way, ranks, steps=12):
    return torch("llama", {**LLAMA, "steps": steps, "dtype": dtype}, way, ranks)


def ours_llama(dtype, grid, ranks, steps=12, threads=()):
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.json")
        with open(config, "w", encoding="ascii") as file:
            json.dump(LLAMA_CONFIG, file)
        return trained({**LLAMA, "steps": steps}, grid, ranks, ["--model", config, "--dtype", dtype, *threads])


def processor_secs(run_steps):
    """Of a step: of a long run less a short one."""
    few, many, secs = 3, 15, []
    for steps in few, many:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run_steps(steps)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        secs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return (secs[1] - secs[0]) / (many - few)


def rows_llama():
    for dtype in "f32", "bf16":
        yield f"{dtype}, processor time of one thread", {
            "PyTorch": lambda d=dtype: processor_secs(lambda n: torch_llama(d, "eager", 0, n)),
            "Quadrille": lambda d=dtype: processor_secs(lambda n: ours_llama(d, "1x1x1x1", 1, n, ("--threads", "1")))}
        yield f"{dtype}, two cores", on_two_cores(
            lambda way, ranks, d=dtype: torch_llama(d, way, ranks),
            lambda grid, ranks, d=dtype: ours_llama(d, grid, ranks))


def rows_layer():
    for ranks in 2, 4:
        for way, grid in ("fsdp", f"1x1x{ranks}x1"), ("ddp", f"1x1x1x{ranks}"), ("tp", f"1x{ranks}x1x1"):
            yield f"{ranks} ranks, {way}", {
                f"PyTorch, {way}": lambda w=way, r=ranks: torch("layer", LAYER, w, r),
                f"Quadrille, {grid}": lambda g=grid, r=ranks: ours_layer(LAYER, g, r)}


def rows_wire():
    yield "4 nodes of 2 ranks", {
        "PyTorch, FSDP2": lambda: torch("gpt", WIRE, "fsdp", 8, 4),
        "PyTorch, HSDP": lambda: torch("gpt", WIRE, "hsdp", 8, 4),
        "Quadrille, ZeRO-3": lambda: ours_steps(WIRE, "1x1x8x1", 8, 4),
        "Quadrille, levels 2,8": lambda: ours_steps(WIRE, "1x1x2x4", 8, 4, "2,8")}


def spread(values, unit=1):
    return f"{unit * statistics.median(values):.4g} ({unit * min(values):.4g} to {unit * max(values):.4g})"


def measure(name, programs):
    """Each program is compared with those of Quadrille."""
    rounds = []
    for number in range(ARGS.rounds):
        order = list(programs)[::-1 if number % 2 else 1]
        secs = {program: programs[program]() for program in order}
        rounds.append(secs)
        print(f"{name}, round {number + 1}: {', '.join(f'{p} {1e3 * secs[p]:.4g}' for p in programs)}", file=sys.stderr)
    ours = [program for program in programs if program.startswith("Quadrille")]
    for program in programs:
        ratios = "; ".join(f"{peer}: {spread([secs[program] / secs[peer] for secs in rounds])}"
                           for peer in ours if peer != program)
        print(f"| {name} | {program} | {spread([secs[program] for secs in rounds], 1e3)} | {ratios} |", flush=True)


PARSER = argparse.ArgumentParser(usage=re.search(r"usage: (.*)", __doc__).group(1))
PARSER.add_argument("--build", default="build")
PARSER.add_argument("--python", default="python3")
PARSER.add_argument("--rounds", type=int, default=5)
PARSER.add_argument("--only", default="")
PARSER.add_argument("part", choices=["gpt", "llama", "layer", "wire"])
ARGS = PARSER.parse_args()
with open("/proc/cpuinfo", encoding="utf-8") as info, open("/proc/loadavg", encoding="utf-8") as load:
    print(f"{re.search(r'model name.*: (.*)', info.read()).group(1)}, {os.cpu_count()} cores; {ARGS.rounds} rounds; "
          f"load before: {' '.join(load.read().split()[:3])}\n")
print("| | program | ms: median (least to most) | time / that of |\n| --- | --- | --- | --- |", flush=True)
for NAME, PROGRAMS in {"gpt": rows_gpt, "llama": rows_llama, "layer": rows_layer, "wire": rows_wire}[ARGS.part]():
    if all(word in NAME for word in ARGS.only.split()):
        measure(NAME, PROGRAMS)
