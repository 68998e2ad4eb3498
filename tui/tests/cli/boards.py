"""Reads FOLDER/tensorboard and FOLDER/mlflow with the tools' own code and prints their series as JSON.

Ends with 77 where one of them is not installed.
"""

import json
import pathlib
import sys

try:
    from mlflow import MlflowClient
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    print(missing, file=sys.stderr)
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
read = {}

(run,) = (folder / "tensorboard").iterdir()
events = EventAccumulator(str(run), size_guidance={"scalars": 0})
events.Reload()
read["tensorboard"] = {
    tag: [[point.step, point.value] for point in events.Scalars(tag)]
    for tag in events.Tags()["scalars"]
}

client = MlflowClient(tracking_uri=(folder / "mlflow").as_uri())
experiment = client.get_experiment_by_name("arith")
(run,) = client.search_runs([experiment.experiment_id])
read["mlflow"] = {
    key: [[point.step, point.value] for point in client.get_metric_history(run.info.run_id, key)]
    for key in run.data.metrics
}
read["mlflow status"] = run.info.status
read["mlflow params"] = run.data.params

print(json.dumps(read))
