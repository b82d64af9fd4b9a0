#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small GPT-2 with Hugging Face's names, made by NumPy, converted and loaded on several grids: the logits are those
of a GPT-2 in NumPy and float64. Converted back, it is the same, bit for bit. With its config.json it goes through
train, whose loss is that of the same windows of a text. `MADE` has losses by transformers.

usage: hugging_face_test.py QUADRILLE GPT_LOGITS TRAIN

Needs the Python package numpy; without it, it is skipped.
"""
import json
import math
import os
import subprocess
import sys
import unittest
import zlib

try:
    import numpy
except ImportError as error:
    print(f"skipped: {error}; install the Python package numpy")
    sys.exit(77)

import cases
import ckpt_files

LAYERS, HIDDEN, HEADS, CONTEXT, VOCABULARY = 3, 48, 4, 16, 131
GRIDS = ["1x1x1x1", "2x2x1x1", "1x1x2x2", "1x2x2x2"]
QUADRILLE = GPT_LOGITS = TRAIN = None


def gpt2(generator, dtype=numpy.float32):
    """Tensors as `GPT2Model.state_dict()` names and stores them."""
    def normal(*shape, scale=0.3):
        return (scale * generator.standard_normal(shape)).astype(dtype)

    tensors = {"wte.weight": normal(VOCABULARY, HIDDEN), "wpe.weight": normal(CONTEXT, HIDDEN),
               "ln_f.weight": 1 + normal(HIDDEN), "ln_f.bias": normal(HIDDEN)}
    for i in range(LAYERS):
        tensors |= {f"h.{i}.ln_1.weight": 1 + normal(HIDDEN), f"h.{i}.ln_1.bias": normal(HIDDEN),
                    f"h.{i}.attn.c_attn.weight": normal(HIDDEN, 3 * HIDDEN),
                    f"h.{i}.attn.c_attn.bias": normal(3 * HIDDEN),
                    f"h.{i}.attn.c_proj.weight": normal(HIDDEN, HIDDEN), f"h.{i}.attn.c_proj.bias": normal(HIDDEN),
                    f"h.{i}.ln_2.weight": 1 + normal(HIDDEN), f"h.{i}.ln_2.bias": normal(HIDDEN),
                    f"h.{i}.mlp.c_fc.weight": normal(HIDDEN, 4 * HIDDEN), f"h.{i}.mlp.c_fc.bias": normal(4 * HIDDEN),
                    f"h.{i}.mlp.c_proj.weight": normal(4 * HIDDEN, HIDDEN), f"h.{i}.mlp.c_proj.bias": normal(HIDDEN)}
    return tensors


def layer_norm(x, weight, bias, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    return centred / numpy.sqrt((centred ** 2).mean(-1, keepdims=True) + epsilon) * weight + bias


def attention(x, weight, bias, heads):
    hidden = x.shape[1]
    q, k, v = (part.reshape(-1, heads, hidden // heads).transpose(1, 0, 2)
               for part in numpy.split(x @ weight + bias, 3, axis=1))
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(hidden // heads)
    scores = numpy.where(numpy.tril(numpy.ones(scores.shape[1:])) > 0, scores, -numpy.inf)
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(-1, hidden)


def gelu_new(x):
    return 0.5 * x * (1 + numpy.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def logits_of(tensors, tokens, heads=HEADS, epsilon=1e-5):
    """GPT-2 in float64: one sequence."""
    t = {name: tensor.astype(numpy.float64) for name, tensor in tensors.items()}
    x = t["wte.weight"][tokens] + t["wpe.weight"][:len(tokens)]
    for i in range(sum(name.endswith(".ln_1.bias") for name in t)):
        def part(name, block=i):
            return t[f"h.{block}.{name}.weight"], t[f"h.{block}.{name}.bias"]
        weight, bias = part("attn.c_proj")
        x = x + attention(layer_norm(x, *part("ln_1"), epsilon), *part("attn.c_attn"), heads) @ weight + bias
        weight, bias = part("mlp.c_fc")
        middle = gelu_new(layer_norm(x, *part("ln_2"), epsilon) @ weight + bias)
        weight, bias = part("mlp.c_proj")
        x = x + middle @ weight + bias
    return layer_norm(x, t["ln_f.weight"], t["ln_f.bias"], epsilon) @ t.get("lm_head.weight", t["wte.weight"]).T


def numbers(name, *shape):
    """Uniform in [-1, 1), by splitmix64 of the name's CRC-32 and a counter: the same in every program."""
    z = numpy.uint64(zlib.crc32(name.encode()) << 32) + numpy.arange(math.prod(shape), dtype=numpy.uint64)
    with numpy.errstate(over="ignore"):
        z = z * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    z = z ^ (z >> numpy.uint64(31))
    return ((z >> numpy.uint64(11)).astype(numpy.float64) / 2.0 ** 52 - 1).reshape(shape)


# Networks of 3 blocks, 40 features, 5 heads, 32 positions and 256 bytes, and what they change. Loss: mean over 24
# windows of 16 bytes, by transformers 5.24 and torch in float64, from the tensors of made_gpt2() and made_text().
MADE = {
    "tied": ({}, 6.102289609764867),
    "a head of its own": ({"tie_word_embeddings": False}, 6.136869207335501),
    "epsilon": ({"layer_norm_epsilon": 0.1}, 6.1199182720698895),
    "narrow": ({"n_inner": 52}, 6.131497698265665),
}


def made_gpt2(changes):
    hidden, ffn = 40, changes.get("n_inner", 160)
    shapes = {"transformer.wte.weight": (256, hidden), "transformer.wpe.weight": (32, hidden),
              "transformer.ln_f.weight": (hidden,), "transformer.ln_f.bias": (hidden,)}
    for i in range(3):
        for name, shape in (("ln_1", (hidden,)), ("attn.c_attn", (hidden, 3 * hidden)),
                            ("attn.c_proj", (hidden, hidden)), ("ln_2", (hidden,)), ("mlp.c_fc", (hidden, ffn)),
                            ("mlp.c_proj", (ffn, hidden))):
            shapes |= {f"transformer.h.{i}.{name}.weight": shape, f"transformer.h.{i}.{name}.bias": shape[-1:]}
    if changes.get("tie_word_embeddings") is False:
        shapes["lm_head.weight"] = (256, hidden)
    return {name: (".ln_" in name and name.endswith("weight")) + 0.3 * numbers(name, *shape)
            for name, shape in shapes.items()}


def made_text():
    return ((numbers("text", 4000) + 1) * 128).astype(numpy.uint8).tobytes()


def windows(text, context, count):
    """Where examples/common/corpus.c begins the sequences of a validation."""
    begin = len(text) - len(text) // 10
    places = len(text) - begin - context
    return [begin + (places - 1) * i // (count - 1) for i in range(count)]


def loss_of(tensors, text, heads, epsilon, context, count):
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    losses = []
    for begin in windows(text, context, count):
        tokens = numpy.frombuffer(text[begin:begin + context + 1], numpy.uint8)
        logits = logits_of(tensors, tokens[:-1], heads, epsilon)
        highest = logits.max(-1)
        logs = numpy.log(numpy.exp(logits - highest[:, None]).sum(-1)) + highest
        losses.append((logs - logits[numpy.arange(context), tokens[1:]]).mean())
    return float(numpy.mean(losses))


def llama(generator):
    """Names of a llama, with grouped queries; nothing here runs one."""
    hidden, key, ffn = 32, 8, 88
    tensors = {"model.embed_tokens.weight": (50, hidden), "model.norm.weight": (hidden,),
               "lm_head.weight": (50, hidden)}
    for i in range(2):
        name = f"model.layers.{i}."
        tensors |= {name + "input_layernorm.weight": (hidden,), name + "post_attention_layernorm.weight": (hidden,),
                    name + "self_attn.q_proj.weight": (hidden, hidden), name + "self_attn.k_proj.weight": (key, hidden),
                    name + "self_attn.v_proj.weight": (key, hidden),
                    name + "self_attn.o_proj.weight": (hidden, hidden), name + "mlp.gate_proj.weight": (ffn, hidden),
                    name + "mlp.up_proj.weight": (ffn, hidden), name + "mlp.down_proj.weight": (hidden, ffn)}
    return {name: generator.standard_normal(shape).astype(numpy.float32) for name, shape in tensors.items()}


class HuggingFace(cases.Case):
    def setUp(self):
        super().setUp()
        self.generator = numpy.random.default_rng(5)

    def convert(self, *words):
        done = subprocess.run([QUADRILLE, "ckpt", "convert", *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def save(self, tensors, name):
        ckpt_files.write(self.path(name), {key: ("F32", list(tensor.shape), tensor.tobytes())
                                           for key, tensor in tensors.items()}, {"format": "pt"})

    def read(self, name):
        found, _ = ckpt_files.read(self.path(name))
        for key, (kind, _, _) in found.items():
            self.assertEqual(kind, "F32", key)
        return {key: numpy.frombuffer(data, numpy.float32).reshape(shape) for key, (_, shape, data) in found.items()}

    def check_same(self, tensors, others):
        self.assertEqual(set(tensors), set(others))
        for name, tensor in tensors.items():
            self.assertEqual(tensor.shape, others[name].shape, name)
            self.assertEqual(tensor.tobytes(), others[name].tobytes(), name)

    def check_logits(self, tensors, name, dtype):
        for grid in GRIDS:
            _, _, z, d = map(int, grid.split("x"))
            tokens = self.generator.integers(0, VOCABULARY, (z * d, CONTEXT), dtype=numpy.uint8)
            sizes = [LAYERS, HIDDEN, HEADS, CONTEXT, VOCABULARY]
            done = subprocess.run([GPT_LOGITS, self.path(name), *map(str, sizes), dtype, grid],
                                  input=tokens.tobytes(), capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            logits = numpy.frombuffer(done.stdout).reshape(z * d, CONTEXT, VOCABULARY)
            expected = numpy.stack([logits_of(tensors, row) for row in tokens])
            worst = abs(logits - expected).max()
            bound = 1e-12 * abs(expected).max() if dtype == "f64" else 1e-4
            self.assertLess(worst, bound, f"{dtype} on {grid}")

    def test_gpt2_there_and_back(self):
        tensors = gpt2(self.generator)
        self.save(tensors, "hf.safetensors")
        self.convert(self.path("hf.safetensors"), self.path("ours.safetensors"), "--from", "gpt2")
        self.check_logits(tensors, "ours.safetensors", "f32")
        self.check_logits(tensors, "ours.safetensors", "f64")
        self.convert(self.path("ours.safetensors"), self.path("back.safetensors"), "--to", "gpt2")
        self.check_same(tensors, self.read("back.safetensors"))

    def test_gpt2_with_a_prefix_buffers_and_a_head(self):
        tensors = gpt2(self.generator)
        named = {"transformer." + name: tensor for name, tensor in tensors.items()}
        named |= {f"transformer.h.{i}.attn.bias": numpy.ones((1, 1, CONTEXT, CONTEXT), numpy.float32)
                  for i in range(LAYERS)}
        named["lm_head.weight"] = tensors["wte.weight"]
        self.save(named, "hf.safetensors")
        self.convert(self.path("hf.safetensors"), self.path("ours.safetensors"), "--from", "gpt2")
        self.check_logits(tensors, "ours.safetensors", "f64")

    def test_gpt2_in_two_files(self):
        tensors = gpt2(self.generator)
        names = sorted(tensors)
        halves = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
        for file, some in halves.items():
            self.save({name: tensors[name] for name in some}, file)
        index = {"metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
                 "weight_map": {name: file for file, some in halves.items() for name in some}}
        with open(self.path("model.safetensors.index.json"), "w", encoding="ascii") as file:
            json.dump(index, file)
        self.convert(self.path("model.safetensors.index.json"), self.path("ours.safetensors"), "--from", "gpt2")
        self.check_logits(tensors, "ours.safetensors", "f32")
        self.convert(self.path("ours.safetensors"), self.path("back.safetensors"), "--to", "gpt2")
        self.check_same(tensors, self.read("back.safetensors"))

    def test_gpt2_in_bf16(self):
        """Numbers that bf16 has exactly are in F32, BF16 and F64 the same numbers."""
        tensors = gpt2(self.generator)
        for name, tensor in tensors.items():
            tensors[name] = (tensor.view(numpy.uint32) & 0xffff0000).astype(numpy.uint32).view(numpy.float32)
        self.save(tensors, "hf.safetensors")
        self.convert(self.path("hf.safetensors"), self.path("bf16.safetensors"), "--dtype", "bf16")
        self.convert(self.path("bf16.safetensors"), self.path("ours.safetensors"), "--from", "gpt2")
        self.check_logits(tensors, "ours.safetensors", "f64")
        self.convert(self.path("ours.safetensors"), self.path("back.safetensors"), "--to", "gpt2", "--dtype", "f32")
        self.check_same(tensors, self.read("back.safetensors"))

    def test_losses_of_folders(self):
        """ckpt convert DIR OUT and train --load OUT need no option of the network. A step at the rate 0 logs a
        validation in all digits."""
        text = made_text()
        with open(self.path("text"), "wb") as file:
            file.write(text)
        for number, (name, (changes, expected)) in enumerate(MADE.items()):
            tensors = made_gpt2(changes)
            os.makedirs(self.path("hf"), exist_ok=True)
            ckpt_files.write(self.path("hf/model.safetensors"), {
                key: ("F64", list(tensor.shape), tensor.tobytes()) for key, tensor in tensors.items()})
            config = {"model_type": "gpt2", "n_layer": 3, "n_embd": 40, "n_head": 5, "n_positions": 32,
                      "vocab_size": 256, **changes}
            with open(self.path("hf/config.json"), "w", encoding="ascii") as file:
                json.dump(config, file)
            self.convert(self.path("hf"), self.path("ours.safetensors"))
            here = loss_of(tensors, text, 5, changes.get("layer_norm_epsilon", 1e-5), 16, 24)
            self.assertLess(abs(here - expected), 1e-12, f"{name}: NumPy {here!r}")
            for grid in GRIDS if number == 0 else GRIDS[:1] + [GRIDS[number % 4]]:
                ranks = math.prod(map(int, grid.split("x")))
                log = self.path(f"{name} {grid} log")
                done = subprocess.run([TRAIN, self.path("text"), "--load", self.path("ours.safetensors"), "--ctx",
                                       "16", "--dtype", "f64", "--lr", "0", "--steps", "1", "--val-windows", "24",
                                       "--sample", "0", "--log", log, "--local", str(ranks), "--grid", grid],
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(log, encoding="ascii") as file:
                    loss = json.loads(file.read().splitlines()[-1])["val_loss"]
                self.assertLess(abs(loss - expected), 1e-12, f"{name} on {grid}: {loss!r}")

    def test_llama_there_and_back(self):
        tensors = llama(self.generator)
        self.save(tensors, "hf.safetensors")
        self.convert(self.path("hf.safetensors"), self.path("ours.safetensors"), "--from", "llama")
        self.assertEqual(self.read("ours.safetensors")["block1.qkv.weight"].shape, (48, 32))
        self.convert(self.path("ours.safetensors"), self.path("back.safetensors"), "--to", "llama")
        self.check_same(tensors, self.read("back.safetensors"))


if __name__ == "__main__":
    QUADRILLE, GPT_LOGITS, TRAIN = sys.argv[1:4]
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
