#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train on files of tokens: each layout, written here as its description says, trains like the text that it was
made of; mixtures, documents, runs that go on elsewhere, what is refused. With NumPy also what it writes.

usage: data_test.py EXAMPLES_DIR
"""
import array
import json
import math
import os
import struct
import subprocess

import cases
from checkpoint_test import TINY, Case, words_of

TYPES = {"B": 1, "H": 8, "i": 4, "q": 5}  # of Megatron
TRAIN = [*TINY[:-2], "--sample", "12", "--steps", "4", "--dtype", "f64"]


def ints(magic, version, tokens, code, fourth=0):
    """A header of 256 int32, and tokens."""
    head = struct.pack("<4i", magic, version, len(tokens), fourth).ljust(1024, b"\0")
    return head + array.array(code, tokens).tobytes()


def index(lengths, code, documents):
    """Megatron's .idx of sequences of these lengths."""
    size = array.array(code).itemsize
    places = [size * sum(lengths[:i]) for i in range(len(lengths))]
    return (b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, TYPES[code], len(lengths), len(documents)) +
            array.array("i", lengths).tobytes() + array.array("q", places + documents).tobytes())


class Data(Case):
    def setUp(self):
        super().setUp()
        with open(self.text, "rb") as file:
            self.tokens = list(file.read())

    def losses(self, *words, grid="1x1x1x1", code=0):
        """Those of all steps; without a failure."""
        log = self.path("run.jsonl")
        self.said = self.run_words(words_of(grid, *words, "--log", log), code)
        if code:
            return self.said
        with open(log, encoding="ascii") as file:
            lines = [json.loads(line) for line in file][1:]
        os.remove(log)
        return [[line[key] for key in ("loss", "val_loss") if key in line] for line in lines]

    def train(self, name, *words, **more):
        return self.losses("--data", self.path(name), *TRAIN, *words, **more)

    def megatron(self, name, code, lengths, documents):
        self.write(name + ".bin", array.array(code, self.tokens).tobytes())
        self.write(name + ".idx", index(lengths, code, documents))

    def lines(self):
        """Lengths of the text's lines."""
        return [len(line) + 1 for line in bytes(self.tokens).split(b"\n")[:-1]]

    def test_all_layouts_train_alike(self):
        wanted = self.losses(self.text, *TRAIN)
        self.assertIn("nats per byte", self.said)
        tokens = self.tokens
        self.write("llmc.bin", ints(20240520, 1, tokens, "H"))
        self.write("llama3.bin", ints(20240801, 7, tokens, "i"))
        self.write("nemo.bin", ints(278895051, 1, tokens, "H", 2))
        for name in ("llmc.bin", "llama3.bin", "nemo.bin", "text.txt"):
            self.assertEqual(self.train(name), wanted, name)
        self.assertIn("nats per byte", self.said)
        for code in TYPES:
            self.megatron("m" + code, code, self.lines(), [])
            self.assertEqual(self.train(f"m{code}.bin"), wanted, code)
        self.assertIn("nats per token", self.said)
        for name, code in (("uint16", "H"), ("int32", "i"), ("uint32", "I"), ("text", "B")):
            self.write("raw.bin", array.array(code, tokens).tobytes())
            self.assertEqual(self.train("raw.bin", "--tokens", name), wanted, name)
        for i, part in enumerate((tokens[:1000], tokens[1000:1001], tokens[1001:])):
            self.write(f"part{i}.bin", ints(20240520, 1, part, "H"))
        self.assertEqual(self.train("part*.bin"), wanted)

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("there is no NumPy")
        wanted = self.losses(self.text, *TRAIN)
        for kind in ("u1", "u2", "u4", "i2", "i4", "i8"):
            numpy.save(self.path("a.npy"), numpy.array(self.tokens, dtype=kind))
            self.assertEqual(self.train("a.npy"), wanted, kind)

    def test_documents(self):
        """Lines, by the token that ends them and by an index; what one would predict of the next is left out."""
        lengths = self.lines()
        self.megatron("m", "H", lengths, list(range(len(lengths) + 1)))
        by_token = self.train("m.bin", "--documents", "10")
        self.assertEqual(self.train("m.bin", "--documents", "idx"), by_token)
        self.assertEqual(self.losses(self.text, *TRAIN, "--documents", "10"), by_token)
        self.assertNotEqual(self.train("m.bin"), by_token)
        for one, other in zip(by_token, self.train("m.bin", "--documents", "idx", grid="2x1x2x1")):
            for a, b in zip(one, other):
                self.assertLess(abs(a - b), 1e-9)

    def test_a_document_is_read_alone(self):
        """Sequences that hold one document each have the loss of each alone: of a text of one line per window, the loss
        with documents is that of a text where the lines before were others."""
        lines = [bytes((65 + (i * k) % 26 for k in range(7))) + b"\n" for i in range(80)]
        save = self.path("a")
        self.losses(self.write("one", b"".join(lines)), *TRAIN, "--ctx", "24", "--save", save)
        loss = []
        for first in (b"ABCDEFG\n", b"zyxwvut\n"):
            text = self.write("short", first + lines[3] + lines[4])
            done = cases.start(*words_of("1x1x1x1", "--load", save, "--eval", text, "--documents", "10"))
            self.assertEqual(done.returncode, 0, done.err)
            loss.append(json.loads(done.out))
        self.assertEqual([one["tokens"] for one in loss], [3 * 7] * 2)
        whole = 3 * 7 * (loss[0]["loss"] - loss[1]["loss"])
        alone = []
        for first in (b"ABCDEFG\n", b"zyxwvut\n"):
            done = cases.start(*words_of("1x1x1x1", "--load", save, "--eval", self.write("short", first)))
            alone.append(7 * json.loads(done.out)["loss"])
        self.assertLess(abs(whole - (alone[0] - alone[1])), 1e-5)

    def logged(self, *words):
        """Loss and norm of the gradient of each step."""
        log = self.path("run.jsonl")
        self.said = self.run_words(words_of("1x1x1x1", *words, "--log", log), 0)
        lines = [json.loads(line) for line in self.read("run.jsonl").splitlines()][1:]
        os.remove(log)
        return [(line["loss"], line["gradient_norm"]) for line in lines]

    def test_only_targets_count(self):
        """A sequence without any changes nothing; a batch without any has no loss and no gradient."""
        self.write("a.bin", ints(20240520, 1, self.tokens, "H"))
        self.write("ends.bin", ints(20240520, 1, [10] * len(self.tokens), "H"))
        a, ends = self.path("a.bin"), self.path("ends.bin")
        words = [*TRAIN[:-6], "--steps", "4", "--dtype", "f64", "--sample", "0", "--documents", "10", "--clip", "0"]
        alone = self.logged("--data", a, *words, "--batch", "2")
        for micro in ("4", "1"):
            both = self.logged("--data", f"{a},{ends}", *words, "--batch", "4", "--micro-batch", micro)
            for one, other in zip(alone, both):
                for x, y in zip(one, other):
                    self.assertAlmostEqual(x, y, delta=1e-9 * abs(x))
        for batch in ("1", "4"):
            self.assertEqual(self.logged("--data", ends, *words, "--batch", batch), [(None, 0)] * 4)
            self.assertIn("no target in the validation's windows", self.said)
            self.assertNotIn("nan", self.said)

    def test_samples_see_their_document(self):
        """What stands before the token that ends one changes nothing, with positions that are relative."""
        self.write("a.bin", ints(20240520, 1, self.tokens, "H"))
        config = self.write("llama/config.json", json.dumps({
            "model_type": "llama", "hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 3,
            "intermediate_size": 40, "num_hidden_layers": 2, "vocab_size": 256, "max_position_embeddings": 16,
            "rms_norm_eps": 1e-5}))
        def sample(prompt, *more):
            done = cases.start(*words_of("1x1x1x1", "--data", self.path("a.bin"), "--model", config, "--steps", "4",
                                         "--val-windows", "1", "--sample", "5", "--temperature", "0", "--prompt",
                                         prompt, *more))
            self.assertEqual(done.returncode, 0, done.err)
            return done.out.split()[-5:]
        prompts = ("10 70", "65 66 67 10 70", "80 10 99 99 98 97 10 70")
        wanted = sample(prompts[0], "--documents", "10")
        for prompt in prompts[1:]:
            self.assertEqual(sample(prompt, "--documents", "10"), wanted)

    def test_a_mixture_goes_on_elsewhere(self):
        """The same losses, on another grid and with other micro-batches, as without the stop."""
        self.write("a.bin", ints(20240520, 1, self.tokens, "H"))
        data = f"{self.path('a.bin')}:3,{self.text}:1"
        words = ["--data", data, *TRAIN[:-4], "--dtype", "f64", "--steps", "8", "--sample", "0"]
        wanted = self.losses(*words)
        save = self.path("save")
        self.losses(*words, "--save", save, "--stop-after", "3")
        got = self.losses(*words, "--resume", save, "--micro-batch", "1", grid="2x1x1x2")
        for one, other in zip(wanted[3:], got):
            self.assertLess(abs(one[0] - other[0]), 1e-9)
        self.assertEqual(len(got), 5)
        other = [*words[:1], data.replace(":3", ":2"), *words[2:]]
        self.losses(*other, "--resume", save)
        self.assertIn(f"until step 3 the run read {data} (", self.said)
        self.assertIn(f"from now on it reads {other[1]} (", self.said)
        self.assertIn("its tokens are numbers, but those of text.txt are bytes",
                      self.losses(self.text, *words[2:], "--resume", save, code=2))

    def test_another_vocabulary(self):
        self.write("a.bin", ints(20240520, 1, [5 * token for token in self.tokens], "H"))
        self.assertIn("but tokens are from 0 to 255", self.train("a.bin", code=2))
        losses = self.train("a.bin", "--vocab", "700", "--prompt", "50 260,265")
        self.assertLess(abs(losses[0][0] - math.log(700)), 1)
        done = cases.start(*words_of("1x1x1x1", "--data", self.path("a.bin"), *TRAIN, "--vocab", "700",
                                     "--prompt", "5"))
        numbers = [int(word) for word in done.out.split()]
        self.assertEqual((len(numbers), numbers[0]), (13, 5))
        said = self.train("a.bin", "--vocab", "700", "--prompt", "700", code=2)
        self.assertIn("--prompt 700", said)
        self.assertEqual(len(said.splitlines()), 1, said)  # before the first step

    def test_refusals(self):
        self.write("raw.bin", array.array("H", [300 + token for token in self.tokens]).tobytes())
        self.write("a.bin", ints(20240520, 1, self.tokens, "H"))
        self.write("eval.bin", ints(20240522, 1, self.tokens, "H"))
        os.mkfifo(self.path("pipe"))
        path = self.path
        for words, part in ((["--data", path("raw.bin")], "begins as uint16 348 358 "),
                            (["--data", path("eval.bin")], "an evaluation for llm.c"),
                            (["--data", path("pipe")], "cannot be read twice"),
                            ([path("pipe")], "cannot be read twice"),
                            (["--data", self.folder], "is a folder"),
                            (["--data", path("a.bin") + ":0"], "has weight 0"),
                            (["--data", f"{path('a.bin')}:1,{path('*a.bin')}"], "is named twice"),
                            (["--data", path("a.bin"), "--documents", "idx"], "no .idx"),
                            (["--data", path("a.bin"), "--documents", "-1"], "--documents -1: give the number"),
                            (["--data", path("a.bin"), "--documents", "256"], "end with token 256"),
                            (["--data", path("a.bin") + ":nan," + self.text], "a.bin has weight nan"),
                            (["--data", path("a.bin") + ",," + self.text], "a name is missing beside a comma"),
                            (["--data", ","], "a name is missing beside a comma"),
                            (["--data", path("a")], "a.bin; name that"),
                            (["--data", path("a.bin"), "--ctx", "4096"], "40970 are needed"),
                            (["--data", path("a.bin"), self.text], "leave one of them out")):
            said = self.run_words(words_of("1x1x1x1", *words), 2)
            self.assertIn(part, said)
            self.assertEqual(len(said.splitlines()), 1, said)

    def test_a_file_that_shrinks(self):
        """While the run goes on: a sentence, and no signal."""
        self.write("a.bin", ints(20240520, 1, self.tokens, "H"))
        words = words_of("1x1x1x1", "--data", self.path("a.bin"), *TRAIN[:-4], "--steps", "1000000", "--every", "0.1")
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True)
        self.addCleanup(process.kill)
        for _ in range(3):  # the grid, the network, the first steps
            process.stderr.readline()
        os.truncate(self.path("a.bin"), 5000)
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 2, said)
        self.assertIn("and now has 5000; do not change it", said)


if __name__ == "__main__":
    cases.main("examples_dir", "--mpiexec")
