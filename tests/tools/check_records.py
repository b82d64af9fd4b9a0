#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figures of docs/benchmarks/gpu/README.md are those of the records in that folder.

A row of its table "what | benchmark | cases | figure | range | since" states the lowest and the highest median of these
figures in all records, rounded to its digits: from the minute `since` on, if that is given. `cases` are the beginnings
of cases, all if it is empty; cases and figures are separated by semicolons. A row of the table "benchmark | cases |
figure | not met" states in how many of the records that have these figures one of them misses its requirement; figures
that always meet theirs have none.

usage: check_records.py [FOLDER]    (the repository; default: the working directory)
"""
import glob
import gzip
import json
import os
import re
import statistics
import sys

PLACE = "docs/benchmarks/gpu"
FOUND, MISSED = ["what", "benchmark", "cases", "figure", "range", "since"], ["benchmark", "cases", "figure", "not met"]


def read_records(folder):
    records = []
    for path in sorted(glob.glob(os.path.join(folder, PLACE, "*.json.gz"))):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            records.append(json.load(file))
    return records


def rows_of(text, names):
    """The rows of the table with these columns, as dictionaries."""
    lines = iter(text.split("\n"))
    for line in lines:
        if [cell.strip() for cell in line.strip("|").split("|")] == names:
            next(lines)  # dashes
            break
    for line in lines:
        if not line.startswith("|"):
            return
        yield dict(zip(names, (cell.strip().strip("`") for cell in line.strip("|").split("|"))))


def words_of(cell):
    return [word.strip() for word in cell.split(";") if word.strip()]


def is_meant(row, result):
    begins = words_of(row["cases"])
    return result["benchmark"] == row["benchmark"] and (
        not begins or any(f"{result['case']},".startswith(f"{begin},") or result["case"].startswith(f"{begin} ")
                          for begin in begins))


def medians(row, records):
    for record in records:
        if record["facts"]["date"] < row["since"]:
            continue
        for result in record["results"]:
            if is_meant(row, result):
                for figure in words_of(row["figure"]):
                    samples = [sample for sample in result["values"].get(figure, []) if sample is not None]
                    if samples:
                        yield statistics.median(samples)


def is_rounded(text, value):
    """Whether the text is the value, rounded to the text's digits."""
    mantissa, power, _ = text.partition("e")
    return float(text) == float(f"{value:.{len(mantissa.partition('.')[2])}{power or 'f'}}")


def misses(result):
    """The figures of a result that miss their requirement."""
    for name, samples in result["values"].items():
        whole = bool(samples) and None not in samples
        least, most = result["bars"].get(name), result["limits"].get(name)
        if least is not None and not (whole and statistics.median(samples) >= least):
            yield name
        if most is not None and not (whole and statistics.median(samples) <= most):
            yield name


def range_problems(row, records):
    values = sorted(medians(row, records))
    if not values:
        return [f"no record has {row['benchmark']}: {row['figure']}"]
    numbers = row["range"].split(" to ")
    if len(numbers) > 2 or not all(re.fullmatch(r"[\d.]+(e-?\d+)?", number) for number in numbers):
        return [f"{row['range']!r} is no range"]
    if is_rounded(numbers[0], values[0]) and is_rounded(numbers[-1], values[-1]):
        return []
    return [f"{row['benchmark']}: {row['figure']}: the records have {values[0]:.5g} to {values[-1]:.5g}, not "
            f"{row['range']}"]


def missed_problems(rows, records):
    """Each row's count; and whether all figures that were missed have a row."""
    for row in rows:
        figures = words_of(row["figure"])
        having = [[result for result in record["results"] if is_meant(row, result) and
                   any(figure in result["values"] for figure in figures)] for record in records]
        n_having = sum(map(bool, having))
        n_missed = sum(any(set(misses(result)) & set(figures) for result in results) for results in having)
        if row["not met"] != f"{n_missed} of {n_having}":
            yield f"{row['benchmark']}: {row['figure']}: not met in {n_missed} of {n_having}, not {row['not met']}"
    for record in records:
        for result in record["results"]:
            for name in misses(result):
                if not any(is_meant(row, result) and name in words_of(row["figure"]) for row in rows):
                    yield f"{result['benchmark']}, {result['case']}: {name} is not met, and has no row"


def problems(folder):
    with open(os.path.join(folder, PLACE, "README.md"), encoding="utf-8") as file:
        text = file.read()
    records, found, missed = read_records(folder), list(rows_of(text, FOUND)), list(rows_of(text, MISSED))
    if not records or not found:
        yield f"{PLACE}: there are {len(records)} records and {len(found)} figures"
    for row in found:
        yield from range_problems(row, records)
    yield from sorted(set(missed_problems(missed, records)))


def main():
    found = list(problems(sys.argv[1] if len(sys.argv) > 1 else "."))
    for problem in found:
        print(f"{PLACE}/README.md: {problem}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
