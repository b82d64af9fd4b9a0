#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that are something else, and folders, wherever the command reads a file.

usage: foreign_files_test.py QUADRILLE MACHINES
"""
import json
import os
import shutil

import cases
from cases import ARGUMENTS, start

LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
         "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 64}
TEXT = json.dumps(LLAMA).encode()
EMPTY = b"\x02\0\0\0\0\0\0\0{}"  # a safetensors file without tensors
INDEX = ".safetensors.index.json"


class Case(cases.Case):
    def run_it(self, *words):
        return start(ARGUMENTS.quadrille, *words, cwd=self.folder)

    def good(self, *words):
        done = self.run_it(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout

    def bad(self, *words, says):
        done = self.run_it(*words)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), (words, done))
        for part in says:
            self.assertIn(part, done.stderr)


class Foreign(Case):
    KINDS = {b"PK\3\4" + b"0" * 300: "PyTorch's pickles", b"\x80\2}q\0.": "pickle", b"GGUF" + bytes(300): "GGUF",
             b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n": "git lfs pull",
             '{"a": 1}'.encode("utf-16"): "UTF-16", '{"a": 1}'.encode("utf-32"): "UTF-32",
             '{"a": 1}'.encode("utf-16-le"): "UTF-16", b"<html></html>": "web page", b"\x1f\x8b\x08" + bytes(9): "gzip"}

    def test_everywhere(self):
        """Models, machines, plans, tables, traces, maps, indexes and files of tensors."""
        good = self.path("good.safetensors", EMPTY)
        for content, words in self.KINDS.items():
            path = self.path("x.json", content)
            self.path("trace.0", content)
            tensors = self.path("x.st", content)
            for command in (["mem", path], ["mem", "gpt2", "--machine", path], ["predict", path], ["ckpt", "ls", path],
                            ["plan", "gpt2", "-n", "4", "--machine", path], ["trace", "trace"],
                            ["ckpt", "convert", good, "out.safetensors", "--from", path], ["ckpt", "ls", tensors],
                            ["ckpt", "diff", good, tensors], ["ckpt", "convert", tensors, "out.safetensors"]):
                self.bad(*command, says=[words])

    def test_expected_otherwise(self):
        """A file of tensors where a text is needed, and the other way round."""
        self.bad("mem", self.path("x.json", EMPTY), says=["x.json is a safetensors file"])
        self.bad("ckpt", "ls", self.path("x.st", TEXT), says=["x.st is a text in JSON"])
        params = json.dumps({"dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": -1}).encode()
        self.bad("mem", self.path("params.json", params), says=["params.json of Meta's own format"])

    def test_mark(self):
        """A byte order mark before UTF-8 changes nothing."""
        plain = self.good("mem", self.path("a/config.json", TEXT))
        self.assertEqual(self.good("mem", self.path("b/../a/config.json", b"\xef\xbb\xbf" + TEXT)), plain)
        with open(os.path.join(ARGUMENTS.machines, "laptop.json"), "rb") as file:
            machine = self.path("m.json", b"\xef\xbb\xbf" + file.read())
        self.good("mem", "gpt2", "--machine", machine)


class Pictures(Case):
    def test_suffix(self):
        """Pictures are SVG, whatever their name promises."""
        for words in (["topo"], ["plan", "gpt2", "-n", "2", "--machine", "laptop"], ["trace", "x"]):
            for name in ("x.png", "a.b/x.PDF"):
                self.bad(*words, "--svg", name, says=[f"--svg '{name}': the picture is SVG", ".svg"])
        self.good("plan", "gpt2", "-n", "2", "--machine", "laptop", "--batch", "2", "--svg", "x")


class Folders(Case):
    def test_models(self):
        self.path("net/config.json", TEXT)
        os.mkdir(os.path.join(self.folder, "none"))
        plain = self.good("mem", "net/config.json")
        for name in ("net", "net/", "./net", "./net//", os.path.join(self.folder, "net")):
            self.assertEqual(self.good("mem", name), plain, name)
        self.bad("mem", "none/", says=["none/ is a folder without a config.json"])
        self.bad("mem", "gpt2", "--machine", "./none", says=["./none is a folder; name a machine"])

    def test_tensors(self):
        shard = "model-00001-of-00001.safetensors"
        tensor = json.dumps({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
        tensor = len(tensor).to_bytes(8, "little") + tensor + b"x"
        index = json.dumps({"weight_map": {"a": shard}}).encode()
        cases = [({"model.safetensors": tensor, "extra.safetensors": EMPTY}, "model.safetensors"),
                 ({f"model{INDEX}": index, shard: tensor}, f"model{INDEX}"),
                 ({"other.safetensors": tensor}, "other.safetensors"),
                 ({f"other{INDEX}": index, shard: tensor}, f"other{INDEX}")]
        for files, means in cases:
            for name, content in files.items():
                self.path(f"d/{name}", content)
            for name in ("d", "d/"):
                self.assertIn("1 tensor,", self.good("ckpt", "ls", name), files)
                self.good("ckpt", "diff", name, f"d/{means}")
                self.good("ckpt", "verify", name)
                self.good("ckpt", "convert", name, "out.safetensors")
            shutil.rmtree(os.path.join(self.folder, "d"))
        for files, says in (({}, ["d is a folder without a file NAME.safetensors"]),
                            ({"a.safetensors": EMPTY, "b.safetensors": EMPTY}, ["a.safetensors", "b.safetensors"]),
                            ({shard.replace("of-00001", "of-00002"): tensor},
                             ["d has file 1 of 2 alone", "fetch the others"]),
                            ({"model.safetensors": EMPTY, f"model{INDEX}": index},
                             [f"model.safetensors and model{INDEX}; name one"])):
            os.makedirs(os.path.join(self.folder, "d"))
            for name, content in files.items():
                self.path(f"d/{name}", content)
            for command in (["ls"], ["verify"], ["diff", "out.safetensors"], ["convert", "--from", "gpt2"]):
                more = ["out2.safetensors"] if command[0] == "convert" else []
                self.bad("ckpt", command[0], "d", *more, *command[1:], says=says)
            shutil.rmtree(os.path.join(self.folder, "d"))


if __name__ == "__main__":
    cases.main("quadrille", "machines")
