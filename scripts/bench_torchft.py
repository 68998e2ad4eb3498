"""The loop of bench_loop.py with torchft: two replicas of one rank, of which the one that lives goes on alone, and the one
that torchrun starts anew takes its state from it.

    bench_torchft.py FOLDER STEPS ROWS             starts torchft's lighthouse and both replicas
    bench_torchft.py FOLDER STEPS ROWS --replica   is one of them
"""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path


def replica(folder, steps, rows):
    """Trains with whoever else is there."""
    import torch
    from bench_loop import Diary, backward, network
    from torchft import Manager, Optimizer, ProcessGroupGloo

    # torchft calls it where torch has it, and a torch for the processor alone has it and cannot do it.
    torch._C._distributed_c10d.__dict__.pop("_reset_fr_recording_nccl", None)
    number = int(os.environ["REPLICA_GROUP_ID"])
    model, optim = network()

    def load(state):
        model.load_state_dict(state["model"])
        optim.load_state_dict(state["optim"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optim": optim.state_dict()},
        min_replica_size=1,
        replica_id=f"replica_{number}",
        timeout=timedelta(seconds=10),
        # What the gloo group of two replicas needs to be made anew is not had while a step runs.
        use_async_quorum=False,
    )
    guarded = Optimizer(manager, optim)
    diary = Diary(folder, number)
    while manager.current_step() < steps:
        before = manager.current_step()
        guarded.zero_grad()
        backward(model, rows)
        for work in [manager.allreduce(parameter.grad) for parameter in model.parameters()]:
            work.wait()
        guarded.step()
        if manager.current_step() > before:
            diary.step(manager.current_step())
    manager.shutdown()


def main():
    folder, steps, rows = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if "--replica" in sys.argv:
        return replica(folder, steps, rows)
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=1000)
    replicas = []
    for number in range(2):
        environment = {
            **os.environ,
            "TORCHFT_LIGHTHOUSE": lighthouse.address(),
            "REPLICA_GROUP_ID": str(number),
            "NUM_REPLICA_GROUPS": "2",
        }
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--max-restarts", "1000"]
        torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
        replicas.append(subprocess.Popen([*torchrun, __file__, *sys.argv[1:4], "--replica"], env=environment))
    try:
        sys.exit(max(process.wait() for process in replicas))
    finally:
        for process in replicas:
            process.terminate()
        lighthouse.shutdown()


if __name__ == "__main__":
    main()
