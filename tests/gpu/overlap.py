#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The share of the collectives' time that overlaps with products, in the traces of one program's ranks.

usage: overlap.py TITLE TRACE...    (the files written for QDR_TRACE; the first two runs are left out)
Prints one JSON object. Exit code 1: no collective overlapped with a product.
"""
import json
import sys

WARM_RUNS = 4  # forward and backward, twice
COMPUTE = 0  # the stream of products


def read_spans(path):
    """(products, collectives) of one rank: (begin, end) in microseconds."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    products, collectives = [], []
    for event in events:
        if event.get("ph") != "X" or event["args"]["run"] < WARM_RUNS:
            continue
        span = (event["ts"], event["ts"] + event["dur"])
        if event["tid"] != COMPUTE:
            collectives.append(span)
        elif event["cat"] == "product":
            products.append(span)
    return products, collectives


def union(spans):
    """The same time as disjoint spans, in order."""
    joined = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def shared(span, joined):
    return sum(max(0.0, min(span[1], end) - max(span[0], begin)) for begin, end in joined)


def length(spans):
    return sum(end - begin for begin, end in spans)


def evaluate(title, ranks):
    """ranks: (products, collectives) of each."""
    everyone = union([span for products, _ in ranks for span in products])
    n_beside, beside, beside_any, n, time = 0, 0.0, 0.0, 0, 0.0
    for products, collectives in ranks:
        own = union(products)
        for span in collectives:
            n_beside += shared(span, own) > 0
            beside += shared(span, own)
            beside_any += shared(span, everyone)
        n += len(collectives)
        time += length(collectives)
    values = {
        "collectives": [n],
        "collectives overlapping a product of their rank": [n_beside],
        "time of collectives, ms": [time / 1e3],
        "share overlapping products of their rank": [beside / time if time else 0.0],
        "share overlapping products of any rank": [beside_any / time if time else 0.0],
    }
    return {"benchmark": "overlap", "case": title, "values": values,
            "bars": {"collectives overlapping a product of their rank": 1}, "limits": {}, "words": {}}


def main():
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    result = evaluate(sys.argv[1], [read_spans(path) for path in sys.argv[2:]])
    print(json.dumps(result))
    return 0 if result["values"]["collectives overlapping a product of their rank"][0] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
