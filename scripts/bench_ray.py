"""The loop of bench_loop.py under Ray Train, which starts both ranks anew when one of them dies.

    bench_ray.py FOLDER STEPS ROWS
"""

import sys
from pathlib import Path

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def rank(config):
    """One of the two ranks; Ray has made the process group."""
    sys.path.insert(0, config["scripts"])
    from bench_loop import train

    train(Path(config["folder"]), config["steps"], "own", config["rows"])


def main():
    folder, steps, rows = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    # Its sockets lie in its own folder, and nobody is asked about the use of it.
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=str(folder / "ray"))
    trainer = TorchTrainer(
        rank,
        train_loop_config={"folder": str(folder), "steps": steps, "rows": rows, "scripts": str(Path(__file__).parent)},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(folder / "results"), failure_config=FailureConfig(max_failures=-1)),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
