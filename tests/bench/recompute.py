#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs to make values again, as Markdown: steps of examples/train with --recompute none, operations and full,
measured and predicted after `quadrille calibrate`, for three networks on each grid.

    python3 tests/bench/recompute.py                       on this machine, ranks are threads: 1, 2 ranks
    python3 tests/bench/recompute.py --wire 200mbit        four nodes of one rank, namespaces (needs root)

The three run in turn, ROUNDS times; a ratio is the median of those of the rounds, the time of a step the median of all
steps but the first. Use an idle machine.
"""
import argparse
import csv
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RECOMPUTES = ("none", "operations", "full")
LLAMA = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 704, "num_hidden_layers": 4, "vocab_size": 256, "max_position_embeddings": 256,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
NETWORKS = {
    "gpt": {"model_type": "gpt2", "n_embd": 256, "n_head": 4, "n_layer": 4, "vocab_size": 256, "n_positions": 256},
    "llama": LLAMA,
    "qwen3": LLAMA | {"model_type": "qwen3", "hidden_size": 384, "head_dim": 64, "intermediate_size": 1024,
                      "num_hidden_layers": 3, "tie_word_embeddings": True},
}
GRIDS = ("1x1x1x1", "2x1x1x1", "1x2x1x1", "1x1x2x1")


def output(words, ranks, wire):
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    if wire:
        words = ["sh", f"{ROOT}/tests/netlab/netlab.sh", "-q", "-n", str(ranks), "-r", wire, "--", *words]
    else:
        words = [*words, "--local", str(ranks)]
    run = subprocess.run(words, capture_output=True, text=True, check=False, env=env, stdin=subprocess.DEVNULL)
    if run.returncode:
        sys.exit(f"{' '.join(words)}: exit code {run.returncode}\n{run.stdout}{run.stderr}")
    return run.stdout


def measured(arguments, folder, network, grid, recompute):
    """Seconds of a step."""
    log = os.path.join(folder, "log.jsonl")
    words = [f"{arguments.build}/examples/train", "--model", network, "--grid", grid, "--ctx", "256", "--batch",
             str(arguments.batch), "--steps", str(arguments.steps), "--val-every", "100000", "--val-windows", "1",
             "--sample", "0", "--threads", "1", "--recompute", recompute, "--log", log]
    output(words, ranks_of(grid), arguments.wire)
    with open(log, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    os.unlink(log)
    steps = [256 * arguments.batch / line["tokens_per_s"] for line in lines if "tokens_per_s" in line]
    return statistics.median(steps[1:])


def predicted(arguments, machine, network, grid, recompute):
    sizes = ",".join(f"{axis}={n}" for axis, n in zip("xyzd", grid.split("x")))
    words = [f"{arguments.build}/src/quadrille", "plan", network, "-n", str(ranks_of(grid)), "--machine", machine,
             "--fix", sizes, "--seq", "256", "--batch", str(arguments.batch), "--recompute", recompute, "--dtype",
             "f32", "--order", "xyzd", "--layout", "replicated", "--micro-batch", str(arguments.batch), "--top", "1",
             "--csv"]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    return float(next(csv.DictReader(io.StringIO(run.stdout)))["secs"])


def ranks_of(grid):
    x, y, z, d = (int(n) for n in grid.split("x"))
    return x * y * z * d


def machine_of(arguments, folder, ranks):
    path = os.path.join(folder, f"machine{ranks}.json")
    if not os.path.exists(path):
        output([f"{arguments.build}/src/quadrille", "calibrate", "--threads", "1", "-o", path], ranks, arguments.wire)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=f"{ROOT}/build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step, of 256 tokens")
    parser.add_argument("--wire", metavar="RATE", help="of links between four nodes; grid 1x1x4x1")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores; {arguments.rounds} rounds; load before: {os.getloadavg()[0]:.2f}\n")
    print("| grid | network | none, ms (model) | operations / none (model) | full / none (model) | model is off by",
          "| order |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for grid in ("1x1x4x1",) if arguments.wire else GRIDS:
            machine = machine_of(arguments, folder, ranks_of(grid))
            for name, config in NETWORKS.items():
                network = os.path.join(folder, f"{name}.json")
                with open(network, "w", encoding="utf-8") as file:
                    json.dump(config, file)
                runs = [[measured(arguments, folder, network, grid, each) for each in RECOMPUTES]
                        for _ in range(arguments.rounds)]
                said = [predicted(arguments, machine, network, grid, each) for each in RECOMPUTES]
                secs = [statistics.median(run[i] for run in runs) for i in range(3)]
                ratios = [statistics.median(run[i] / run[0] for run in runs) for i in range(3)]
                off = ", ".join(f"{100 * (said[i] / secs[i] - 1):+.0f} %" for i in range(3))
                order = [sorted(range(3), key=times.__getitem__) for times in (ratios, said)]
                print(f"| {grid} | {name} | {1e3 * secs[0]:.0f} ({1e3 * said[0]:.0f})",
                      *(f"{ratios[i]:.3f} ({said[i] / said[0]:.3f})" for i in (1, 2)), off,
                      "same |" if order[0] == order[1] else "differs |", sep=" | ", flush=True)
    print(f"\nLoad after: {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
