#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille ckpt and files of others: indexes that do not fit their files, and files with very many names.

usage: ckpt_index_test.py QUADRILLE
"""
import json
import os
import resource
import struct

import cases
import ckpt_case
from ckpt_case import Case, ckpt, read_bytes
from ckpt_files import pack

TWO = ("F32", [2], pack("F32", [1, 2]))
FILES = {"m-00001-of-00002.safetensors": ("a", "b"), "m-00002-of-00002.safetensors": ("c", "d")}
LISTED = {name: file for file, names in FILES.items() for name in names}
INDEX = "m.safetensors.index.json"
N_NAMES = 60000


class Indexes(Case):
    def index(self, listed, total=32, files=None):
        for name, tensors in (FILES if files is None else files).items():
            self.file(name, {tensor: TWO for tensor in tensors})
        metadata = {} if total is None else {"metadata": {"total_size": total}}
        return self.path(INDEX, json.dumps({**metadata, "weight_map": listed}).encode())

    def test_whole(self):
        for total in (32, 32.0, None):
            path = self.index(LISTED, total)
            self.assertEqual([t["name"] for t in self.json("ls", path)["tensors"]], list("abcd"))
        self.good("convert", path, self.path("out.safetensors"))
        self.assertIn("4 tensors in both: 4 equal", self.good("diff", path, self.path("out.safetensors")))

    def test_wrong(self):
        """By name and number, by every part that reads."""
        first, second = FILES
        without_b = {name: file for name, file in LISTED.items() if name != "b"}
        swapped = {first: ("a", "b", "c"), second: ("c", "d")}
        cases = [
            ({"a": first, "c": second}, 32, FILES, [f"tensor b of {first} is not listed",
                                                   f"tensor d of {second} is not listed"]),
            (without_b, None, FILES, [f"tensor b of {first} is not listed"]),
            ({**LISTED, "e": second}, 32, FILES, [f"tensor e should be in {second}, which does not have it"]),
            ({**LISTED, "b": second}, 32, FILES, [f"tensor b should be in {second}, but is in {first}"]),
            (LISTED, 40, swapped, ["tensor c is in two files"]),
            (LISTED, 33, FILES, ["total_size is 33, but the files have 32 bytes"]),
            ({"a": first, "b": first}, 16, FILES, ["file 2 of 2 of m- is not named"]),
            ({}, 32, FILES, ["lists no tensors"]),
            ({"c": second, "d": second}, 16, FILES, ["file 1 of 2 of m- is not named"]),
        ]
        for listed, total, files, says in cases:
            path, out = self.index(listed, total, files), self.path("out.safetensors")
            for words, code in ((["ls", path], 2), (["verify", path], 4), (["diff", path, path], 2),
                                (["convert", path, out], 2)):
                self.bad(code, *words, says=[INDEX, *says])
            self.assertFalse(os.path.exists(out))

    def test_named_first(self):
        """Of many, five are named."""
        names = [f"t{i}" for i in range(40)]
        path = self.index({"t0": "s.safetensors"}, None, {"s.safetensors": names})
        self.bad(2, "ls", path, says=["tensor t1 of", ", and 34 more; "])


class Types(Case):
    BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
            "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
            "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64}  # of Python's package 0.8

    def test_all(self):
        header, data = {}, b""
        for kind, bits in self.BITS.items():
            n = 8 * bits // 8
            header[kind] = {"dtype": kind, "shape": [2, 4], "data_offsets": [len(data), len(data) + n]}
            data += bytes(range(n))
        text = json.dumps(header).encode()
        path = self.path("a.safetensors", struct.pack("<Q", len(text)) + text + data)
        self.assertEqual({t["type"]: t["bytes"] for t in self.json("ls", path)["tensors"]}, self.BITS)
        self.good("ls", path, "--stats")
        self.good("convert", path, self.path("b.safetensors"))
        self.assertIn(f"{len(self.BITS)} equal", self.good("diff", path, self.path("b.safetensors")))
        self.assertTrue(read_bytes(self.path("b.safetensors")).endswith(data))


class Large(Case):
    """Files of less than 10 MB with many names are read or refused within a few seconds of computing."""

    def header(self, name, header):
        text = json.dumps(header, separators=(",", ":")).encode()
        return self.path(name, struct.pack("<Q", len(text)) + text)

    def quick(self, *words, code=0):
        def seconds():
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            return used.ru_utime + used.ru_stime
        begin = seconds()
        done = ckpt(*words)
        self.assertEqual(done.returncode, code, done.err)
        self.assertLess(seconds() - begin, 15, words)  # 2, and room for sanitizers

    def test_names(self):
        empty = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
        tensors = [f"t{i:06d}" for i in range(N_NAMES)]
        path = self.header("d.safetensors", {name: empty for name in tensors})
        index = self.path("d.safetensors.index.json",
                          json.dumps({"weight_map": {name: "d.safetensors" for name in tensors}}).encode())
        self.quick("ls", index)
        self.quick("diff", index, path)
        self.quick("ls", self.header("k.safetensors", {"__metadata__": {name: "v" for name in tensors}}))
        self.quick("convert", self.path("k.safetensors"), self.path("out.safetensors"))
        rules = [{"ours": f"o{name}", "theirs": [name]} for name in tensors[:12000]]
        self.quick("convert", path, self.path("out.safetensors"), "--from",
                   self.path("map.json", json.dumps({"rules": rules}).encode()), code=2)

    def test_blocks(self):
        vector = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
        matrix = {"dtype": "F32", "shape": [0, 0], "data_offsets": [0, 0]}
        tensors = {"model.embed_tokens.weight": matrix, "model.norm.weight": vector}
        for i in range(N_NAMES // 9):
            block = f"model.layers.{i}."
            tensors |= {f"{block}{name}_layernorm.weight": vector for name in ("input", "post_attention")}
            tensors |= {f"{block}self_attn.{name}_proj.weight": matrix for name in "qkvo"}
            tensors |= {f"{block}mlp.{name}_proj.weight": matrix for name in ("gate", "up", "down")}
        self.quick("convert", self.header("l.safetensors", tensors), self.path("o.safetensors"), "--from", "llama")
        self.quick("convert", self.path("o.safetensors"), self.path("t.safetensors"), "--to", "llama")

    def test_huge_shapes(self):
        """Columns that cannot be counted, where there are no rows."""
        for shape in ([0, 2, 2 ** 62], [0, 2 ** 62, 2 ** 62]):
            path = self.header("h.safetensors", {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}})
            self.good("convert", path, self.path("out.safetensors"))
            self.assertEqual(self.json("ls", self.path("out.safetensors"))["tensors"][0]["shape"], shape)
        wide = {"dtype": "F32", "shape": [2 ** 62, 0], "data_offsets": [0, 0]}
        path = self.header("q.safetensors", {name: wide for name in ("q", "k", "v")})
        rules = {"rules": [{"ours": "qkv.weight", "theirs": ["q", "k", "v"]}]}
        self.bad(2, "convert", path, self.path("out.safetensors"), "--from",
                 self.path("map.json", json.dumps(rules).encode()), says=["too many to be joined"])


if __name__ == "__main__":
    ckpt_case.main()
