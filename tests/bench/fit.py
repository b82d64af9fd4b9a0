#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits constants of machines and of software to measured runs, and evaluates them on runs that were left out.

usage: fit.py QUADRILLE RUNS.csv... [--leave-one-out]

RUNS.csv are tables as strict_tables.py makes them for quadrille predict. Each part below names the rows that it is
fitted to, by source or by software, and the constants that it may change; all others keep the values of their files.
Least squares on the logarithm of predicted / measured time by the Levenberg-Marquardt method, with weights that reduce
the influence of outliers. With --leave-one-out every model is evaluated with constants of the machine that were fitted
without any of its rows there, and every cluster, and every model, with those of the software that were fitted without
any of its rows. Prints the constants and the errors. Standard library only.
"""
import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile

# name, sources (each with its weight), the error beyond which a row counts less,
# constants: (name, initial value, keys that it sets)
PARTS = [
    ("A100 of vTrain and Selene", [("vTrain, one node", 0.25), ("vTrain, several nodes", 1.0),
                                   ("Korthikanti 2022", 1.5), ("Narayanan 2021, table 1", 1.0)], 0.03, [
        ("most", 0.856, ["vtrain-node:bf16.most", "vtrain-cluster:bf16.most", "selene-2022:bf16.most"]),
        ("most_2021", 0.805, ["selene-2021:bf16.most"]),
        ("memory_vtrain", 0.718, ["vtrain-node:memory_efficiency", "vtrain-cluster:memory_efficiency"]),
        ("memory_selene", 0.777, ["selene-2022:memory_efficiency", "selene-2021:memory_efficiency"]),
        ("host", 83.6, ["vtrain-node:software.host_us", "vtrain-cluster:software.host_us"]),
        ("host_power", 2.46, ["vtrain-node:software.host_power", "vtrain-cluster:software.host_power"]),
        ("start_node", 50.8, ["vtrain-node:collectives.start_us"]),
        ("start_cluster", 148.0, ["vtrain-cluster:collectives.start_us"]),
        ("adapter", 12.49, ["vtrain-cluster:links[1].adapter_GBps"]),
        ("odd", 0.286, ["vtrain-node:bf16.odd_factor"]),
    ]),
    ("H100 of the HF cluster", [("HF ultra-scale playbook", 1.0)], 0.08, [
        ("most", 0.686, ["hf-cluster:bf16.most"]),
        ("memory", 0.225, ["hf-cluster:memory_efficiency"]),
        ("adapter", 29.9, ["hf-cluster:links[1].adapter_GBps"]),
        ("wait", 0.384, ["hf-cluster:links[1].wait_us_per_MiB"]),
        ("start", 0.47, ["hf-cluster:collectives.start_us"]),
        ("host", 51.9, ["hf-cluster:software.host_us"]),
        ("collective_host", 290.0, ["hf-cluster:software.collective_host_us"]),
        ("collective_rank", 52.2, ["hf-cluster:software.collective_rank_us"]),
        ("staged_rank", 330.0, ["hf-cluster:software.staged_rank_us"]),
        ("stall", 476000.0, ["hf-cluster:software.stall_us"]),
        ("step", 19700.0, ["hf-cluster:software.step_us"]),
    ]),
]

FIRST = 0.85  # of the factors of a software of which nothing is known


def software(name, sources, factors=("products", "attention")):
    """A part that fits factors of a software, for all machines. Sources may come with the machine to be taken, one that
    was not fitted to them."""
    return (name, [(source, 1.0) for source in sources], 0.08,
            [(factor, FIRST, [f"software/{name}:factors.{factor}"]) for factor in factors], sources)


SOFTWARE = [
    software("megatron-2021", {"Narayanan 2021, table 1": "dgx-a100", "vTrain, several nodes": "dgx-a100",
                               "Korthikanti 2022": "dgx-a100"}, ["products"]),
    software("megatron-deepspeed", {"BLOOM chronicles": None, "MT-NLG 530B": "dgx-a100-40gb"}, ["products"]),
    software("nanotron", {"HF ultra-scale playbook": "dgx-h100"}, ["products", "kernels"]),
    software("foundry", {"MPT (llm-foundry)": None}),
    software("torchtitan", {"torchtitan 2024-12": None, "torchtitan asyncTP": None}),
    software("fsdp-compiled", {"FSDP, compiled, A100": None}),
    # Of two networks alone: the third shows what that is worth.
    software("nemo", {"NeMo H100 llama-3.1-8b (cp 2 as dp)": None, "NeMo H100 nemotron4-15b": None}),
]
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "perfmodel")
AT_MOST_ONE = ("most", "memory_efficiency", "odd_factor")
PRIOR = 0.05  # weight of the initial value, on the logarithm: constants that no row determines keep it
SOFTWARE_PRIOR = 0.5  # a few rows of one or two networks do not tell products from attention


def set_software(folder, setting):
    """software/NAME:GROUP.KEY=VALUE, in a copy of its file."""
    name, key, value = re.fullmatch("(.*):(.*)=(.*)", setting).groups()
    path = os.path.join(folder, name + ".json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path if os.path.exists(path) else os.path.join(DATA, name + ".json"), encoding="utf-8") as file:
        content = json.load(file)
    group, key = key.split(".")
    content.setdefault(group, {})[key] = float(value)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)


class Runs:
    """The rows of a part, and their measured times. software: of all of them; None: what they say."""

    def __init__(self, command, paths, sources, name=None, machines=None):
        self.command, self.columns, rows = command, [], []
        for path in paths:
            with open(path, newline="", encoding="utf-8-sig") as file:
                rows += list(csv.DictReader(file))
        self.rows, self.weights = [], []
        for row in rows:
            weight = dict(sources).get(row["source"])
            if weight:
                row["software"] = name or row.get("software", "")
                row["cluster"], row["machine"] = row["machine"], (machines or {}).get(row["source"]) or row["machine"]
                self.columns += [column for column in row if column not in [*self.columns, "cluster"]]
                self.rows.append(row)
                self.weights.append(weight)
        self.file = tempfile.NamedTemporaryFile("w", suffix=".csv", newline="", encoding="utf-8")
        writer = csv.DictWriter(self.file, self.columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(self.rows)
        self.file.flush()
        self.measured = [float(row["step_secs"] or 0) for row in self.rows]

    def run(self, settings):
        """Rows with predictions."""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.csv")
            words = [self.command, "predict", self.file.name, "-o", out]
            for setting in settings:
                if setting.startswith("software/"):
                    set_software(folder, setting)
                else:
                    words += ["--set", setting]
            data = os.environ.get("QDR_DATA_PATH", "")
            done = subprocess.run(words, capture_output=True, text=True,
                                  env={**os.environ, "QDR_DATA_PATH": folder + (":" + data if data else "")})
            if done.returncode:
                sys.exit(done.stderr)
            with open(out, newline="", encoding="utf-8") as file:
                return list(csv.DictReader(file))

    def logs(self, settings):
        """log(predicted / measured) by row; None: skipped."""
        logs = []
        for row, secs in zip(self.run(settings), self.measured):
            told = row["predicted_secs"]
            logs.append(math.log(float(told) / secs) if told else None)
        return logs


def settings_of(constants, logs):
    settings = []
    for (_, _, keys), log in zip(constants, logs):
        for key in keys:
            value = math.exp(log)
            if key.endswith(AT_MOST_ONE):
                value = min(value, 1.0)
            settings.append(f"{key}={value:.6g}")
    return settings


def solve(matrix, right):
    """Gaussian elimination with partial pivoting."""
    n = len(right)
    a = [row[:] + [right[i]] for i, row in enumerate(matrix)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(a[r][i]))
        a[i], a[pivot] = a[pivot], a[i]
        for r in range(i + 1, n):
            factor = a[r][i] / a[i][i]
            for c in range(i, n + 1):
                a[r][c] -= factor * a[i][c]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (a[i][n] - sum(a[i][c] * x[c] for c in range(i + 1, n))) / a[i][i]
    return x


def fit(runs, constants, scale, left_out=()):
    """Logarithms of the constants."""
    prior = SOFTWARE_PRIOR if constants[0][2][0].startswith("software/") else PRIOR
    first = [math.log(value) for _, value, _ in constants]
    use = [i for i in range(len(runs.rows)) if i not in left_out]

    def cost_of(logs, x):
        cost = sum((p - q) ** 2 for p, q in zip(x, first)) * prior ** 2 / scale ** 2
        for i in use:
            if logs[i] is not None:  # Cauchy's loss
                cost += runs.weights[i] ** 2 * math.log(1 + (logs[i] / scale) ** 2)
        return cost

    x, damping = first[:], 1e-3
    logs = runs.logs(settings_of(constants, x))
    cost = cost_of(logs, x)
    for _ in range(10):
        step = 2e-3
        slopes = []
        for j in range(len(x)):
            moved = x[:]
            moved[j] += step
            near = runs.logs(settings_of(constants, moved))
            slopes.append([(b - a) / step if a is not None and b is not None else 0.0 for a, b in zip(logs, near)])
        weights = {i: runs.weights[i] ** 2 / (scale ** 2 + logs[i] ** 2) for i in use if logs[i] is not None}
        n = len(x)
        matrix = [[sum(w * slopes[a][i] * slopes[b][i] for i, w in weights.items()) for b in range(n)]
                  for a in range(n)]
        right = [-sum(w * slopes[a][i] * logs[i] for i, w in weights.items())
                 - (x[a] - first[a]) * prior ** 2 / scale ** 2 for a in range(n)]
        for a in range(n):
            matrix[a][a] += prior ** 2 / scale ** 2
        for _ in range(6):
            damped = [[v * (1 + damping) if a == b else v for b, v in enumerate(row)] for a, row in enumerate(matrix)]
            trial = [p + q for p, q in zip(x, solve(damped, right))]
            trial_logs = runs.logs(settings_of(constants, trial))
            trial_cost = cost_of(trial_logs, trial)
            if trial_cost < cost:
                break
            damping *= 8
        if trial_cost >= cost * (1 - 1e-4):
            break
        x, logs, cost, damping = trial, trial_logs, trial_cost, damping / 4
    return x


# ---- evaluation ----

def group_of(row):
    return tuple(row[k] for k in ("source", "model", "gpus", "layers", "hidden", "batch", "sequence"))


def model_of(row):
    """Rows with the same key are left out together: one model on one machine, or one shape if the model has no name."""
    return (row["source"], row["model"] or (row["layers"], row["hidden"]))


def ranks(values):
    order = sorted(range(len(values)), key=lambda i: values[i])
    result, i = [0.0] * len(values), 0
    while i < len(values):
        j = i
        while j + 1 < len(values) and values[order[j + 1]] == values[order[i]]:
            j += 1
        for k in range(i, j + 1):
            result[order[k]] = (i + j) / 2
        i = j + 1
    return result


def spearman(a, b):
    a, b = ranks(a), ranks(b)
    ma, mb = sum(a) / len(a), sum(b) / len(b)
    cov = sum((x - ma) * (y - mb) for x, y in zip(a, b))
    var = sum((x - ma) ** 2 for x in a) * sum((y - mb) ** 2 for y in b)
    return cov / math.sqrt(var) if var > 0 else 0.0


def source_of(row):
    return row["source"]


def network_of(row):
    return row["model"]


def cluster_of(row):
    return re.sub(r" \(.*", "", row["cluster"])


def judge(runs, logs, title, kind_of=source_of):
    """One line for each source, or another kind of rows."""
    sources = {}
    for row, log, secs in zip(runs.rows, logs, runs.measured):
        if log is not None:
            sources.setdefault(kind_of(row), []).append((row, log, secs))
    for source, rows in sources.items():
        errors = [abs(math.exp(log) - 1) for _, log, _ in rows]
        groups = {}
        for row, log, secs in rows:
            groups.setdefault(group_of(row), []).append((secs * math.exp(log), secs))
        groups = [g for g in groups.values() if len(g) >= 4]
        line = (f"{title:14} {source[:56]:56} n {len(rows):4}  MAPE {100 * sum(errors) / len(errors):5.1f}%"
                f"  max {100 * max(errors):5.1f}%")
        if groups:
            rho = [spearman([p for p, _ in g], [m for _, m in g]) for g in groups]
            regret = [min(g)[1] / min(m for _, m in g) - 1 for g in groups]
            line += (f"  groups {len(groups):2}  Spearman {sum(rho) / len(rho):.3f}"
                     f"  regret {100 * sum(regret) / len(regret):.1f}%  max {100 * max(regret):.1f}%")
        print(line, flush=True)


def leave_one_out(runs, constants, scale, kind_of=model_of):
    """Each kind of row by constants that were fitted without it."""
    logs = [None] * len(runs.rows)
    for kind in sorted({kind_of(row) for row in runs.rows}, key=str):
        left_out = {i for i, row in enumerate(runs.rows) if kind_of(row) == kind}
        now = runs.logs(settings_of(constants, fit(runs, constants, scale, left_out)))
        for i in left_out:
            logs[i] = now[i]
    return logs


def main():
    words = [w for w in sys.argv[1:] if not w.startswith("-")]
    if len(words) < 2 or "-h" in sys.argv or "--help" in sys.argv:
        sys.exit(__doc__)
    for name, sources, scale, constants, *machines in PARTS + SOFTWARE:
        is_software = bool(machines)
        runs = Runs(words[0], words[1:], sources, name if is_software else None, *machines)
        print(f"# {name}: {len(runs.rows)} rows, {len(constants)} constants", flush=True)
        if not runs.rows:
            continue
        judge(runs, runs.logs([]), "as installed")
        x = fit(runs, constants, scale)
        print("fitted:", ", ".join(f"{constant[0]} {math.exp(log):.4g}" for constant, log in zip(constants, x)))
        judge(runs, runs.logs(settings_of(constants, x)), "fitted")
        if "--leave-one-out" in sys.argv and not is_software:
            judge(runs, leave_one_out(runs, constants, scale), "left out")
        if is_software:
            judge(runs, leave_one_out(runs, constants, scale, cluster_of), "other clusters", cluster_of)
            judge(runs, leave_one_out(runs, constants, scale, network_of), "other networks", network_of)


if __name__ == "__main__":
    main()
