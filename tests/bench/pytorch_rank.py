#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of what PyTorch does for comparison: the network of examples/train, or one of its layers.

usage, in each rank: pytorch_rank.py '{"case": "gpt", "llama" or "layer", "dtype": "f32" or "bf16" (autocast),
                                       "way": "eager", "compile", "ddp", "fsdp", "hsdp" or "tp", "layers": ...,
                                       see pytorch.py}'
Prints the median seconds of a step, or of a forward and backward, of the slowest rank. Ranks find each other over gloo.
"""
import json
import os
import random
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

ASKED = json.loads(sys.argv[1])
RANK, N_RANKS = int(os.environ.get("PMI_RANK", "0")), int(os.environ.get("PMI_SIZE", "1"))
VOCABULARY, WARMUP = 256, 3


class Block(nn.Module):
    """Features of q, k and v alternate by head, so that a column of its weight belongs to one head."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.head = hidden // heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, context, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, context, -1, 3, self.head).permute(3, 0, 2, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, context, -1))
        return x + self.fc2(functional.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, hidden, heads, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, hidden), nn.Embedding(context, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, VOCABULARY, bias=False)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class LlamaBlock(nn.Module):
    def __init__(self, hidden, heads, key_heads, ffn):
        super().__init__()
        self.head, self.key_heads = hidden // heads, key_heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden, 1e-5), nn.RMSNorm(hidden, 1e-5)
        self.qkv = nn.Linear(hidden, hidden + 2 * key_heads * self.head, bias=False)
        self.proj = nn.Linear(hidden, hidden, bias=False)
        self.gate_up, self.down = nn.Linear(hidden, 2 * ffn, bias=False), nn.Linear(ffn, hidden, bias=False)

    def forward(self, x, turns):
        batch, context, hidden = x.shape
        widths = [hidden, self.key_heads * self.head, self.key_heads * self.head]
        q, k, v = (part.view(batch, context, -1, self.head).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(widths, 2))
        attended = functional.scaled_dot_product_attention(turn(q, turns), turn(k, turns), v, is_causal=True,
                                                           enable_gqa=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, context, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, 2)
        return x + self.down(functional.silu(gate) * up)


def turn(x, turns):
    """Rotary positions: columns i and i + d/2 are a pair."""
    cosines, sines = (part.to(x.dtype) for part in turns)
    first, second = x.chunk(2, 3)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), 3)


class Llama(nn.Module):
    def __init__(self, layers, hidden, heads, context):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, hidden)
        self.blocks = nn.ModuleList(LlamaBlock(hidden, heads, ASKED["key_heads"], ASKED["ffn"]) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(hidden, 1e-5), nn.Linear(hidden, VOCABULARY, bias=False)
        size = hidden // heads
        angles = torch.outer(torch.arange(context), 1e4 ** (-torch.arange(0, size, 2) / size))
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, (self.cosines, self.sines))
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def shard(model):
    """Weights are sharded, and gathered again in the backward (ZeRO-3)."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (N_RANKS,))
    if ASKED["way"] == "hsdp":  # within the two ranks of a node only; nodes have copies
        mesh = init_device_mesh("cpu", (N_RANKS // 2, 2), mesh_dim_names=("copies", "shards"))
    for block in getattr(model, "blocks", ()):
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
    return fully_shard(model, mesh=mesh, reshard_after_forward=True)


def split(block):
    """Megatron's tensor parallelism."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    plan = {"qkv": ColwiseParallel(), "proj": RowwiseParallel(), "fc": ColwiseParallel(), "fc2": RowwiseParallel()}
    return parallelize_module(block, init_device_mesh("cpu", (N_RANKS,)), plan)


def prepare(model):
    way = ASKED["way"]
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if way == "compile":
        return torch.compile(model)
    return {"fsdp": shard, "hsdp": shard, "tp": split}.get(way, lambda same: same)(model)


def autocast():
    return torch.autocast("cpu", torch.bfloat16, enabled=ASKED["dtype"] == "bf16")


def slowest(times):
    """The median of what the slowest rank took."""
    times = torch.tensor(times, dtype=torch.float64)
    if N_RANKS > 1:
        dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return statistics.median(times[WARMUP:].tolist())


def time_layer():
    """Forward and backward of one layer, with the gradient of its input."""
    sequences = ASKED["sequences"] // (1 if ASKED["way"] == "tp" else N_RANKS)
    model = prepare(Block(ASKED["hidden"], ASKED["heads"]))
    x = torch.randn(sequences, ASKED["context"], ASKED["hidden"], requires_grad=True)
    gradient, times = torch.randn(x.shape), []
    for _ in range(WARMUP + ASKED["steps"]):
        x.grad = None
        model.zero_grad()
        if N_RANKS > 1:
            dist.barrier()
        began = time.monotonic()
        with autocast():
            y = model(x)
        y.backward(gradient)
        times.append(time.monotonic() - began)
    return slowest(times)


def time_steps():
    """Whole steps: batch, forward, backward, clipping, AdamW, and the loss as a number."""
    context, sequences = ASKED["context"], ASKED["sequences"] // N_RANKS
    micro = ASKED.get("micro_batch", sequences)
    kind = Llama if ASKED["case"] == "llama" else GPT
    model = prepare(kind(ASKED["layers"], ASKED["hidden"], ASKED["heads"], context))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.3,
                                  fused=ASKED["way"] not in ("fsdp", "hsdp"))
    with open(ASKED["text"], "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    pick, times = random.Random(RANK), []
    for _ in range(WARMUP + ASKED["steps"]):
        began = time.monotonic()
        total = 0.0
        for first in range(0, sequences, micro):
            if ASKED["way"] == "ddp":
                model.require_backward_grad_sync = first + micro == sequences
            windows = [pick.randrange(len(text) - context) for _ in range(micro)]
            batch = torch.stack([text[at:at + context + 1] for at in windows])
            if ASKED["way"] == "hsdp":
                model.set_requires_all_reduce(first + micro == sequences)
            with autocast():
                loss = model(batch[:, :-1], batch[:, 1:]) * (micro / sequences)
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.monotonic() - began)
        assert total < 20
    return slowest(times)


torch.set_num_threads(ASKED["threads"])
torch.manual_seed(1)
if N_RANKS > 1:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29512")
    dist.init_process_group("gloo", rank=RANK, world_size=N_RANKS)
SECS = time_layer() if ASKED["case"] == "layer" else time_steps()
if RANK == 0:
    print(SECS)
if N_RANKS > 1:
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # taking gloo down crashes now and then
