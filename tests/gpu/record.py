#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Creates the record of a run of tests/gpu/run.sh: a Markdown file and a JSON file of the same name.

usage: record.py [--grow] WORK-FOLDER OUTPUT-FOLDER

--grow: this run's record is there already, and is written again with what has been added.

Reads, in the work folder: info.json (what gpu_info prints), facts (NAME<tab>VALUE lines), parts
(NAME<tab>RESULT<tab>SECONDS<tab>NOTE lines), and results of measurements: one JSON object a line in *.jsonl. Prints
the names of the files. A record that is there already is left alone: exit code 1. What could not be measured is null.
"""
import glob
import gzip
import json
import math
import os
import re
import statistics
import sys

OURS, CUDNN, THEIRS = "layer", "layer, attention of cuDNN", "layer, PyTorch"


def read_lines(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file if line.strip()]


def read_facts(folder):
    facts = dict(line.split("\t", 1) for line in read_lines(os.path.join(folder, "facts")) if "\t" in line)
    for line in read_lines(os.path.join(folder, "info.json"))[:1]:
        info = json.loads(line)
        if facts.get("GPU", "unknown") == "unknown":  # as run.sh writes it if there is no nvidia-smi
            facts["GPU"] = info["gpu"]
        facts["GPU memory, bytes"] = info["bytes"]
        facts["multiprocessors"] = info["sms"]
        facts["compute capability"] = f"{info['major']}.{info['minor']}"
        facts["CUDA of the driver"] = cuda_text(info["driver"])
        facts["CUDA of the library"] = cuda_text(info["runtime"])
        facts["cuBLASLt"] = version_text(info["cublaslt"])
        if info["nccl"]:
            facts["NCCL"] = version_text(info["nccl"])
    return facts


def cuda_text(number):
    return f"{number // 1000}.{number % 1000 // 10}"


def version_text(number):
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def read_parts(folder):
    parts = []
    for line in read_lines(os.path.join(folder, "parts")):
        name, result, secs, note = (line.split("\t") + ["", "", ""])[:4]
        parts.append({"part": name, "result": result, "secs": int(secs or 0), "note": note})
    return parts


def read_results(folder):
    """All objects; a line that is not one was cut off when its program ended."""
    results = []
    for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
        for line in read_lines(path):
            try:
                results.append(json.loads(line))
            except ValueError:
                print(f"record: {path} has a line that is no JSON: {line[:60]}", file=sys.stderr)
    return results


def is_whole(samples):
    return bool(samples) and all(sample is not None and math.isfinite(sample) for sample in samples)


def medians(results, benchmark, name):
    return [statistics.median(result["values"][name]) for result in results
            if result["benchmark"] == benchmark and is_whole(result["values"].get(name))]


def compare_layers(results, ours, benchmark_name):
    """Round by round, compares the library's layer with PyTorch's: with the faster of its two figures without
    attention."""
    rest = [min(pair) for pair in zip(medians(results, THEIRS, "all but attention, ms"),
                                      medians(results, THEIRS, "without attention, ms"))]
    whole, attention = medians(results, THEIRS, "layer, ms"), medians(results, THEIRS, "attention, ms")
    ratios = {
        "all but attention, PyTorch/library": zip(rest, medians(results, ours, "all but attention, ms")),
        "attention, PyTorch/library": zip(attention, medians(results, ours, "attention, ms")),
        "whole layer, PyTorch/library": zip(whole, medians(results, ours, "layer, ms")),
    }
    values = {name: [theirs / ours for theirs, ours in pairs] for name, pairs in ratios.items()}
    if not all(values.values()):
        return []
    words = {name: next(result["words"]["attention"] for result in results if result["benchmark"] == benchmark)
             for name, benchmark in (("attention of the library", ours), ("attention of PyTorch", THEIRS))}
    case = next(result["case"] for result in results if result["benchmark"] == ours)
    return [{"benchmark": benchmark_name, "case": case, "values": values, "bars": {}, "limits": {}, "words": words}]


def median_of(samples):
    """None if one is not a number."""
    return statistics.median(samples) if is_whole(samples) else None


def judge(result, name):
    """(the requirement, whether it is met); ("", None) if there is none."""
    median = median_of(result["values"][name])
    if name in result["bars"]:
        return f"≥ {result['bars'][name]:g}", median is not None and median >= result["bars"][name]
    if name in result["limits"]:
        return f"≤ {result['limits'][name]:g}", median is not None and median <= result["limits"][name]
    return "", None


def missed(results):
    return [f"{result['benchmark']}, {result['case']}: {name} is {number_text(median_of(result['values'][name]))}, "
            f"required {judge(result, name)[0]}"
            for result in results for name in result["values"] if judge(result, name)[1] is False]


def number_text(number):
    if number is None:
        return "no number"
    return f"{number:.4g}" if abs(number) < 1e5 else f"{number:.0f}"


def row_of(result, name):
    samples = result["values"][name]
    samples = sorted(samples) if is_whole(samples) else [None] * len(samples)
    wanted, good = judge(result, name)
    quartiles = [samples[len(samples) // 4], samples[3 * len(samples) // 4]] if len(samples) > 1 else []
    spread = " – ".join(number_text(number) for number in quartiles)
    cells = [name, number_text(median_of(samples)), spread, str(len(samples)), wanted,
             "" if good is None else "yes" if good else "**no**"]
    return "| " + " | ".join(cells) + " |"


def result_text(result):
    lines = [f"### {result['benchmark']}: {result['case']}", "",
             "| figure | median | quartiles | samples | required | met |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [row_of(result, name) for name in result["values"]]
    lines += [""] + [f"- {name}: {word}" for name, word in result["words"].items()] + ([""] if result["words"] else [])
    return lines


def markdown(record):
    facts = record["facts"]
    lines = [f"# {facts.get('GPU', 'No GPU')}, {facts.get('date', 'no date')}", "",
             "Written by `sh tests/gpu/run.sh`, as measured. README.md in this folder explains the figures.",
             "", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in facts.items()]
    lines += ["", "## Parts", "", "| part | result | seconds | |", "| --- | --- | --- | --- |"]
    lines += [f"| {part['part']} | {part['result']} | {part['secs']} | {part['note']} |" for part in record["parts"]]
    lines += ["", "## Figures", ""]
    for result in record["results"]:
        lines += result_text(result)
    if not record["results"]:
        lines += ["None were measured.", ""]
    if record["missed"]:
        lines += ["## Requirements not met", ""] + [f"- {line}" for line in record["missed"]] + [""]
    return "\n".join(lines).rstrip("\n") + "\n"


def file_name(facts):
    """The GPU, the date and the minute."""
    words = f"{facts.get('GPU', 'no gpu')} {facts.get('date', 'no date')[:16]}"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def make_record(folder):
    results = read_results(folder)
    results += compare_layers(results, OURS, "layer against PyTorch")
    results += compare_layers(results, CUDNN, "layer with attention of cuDNN against PyTorch")
    record = {"facts": read_facts(folder), "parts": read_parts(folder), "results": results}
    record["missed"] = missed(results)
    return record


def without_infinities(value):
    """JSON does not have them."""
    if isinstance(value, dict):
        return {name: without_infinities(one) for name, one in value.items()}
    if isinstance(value, list):
        return [without_infinities(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main():
    words = [word for word in sys.argv[1:] if word != "--grow"]
    grows = len(words) < len(sys.argv) - 1
    if len(words) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    record = make_record(words[0])
    os.makedirs(words[1], exist_ok=True)
    path = os.path.join(words[1], file_name(record["facts"]))
    clean = json.dumps(without_infinities(record), indent=1, ensure_ascii=False, allow_nan=False)
    contents = {".json.gz": gzip.compress((clean + "\n").encode(), mtime=0), ".md": markdown(record).encode()}
    there = [path + ending for ending in contents if os.path.exists(path + ending)]
    if there and not grows:
        print(f"record: {there[0]} is there already, and is left alone; give another folder", file=sys.stderr)
        return 1
    for ending, content in contents.items():
        with open(path + ending + ".new", "wb") as file:
            file.write(content)
        os.replace(path + ending + ".new", path + ending)
        print(path + ending)
    for line in record["missed"]:
        print(f"requirement not met: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
