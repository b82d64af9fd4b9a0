#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long PyTorch takes to sum gradients of 16 MiB over gloo, with its hook that halves messages (fp16_compress_hook):
the median over calls of the slowest rank, in seconds. Prints "skipped: ..." without PyTorch (Debian: python3-torch).

usage, in each rank of a network (MASTER_ADDR: a node's address): gloo_all_reduce.py BYTES CALLS WARMUP
"""
import os
import statistics
import sys
import time

SIZE, CALLS, WARMUP = (int(word) for word in sys.argv[1:4])
RANK, N_RANKS = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
except ImportError as error:
    if RANK == 0:
        print(f"skipped: {error}; install python3-torch")
    sys.exit(0)


class Sum(torch.nn.Module):
    """One parameter, whose gradient is what it is multiplied by."""

    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return torch.dot(self.weight, x)


torch.set_num_threads(1)
os.environ.setdefault("MASTER_PORT", "29511")
dist.init_process_group("gloo", rank=RANK, world_size=N_RANKS)
n_elems = SIZE // 4
model = torch.nn.parallel.DistributedDataParallel(Sum(n_elems), bucket_cap_mb=4 * SIZE >> 20)
model.register_comm_hook(dist.group.WORLD, fp16_compress_hook)
x = torch.randn(n_elems)
times = []
for call in range(WARMUP + CALLS):
    loss = model(x)
    dist.barrier()
    began = time.monotonic()
    loss.backward()
    mine = torch.tensor([time.monotonic() - began])
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    times.append(mine.item())
if RANK == 0:
    print(statistics.median(times[WARMUP:]))
