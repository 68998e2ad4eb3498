"""Blocking seconds of torch.save and dcp.async_save, a JSON list with a pair for each round.

Arguments: a folder on the disk, MiB, rounds. The state has the parts of ours: weights and two moments.
"""
import json, os, shutil, sys, time
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

folder, mib, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
elements = (mib << 20) // 12
state = {name: torch.rand(elements) for name in ("params", "adam_m", "adam_v")}
times = []
for n in range(rounds):
    begun = time.perf_counter()
    torch.save(state, f"{folder}/torch.pt")
    saved = time.perf_counter() - begun
    os.remove(f"{folder}/torch.pt")
    begun = time.perf_counter()
    future = dcp.async_save(state, checkpoint_id=f"{folder}/dcp-{n}")
    blocked = time.perf_counter() - begun
    future.result()
    shutil.rmtree(f"{folder}/dcp-{n}")
    times.append([saved, blocked])
print(json.dumps(times))
