#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step of a GPT in PyTorch, eager: what training.c measures, by the same method.

usage: training_torch.py LAYERS HIDDEN HEADS CONTEXT SEQUENCES VOCABULARY

Prints one JSON object. Two models take turns: one with parameters in fp32, whose products and attention run in bf16
(torch.autocast), and one of which everything is in bf16, moments of the optimizer included, which the library keeps in
fp32. The optimizer is torch.optim.AdamW(fused=True). The head is tied to the embedding. Times are the host's, each of
four steps back to back.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F

SAMPLES, WARM_SAMPLES, RUNS = 11, 2, 4


class Block(torch.nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(hidden), torch.nn.LayerNorm(hidden)
        self.qkv, self.proj = torch.nn.Linear(hidden, 3 * hidden), torch.nn.Linear(hidden, hidden)
        self.fc, self.fc2 = torch.nn.Linear(hidden, 4 * hidden), torch.nn.Linear(4 * hidden, hidden)

    def attend(self, x):
        sequences, context, hidden = x.shape
        qkv = self.qkv(x).view(sequences, context, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*qkv.unbind(0), is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(sequences, context, hidden))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, layers, hidden, heads, context, vocabulary):
        super().__init__()
        self.tokens, self.positions = (torch.nn.Embedding(n, hidden) for n in (vocabulary, context))
        self.blocks = torch.nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(hidden)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                torch.nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class Training:
    def __init__(self, device, dtype, shape, vocabulary, sequences):
        self.device, self.dtype, self.times = device, dtype, []
        self.model = Gpt(*shape, vocabulary).to(device, dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)
        self.tokens, self.targets = (torch.randint(vocabulary, (sequences, shape[3]), device=device) for _ in range(2))
        self.loss = None

    def step(self):
        with torch.autocast(self.device, torch.bfloat16, enabled=self.dtype == torch.float32):
            self.loss = self.model(self.tokens, self.targets)
        self.loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def take_sample(self):
        wait = torch.cuda.synchronize if self.device == "cuda" else lambda: None
        wait()
        begin = time.perf_counter()
        for _ in range(RUNS):
            self.step()
        wait()
        self.times.append(1e3 * (time.perf_counter() - begin) / RUNS)


def measure(device, layers, hidden, heads, context, sequences, vocabulary):
    torch.manual_seed(1)
    shape = (layers, hidden, heads, context)
    mixed, narrow = both = [Training(device, dtype, shape, vocabulary, sequences)
                            for dtype in (torch.float32, torch.bfloat16)]
    for i in range(WARM_SAMPLES + SAMPLES):  # who is first changes
        for training in both if i % 2 else reversed(both):
            training.take_sample()
    return {"benchmark": "training step, PyTorch",
            "case": f"{layers} layers, hidden {hidden}, {heads} heads, {sequences}x{context} tokens, vocabulary "
                    f"{vocabulary}, bf16",
            "values": {"enqueued, ms": mixed.times[WARM_SAMPLES:],
                       "all in bf16, enqueued, ms": narrow.times[WARM_SAMPLES:],
                       "loss": [float(mixed.loss)], "all in bf16, loss": [float(narrow.loss)]},
            "bars": {}, "limits": {}, "words": {"PyTorch": torch.__version__, "optimizer": "AdamW, fused"}}


def main():
    if len(sys.argv) != 7:
        print(__doc__, file=sys.stderr)
        return 2
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(json.dumps(measure(device, *(int(word) for word in sys.argv[1:]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
