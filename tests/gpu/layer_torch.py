#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A transformer layer in PyTorch, eager, bf16, forward and backward: the same as block.c measures, by the same method.

usage: layer_torch.py [HIDDEN HEADS CONTEXT SEQUENCES]    (default: 4096 32 2048 4)
       layer_torch.py --version

Prints one JSON object. Attention is F.scaled_dot_product_attention between the output of qkv and the input of proj,
including the reshaping of its operands. "all but attention" is the time of the layer minus that of its attention;
"without attention" is a layer in which proj reads the values directly. PyTorch writes gradients of weights in bf16, the
library in fp32.
"""
import json
import sys

import torch
import torch.nn.functional as F

SAMPLES, WARM_SAMPLES = 15, 5


def make_parameters(hidden):
    shapes = {"qkv": (3 * hidden, hidden), "proj": (hidden, hidden), "fc": (4 * hidden, hidden),
              "fc2": (hidden, 4 * hidden)}
    made = {}
    for name, shape in shapes.items():
        made[name] = torch.randn(shape, device="cuda", dtype=torch.bfloat16).mul_(0.02).requires_grad_()
        made[name + ".bias"] = torch.zeros(shape[0], device="cuda", dtype=torch.bfloat16, requires_grad=True)
    for name in ("norm1", "norm2"):
        made[name] = torch.ones(hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        made[name + ".bias"] = torch.zeros(hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    return made


def linear(x, parameters, name):
    return F.linear(x, parameters[name], parameters[name + ".bias"])


def norm(x, parameters, name):
    return F.layer_norm(x, (x.shape[-1],), parameters[name], parameters[name + ".bias"])


def split_heads(qkv, heads, context):
    rows, width = qkv.shape
    return qkv.view(rows // context, context, 3, heads, width // (3 * heads)).permute(2, 0, 3, 1, 4).unbind(0)


def attend(qkv, heads, context):
    q, k, v = split_heads(qkv, heads, context)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(qkv.shape[0], qkv.shape[1] // 3)


def layer(x, parameters, mix):
    x = x + linear(mix(linear(norm(x, parameters, "norm1"), parameters, "qkv")), parameters, "proj")
    fc = linear(norm(x, parameters, "norm2"), parameters, "fc")
    return x + linear(F.gelu(fc, approximate="tanh"), parameters, "fc2")


def backend_name(qkv, heads, context):
    try:
        q, k, v = split_heads(qkv.detach(), heads, context)
        choice = torch._fused_sdp_choice(q.requires_grad_(), k, v, is_causal=True)
        return torch.nn.attention.SDPBackend(choice).name.lower()
    except Exception as problem:  # another PyTorch has it in another place
        return f"scaled_dot_product_attention ({type(problem).__name__})"


class Stopwatch:
    def __init__(self):
        self.marks = []

    def mark(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append(event)

    def milliseconds(self, first, last):
        self.marks[last].synchronize()
        return self.marks[first].elapsed_time(self.marks[last])


def forget(tensors):
    for tensor in tensors:
        tensor.grad = None


def take_sample(x, dy, qkv, parameters, heads, context, values):
    leaves = [x, qkv, *parameters.values()]
    watch = Stopwatch()
    forget(leaves)
    watch.mark()
    y = layer(x, parameters, lambda wide: attend(wide, heads, context))
    watch.mark()
    y.backward(dy)
    watch.mark()
    forget(leaves)
    attend(qkv, heads, context).backward(dy)
    watch.mark()
    forget(leaves)
    layer(x, parameters, lambda wide: wide[:, -x.shape[1]:]).backward(dy)
    watch.mark()
    whole, attention = watch.milliseconds(0, 2), watch.milliseconds(2, 3)
    values["layer, ms"].append(whole)
    values["forward, ms"].append(watch.milliseconds(0, 1))
    values["backward, ms"].append(watch.milliseconds(1, 2))
    values["attention, ms"].append(attention)
    values["all but attention, ms"].append(whole - attention)
    values["without attention, ms"].append(watch.milliseconds(3, 4))


def measure(hidden, heads, context, sequences):
    torch.manual_seed(1)
    rows = context * sequences
    parameters = make_parameters(hidden)
    x, dy = (torch.randn(rows, hidden, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    qkv = torch.randn(rows, 3 * hidden, device="cuda", dtype=torch.bfloat16).requires_grad_()
    x.requires_grad_()
    names = ("layer, ms", "forward, ms", "backward, ms", "attention, ms", "all but attention, ms",
             "without attention, ms")
    values = {name: [] for name in names}
    for _ in range(WARM_SAMPLES + SAMPLES):
        take_sample(x, dy, qkv, parameters, heads, context, values)
    return {"benchmark": "layer, PyTorch",
            "case": f"hidden {hidden}, {heads} heads, {sequences}x{context} tokens, bf16",
            "values": {name: samples[WARM_SAMPLES:] for name, samples in values.items()}, "bars": {}, "limits": {},
            "words": {"attention": backend_name(qkv, heads, context), "PyTorch": torch.__version__}}


def main():
    if sys.argv[1:] == ["--version"]:
        print(torch.__version__)
        return 0
    if len(sys.argv) not in (1, 5):
        print(__doc__, file=sys.stderr)
        return 2
    print(json.dumps(measure(*(int(word) for word in sys.argv[1:] or (4096, 32, 2048, 4)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
