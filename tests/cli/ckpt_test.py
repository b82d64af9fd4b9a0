#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille ckpt: files of tensors are listed, checked, compared and copied; each way out of each of them.

usage: ckpt_test.py QUADRILLE
"""
import json
import math
import os
import pty
import random
import resource
import struct
import subprocess
import time
import zlib

import ckpt_case
from ckpt_case import SAMPLE, SEED, Case, read_bytes
from ckpt_files import pack, random_tensor, read, unpack


class Ls(Case):
    def test_table(self):
        path = self.file("a.safetensors", SAMPLE, {"format": "pt", "note": "a\x1b[31m\nb"})
        out = self.good("ls", path)
        rows = {line.split()[0]: line for line in out.splitlines()}
        self.assertIn("5 tensors, 11 elements, 52 bytes", out)
        self.assertIn("# note: a?[31m?b\n", out)
        self.assertRegex(rows["w"], r"w +F32 +\[2, 3\] +24 +-")
        self.assertRegex(rows["scalar"], r"F64 +\[\] +8 ")
        self.assertRegex(rows["Gewicht.größe"], r"BF16 +\[2\] +4 ")
        self.assertRegex(rows["total"], r" 52$")
        starts = {rows[name].index(f" {tensor[0]} ") for name, tensor in SAMPLE.items()}
        self.assertEqual(len(starts), 1)  # columns are characters

    def test_statistics(self):
        path = self.file("a.safetensors", SAMPLE)
        found = {tensor["name"]: tensor for tensor in self.json("ls", path, "--stats")["tensors"]}
        self.assertEqual(found["w"]["stats"], {"least": -2, "largest": 3, "mean": 0.625, "nan": 1, "infinite": 1})
        self.assertEqual(found["empty"]["stats"]["least"], None)
        self.assertEqual(found["steps"]["stats"], None)
        self.assertEqual(found["scalar"]["shape"], [])
        rows = {line.split()[0]: line.split() for line in self.good("ls", path, "--stats").splitlines()}
        self.assertEqual(rows["w"][-5:], ["-2", "3", "0.625", "1", "1"])
        self.assertEqual(rows["steps"][-5:], ["-"] * 5)
        self.assertNotIn("stats", self.json("ls", path)["tensors"][0])

    def test_statistics_of_many(self):
        """More elements than are read at once, with the ends of their range in each part."""
        n = 200_003
        values = [i % 16 / 8 for i in range(n)]
        for low, high in (5, 9), (70_001, 140_000), (199_999, n - 1), (n - 1, 130_000):
            own = list(values)
            own[low], own[high] = -300.0, 500.0
            path = self.file("a.safetensors", {"w": ("F32", [n], pack("F32", own))})
            stats = self.json("ls", path, "--stats")["tensors"][0]["stats"]
            self.assertEqual((stats["least"], stats["largest"]), (-300, 500))
            self.assertAlmostEqual(stats["mean"], sum(own) / n, delta=1e-9)

    def test_checksums(self):
        path = self.file("a.safetensors", SAMPLE)
        self.good("convert", path, self.path("b.safetensors"))
        for tensor in self.json("ls", self.path("b.safetensors"))["tensors"]:
            self.assertEqual(tensor["crc32"], f"{zlib.crc32(SAMPLE[tensor['name']][2]):08x}")
        self.assertIsNone(self.json("ls", path)["tensors"][0]["crc32"])

    def test_refusals(self):
        cut = read_bytes(self.file("a.safetensors", SAMPLE))[:-1]
        for name, content in ("cut", cut), ("empty", b""), ("other", b"PK\3\4" + 100 * b"x"), ("text", b"hello there"):
            with self.subTest(name):
                self.bad(2, "ls", self.path(name + ".safetensors", content), says=[name + ".safetensors"])
        self.bad(2, "ls", self.path("none.safetensors"), says=["none.safetensors", "No such file"])
        self.bad(2, "ls", self.folder, says=["is a folder with", "name one of them"])
        self.bad(2, "ls", says=["FILE is missing"])
        self.bad(2, "ls", "a", "b", says=["unexpected argument 'b'"])
        self.bad(2, "lx", "a", says=["unknown part 'lx' (did you mean ls?)"])
        self.bad(2, "ls", "a", "--stat=1", says=["takes no value"])

    def test_no_part(self):
        self.bad(2, says=["ls, verify, diff or convert"])
        for part in "ls", "verify", "diff", "convert":
            for words in ["a", "b", "c"], ["a", "--none"]:
                self.bad(2, part, *words, says=[f"quadrille: ckpt {part}: un", f"; see quadrille ckpt {part} --help"])
        self.bad(2, "verifi", says=["did you mean verify"])


class Verify(Case):
    def written(self):
        """A file with checksums, and its bytes."""
        self.good("convert", self.file("plain.safetensors", SAMPLE), self.path("a.safetensors"))
        return self.path("a.safetensors"), bytearray(read_bytes(self.path("a.safetensors")))

    def flip(self, data, at, bit):
        data[at] ^= 1 << bit
        path = self.path("b.safetensors", data)
        data[at] ^= 1 << bit
        return path

    def test_every_tensor(self):
        path, data = self.written()
        self.assertIn("5 sound, 0 damaged, 0 without", self.good("verify", path))
        self.assertEqual(self.json("verify", path), {"file": path, "tensors": 5, "checked": 5, "unchecked": 0,
                                                     "damaged": []})
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:begin])
        for name in ("w", "scalar", "Gewicht.größe", "steps"):
            with self.subTest(name):
                bad = self.flip(data, begin + header[name]["data_offsets"][1] - 1, 3)
                out = self.bad(4, "verify", bad, says=["1 of 5 tensors is damaged", name])
                self.assertIn(f"tensor {name} is damaged", out)
                found = self.json("verify", bad, code=4)
                self.assertEqual([tensor["name"] for tensor in found["damaged"]], [name])

    def test_header(self):
        path, data = self.written()
        choose = random.Random(SEED)
        for at in [*range(8), *(choose.randrange(8, 8 + struct.unpack("<Q", data[:8])[0]) for _ in range(50))]:
            bad = self.flip(data, at, choose.randrange(8))
            self.bad(4, "verify", bad)
            found = self.json("verify", bad, code=4)
            reason = found["damaged"][0]["reason"]
            self.assertIn("b.safetensors", reason)
            self.assertEqual(found, {"file": bad, "tensors": 0, "checked": 0, "unchecked": 0,
                                     "damaged": [{"name": None, "reason": reason}]})
        self.bad(4, "verify", self.path("cut.safetensors", data[:-1]))
        self.bad(2, "verify", path + ".none", says=["No such file"])
        self.bad(2, "verify", self.folder)
        self.bad(2, "verify", says=["FILE is missing"])

    def test_several_damaged(self):
        _, data = self.written()
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        data[begin] ^= 1
        data[-1] ^= 128
        out = self.bad(4, "verify", self.path("b.safetensors", data), says=["2 of 5 tensors are damaged: w and others"])
        self.assertEqual([line.startswith("damaged: ") for line in out.splitlines()], [True, True, False])

    def test_checksums_of_some(self):
        path, data = self.written()
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        contents = json.loads(data[8:begin])
        sums = json.loads(contents["__metadata__"]["crc32"])
        contents["__metadata__"] |= {"crc32": json.dumps({"w": sums["w"], "steps": sums["steps"]}),
                                     "header_crc32": 8 * "0"}
        header = json.dumps(contents, separators=(",", ":")).encode()
        header = header.replace(8 * b"0", f"{zlib.crc32(header):08x}".encode(), 1)
        path = self.path("b.safetensors", struct.pack("<Q", len(header)) + header + data[begin:])
        self.assertIn("5 tensors: 2 sound, 0 damaged, 3 without a checksum", self.good("verify", path))
        found = self.json("verify", path)
        self.assertEqual((found["checked"], found["unchecked"]), (2, 3))

    def test_without_checksums(self):
        path = self.file("a.safetensors", SAMPLE)
        self.assertIn("has no checksums: nothing could be checked", self.good("verify", path))
        found = self.json("verify", path)
        self.assertEqual((found["checked"], found["unchecked"]), (0, 5))
        self.assertIn("0 tensors", self.good("verify", self.file("none.safetensors", {})))


class Diff(Case):
    def test_equal(self):
        a = self.file("a.safetensors", SAMPLE)
        b = self.file("b.safetensors", dict(reversed(SAMPLE.items())))
        self.assertIn("5 tensors in both: 5 equal", self.good("diff", a, b))
        self.assertEqual(self.json("diff", a, b)["tensors"], [])

    def test_differences(self):
        a = {"w": ("F32", [2, 3], pack("F32", [1, 2, 3, 4, 5, 6])), "n": ("I64", [2], pack("I64", [1, 2])),
             "s": ("F32", [2], pack("F32", [0, 0])), "t": ("F32", [1], pack("F32", [0])), "a": ("U8", [], b"a")}
        b = {"w": ("F64", [2, 3], pack("F64", [1, 2, 3, 4.25, 5.5, 6])), "n": ("I64", [2], pack("I64", [1, 3])),
             "s": ("F32", [1, 2], pack("F32", [0, 0])), "t": ("I32", [1], pack("I32", [0])), "b": ("U8", [], b"a")}
        a, b = self.file("a.safetensors", a), self.file("b.safetensors", b)
        out = self.bad(4, "diff", a, b, says=["4 tensors by more than 0", "2 in only one"])
        self.assertIn("differs: w: 0.5 at [1, 1]; 2 of 6 elements differ\n", out)
        self.assertIn("differs: n: 1 of 16 bytes, the first in element [1]\n", out)
        self.assertIn("other shape: s: [2] and [1, 2]\n", out)
        self.assertIn("other type: t: F32 and I32\n", out)
        self.assertIn(f"only in {a}: a\n", out)
        self.assertIn(f"only in {b}: b\n", out)
        found = self.json("diff", a, b, code=4)
        w = found["tensors"][0]
        self.assertEqual((w["name"], w["largest"], w["at"], w["differing"]), ("w", 0.5, [1, 1], 2))
        self.assertEqual((found["only_in_first"], found["only_in_second"]), (["a"], ["b"]))

    def test_what_only_one_has(self):
        some = ("U8", [1], b"a")
        a = self.file("a.safetensors", {name: some for name in "abcde"})
        b = self.file("b.safetensors", {name: some for name in "exy"})
        self.assertIn("1 tensor in both: 1 equal, 0 within the tolerance, 0 different; 4 only in the first, 2 only in "
                      "the second\n", self.bad(4, "diff", a, b, says=["6 in only one"]))

    def test_tolerance(self):
        a = self.file("a.safetensors", {"w": ("F32", [2], pack("F32", [1, 2]))})
        b = self.file("b.safetensors", {"w": ("F16", [2], pack("F16", [1, 2.5]))})
        self.bad(4, "diff", a, b, "--tolerance", "0.49", says=["0.49"])
        self.assertIn("within tolerance: w: 0.5 at [1]", self.good("diff", a, b, "--tolerance", "0.5"))
        self.bad(2, "diff", a, b, "--tolerance", "-1", says=["--tolerance"])
        self.bad(2, "diff", a, b, "--tolerance", "nan", says=["--tolerance"])

    def test_not_a_number(self):
        quiet, other = struct.pack("<I", 0x7fc00000), struct.pack("<I", 0xffc00001)
        a = self.file("a.safetensors", {"w": ("F32", [3], quiet + pack("F32", [math.inf, 0]))})
        b = self.file("b.safetensors", {"w": ("F32", [3], other + pack("F32", [math.inf, -0.0]))})
        c = self.file("c.safetensors", {"w": ("F32", [3], pack("F32", [1, -math.inf, 0]))})
        self.good("diff", a, b)
        self.assertIn("inf at [0]; 2 of 3", self.bad(4, "diff", a, c, "--tolerance", "1e9"))
        self.assertIsNone(self.json("diff", a, c, code=4)["tensors"][0]["largest"])

    def test_many_elements(self):
        """More than are read at once."""
        n = 200_003
        values = [float(i % 1000) for i in range(n)]
        a = self.file("a.safetensors", {"w": ("F32", [n], pack("F32", values))})
        values[n - 1] += 2
        values[70_000] -= 1
        b = self.file("b.safetensors", {"w": ("F32", [n], pack("F32", values))})
        self.assertIn(f"2 at [{n - 1}]; 2 of {n}", self.bad(4, "diff", a, b))
        data = bytearray(3 * n)
        a = self.file("a.safetensors", {"w": ("U8", [n, 3], bytes(data))})
        data[3 * 150_000 + 1] = data[3 * 190_000 + 2] = data[-1] = 1
        b = self.file("b.safetensors", {"w": ("U8", [n, 3], bytes(data))})
        self.assertIn(f"w: 3 of {3 * n} bytes, the first in element [150000, 1]\n", self.bad(4, "diff", a, b))

    def test_the_first_of_equal_differences(self):
        values = [pack("F32", [0] * 6), pack("F32", [0, 1, 3, 3, 0, 3]), pack("F32", [3, 0, 0, 0, 0, 0])]
        a = self.file("a.safetensors", {name: ("F32", [2, 3], values[0]) for name in "xyz"})
        b = self.file("b.safetensors", {name: ("F32", [2, 3], values[i]) for i, name in enumerate("xyz")})
        out = self.bad(4, "diff", a, b)
        self.assertIn("differs: y: 3 at [0, 2]; 4 of 6 elements differ\n", out)
        self.assertIn("largest difference: 3 in y at [0, 2]\n", out)

    def test_refusals(self):
        a = self.file("a.safetensors", SAMPLE)
        self.bad(2, "diff", a, says=["two files"])
        self.bad(2, "diff", a, a, a, says=["unexpected argument"])
        self.bad(2, "diff", a, a + "x", says=["No such file"])


class Convert(Case):
    def test_copy(self):
        source = self.file("a.safetensors", SAMPLE, {"note": "kept", "format": "np"})
        tensors, metadata = self.convert(source, "b.safetensors")
        self.assertEqual(tensors, SAMPLE)
        self.assertEqual(list(tensors), list(SAMPLE))
        self.assertEqual((metadata["format"], metadata["note"]), ("pt", "kept"))

    def test_types(self):
        """To the nearest number; other types stay."""
        source = self.file("a.safetensors", SAMPLE)
        for kind in "F32", "F64", "BF16", "F16":
            tensors, _ = self.convert(source, "b.safetensors", "--dtype", kind.lower())
            self.assertEqual({name: tensor[0] for name, tensor in tensors.items()},
                             {**dict.fromkeys(SAMPLE, kind), "steps": "I64"})
            self.assertEqual(unpack(kind, tensors["scalar"][2]), [2.5])
            self.assertEqual(str(unpack(kind, tensors["w"][2])), "[1.0, -2.0, 3.0, nan, inf, 0.5]")
        self.bad(2, "convert", source, self.path("b.safetensors"), "--dtype", "i64", says=["f32, f64, bf16 or f16"])

    def test_many_elements(self):
        """More than are copied at once, in each type."""
        n = 900_001
        values = [(i * 7919 % 4001 - 2000) / 16 for i in range(n)]  # of 11 bits, which F16 has
        source = self.file("a.safetensors", {"w": ("F32", [n], pack("F32", values)), "s": SAMPLE["scalar"]})
        for kind in "F32", "F64", "F16":
            tensors, _ = self.convert(source, "b.safetensors", "--dtype", kind.lower())
            self.assertEqual(tensors["w"][2], pack(kind, values), kind)

    def test_weights(self):
        state = {"optimizer.m.w": SAMPLE["w"], "optimizer.v.w": SAMPLE["w"], "w": SAMPLE["w"]}
        metadata = {"optimizer": "{\"steps\": 3}", "note": "n", "quadrille": "{}"}
        source = self.file("a.safetensors", state, metadata)
        tensors, kept = self.convert(source, "b.safetensors", "--dtype", "bf16")
        self.assertEqual([tensors[name][0] for name in state], ["F32", "F32", "BF16"])
        self.assertEqual(kept["optimizer"], metadata["optimizer"])
        out = self.good("convert", source, self.path("b.safetensors"), "--weights")
        self.assertIn("2 tensors of the optimizer's state were left out", out)
        tensors, kept = read(self.path("b.safetensors"))
        self.assertEqual(list(tensors), ["w"])
        self.assertEqual({key for key in kept if "crc" not in key}, {"format", "note", "quadrille"})

    def test_never_replaces_its_input(self):
        source = self.file("a.safetensors", SAMPLE)
        before = read_bytes(source)
        os.symlink(source, self.path("link.safetensors"))
        os.link(source, self.path("hard.safetensors"))
        for name in "a.safetensors", "link.safetensors", "hard.safetensors":
            self.bad(2, "convert", source, self.path(name), says=[source])
        self.assertEqual(read_bytes(source), before)

    def test_names_of_outputs(self):
        source = self.file("a.safetensors", SAMPLE)
        for name in "b.bin", "b.PT", "x.y/../b.gguf", "b.safetensors.index.json":
            self.bad(2, "convert", source, self.path(name), says=["is the ending of another format than safetensors"])
        self.assertIn("/b: ", self.good("convert", source, self.path("b")))
        self.good("diff", source, self.path("b"))
        self.bad(2, "convert", source, says=["two files"])
        self.bad(2, "convert", source, self.path("none/b.safetensors"), says=["No such file"])

    def test_a_failure_leaves_the_old_file(self):
        target = self.path("b.safetensors", b"old")
        data = read_bytes(self.file("a.safetensors", {"w": ("F32", [1], pack("F32", [1]))}))
        self.bad(2, "convert", self.path("a.safetensors", data[:-1]), target)
        self.bad(2, "convert", self.file("a.safetensors", SAMPLE), target, "--to", "gpt2")
        self.assertEqual(read_bytes(target), b"old")
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.safetensors", "b.safetensors"])

    def test_damage_is_not_copied(self):
        """Neither with fresh checksums, nor as another type, nor to several files; but what is left out may be."""
        tensors = {"w": SAMPLE["w"], "optimizer.m.w": ("F32", [2], pack("F32", [1, 2])), "x": SAMPLE["scalar"]}
        self.good("convert", self.file("plain.safetensors", tensors), self.path("a.safetensors"))
        data = bytearray(read_bytes(self.path("a.safetensors")))
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:begin])
        target = self.path("b.safetensors", b"old")
        for name in tensors:
            with self.subTest(name):
                at = begin + header[name]["data_offsets"][0]
                data[at] ^= 1
                source = self.path("a.safetensors", data)
                data[at] ^= 1
                before = sorted(os.listdir(self.folder))
                for words in [], ["--dtype", "bf16"], ["--max-size", "8"]:
                    out = self.bad(4, "convert", source, target, *words, says=[f"tensor {name} is damaged", source])
                    self.assertEqual(out, "")
                self.assertEqual(sorted(os.listdir(self.folder)), before)
                self.assertEqual(read_bytes(target), b"old")
        self.path("a.safetensors", data)
        self.convert(self.path("a.safetensors"), "c.safetensors")
        data[begin + header["optimizer.m.w"]["data_offsets"][0]] ^= 1
        self.convert(self.path("a.safetensors", data), "d.safetensors", "--weights")

    def test_a_full_disk(self):
        source = self.file("a.safetensors", {"w": ("U8", [100_000], bytes(100_000))})
        self.bad(1, "convert", source, self.path("b.safetensors"), says=["b.safetensors"],
                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)))
        self.assertEqual(os.listdir(self.folder), ["a.safetensors"])


class Shards(Case):
    def test_several_files(self):
        tensors = {f"t{i}": random_tensor(random.Random(i), "F32", [300]) for i in range(5)}
        tensors["large"] = random_tensor(random.Random(9), "F32", [700])
        tensors["empty"] = ("F32", [0], b"")
        source = self.file("a.safetensors", tensors)
        out = self.good("convert", source, self.path("b.safetensors"), "--max-size", "2400")
        self.assertIn("b.safetensors.index.json: 7 tensors, 8800 bytes, in several files", out)
        self.assertFalse(os.path.exists(self.path("b.safetensors")))
        index = json.loads(read_bytes(self.path("b.safetensors.index.json")))
        names = [f"b-{i:05}-of-00004.safetensors" for i in range(1, 5)]
        self.assertEqual(index["metadata"], {"total_size": 8800})
        numbers = [0, 0, 1, 1, 2, 3, 3]
        self.assertEqual(index["weight_map"], {name: names[i] for name, i in zip(tensors, numbers)})
        for name in names:
            found, metadata = read(self.path(name))
            self.assertEqual(metadata["format"], "pt")
            self.assertEqual(found, {key: tensors[key] for key, where in index["weight_map"].items() if where == name})
        self.good("diff", source, self.path("b.safetensors.index.json"))
        self.assertIn("7 sound", self.good("verify", self.path("b.safetensors.index.json")))
        self.assertEqual(len(self.json("ls", self.path("b.safetensors.index.json"))["tensors"]), 7)
        self.bad(2, "convert", self.path("b.safetensors.index.json"), self.path("b.safetensors"), "--max-size", "2400",
                 says=["b-00001-of-00004.safetensors"])
        self.assertEqual(self.convert(self.path("b.safetensors.index.json"), "c.safetensors")[0], tensors)
        out = self.good("convert", source, self.path("d"), "--max-size", "2400")
        self.assertIn("/d.safetensors.index.json: 7 tensors", out)
        self.assertTrue(os.path.exists(self.path("d-00004-of-00004.safetensors")))
        self.good("diff", source, self.path("d.safetensors.index.json"))

    def test_one_file_is_enough(self):
        source = self.file("a.safetensors", SAMPLE)
        self.assertEqual(self.convert(source, "b.safetensors", "--max-size", "5G")[0], SAMPLE)
        self.assertFalse(os.path.exists(self.path("b.safetensors.index.json")))
        self.bad(2, "convert", source, self.path("b.safetensors"), "--max-size", "5GB", says=["--max-size"])

    def test_a_failure_replaces_none_of_them(self):
        tensors = {f"t{i}": ("U8", [3000], bytes([i]) * 3000) for i in range(3)}
        words = [self.path("b.safetensors"), "--max-size", "4K"]
        self.good("convert", self.file("a.safetensors", tensors), *words)
        before = {name: read_bytes(self.path(name)) for name in os.listdir(self.folder) if name[0] == "b"}
        self.assertEqual(len(before), 4)
        tensors = {"t0": tensors["t1"], "t1": tensors["t0"], "t2": ("U8", [30_000], bytes(30_000))}
        self.bad(1, "convert", self.file("a.safetensors", tensors), *words,
                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)))
        after = {name: read_bytes(self.path(name)) for name in os.listdir(self.folder) if name != "a.safetensors"}
        self.assertEqual(after, before)

    def test_an_index_that_fails_replaces_none_of_them(self):
        """Its names need more bytes than any of the files has."""
        names = [f"{i:02}" + 300 * "n" for i in range(20)]
        words = [self.path("b.safetensors"), "--max-size", "1"]
        self.good("convert", self.file("a.safetensors", {name: ("U8", [1], b"a") for name in names}), *words)
        before = {name: read_bytes(self.path(name)) for name in os.listdir(self.folder) if name[0] == "b"}
        self.assertEqual(len(before), 21)
        self.bad(1, "convert", self.file("a.safetensors", {name: ("U8", [1], b"b") for name in names}), *words,
                 says=["index.json"], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)))
        after = {name: read_bytes(self.path(name)) for name in os.listdir(self.folder) if name != "a.safetensors"}
        self.assertEqual(after, before)

    def test_too_many_files(self):
        tensors = {f"t{i}": ("U8", [1], b"a") for i in range(401)}
        self.bad(2, "convert", self.file("a.safetensors", tensors), self.path("b.safetensors"), "--max-size", "1",
                 says=["401 files", "400 at most"])
        del tensors["t0"]
        self.good("convert", self.file("a.safetensors", tensors), self.path("b.safetensors"), "--max-size", "1")
        self.assertIn("400 sound", self.good("verify", self.path("b.safetensors.index.json")))

    def test_damage_in_one_of_them(self):
        tensors = {f"t{i}": random_tensor(random.Random(i), "F32", [300]) for i in range(2)}
        self.good("convert", self.file("a.safetensors", tensors), self.path("b.safetensors"), "--max-size", "1K")
        second = self.path("b-00002-of-00002.safetensors")
        data = bytearray(read_bytes(second))
        data[-1] ^= 1
        self.path("b-00002-of-00002.safetensors", data)
        out = self.bad(4, "verify", self.path("b.safetensors.index.json"), says=["t1"])
        self.assertIn(second, out)
        os.remove(second)
        self.bad(4, "verify", self.path("b.safetensors.index.json"), says=[second])


def read_all(master):
    """What was written to a terminal that nobody has open any more."""
    try:
        while more := os.read(master, 1 << 16):
            yield more
    except OSError:  # there is no more
        return


class Terminal(Case):
    def test_progress_is_for_terminals(self):
        """A file with a hole of 1 GiB, whose reading takes a while; the line is cleared in the end."""
        header = json.dumps({"w": {"dtype": "F16", "shape": [1 << 29], "data_offsets": [0, 1 << 30]}}).encode()
        source = self.path("a.safetensors", struct.pack("<Q", len(header)) + header)
        os.truncate(source, 8 + len(header) + (1 << 30))
        master, slave = pty.openpty()
        began = time.monotonic()
        done = subprocess.run([ckpt_case.ARGUMENTS.quadrille, "ckpt", "ls", source, "--stats"], stdout=subprocess.PIPE,
                              stderr=slave, timeout=120)
        took = time.monotonic() - began
        os.close(slave)
        text = b"".join(read_all(master))
        os.close(master)
        self.assertEqual(done.returncode, 0)
        if took < 0.7:
            self.skipTest("this machine is too fast to see any progress")
        self.assertRegex(text, rb"^\r\x1b\[K\d+ % of 1.1 GB read")
        self.assertTrue(text.endswith(b"\r\x1b[K"), text)


class Help(Case):
    def test_help(self):
        for part in "ls", "verify", "diff", "convert":
            for words in ([part, "--help"], [part, "-h"]):
                out = self.good(*words)
                self.assertIn(f"usage: quadrille ckpt {part} FILE", out)
                self.assertIn(f"\nExamples:\n  quadrille ckpt {part} ", out)
            self.assertIn(f"  {part} ", self.good("--help"))


if __name__ == "__main__":
    ckpt_case.main()
