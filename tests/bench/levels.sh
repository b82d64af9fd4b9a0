#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Levels of gradients and optimizer state over a network, as Markdown: sh tests/bench/levels.sh [BUILD [ROUNDS]]. Whole
# steps of examples/train (4 layers, hidden 256, context 128, 32 sequences) on nodes that are network namespaces
# with links of 200 Mbit/s: methods known by name on four nodes of two ranks, three levels on two nodes of four, and on
# four nodes of one rank ZeRO-1 beside plain data parallelism, and how much of the returns is hidden. Then the model,
# calibrated there, for each of them. Needs root; use an idle machine: about twenty minutes per round.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
ninja -C "$build" src/quadrille examples/train >/dev/null
export OPENBLAS_NUM_THREADS=1
exec python3 - "$build" "${2:-1}" <<'EOP'
import collections
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

BUILD, ROUNDS = sys.argv[1], int(sys.argv[2])
STEPS, MICRO_BATCHES = 15, 4
LAYERS, HIDDEN, CONTEXT, BATCH, VOCABULARY = 4, 256, 128, 32, 256
BALANCED = 96  # sequences of a step with one micro-batch, in which a forward computes as long as returns take
OPTIONS = ["--layers", str(LAYERS), "--hidden", str(HIDDEN), "--heads", "4", "--ctx", str(CONTEXT),
           "--threads", "1", "--val-every", "1000000", "--val-windows", "1", "--sample", "1"]
MATRICES = LAYERS * 12 * HIDDEN * HIDDEN + 2 * VOCABULARY * HIDDEN
SMALL = (2 * LAYERS + 1) * 2 * HIDDEN + LAYERS * 9 * HIDDEN + CONTEXT * HIDDEN
Method = collections.namedtuple("Method", "name nodes ranks x y z d gradients state")  # ranks: of a node


def methods(nodes, ranks, *rows):
    """Of rows "name: grid, parts of gradients, parts of the state"."""
    found = [re.match(r"(.*): (\d+)x(\d+)x(\d+)x(\d+) (\d+),(\d+)$", row).groups() for row in rows]
    return [Method(name, nodes, ranks, *map(int, numbers)) for name, *numbers in found]


METHODS = methods(4, 2, "DDP: 1x1x1x8 1,1", "ZeRO-1: 1x1x1x8 1,8", "ZeRO-2: 1x1x1x8 8,8", "ZeRO-3: 1x1x8x1 8,8",
                  "HSDP: 1x1x2x4 2,2", "hpZ: 1x1x2x4 8,8", "levels 2,8: 1x1x2x4 2,8", "levels 2,4: 1x1x2x4 2,4",
                  "z = 4: 1x1x4x2 4,4", "z = 4, levels 4,8: 1x1x4x2 4,8", "levels 2,4: 1x1x1x8 2,4",
                  "levels 2,8: 1x1x1x8 2,8", "ZeRO-1: 2x1x1x4 1,4", "levels 2,4: 2x1x2x2 2,4",
                  "ZeRO-1: 4x1x1x2 1,2", "ZeRO-2: 1x2x1x4 4,4", "ZeRO-2: 1x4x1x2 2,2", "ZeRO-1: 2x2x1x2 1,2")
OTHERS = methods(2, 4, "levels 4,8: 1x1x2x4 4,8", "ZeRO-3: 1x1x8x1 8,8")
PLAIN = methods(4, 1, "DDP: 1x1x1x4 1,1", "ZeRO-1: 1x1x1x4 1,4")


def in_network(nodes, ranks, command, environment=()):
    lab = ["sh", "tests/netlab/netlab.sh", "-n", str(nodes), "-p", str(ranks), "-r", "200mbit", "--", *command]
    done = subprocess.run(lab, capture_output=True, text=True, check=False, env={**os.environ, **dict(environment)})
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stderr + done.stdout


def grid_of(method):
    return f"{method.x}x{method.y}x{method.z}x{method.d}"


def per_cell(method, batch):
    """Sequences of a micro-batch on each rank of (z, d)."""
    return max(1, batch // (MICRO_BATCHES if batch == BATCH else 1) // (method.z * method.d))


def train(method, folder, steps, environment=(), batch=BATCH):
    """Seconds of the median step, bytes that a node has sent, and what the program said."""
    log = os.path.join(folder, "log")
    if os.path.exists(log):
        os.remove(log)
    out = in_network(method.nodes, method.ranks,
                     [f"{BUILD}/examples/train", *OPTIONS, "--grid", grid_of(method), "--levels",
                      f"{method.gradients},{method.state}", "--batch", str(batch), "--micro-batch",
                      str(per_cell(method, batch)), "--steps", str(steps), "--log", log], environment)
    with open(log, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    secs = [batch * CONTEXT / line["tokens_per_s"] for line in lines if "tokens_per_s" in line]
    sent = statistics.mean(float(n) for n in re.findall(r"netlab: node \d+ sent (\d+) bytes", out))
    return statistics.median(secs), sent, out


def bytes_off_node(method):
    """Of a step, that a node sends, in closed form: between nodes everything is sent level by level. None if
    activations cross nodes, too."""
    _, _, ranks, x, y, z, d, gradients, state = method
    if x * y > ranks:
        return None
    near, far = gradients // z, state // gradients
    block = 4 * MATRICES / (x * y)

    def sent(stride, size, whole):  # in one pass over `whole` by the members of groups, `stride` ranks apart
        apart = stride * x * y
        n = size if apart >= ranks else max(1, size * apart // ranks)  # nodes of a group
        return ranks * n // size * (n - 1) / n * whole

    micro = sent(1, z, block) * 3 + (sent(z, near, block / z))
    step = sent(z * near, far, block / gradients) + 2 * sent(state, z * d // state, block / state)
    returns = sent(z * near, far, block / gradients) + sent(z, near, block / z)
    small = 4 * SMALL / (x * y)  # some are not divided: counted within the tolerance
    small = 2 * sent(1, z, small) + 2 * sent(z, d, small)
    return MICRO_BATCHES * micro + step + returns + small


def memory(out):
    found = re.search(r"parameters (\d+), gradients (\d+),.* optimizer (\d+), activations (\d+), workspace (\d+)", out)
    return [int(number) for number in found.groups()]


def measure(rows, folder):
    """Medians of the rounds, which alternate between methods."""
    found = {method: [] for method in rows}
    begun = {method: train(method, folder, 1)[1] for method in rows}
    for number in range(ROUNDS):
        for method in rows:
            secs, sent, out = train(method, folder, STEPS)
            found[method].append((secs, (sent - begun[method]) / (STEPS - 1), memory(out)))
            print(f"round {number + 1} of {ROUNDS}, {method.name} on {grid_of(method)}: {secs:.2f} s", file=sys.stderr)
    return {method: (statistics.median(row[0] for row in each), statistics.median(row[1] for row in each),
                     each[0][2]) for method, each in found.items()}


def parts_of(method):
    return f"{method.z}, {method.gradients}, {method.state}"


def table(measured):
    print("| method | grid | nodes × ranks | parts | step, s | a node sends, MB | closed form | parameters, MB | "
          "gradients | state | workspace |")
    print("| --- " * 11 + "|")
    for method, (secs, sent, kept) in measured.items():
        closed = bytes_off_node(method)
        print(f"| {method.name} | {grid_of(method)} | {method.nodes} × {method.ranks} | {parts_of(method)} | "
              f"{secs:.2f} | {1e-6 * sent:.2f} | {f'{1e-6 * closed:.2f}' if closed else '–'} | {1e-6 * kept[0]:.2f} | "
              f"{1e-6 * kept[1]:.2f} | {1e-6 * kept[2]:.2f} | {1e-6 * kept[4]:.2f} |", flush=True)


def covered(event, busy):
    """Seconds of an event during which one of the sorted, disjoint intervals runs."""
    begin, end = event
    return sum(max(0, min(end, last) - max(begin, first)) for first, last in busy)


def returns(method, folder):
    """Of all ranks: seconds that returns took, that they overlapped with computation, and that the forwards in which
    they ran computed. A batch so large that products take about as long as returns."""
    trace, sums = os.path.join(folder, "trace"), [0.0, 0.0, 0.0]
    train(method, folder, 4, {"QDR_TRACE": trace}.items(), BALANCED)
    for rank in range(method.nodes * method.ranks):
        with open(f"{trace}.{rank}", encoding="utf-8") as file:
            events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
        runs = {event["args"]["run"] for event in events if is_return(event)}
        inside = [event for event in events if event["args"]["run"] in runs]
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in inside if e["args"]["stream"] == "compute")
        for event in filter(is_return, inside):
            sums[0] += event["dur"]
            sums[1] += covered((event["ts"], event["ts"] + event["dur"]), spans)
        sums[2] += sum(end - begin for begin, end in spans)
    return [1e-6 * number for number in sums]


def is_return(event):
    return event["args"]["stream"] in ("d far", "d near") and event["cat"] == "all-gather"


def predicted(method, machine, network):
    command = [f"{BUILD}/src/quadrille", "plan", network, "-n", str(method.nodes * method.ranks), "--machine", machine,
               "--batch", str(BATCH), "--micro-batch", str(per_cell(method, BATCH)), "--fix",
               f"x={method.x},y={method.y},z={method.z},d={method.d}", "--order", "xyzd", "--layout", "replicated",
               "--recompute", "none", "--dtype", "f32", "--levels", f"{method.gradients},{method.state}", "--top", "1",
               "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)["plans"][0]


def places_of(values):
    """In their order; equal ones share the mean of theirs."""
    return [sum(other < value for other in values) + (values.count(value) - 1) / 2 for value in values]


def compare(measured, folder):
    machine, network = os.path.join(folder, "machine.json"), os.path.join(folder, "network.json")
    in_network(4, 2, [f"{BUILD}/src/quadrille", "calibrate", "--threads", "1", "-o", machine])
    with open(network, "w", encoding="utf-8") as file:
        json.dump({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": LAYERS, "n_embd": HIDDEN,
                   "n_head": 4, "n_positions": CONTEXT, "n_ctx": CONTEXT, "vocab_size": VOCABULARY,
                   "tie_word_embeddings": False}, file)
    print("\n| method | grid | parts | measured, s | model, s | error | parameters, gradients, state | workspace |\n"
          + "| --- " * 8 + "|")
    pairs = []
    for method, (secs, _, kept) in measured.items():
        plan = predicted(method, machine, network)
        pairs.append((secs, plan["secs"]))
        bytes_said = [round(plan["memory"][term]) for term in ("parameters", "gradients", "optimizer")]
        workspace = plan["memory"]["gathered"] + plan["memory"]["workspace"]
        same = "the same" if bytes_said == kept[:3] else f"{bytes_said}, not {kept[:3]}"
        print(f"| {method.name} | {grid_of(method)} | {parts_of(method)} | {secs:.2f} | {plan['secs']:.2f} | "
              f"{100 * (plan['secs'] / secs - 1):+.1f} % | {same} | {100 * (workspace / kept[4] - 1):+.1f} % |")
    real, said = [m for m, _ in pairs], [s for _, s in pairs]
    spearman = statistics.correlation(places_of(real), places_of(said))
    mape = statistics.mean(abs(s / m - 1) for m, s in pairs)
    regret = real[min(range(len(said)), key=said.__getitem__)] / min(real) - 1
    print(f"\n{len(pairs)} pairs: Spearman {spearman:.3f}, MAPE {100 * mape:.1f} %, regret {100 * regret:.1f} %")


with open("/proc/cpuinfo", encoding="utf-8") as info, open("/proc/loadavg", encoding="utf-8") as load:
    name = re.search(r"model name\s*: (.*)", info.read()).group(1)
    print(f"{name}, {os.cpu_count()} cores; {ROUNDS} rounds, medians of {STEPS} steps; load before: "
          f"{' '.join(load.read().split()[:3])}\n")
with tempfile.TemporaryDirectory() as work:
    all_methods = measure(METHODS, work)
    table(all_methods)
    print()
    table(measure(OTHERS, work))
    print()
    table(measure(PLAIN, work))
    took, hidden, computed = returns(PLAIN[1], work)
    print(f"\nReturns of ZeRO-1 on four nodes of one rank, {BALANCED} sequences: {took:.2f} s, of which "
          f"{hidden:.2f} s ({100 * hidden / took:.0f} %) behind {computed:.2f} s of the forwards' work")
    compare(all_methods, work)
EOP
