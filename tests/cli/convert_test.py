#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The conversions of convert.h against NumPy: float16 as NumPy converts it, bfloat16 as the upper half of float32.

usage: convert_test.py LIBRARY
"""
import ctypes
import os
import sys
import time

import numpy as np

ALL = np.arange(1 << 16, dtype=np.uint16)


def convert(library, name, source, to_type):
    source = np.ascontiguousarray(source)
    result = np.empty(source.size, to_type)
    function = getattr(library, name)
    function.restype = None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function(result.ctypes.data, source.ctypes.data, source.size)
    return result


def as_bfloat16(values):
    """To nearest even; NaN becomes quiet and keeps its upper bits."""
    bits = values.view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), (bits >> 16 | 0x40).astype(np.uint16), rounded)


def as_float16(values):
    """NumPy's result; but a NaN becomes quiet and keeps its upper bits, where NumPy keeps others."""
    bits = values.view(np.uint32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = values.astype(np.float16).view(np.uint16)
    return np.where(np.isnan(values), (bits >> 16 & 0x8000 | 0x7E00 | bits >> 13 & 0x3FF).astype(np.uint16), rounded)


def check(what, got, wanted, source):
    wrong = np.flatnonzero(got != wanted)
    if wrong.size:
        i = wrong[0]
        sys.exit(f"{what}: {wrong.size} differ, first {source[i]!r}: {got[i]:#06x}, not {wanted[i]:#06x}")


def main():
    library = ctypes.CDLL(sys.argv[1])
    seed = int(os.environ.get("QDR_TEST_SEED", time.time()))
    print(f"QDR_TEST_SEED={seed}")
    wide16 = convert(library, "qdr_f32_from_f16", ALL, np.float32)
    numpys = ALL.view(np.float16).astype(np.float32)
    check("f16 widened", np.where(np.isnan(wide16), 0, wide16.view(np.uint32)),
          np.where(np.isnan(numpys), 0, numpys.view(np.uint32)), ALL)
    check("NaN of f16 widened", np.isnan(wide16).astype(int), np.isnan(numpys).astype(int), ALL)
    wide_bf = convert(library, "qdr_f32_from_bf16", ALL, np.float32)
    check("bf16 widened", wide_bf.view(np.uint32), ALL.astype(np.uint32) << 16, ALL)

    # Every upper half of a float32, with lower halves at and next to those that decide the rounding, and random ones.
    random = np.random.default_rng(seed)
    lows = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x7FFF, 0x8000, 0x8001, 0xFFFF,
                     *random.integers(0, 1 << 16, 21)], np.uint32)
    values = ((ALL.astype(np.uint32) << 16)[:, None] | lows).ravel().view(np.float32)
    # And the midpoints between halves below 2^-14, whose steps are 2^-24.
    steps = np.arange(1 << 12, dtype=np.float64) * 2.0**-26
    values = np.concatenate([values, steps.astype(np.float32), -steps.astype(np.float32)])
    check("bf16 narrowed", convert(library, "qdr_bf16_from_f32", values, np.uint16), as_bfloat16(values), values)
    check("f16 narrowed", convert(library, "qdr_f16_from_f32", values, np.uint16), as_float16(values), values)
    print(f"{values.size} numbers: as NumPy")


if __name__ == "__main__":
    main()
