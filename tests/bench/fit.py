#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits constants of machines to measured runs, and evaluates them on models that were left out.

usage: fit.py QUADRILLE RUNS.csv [--leave-one-out]

RUNS.csv is a table as strict_tables.py makes it for quadrille predict. Each part below names the sources whose rows it
is fitted to and the constants that it may change; all others keep the values of their files. Least squares on the
logarithm of predicted / measured time by the Levenberg-Marquardt method, with weights that reduce the influence of
outliers. With --leave-one-out every model is evaluated with constants that were fitted without any of its rows on that
machine. Prints the constants and the errors by source. Standard library only.
"""
import csv
import math
import os
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
AT_MOST_ONE = ("most", "memory_efficiency", "odd_factor")
PRIOR = 0.05  # weight of the initial value, on the logarithm: constants that no row determines keep it


class Runs:
    """The rows of a part, and their measured times."""

    def __init__(self, command, path, sources):
        self.command = command
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            self.columns = reader.fieldnames
            rows = list(reader)
        self.rows, self.weights = [], []
        for row in rows:
            weight = dict(sources).get(row["source"])
            if weight:
                self.rows.append(row)
                self.weights.append(weight)
        self.file = tempfile.NamedTemporaryFile("w", suffix=".csv", newline="", encoding="utf-8")
        writer = csv.DictWriter(self.file, self.columns)
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
                words += ["--set", setting]
            done = subprocess.run(words, capture_output=True, text=True)
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
    first = [math.log(value) for _, value, _ in constants]
    use = [i for i in range(len(runs.rows)) if i not in left_out]

    def cost_of(logs, x):
        cost = sum((p - q) ** 2 for p, q in zip(x, first)) * PRIOR ** 2 / scale ** 2
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
                 - (x[a] - first[a]) * PRIOR ** 2 / scale ** 2 for a in range(n)]
        for a in range(n):
            matrix[a][a] += PRIOR ** 2 / scale ** 2
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


def judge(runs, logs, title):
    """One line for each source."""
    sources = {}
    for row, log, secs in zip(runs.rows, logs, runs.measured):
        if log is not None:
            sources.setdefault(row["source"], []).append((row, log, secs))
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


def leave_one_out(runs, constants, scale):
    logs = [None] * len(runs.rows)
    for model in sorted({model_of(row) for row in runs.rows}, key=str):
        left_out = {i for i, row in enumerate(runs.rows) if model_of(row) == model}
        now = runs.logs(settings_of(constants, fit(runs, constants, scale, left_out)))
        for i in left_out:
            logs[i] = now[i]
    return logs


def main():
    words = [w for w in sys.argv[1:] if not w.startswith("-")]
    if len(words) != 2 or "-h" in sys.argv or "--help" in sys.argv:
        sys.exit(__doc__)
    for name, sources, scale, constants in PARTS:
        runs = Runs(words[0], words[1], sources)
        print(f"# {name}: {len(runs.rows)} rows, {len(constants)} constants", flush=True)
        if not runs.rows:
            continue
        judge(runs, runs.logs([]), "as installed")
        x = fit(runs, constants, scale)
        print("fitted:", ", ".join(f"{constant[0]} {math.exp(log):.4g}" for constant, log in zip(constants, x)))
        judge(runs, runs.logs(settings_of(constants, x)), "fitted")
        if "--leave-one-out" in sys.argv:
            judge(runs, leave_one_out(runs, constants, scale), "left out")


if __name__ == "__main__":
    main()
