#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille ckpt convert with maps: GPT-2 and Llama there and back, maps of one's own, and what they refuse.

usage: ckpt_maps_test.py QUADRILLE
"""
import json
import os
import random
import resource

import ckpt_case
from ckpt_case import SAMPLE, SEED, Case, ckpt, read_bytes
from ckpt_files import gpt2, llama, pack, random_tensor, read, transposed, unpack

MOST_MEMORY = 110 << 20  # less than a matrix of test_large_matrices twice


class Maps(Case):
    def there_and_back(self, theirs, ours, name, *words):
        source = self.file("their.safetensors", theirs, {"format": "pt"})
        found, metadata = self.convert(source, "our.safetensors", "--from", name, *words)
        self.assertEqual(found, ours)
        back, kept = self.convert(self.path("our.safetensors"), "back.safetensors", "--to", name)
        self.assertEqual(back, theirs)
        self.assertNotIn("prefix", kept)
        return metadata

    def test_gpt2(self):
        for prefix in "", "transformer.":
            for kind in "F32", "BF16", "F16", "F64":
                theirs, ours = gpt2(SEED, kind=kind, prefix=prefix)
                metadata = self.there_and_back(theirs, ours, "gpt2")
                self.assertEqual(metadata["prefix"], prefix)

    def test_gpt2_without_a_word_about_the_prefix(self):
        theirs, ours = gpt2(SEED, prefix="transformer.")
        self.assertEqual(self.convert(self.file("a.safetensors", ours), "b.safetensors", "--to", "gpt2")[0], theirs)

    def test_gpt2_in_several_files_of_bf16(self):
        theirs, ours = gpt2(SEED, n_blocks=3, kind="BF16")
        source = self.file("a.safetensors", theirs)
        self.good("convert", source, self.path("s.safetensors"), "--max-size", "1K")
        found, _ = self.convert(self.path("s.safetensors.index.json"), "our.safetensors", "--from", "gpt2")
        self.assertEqual(found, ours)
        found, _ = self.convert(self.path("s.safetensors.index.json"), "f32.safetensors", "--from", "gpt2", "--dtype",
                                "f32")
        for name, (kind, shape, data) in found.items():
            self.assertEqual((kind, shape, unpack("F32", data)), ("F32", ours[name][1], unpack("BF16", ours[name][2])))
        back, _ = self.convert(self.path("f32.safetensors"), "back.safetensors", "--to", "gpt2", "--dtype", "bf16")
        self.assertEqual(back, theirs)

    def test_gpt2_buffers_and_tied_heads(self):
        theirs, ours = gpt2(SEED)
        more = {"h.0.attn.bias": ("U8", [1, 1, 2, 2], b"\1\0\1\1"),
                "h.1.attn.masked_bias": ("F32", [], pack("F32", [-1]))}
        tied = {**theirs, **more, "lm_head.weight": theirs["wte.weight"]}
        found, _ = self.convert(self.file("a.safetensors", tied), "b.safetensors", "--from", "gpt2")
        self.assertEqual(found, ours)
        prefixed, _ = gpt2(SEED, prefix="transformer.")  # what is left out does not say whether there is a prefix
        found, metadata = self.convert(self.file("a.safetensors", {**prefixed, **more}), "b.safetensors", "--from",
                                       "gpt2")
        self.assertEqual((found, metadata["prefix"]), (ours, "transformer."))
        kind, shape, data = theirs["wte.weight"]
        own = (kind, shape, bytes([data[0] ^ 1]) + data[1:])
        self.there_and_back({**theirs, "lm_head.weight": own}, {**ours, "head.weight": own}, "gpt2")

    def test_llama(self):
        for has_bias in False, True:
            for kind in "BF16", "F32":
                theirs, ours = llama(SEED, kind=kind, has_bias=has_bias)
                self.there_and_back(theirs, ours, "llama")
        theirs, ours = llama(SEED, n_blocks=12, keys=8)  # block10 follows block9
        self.there_and_back(theirs, ours, "llama")

    def test_llama_after_training(self):
        """Neither metadata nor the order of the input are needed to split again; the optimizer's state is dropped."""
        theirs, ours = llama(SEED)
        trained = {**{f"optimizer.m.{name}": tensor for name, tensor in ours.items()}, **dict(reversed(ours.items()))}
        source = self.file("a.safetensors", trained, {"optimizer": "{}"})
        out = self.good("convert", source, self.path("b.safetensors"), "--to", "llama")
        self.assertIn(f"{len(ours)} tensors of the optimizer's state were left out", out)
        self.assertEqual(read(self.path("b.safetensors"))[0], theirs)
        self.assertNotIn("optimizer", read(self.path("b.safetensors"))[1])

    def test_damage_in_a_part(self):
        theirs, _ = llama(SEED)
        self.good("convert", self.file("plain.safetensors", theirs), self.path("a.safetensors"))
        data = bytearray(read_bytes(self.path("a.safetensors")))
        key = "model.layers.1.self_attn.v_proj.weight"
        begin = 8 + int.from_bytes(data[:8], "little")
        data[begin + json.loads(data[8:begin])[key]["data_offsets"][0]] ^= 1
        self.bad(4, "convert", self.path("a.safetensors", data), self.path("b.safetensors"), "--from", "llama",
                 says=[f"{key} is damaged"])
        self.assertFalse(os.path.exists(self.path("b.safetensors")))

    def test_vectors_that_are_rows(self):
        for make, name, words in (gpt2, "gpt2", {"prefix": "transformer."}), (llama, "llama", {"has_bias": True}):
            theirs, ours = make(SEED, **words)
            rows = {key: (kind, [1, *shape] if len(shape) == 1 else shape, data)
                    for key, (kind, shape, data) in ours.items()}
            self.assertEqual(self.convert(self.file("a.safetensors", rows), "b.safetensors", "--to", name)[0], theirs)
        self.assertEqual(self.convert(self.path("a.safetensors"), "b.safetensors")[0], rows)

    def test_llama_ignores_frequencies(self):
        theirs, ours = llama(SEED)
        more = {"model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", [2], pack("F32", [1, 2]))}
        self.assertEqual(self.convert(self.file("a.safetensors", {**theirs, **more}), "b.safetensors", "--from",
                                      "llama")[0], ours)

    def test_from_one_program_to_another(self):
        theirs, _ = gpt2(SEED, prefix="transformer.")
        source = self.file("a.safetensors", theirs)
        self.assertEqual(self.convert(source, "b.safetensors", "--from", "gpt2", "--to", "gpt2")[0], theirs)
        self.bad(2, "convert", source, self.path("c.safetensors"), "--from", "gpt2", "--to", "llama",
                 says=["does not know"])

    def test_large_matrices(self):
        """More than one band and one chunk, transposed and joined, in little memory."""
        rows, cols = 3000, 5003
        data = random.Random(SEED).randbytes(rows * cols * 4)
        source = self.file("a.safetensors", {"x": ("F32", [rows, cols], data),
                                             "y": ("F32", [rows, 7], data[:rows * 28])})
        text = json.dumps({"rules": [{"ours": "w", "theirs": ["x", "y"], "transpose": True, "first": "z"},
                                     {"ours": "z", "theirs": ["z"], "optional": True}]})
        both = self.path("map.json", text.encode())
        self.bad(2, "convert", source, self.path("b.safetensors"), "--from", both, says=["lacks z"])
        wide = {"z": ("F32", [1, cols], data[:cols * 4])}
        source = self.file("a.safetensors", {**read(source)[0], **wide})

        def limit():
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        alone = {"env": {**os.environ, "OPENBLAS_NUM_THREADS": "1"}, "preexec_fn": limit}
        if ckpt("--help", **alone).returncode:  # a sanitizer needs more
            del alone["preexec_fn"]
        self.good("convert", source, self.path("b.safetensors"), "--from", both, **alone)
        self.good("convert", self.path("b.safetensors"), self.path("c.safetensors"), "--to", both, **alone)
        self.assertEqual(read(self.path("c.safetensors"))[0], read(source)[0])
        kind, shape, turned = read(self.path("b.safetensors"))[0]["w"]
        self.assertEqual((kind, shape), ("F32", [cols + 7, rows]))
        for _ in range(1000):
            i, j = random.randrange(rows), random.randrange(cols)
            at, was_at = 4 * (j * rows + i), 4 * (i * cols + j)
            self.assertEqual(turned[at:at + 4], data[was_at:was_at + 4])

    def test_long_parts(self):
        """Rows that are joined and split as they are, each of more than is copied at once."""
        choose, cols = random.Random(SEED), 1001
        parts = {name: ("F32", [rows, cols], choose.randbytes(4 * rows * cols))
                 for name, rows in (("q", 300), ("k", 250), ("v", 250))}
        source = self.file("a.safetensors", {**parts, "o": ("F32", [2, 300], choose.randbytes(2400))})
        rules = [{"ours": "qkv", "theirs": ["q", "k", "v"], "first": "o"}, {"ours": "o", "theirs": ["o"]}]
        both = self.path("map.json", json.dumps({"rules": rules}).encode())
        found, _ = self.convert(source, "b.safetensors", "--from", both)
        self.assertEqual(found["qkv"], ("F32", [800, cols], b"".join(data for _, _, data in parts.values())))
        self.assertEqual(self.convert(self.path("b.safetensors"), "c.safetensors", "--to", both)[0], read(source)[0])

    def test_heads_that_differ_late(self):
        """In the last of many elements; a head that is the table itself is left out."""
        rows, cols = 701, 331
        data = random.Random(SEED).randbytes(4 * rows * cols)
        rules = [{"ours": "table", "theirs": ["t"]}, {"ours": "head", "theirs": ["h"], "tied": "table"}]
        both = self.path("map.json", json.dumps({"rules": rules}).encode())
        for own in data, data[:-1] + bytes([data[-1] ^ 1]):
            source = self.file("a.safetensors", {"t": ("F32", [rows, cols], data), "h": ("F32", [rows, cols], own)})
            found, _ = self.convert(source, "b.safetensors", "--from", both)
            self.assertEqual("head" in found, own != data)
        source = self.file("a.safetensors", {"t": ("F32", [rows, cols], data), "h": ("I32", [rows, cols], data)})
        self.assertIn("head", self.convert(source, "b.safetensors", "--from", both)[0])

    def test_names_nobody_knows(self):
        theirs, _ = gpt2(SEED)
        more = {f"odd{i}": SAMPLE["w"] for i in range(7)}
        source = self.file("a.safetensors", {**theirs, **more})
        self.bad(2, "convert", source, self.path("b.safetensors"), "--from", "gpt2",
                 says=["odd0, odd1, odd2, odd3, odd4 and 2 more", "'ignore'"])
        self.assertFalse(os.path.exists(self.path("b.safetensors")))
        for number in "01", "-1", "", "1x", "99999999999", "9999":
            name = f"h.{number}.ln_1.weight"
            self.bad(2, "convert", self.file("a.safetensors", {**theirs, name: SAMPLE["w"]}),
                     self.path("b.safetensors"), "--from", "gpt2",
                     says=[name, "counted from 0" if number == "9999" else "does not know"])

    def test_what_is_missing(self):
        for make, name, lacked in ((gpt2, "gpt2", "h.1.mlp.c_fc.bias"), (gpt2, "gpt2", "wpe.weight"),
                                   (llama, "llama", "model.layers.0.self_attn.k_proj.weight")):
            theirs, _ = make(SEED)
            del theirs[lacked]
            self.bad(2, "convert", self.file("a.safetensors", theirs), self.path("b.safetensors"), "--from", name,
                     says=["lacks", lacked])
        theirs, _ = llama(SEED)
        for part in "kv":  # the first of those that are missing is named
            del theirs[f"model.layers.1.self_attn.{part}_proj.weight"]
        self.bad(2, "convert", self.file("a.safetensors", theirs), self.path("b.safetensors"), "--from", "llama",
                 says=["lacks model.layers.1.self_attn.k_proj.weight, without which there is no block1.qkv.weight"])
        _, ours = gpt2(SEED)
        del ours["block0.proj.bias"]
        self.bad(2, "convert", self.file("a.safetensors", ours), self.path("b.safetensors"), "--to", "gpt2",
                 says=["lacks block0.proj.bias", "attn.c_proj.bias"])
        theirs, _ = gpt2(SEED)
        moved = {name.replace("h.1.", "h.3."): tensor for name, tensor in theirs.items()}
        self.bad(2, "convert", self.file("a.safetensors", moved), self.path("b.safetensors"), "--from", "gpt2",
                 says=["lacks", "h.1.ln_1.weight"])

    def test_twice(self):
        theirs, _ = gpt2(SEED)
        self.bad(2, "convert", self.file("a.safetensors", {**theirs, "transformer.wte.weight": theirs["wte.weight"]}),
                 self.path("b.safetensors"), "--from", "gpt2", says=["are the same tensor"])

    def test_shapes_that_do_not_fit(self):
        theirs, ours = llama(SEED)
        key = "model.layers.1.self_attn.k_proj.weight"
        for shape in [4, 9], [5, 8], [32]:
            changed = {**theirs, key: random_tensor(random.Random(0), "BF16", shape)}
            self.bad(2, "convert", self.file("a.safetensors", changed), self.path("b.safetensors"), "--from", "llama",
                     says=["a.safetensors: ", "1."])
        changed = {**theirs, key: random_tensor(random.Random(0), "F32", [4, 8])}
        source = self.file("a.safetensors", changed)
        self.bad(2, "convert", source, self.path("b.safetensors"), "--from", "llama", says=["--dtype f32"])
        self.convert(source, "b.safetensors", "--from", "llama", "--dtype", "f32")
        changed = {**ours, "block0.qkv.weight": random_tensor(random.Random(0), "BF16", [17, 8])}
        self.bad(2, "convert", self.file("a.safetensors", changed), self.path("b.safetensors"), "--to", "llama",
                 says=["17 rows of block0.qkv.weight"])
        theirs, _ = gpt2(SEED)
        changed = {**theirs, "h.0.attn.c_attn.weight": theirs["h.0.attn.c_attn.bias"]}
        self.bad(2, "convert", self.file("a.safetensors", changed), self.path("b.safetensors"), "--from", "gpt2",
                 says=["only a matrix can be transposed"])


class OwnMaps(Case):
    def map(self, **members):
        return self.path("map.json", json.dumps(members).encode())

    def refuse(self, says, content):
        path = self.path("map.json", content if isinstance(content, bytes) else json.dumps(content).encode())
        source = self.file("a.safetensors", SAMPLE)
        for option in "--from", "--to":
            self.bad(2, "convert", source, self.path("b.safetensors"), option, path, says=[path, says])

    def test_own_map(self):
        path = self.map(rules=[{"ours": "matrix", "theirs": ["w"], "transpose": True},
                               {"ours": "größe", "theirs": ["Gewicht.größe"]}], ignore=["scalar", "empty", "steps"])
        found, metadata = self.convert(self.file("a.safetensors", SAMPLE), "b.safetensors", "--from", path)
        self.assertEqual(found, {"matrix": transposed(SAMPLE["w"]), "größe": SAMPLE["Gewicht.größe"]})
        self.assertNotIn("prefix", metadata)

    def test_other_types_and_dimensions(self):
        """Whole numbers are transposed and joined, too; tensors of three dimensions are joined along the first."""
        tensors = {"a": ("I64", [2, 3], pack("I64", range(6))), "b": ("U8", [1, 2, 2], b"abcd"),
                   "c": ("U8", [2, 2, 2], b"efghijkl"), "d": ("U8", [2], b"yz")}
        path = self.map(rules=[{"ours": "t", "theirs": ["a"], "transpose": True},
                               {"ours": "bc", "theirs": ["b", "c"], "first": "d"}, {"ours": "d", "theirs": ["d"]}])
        found, _ = self.convert(self.file("a.safetensors", tensors), "b.safetensors", "--from", path)
        self.assertEqual(found["t"], ("I64", [3, 2], pack("I64", [0, 3, 1, 4, 2, 5])))
        self.assertEqual(found["bc"], ("U8", [3, 2, 2], b"abcdefghijkl"))
        back, _ = self.convert(self.path("b.safetensors"), "c.safetensors", "--to", path)
        self.assertEqual(back, tensors)

    def test_bad_maps(self):
        rule = {"ours": "a", "theirs": ["b"]}
        for says, content in (
                ("is not JSON", b"{"), ("is not JSON", b"{\"rules\": [], \"rules\": []}"), ("is an object", b"[]"),
                ("'rules'", {}), ("'rules'", {"rules": []}), ("unknown key 'rule' (did you mean rules?)", {"rule": []}),
                ("unknown key 'their'", {"rules": [{"ours": "a", "their": ["b"]}]}),
                ("a rule is an object", {"rules": ["a"]}), ("'prefix' is a text", {"rules": [rule], "prefix": 1}),
                ("'base' is the name", {"rules": [rule], "base": 1}),
                ("base 'gtp2': there is no such map", {"rules": [rule], "base": "gtp2"}),
                ("no map with all its rules: phi3", {"rules": [rule], "base": "phi3"}),
                ("'ignore' is a list", {"rules": [rule], "ignore": "a"}), ("ignore", {"rules": [rule], "ignore": [1]}),
                ("ours", {"rules": [{"theirs": ["b"]}]}), ("ours", {"rules": [{"ours": "", "theirs": ["b"]}]}),
                ("'theirs' is a list", {"rules": [{"ours": "a", "theirs": "b"}]}),
                ("1 to 8 names", {"rules": [{"ours": "a", "theirs": []}]}),
                ("1 to 8 names", {"rules": [{"ours": "a", "theirs": [str(i) for i in range(9)]}]}),
                ("has {i}", {"rules": [{"ours": "a{i}", "theirs": ["b"]}]}),
                ("has {i}", {"rules": [{"ours": "a", "theirs": ["b{i}"]}]}),
                ("twice", {"rules": [{"ours": "a{i}{i}", "theirs": ["b{i}"]}]}),
                ("a digit stands before", {"rules": [{"ours": "7{i}", "theirs": ["b{i}"]}]}),
                ("a digit stands before", {"rules": [{"ours": "a{i}", "theirs": ["b.7{i}"]}]}),
                ("twice; leave out one of them: a", {"rules": [rule, {"ours": "a", "theirs": ["c"]}]}),
                ("twice; leave out one of them: b", {"rules": [rule, {"ours": "c", "theirs": ["b"]}]}),
                ("twice; leave out one of them: b", {"rules": [rule], "ignore": ["b"]}),
                ("true or false", {"rules": [{**rule, "transpose": 1}]}),
                ("'tied' needs", {"rules": [{"ours": "a", "theirs": ["b", "c"], "tied": "d"}]}),
                ("'first' needs", {"rules": [{**rule, "first": "d"}]})):
            with self.subTest(says=says, content=content):
                self.refuse(says, content)
        source = self.file("a.safetensors", SAMPLE)
        self.bad(2, "convert", source, self.path("b.safetensors"), "--from", "gtp2", says=["gpt2, llama"])
        self.bad(2, "convert", source, self.path("b.safetensors"), "--from", "none.json", says=["none.json"])

    def test_no_tensors(self):
        path = self.map(rules=[{"ours": "a", "theirs": ["b"], "optional": True}])
        self.assertEqual(self.convert(self.file("a.safetensors", {}), "b.safetensors", "--from", path)[0], {})


if __name__ == "__main__":
    ckpt_case.main()
