#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of tensors for tests of `quadrille ckpt`: written and read with the standard library alone."""
import json
import random
import struct

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}
CODES = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "U8": "B"}


def count(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def pack(kind, values):
    """The bytes of numbers; those of BF16 are cut, and must have few digits."""
    if kind == "BF16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{CODES[kind]}", *values)


def unpack(kind, data):
    if kind == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    return list(struct.unpack(f"<{len(data) // BYTES[kind]}{CODES[kind]}", data))


def random_tensor(choose, kind, shape):
    """(type, shape, bytes), of numbers that all types have."""
    return kind, list(shape), pack(kind, [choose.randrange(-128, 128) / 16 for _ in range(count(shape))])


def write(path, tensors, metadata=None):
    """tensors: {name: (type, shape, bytes)}"""
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (kind, shape, data) in tensors.items():
        assert len(data) == BYTES[kind] * count(shape), name
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, ensure_ascii=False).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def read(path):
    """({name: (type, shape, bytes)}, metadata)"""
    with open(path, "rb") as file:
        data = file.read()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    data = data[8 + length:]
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}, metadata


def rows_of(tensor):
    """The rows of a matrix, as bytes of each element."""
    kind, (n_rows, n_cols), data = tensor
    each = BYTES[kind]
    return [[data[(i * n_cols + j) * each:(i * n_cols + j + 1) * each] for j in range(n_cols)] for i in range(n_rows)]


def transposed(tensor):
    kind, (n_rows, n_cols), _ = tensor
    rows = rows_of(tensor)
    return kind, [n_cols, n_rows], b"".join(rows[i][j] for j in range(n_cols) for i in range(n_rows))


def joined(*tensors):
    return tensors[0][0], [sum(t[1][0] for t in tensors), *tensors[0][1][1:]], b"".join(t[2] for t in tensors)


def gpt2(seed, n_blocks=2, hidden=6, vocab=11, context=5, kind="F32", prefix=""):
    """({name: tensor} as Hugging Face stores a GPT-2, the same as this library does)"""
    choose = random.Random(seed)
    theirs, ours = {}, {}

    def add(name, our, shape, is_transposed=False):
        tensor = random_tensor(choose, kind, shape)
        theirs[prefix + name] = tensor
        ours[our] = transposed(tensor) if is_transposed else tensor
    add("wte.weight", "embedding.weight", [vocab, hidden])
    add("wpe.weight", "embedding.positions", [context, hidden])
    for i in range(n_blocks):
        for name, our, width, depth in (("attn.c_attn", "qkv", 3, 1), ("attn.c_proj", "proj", 1, 1),
                                        ("mlp.c_fc", "fc", 4, 1), ("mlp.c_proj", "fc2", 1, 4)):
            width, depth = width * hidden, depth * hidden
            add(f"h.{i}.{name}.weight", f"block{i}.{our}.weight", [depth, width], True)
            add(f"h.{i}.{name}.bias", f"block{i}.{our}.bias", [width])
        for name, our in ("ln_1", "norm1"), ("ln_2", "norm2"):
            add(f"h.{i}.{name}.weight", f"block{i}.{our}.gamma", [hidden])
            add(f"h.{i}.{name}.bias", f"block{i}.{our}.beta", [hidden])
    add("ln_f.weight", "norm.gamma", [hidden])
    add("ln_f.bias", "norm.beta", [hidden])
    return theirs, ours


def llama(seed, n_blocks=2, hidden=8, keys=4, inner=12, vocab=10, kind="BF16", has_bias=False):
    choose = random.Random(seed)
    theirs, ours = {}, {}

    def add(our, parts, *shape):
        """Parts: names and rows."""
        for name, n_rows in parts:
            theirs[name] = random_tensor(choose, kind, [n_rows, *shape])
        ours[our] = joined(*(theirs[name] for name, _ in parts))
    add("embedding.weight", [("model.embed_tokens.weight", vocab)], hidden)
    for i in range(n_blocks):
        layer, block = f"model.layers.{i}.", f"block{i}."
        widths = [(layer + f"self_attn.{part}_proj", n) for part, n in (("q", hidden), ("k", keys), ("v", keys))]
        add(block + "qkv.weight", [(name + ".weight", n) for name, n in widths], hidden)
        if has_bias:
            add(block + "qkv.bias", [(name + ".bias", n) for name, n in widths])
        add(block + "proj.weight", [(layer + "self_attn.o_proj.weight", hidden)], hidden)
        add(block + "fc.weight", [(layer + f"mlp.{part}_proj.weight", inner) for part in ("gate", "up")], hidden)
        add(block + "fc2.weight", [(layer + "mlp.down_proj.weight", hidden)], inner)
        add(block + "norm1.gamma", [(layer + "input_layernorm.weight", hidden)])
        add(block + "norm2.gamma", [(layer + "post_attention_layernorm.weight", hidden)])
    add("norm.gamma", [("model.norm.weight", hidden)])
    add("head.weight", [("lm_head.weight", vocab)], hidden)
    return theirs, ours
