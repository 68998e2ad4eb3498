"""Broadcasts like a weight version: python gloo.py RANK WORLD ADDR PORT BYTES ROUNDS"""
import json, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist

rank, world, addr, port, size, rounds = (
    sys.argv[3] if at == 3 else int(sys.argv[at]) for at in range(1, 7)
)
torch.set_num_threads(1)
dist.init_process_group(
    "gloo", init_method=f"tcp://{addr}:{port}", rank=rank, world_size=world,
    timeout=timedelta(seconds=60),
)
weights = torch.full((size,), rank, dtype=torch.uint8)
times = []
for _ in range(rounds + 1):
    dist.barrier()
    began = time.perf_counter()
    dist.broadcast(weights, src=0)
    dist.barrier()
    times.append(time.perf_counter() - began)
assert int(weights[-1]) == 0
if rank == 0:
    print(json.dumps(times[1:]))  # the first one connects
dist.destroy_process_group()
