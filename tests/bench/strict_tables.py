#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns tables of measured runs and collectives, as others publish them, into strict ones for quadrille predict.

usage: strict_tables.py [--assume FILE] [--collective NAME] [--ranks N] TABLE >STRICT.csv

TABLE is one of three, told apart by their first lines:
  runs          with columns n_gpus, batch, tp, pp, dp, model, layers, hidden, ... and the words of their authors in the
                columns other_parallelism and notes: "ZeRO-1; microbatch 4", "HSDP 4x8", "full recompute",
                "39.3k tokens/s", "mem 35.0 GB"
  collectives   with columns collective, gpus, and time_us or busbw_GBps; "all_reduce group 8 strided" is an all-reduce
                in groups of 8 GPUs that are as far apart as possible, all groups at once
  nccl-tests    what all_reduce_perf and the other programs print, or their sizes and times as a CSV file, with the
                collective of --collective and the ranks of --ranks where it does not say them

What rows leave out is taken from a JSON file of assumptions, by default assumed_shapes.json in the folder of this
script. Rows that cannot be predicted get the reason in their column 'skip'. Standard error tells what was assumed, and
which words were not understood. Standard library only.
"""
import argparse
import collections
import csv
import io
import json
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "..", "perfmodel", "models")
RANKS_OF_NODE = 8  # of rows that shard inside a node and say no more
PEAK_TFLOPS = {"A100": 312, "H100": 989.4, "H200": 989.4, "B200": 2250}  # bf16, of rows that state their share of it
SHAPE = ("layers", "hidden", "heads", "vocab")
DETAILS = ("kv_heads", "head_size", "ffn", "gated", "tied", "learned_positions", "biases", "norm")
RUN_COLUMNS = ("source", "machine", "software", "model", "gpus", "tp", "pp", "dp", "cp", "ep", "zero", "shards",
               "interleave", "layout", "overlap", "recompute", "dtype", "batch", "micro_batch", "sequence", *SHAPE,
               *DETAILS, "step_secs", "memory_gib", "skip")
COLLECTIVE_COLUMNS = ("source", "machine", "collective", "gpus", "nodes", "strided", "alone", "algorithm", "bytes",
                      "bytes_most", "secs", "skip")


class Skip(Exception):
    """Why a row cannot be predicted."""


def stop(sentence):
    sys.exit(f"strict_tables.py: {sentence}")


# ---- what tables leave out ----

FIELDS = {**dict.fromkeys(("source", "model", "title", "reason", "machine", "software", "network", "skip"), str),
          **dict.fromkeys((*SHAPE, *DETAILS, "sequence", "micro_batch", "interleave", "zero", "flops_recomputed",
                           "bytes", "bytes_most", "alone"), int),
          "replaces": bool, "norm": ("layer", "rms"), "recompute": ("none", "attention", "full"),
          "layout": ("replicated", "scattered"), "overlap": ("weights", "rows", "weights+rows", "gradients", "all",
                                                             "weights+gradients", "rows+gradients", "none")}


def is_good(key, value):
    kind = FIELDS.get(key)
    return value in kind if isinstance(kind, tuple) else type(value) is kind


def load_assumptions(path):
    """Entries: for rows whose source begins with 'source', and whose model is 'model' if that is there, the first entry
    that has a value counts where the row has none; one that 'replaces' counts even then."""
    with open(path, encoding="utf-8") as file:
        entries = json.load(file)["entries"]
    for number, entry in enumerate(entries, 1):
        bad = [key for key, value in entry.items() if not is_good(key, value)]
        if bad:
            stop(f"{path}: entry {number}: key '{bad[0]}' is unknown or has an invalid value")
        if "source" not in entry or not ({"reason", "skip"} & entry.keys() or entry.keys() <= {"source", "title"}):
            stop(f"{path}: entry {number}: it needs a source (the beginning of those it is for) and a reason")
        entry["used"] = {}
    return entries


class Assumed:
    """The entries for one row."""

    def __init__(self, entries, source, model):
        self.entries = [entry for entry in entries if source.startswith(entry["source"])
                        and entry.get("model", model).lower() == model.lower()]

    def pick(self, field, own=None):
        """The row's own value, or else the assumed one; None: neither."""
        for entry in self.entries:
            if field in entry and (own is None or entry.get("replaces")):
                entry["used"][field] = entry[field]
                return entry[field]
        return own

    def title(self, source):
        return next((entry["title"] for entry in self.entries if "title" in entry), source)


def print_assumed(entries):
    for entry in entries:
        if entry["used"]:
            place = ", ".join(text for text in (entry["source"], entry.get("model")) if text) or "any source"
            values = ", ".join(f"{key} {value}" for key, value in entry["used"].items())
            print(f"assumed: {place}: {values} ({entry.get('reason', 'skipped')})", file=sys.stderr)


# ---- numbers and words ----

def plain(text):
    """In lower case; runs of blanks, '_', '-', '=' and ':' become one blank."""
    return re.sub("[ _=:-]+", " ", text.lower())


def positive(row, column):
    """A number above 0; None if the cell is empty or 0."""
    cell = row.get(column, "").strip()
    try:
        value = float(cell or 0)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise Skip(f"column '{column}': '{cell}' is not a number")
    return value or None


def whole(row, column):
    value = positive(row, column)
    if value and value != int(value):
        raise Skip(f"column '{column}': {value:g} is not a whole number")
    return value and int(value)


def number_after(words, text):
    """The match of the first of the words that begins a word and has a number behind it: "micro batch 4", "cp2"."""
    return re.search(rf"(?<![a-z])(?:{words})[ ,]{{0,2}}(\d+\.?\d*)", text)


def count_after(words, text):
    match = number_after(words, text)
    return int(float(match[1])) if match else None


def number_before(unit, text):
    """The match of a number before a unit, and that number: "39.3k tokens/s"; else None and 0."""
    match = re.search(rf"(?<![\d.])(\d+\.?\d*)(k?) *{unit}", text)
    return match, float(match[1]) * (1000 if match[2] else 1) if match else 0


# What the words mean, as regular expressions for plain texts.
ZERO = "zero stage|zero"
OPTIMIZER = "distributed optimi[sz]er"
NO_OPTIMIZER = f"no {OPTIMIZER}|{OPTIMIZER} (?:false|off)"
GRADIENTS = "shard grad op"
HYBRID = "hsdp|hybrid shard(?:ing|ed)?"
SHARDED = f"full shard|fully shard(?:ed)?|fsdp2?|{HYBRID}"
CHECKPOINT = "(?:recomputation|recompute|checkpointing|checkpoint)"
NO_RECOMPUTE = f"no (?:activation |gradient )?{CHECKPOINT}|(?:recompute|activation checkpointing) (?:none|off|false)" \
               "|ckpt false"
FULL_RECOMPUTE = f"full (?:activation )?{CHECKPOINT}|recompute (?:granularity )?full|ckpt true"
SELECTIVE = f"selective (?:activation )?{CHECKPOINT}|recompute (?:granularity )?selective|selective"
RECOMPUTE = f"activation {CHECKPOINT}|gradient checkpointing"  # full
MICRO_BATCH = "micro ?batch size|micro ?batch|mbs"
STEPS = "gradient accumulation steps|gradient accumulation|grad (?:accumulation|accum|acc)"
LOCAL_BATCH = "local batch"
INTERLEAVE = "interleave|virtual pipeline size|virtual pipeline|vpp|vp"
CONTEXT = "context parallel size|context parallel|cp"
EXPERTS = "expert parallel size|expert parallel|ep"
SEQUENCE = "sequence parallelism|sequence parallel|sequence"
FP8 = "fp8|float8"
# Of no consequence, or told by other columns.
HARMLESS = ("(?:interleaved )?1f1b|(?:tensor|pipeline|data) parallel|tp|pp|dp|ddp|[234]d|bf16|tensorwise|rowwise"
            "|compile|vanilla|async ?tp|baseline|megatron(?: lm)?|megascale|deepspeed|nanotron|torchtitan|ptd p|axonn"
            "|none|true|on|size|and|with")
PHRASES = "|".join((ZERO, NO_OPTIMIZER, OPTIMIZER, GRADIENTS, SHARDED, NO_RECOMPUTE, FULL_RECOMPUTE, SELECTIVE,
                    RECOMPUTE, MICRO_BATCH, STEPS, LOCAL_BATCH, INTERLEAVE, CONTEXT, EXPERTS, SEQUENCE, FP8, HARMLESS))
COUNT = r"\d+(?:[x.]\d+)*"
KNOWN = re.compile(r"\b(?:(?:{}){}|{})\b".format(PHRASES.replace(" ", r"\W"), f"(?:{COUNT})?", COUNT))


def not_understood(way):
    return set(re.findall(r"\w+", KNOWN.sub("", way)))


def zero_stage(way):
    """FSDP is stage 3; None: not stated."""
    stage = count_after(ZERO, way)
    if stage is not None and stage <= 3:
        return stage
    if re.search(GRADIENTS, way):
        return 2
    if re.search(SHARDED, way):
        return 3
    return 1 if re.search(OPTIMIZER, way) and not re.search(NO_OPTIMIZER, way) else None


def recompute_of(text):
    meanings = ((NO_RECOMPUTE, "none"), (FULL_RECOMPUTE, "full"), (SELECTIVE, "attention"), (RECOMPUTE, "full"))
    return next((what for words, what in meanings if re.search(words, text)), None)


# ---- runs ----

def model_key(name):
    """Equal for "Llama 2 13B" and "llama-2-13b": blanks, '-' and '_' count between digits only."""
    return re.sub("[ _-]+", "", re.sub(r"(?<=\d)[ _-]+(?=\d)", "~", name.lower()))


MODEL_NAMES = {model_key(name): name for name, ending in map(os.path.splitext, os.listdir(MODELS)) if ending == ".json"}


def known_model(name):
    """The installed model of this name, without a folder or an ending that does not change the network; or None."""
    name = name.split("/")[-1]
    bare = re.sub("[ _-]+(hf|instruct|chat|base)$", "", name, flags=re.IGNORECASE)
    return MODEL_NAMES.get(model_key(name)) or MODEL_NAMES.get(model_key(bare))


class Run:
    """One row of a table of runs while it is read; `out` is the strict row."""

    def __init__(self, row, entries):
        self.row = row
        self.model, source = row.get("model", ""), row.get("source", "")
        self.assumed = Assumed(entries, source, self.model)
        self.way = plain(row.get("other_parallelism", ""))
        self.text = plain("; ".join((self.way, row.get("machine", ""), row.get("notes", ""))))
        self.out = {"source": self.assumed.title(source), "model": self.model,
                    "machine": self.assumed.pick("machine", row.get("machine") or None),
                    "software": self.assumed.pick("software", row.get("software") or None)}

    def strict(self):
        try:
            self.set_possible()
            self.set_grid()
            self.set_network()
            self.set_batch()
            self.set_ways()
            self.set_measured()
        except Skip as reason:
            if not self.is_foreign():
                self.out["skip"] = str(reason)
        return self.out

    def is_foreign(self):
        """The command itself skips what the model does not have."""
        return self.out.get("dtype") == "fp8" or (self.out.get("ep") or 1) > 1

    def set_possible(self):
        reason = self.assumed.pick("skip")
        if reason:
            raise Skip(reason)
        self.out["dtype"] = "fp8" if re.search(FP8, self.text) else None
        self.out["cp"] = count_after(CONTEXT, self.way) or None
        self.out["ep"] = count_after(EXPERTS, self.way) or None

    def ranks(self, column):
        value = whole(self.row, column)
        if not value and column in self.row:
            raise Skip(f"{column} is missing: the parallelism of the run is unknown")
        return value or 1

    def set_grid(self):
        gpus = whole(self.row, "n_gpus")
        if not gpus:
            raise Skip("n_gpus is missing")
        tp, pp, dp = self.ranks("tp"), self.ranks("pp"), whole(self.row, "dp")
        cp = self.out["cp"] or 1
        own = gpus // (tp * pp * cp)
        if gpus % (tp * pp * cp) or dp not in (None, own, own * cp):  # some count the ranks of cp as dp, too
            by_cp = f" · {cp}" if cp > 1 else ""
            raise Skip(f"n_gpus is {gpus}, which is not tp · pp · dp = {tp} · {pp} · {dp or 'dp'}{by_cp}")
        self.gpus, self.dp = gpus, own
        zero = self.assumed.pick("zero", zero_stage(self.way))
        self.out.update(gpus=gpus, tp=tp, pp=pp, dp=self.dp, zero=zero)
        if zero == 3 and re.search(HYBRID, self.way):
            self.out["shards"] = self.shards(tp)

    def shards(self, tp):
        """"HSDP 4x8" are 4 copies of 8 shards, "HSDP 8" are 8 shards, and "HSDP" those inside a node."""
        match = number_after(HYBRID, self.way)
        behind = match and re.match(r"x(\d+)", self.way[match.end():])
        dp = self.dp * (self.out["cp"] or 1)
        first = int(float(match[1])) if match else min(dp, max(RANKS_OF_NODE // tp, 1))
        shards, copies = (int(behind[1]), first) if behind else (first, None)
        if not shards or dp % shards or copies not in (None, dp // shards):
            raise Skip(f"HSDP: {shards} shards and {copies or 1} copies of them are not dp = {dp}")
        return shards

    def set_network(self):
        shape = {name: self.assumed.pick(name, whole(self.row, name)) for name in SHAPE}
        network = None
        if not any(shape[name] for name in SHAPE[:3]):
            network = self.assumed.pick("network") or known_model(self.model)
        self.sequence = self.assumed.pick("sequence", whole(self.row, "seq"))
        for name, value in {**shape, "seq": self.sequence}.items():
            if not value and not network:
                raise Skip(f"{name} is missing, and there is no assumption for it; fill column '{name}', name a known "
                           "model in 'model', or give it in a file of --assume")
        self.out.update(shape, sequence=self.sequence, **{name: self.assumed.pick(name) for name in DETAILS})
        self.out["model"] = network or self.model

    def set_batch(self):
        local = count_after(LOCAL_BATCH, self.text)
        self.batch = whole(self.row, "batch") or (local or 0) * self.dp
        if not self.batch:
            raise Skip("batch is missing")
        micro, steps = count_after(MICRO_BATCH, self.text), count_after(STEPS, self.text)
        if not micro and (steps or local):
            micro = math.ceil(self.batch / (self.dp * (steps or 1)))
        self.out.update(batch=self.batch, micro_batch=micro or self.assumed.pick("micro_batch"))

    def set_ways(self):
        self.out["recompute"] = self.assumed.pick("recompute", recompute_of(self.text))
        self.out["overlap"] = self.assumed.pick("overlap")
        self.out["interleave"] = self.assumed.pick("interleave", count_after(INTERLEAVE, self.way))
        if self.out["tp"] > 1:
            self.out["layout"] = self.assumed.pick("layout", "scattered" if re.search(SEQUENCE, self.way) else None)

    def flops(self):
        """Of a step as tables count them: two for each multiply-add, backward twice forward."""
        out = self.out
        if not all(out[name] for name in SHAPE):
            raise Skip("only TFLOP/s are given, and the flops of a model by name are not counted; give the time")
        width = out["heads"] * (out["head_size"] or out["hidden"] // out["heads"])
        kv_width = width * (out["kv_heads"] or out["heads"]) // out["heads"]
        products = (3 if out["gated"] else 2) * out["hidden"] * (out["ffn"] or 4 * out["hidden"])
        layers = out["layers"] * (2 * (2 * out["hidden"] * (width + kv_width) + products) + 4 * self.sequence * width)
        is_again = re.search("flops formula|incl. recompute", self.text) or self.assumed.pick("flops_recomputed")
        return self.batch * self.sequence * ((4 if is_again else 3) * layers + 6 * out["vocab"] * out["hidden"])

    def secs_of_rate(self):
        for unit in ("tokens/s", "tok/s"):
            match, rate = number_before(unit, self.text)
            if rate and self.sequence:
                is_each = re.match(r"/gpu| \(per gpu| per gpu", self.text[match.end():])
                return self.batch * self.sequence / (rate * (self.gpus if is_each else 1))
        return None

    def secs_of_flops(self):
        tflops, share = positive(self.row, "tflops_per_gpu"), positive(self.row, "pct_peak")
        if not tflops and not share:
            raise Skip("no time, rate of tokens, TFLOP/s or share of the peak was measured")
        if not tflops:
            gpu = f"{self.row.get('gpu', '')} {self.out['machine'] or ''}".upper()
            peak = next((rate for name, rate in PEAK_TFLOPS.items() if name in gpu), None)
            if share > 100 or not peak:
                raise Skip(f"pct_peak is {share:g}: " + ("more than the whole peak" if peak else "of an unknown GPU"))
            tflops = share / 100 * peak
        return self.flops() / (tflops * 1e12 * self.gpus)

    def set_measured(self):
        self.out["step_secs"] = positive(self.row, "iter_time_s") or self.secs_of_rate() or self.secs_of_flops()
        match = number_after("memory|mem", self.text)  # what frameworks call GB are GiB
        if match and re.match(" *gi?b", self.text[match.end():]):
            self.out["memory_gib"] = match[1]
        else:
            self.out["memory_gib"] = number_before("gib", self.text)[1] or None


def read_runs(rows, entries):
    strict, unknown = [], collections.Counter()
    for row in rows:
        run = Run(row, entries)
        strict.append(run.strict())
        if not strict[-1].get("skip") and not run.is_foreign():
            unknown.update(not_understood(run.way))
    for word, n in unknown.items():
        print(f"not understood: '{word}' ({n} row{'s' if n > 1 else ''})", file=sys.stderr)
    return strict


# ---- collectives ----

KINDS = {"allreduce": "all-reduce", "allgather": "all-gather", "reducescatter": "reduce-scatter",
         "sendrecv": "send-recv"}


def kind_of(name):
    letters = re.sub("[^a-z]", "", name.lower())
    for begin, kind in KINDS.items():
        if letters.startswith(begin):
            return kind
    raise Skip(f"'{name}' is not an all-reduce, all-gather, reduce-scatter or send-recv")


def check_group(name, gpus):
    """"group 8 strided" has the row's number of GPUs, and says how they lie."""
    match = re.search(r"group\D*(\d+)[^a-z]*([a-z]*)", plain(name))
    if match and int(match[1]) != gpus:
        raise Skip(f"'{name}', but gpus is {gpus}: a row has the ranks of one group")
    if match and not re.match("consec|contig|strided|$", match[2]):
        raise Skip(f"'{name}': after the ranks of a group, write consecutive, contiguous or strided")


def sent_bytes(kind, gpus, n_bytes):
    """What a rank sends in a ring, as nccl-tests define their bus bandwidth."""
    return n_bytes * {"send-recv": 1, "all-reduce": 2 * (gpus - 1) / gpus}.get(kind, (gpus - 1) / gpus)


def fill_collective(row, assumed, out):
    name = row["collective"]
    is_group = "group" in name.lower()
    out["collective"], out["gpus"], out["nodes"] = kind_of(name), whole(row, "gpus"), whole(row, "nodes")
    if not out["gpus"] or out["gpus"] < 2:
        raise Skip("gpus is below 2: nothing is sent")
    check_group(name, out["gpus"])
    out["strided"] = int("strided" in name.lower()) if is_group else None
    out["alone"] = assumed.pick("alone") or (0 if is_group else None)
    own = whole(row, "bytes")
    out["bytes"], out["bytes_most"] = assumed.pick("bytes", own), None if own else assumed.pick("bytes_most")
    if not out["bytes"]:
        raise Skip("bytes is missing, and nothing is assumed")
    out["algorithm"] = "ring" if row.get("algo", "").lower() == "ring" else None
    time_us, busbw = positive(row, "time_us"), positive(row, "busbw_GBps")
    if not time_us and not busbw:
        raise Skip("nothing was measured: time_us and busbw_GBps are empty")
    sent = sent_bytes(out["collective"], out["gpus"], out["bytes_most"] or out["bytes"])
    out["secs"] = 1e-6 * time_us if time_us else sent / (1e9 * busbw)


def read_collective(row, entries):
    source = row.get("source", "")
    assumed = Assumed(entries, source, row["collective"])
    out = {"source": assumed.title(source), "machine": f"{row.get('machine', '')} {row.get('gpu', '')}".strip()}
    try:
        fill_collective(row, assumed, out)
    except Skip as reason:
        out["skip"] = str(reason)
    return out


# ---- nccl-tests ----

def is_header(line):
    return line.lstrip().startswith("#") and all(word in line for word in ("count", "type", "time", "algbw", "busbw"))


def nccl_row(size, time_us, collective="", ranks=0):
    return {"collective": collective, "gpus": str(ranks or ""), "bytes": size, "time_us": time_us}


def read_nccl(lines):
    """Collectives with their out-of-place times, from the programs' output."""
    collective, ranks, behind_time = "", 0, 0
    for line in lines:
        words = line.split()
        program = re.search(r"([A-Za-z_]+)_perf", line)
        said, listed = re.search(r"nRanks[ :=\t]*(\d+)", line), re.search(r"Rank[ :=\t]*(\d+)", line)
        if is_header(line):
            behind_time = len(words) - words.index("time") if "time" in words else 0
        elif program:
            collective, ranks = program[1], 0
        elif line.lstrip().startswith("#"):
            ranks = max(ranks, int(said[1]) if said else int(listed[1]) + 1 if listed else 0)
        elif behind_time and len(words) > behind_time and words[0].isdecimal():
            yield nccl_row(words[0], words[-behind_time], collective, ranks)


def read_nccl_csv(lines):
    """The same from columns size(B) and time(ns); the first of two times is out of place."""
    names, *rows = csv.reader(lines)
    size, time = names.index("size(B)"), names.index("time(ns)")
    for row in rows:
        yield nccl_row(row[size], repr(float(row[time]) / 1e3))


def complete(rows, options):
    for row in rows:
        row["collective"] = options.collective or row["collective"]
        row["gpus"] = str(options.ranks or row["gpus"])
        if not row["collective"] or not row["gpus"]:
            stop(f"{options.table}: it does not say which collective was measured on how many ranks; add --collective "
                 "all_reduce, or another, and --ranks")
        yield row


# ---- tables ----

def read(text, options):
    """The strict rows, and their columns."""
    lines, entries = text.splitlines(), load_assumptions(options.assume)
    if any(is_header(line) for line in lines):
        rows = list(complete(read_nccl(lines), options))
    elif lines and lines[0].startswith("size(B)"):
        rows = list(complete(read_nccl_csv(lines), options))
    else:
        rows = list(csv.DictReader(io.StringIO(text), restval=""))
    if rows and "collective" in rows[0]:
        strict, columns = [read_collective(row, entries) for row in rows], COLLECTIVE_COLUMNS
    elif rows and "n_gpus" in rows[0]:
        strict, columns = read_runs(rows, entries), RUN_COLUMNS
    else:
        stop(f"{options.table}: it has no rows, or neither a column 'collective' nor 'n_gpus'")
    print_assumed(entries)
    return strict, columns


def main():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--assume", default=os.path.join(HERE, "assumed_shapes.json"))
    parser.add_argument("--collective")
    parser.add_argument("--ranks", type=int)
    options = parser.parse_args()
    with open(options.table, newline="", encoding="utf-8-sig", errors="replace") as file:
        rows, columns = read(file.read(), options)
    writer = csv.DictWriter(sys.stdout, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


if __name__ == "__main__":
    main()
