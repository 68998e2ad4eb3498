"""The checkpoint engine ``robustrl`` under verl's own manager, workers and registry, on Ray on this machine.

Played are the model and the engine that loads; between them everything is verl's, and Ray's.
"""

import asyncio
import json
import os
import signal
import socket
import struct
import tempfile
import threading
import time
import unittest
from unittest import mock

import torch

try:
    import ray
    from verl.checkpoint_engine.base import CheckpointEngineManager, CheckpointEngineRegistry, CheckpointEngineWorker
    from verl.single_controller.base import Worker
    from verl.single_controller.base.decorator import Dispatch, register
    from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
    from verl.workers.config import CheckpointEngineConfig, RolloutConfig
    from verl.workers.rollout import BaseRollout

    from robustrl import Refused
    from robustrl._staged import Stage
    from robustrl.verl import BACKEND, RobustCheckpointEngine

    MISSING = None
except ImportError as error:
    if error.name is None or error.name.startswith("robustrl"):
        raise
    MISSING = f"verl 0.9.1 and what its checkpoint_engine imports are not installed: {error}"
    Worker = BaseRollout = CheckpointEngineWorker = object

    class Dispatch:
        ONE_TO_ALL = DP_COMPUTE = None

    def register(**_):
        return lambda function: function


RANKS, ROLLOUTS = 2, 2
FAILS, DIES = 3, 5


def weights(step):
    """Of a small model: two dtypes, one tensor larger than a page."""
    dice = torch.Generator().manual_seed(step)
    yield "model.embed_tokens.weight", torch.randn(64, 48, generator=dice).to(torch.bfloat16)
    yield "model.norm.weight", torch.randn(48, generator=dice)


class Trainer(Worker):
    """What ``verl/workers/engine_workers.py`` does of an update; its model is played."""

    def __init__(self):
        super().__init__()
        self.drained = 0
        self.checkpoint_engine = CheckpointEngineRegistry.new(BACKEND, is_master=self.rank == 0, bucket_size=1 << 20)

    def _weights(self, step):
        for name, tensor in weights(step):
            if step == FAILS:
                raise OSError("the gathering of a shard failed")
            self.drained += 1
            yield name, tensor
        if step == DIES and self.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps=None, mode="auto"):
        assert mode == BACKEND
        return await self.checkpoint_engine.send_weights(self._weights(global_steps), global_steps=global_steps) or {}

    @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
    def execute_checkpoint_engine(self, method, *args, **kwargs):
        return getattr(self.checkpoint_engine, method)(*args, **kwargs)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def all_drained(self):
        return self.drained


class Engine(BaseRollout):
    """Keeps what verl's worker hands it."""

    def __init__(self):
        self.kept, self.step = {}, None

    async def resume(self, tags):
        pass

    async def release(self):
        pass

    async def update_weights(self, weights, global_steps=None, wire_format=None):
        assert wire_format == "named_tensors"
        self.kept, self.step = {name: tensor.clone() async for name, tensor in weights}, global_steps


class Rollout(CheckpointEngineWorker):
    """verl's own worker, with that engine."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def serves(self):
        return self.server_adapter.step, self.server_adapter.kept


class Replica:
    """One of verl's rollout replicas, as far as its manager asks it for something."""

    def __init__(self, workers):
        self.workers, self.calls = workers, []

    def __getattr__(self, name):
        async def call(**_):
            self.calls.append(name)

        return call


def config(**engine_kwargs):
    return CheckpointEngineConfig(backend=BACKEND, custom_backend_module="robustrl.verl", engine_kwargs={BACKEND: engine_kwargs})


def group(of, count, **kwargs):
    init = RayClassWithInitArgs(ray.remote(of), **kwargs)
    pool = RayResourcePool([count], use_gpu=False, max_colocate_count=1)
    return RayWorkerGroup(resource_pool=pool, ray_cls_with_init=init, use_gpu=False, device_name="cpu")


@unittest.skipIf(MISSING, MISSING)
class UnderVerl(unittest.TestCase):
    """A gang of the trainer and a replica of two workers, all of them actors of Ray."""

    @classmethod
    def setUpClass(cls):
        here = os.path.dirname(os.path.abspath(__file__))
        path = [here, os.path.join(here, "..", "src"), os.environ.get("PYTHONPATH", "")]
        env = {"PYTHONPATH": os.pathsep.join(part for part in path if part), "ROBUST_SOCKET": ""}
        quiet = mock.patch.dict(os.environ, {"RAY_IGNORE_UNHANDLED_ERRORS": "1", "RAY_USAGE_STATS_ENABLED": "0"})
        quiet.start()
        cls.addClassCleanup(quiet.stop)
        ray.init(num_cpus=RANKS + ROLLOUTS, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": env}, object_store_memory=80 << 20)
        cls.addClassCleanup(ray.shutdown)
        cls.rollouts = group(Rollout, ROLLOUTS, rollout_config=RolloutConfig(name="vllm", checkpoint_engine=config(timeout_s=60)), model_config=None, server_adapter=Engine())
        cls.trainer = group(Trainer, RANKS)

    def setUp(self):
        self.replica = Replica(self.rollouts.workers)
        self.manager = CheckpointEngineManager(config(timeout_s=60), self.trainer, [self.replica])

    def served(self, step):
        expected = dict(weights(step))
        for at, kept in self.rollouts.serves():
            self.assertEqual((at, list(kept)), (step, list(expected)))
            for name, tensor in expected.items():
                self.assertEqual(kept[name].dtype, tensor.dtype)
                self.assertTrue(torch.equal(kept[name], tensor), name)

    def test_1_each_update_reaches_every_worker_of_the_rollouts_bit_for_bit(self):
        for step in (1, 2):
            figures = self.manager.update_weights(global_steps=step)
            self.served(step)
        self.assertAlmostEqual(figures["checkpoint_engine/mbytes"], (64 * 48 * 2 + 48 * 4) / (1 << 20))
        self.assertEqual(self.trainer.all_drained(), [4, 4], "each rank takes part in gathering each tensor")
        self.assertEqual(self.replica.calls[:4], ["abort_all_requests", "release_kv_cache", "resume_kv_cache", "resume_generation"])

    def test_2_a_trainer_that_fails_fails_the_update_at_once_and_the_next_one_succeeds(self):
        began = time.monotonic()
        with self.assertRaisesRegex(Exception, "the gathering of a shard failed"):
            self.manager.update_weights(global_steps=FAILS)
        self.assertLess(time.monotonic() - began, 30)
        self.manager.update_weights(global_steps=4)
        self.served(4)

    def test_3_rollouts_do_not_wait_for_a_trainer_that_was_killed(self):
        waiting = self.rollouts
        with self.assertRaises(ray.exceptions.RayActorError):
            self.manager.update_weights(global_steps=DIES)
        # The workers know their places still; their first wait has ended by itself, and so does another one.
        began = time.monotonic()
        with self.assertRaisesRegex(Exception, "has ended"):
            ray.get(waiting.update_weights(global_steps=DIES + 1))
        self.assertLess(time.monotonic() - began, 30)
        # What the trainer left is found by the next one.
        self.addCleanup(Stage().close)


@unittest.skipIf(MISSING, MISSING)
class OneProcess(unittest.TestCase):
    """Both ends in one process: what the manager does, without Ray."""

    def setUp(self):
        self.alone = mock.patch.dict(os.environ)
        self.alone.start()
        self.addCleanup(self.alone.stop)
        os.environ.pop("ROBUST_SOCKET", None)

    def update(self, master, rollout, step=7, tensors=None):
        places, others = RobustCheckpointEngine.build_topology(1, 1, [master.prepare(), rollout.prepare()])
        master.init_process_group(**{key: value[0] for key, value in places.items()})
        rollout.init_process_group(**{key: value[0] for key, value in others.items()})

        async def received():
            return {name: tensor.clone() async for name, tensor in rollout.receive_weights(global_steps=step)}

        async def both():
            return await asyncio.gather(master.send_weights(tensors or weights(step), global_steps=step), received())

        figures, kept = asyncio.run(both())
        master.finalize()
        rollout.finalize()
        return figures, kept

    def engines(self, **kwargs):
        new = CheckpointEngineRegistry.new
        return new(BACKEND, bucket_size=1, is_master=True, **kwargs), new(BACKEND, bucket_size=1, **kwargs)

    def test_floating_point_weights_are_cast_where_it_is_asked_for(self):
        tensors = [("w", torch.tensor([1.0, 2.5])), ("position", torch.tensor([1, 2]))]
        _, kept = self.update(*self.engines(rollout_dtype="bfloat16"), tensors=iter(tensors))
        self.assertEqual((kept["w"].dtype, kept["w"].tolist(), kept["position"].dtype), (torch.bfloat16, [1.0, 2.5], torch.int64))
        with self.assertRaisesRegex(ValueError, "rollout_dtype is 'int4'; those that are known are bfloat16"):
            self.engines(rollout_dtype="int4")

    def test_a_folder_of_several_hosts_is_verified(self):
        with tempfile.TemporaryDirectory() as folder:
            master, rollout = self.engines(folder=folder)
            self.assertEqual(list(self.update(master, rollout)[1]), [name for name, _ in weights(7)])
            place = master.prepare()
            self.assertEqual((os.path.dirname(place["folder"]), place["local"]), (folder, False))
            master._stage.close()

    def test_a_host_that_does_not_see_the_trainers_memory_says_what_to_set(self):
        _, rollout = self.engines()
        with self.assertRaisesRegex(RuntimeError, "does not see /nowhere, where the trainer on far.*engine_kwargs.robustrl.folder"):
            rollout.init_process_group(place={"folder": "/nowhere", "host": "far", "number": 1, "local": True})
        with self.assertRaisesRegex(RuntimeError, "one rank of the trainer must write the weights, and 0 said"):
            RobustCheckpointEngine.build_topology(2, 1, [{}, {}, {"folder": "/that of a rollout"}])

    def shim(self, **told):
        """A shim that lets one program attach, and takes its versions. Returns what it was asked."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        page, path, region = (os.path.join(folder.name, name) for name in ("page", "socket", "region"))
        with open(page, "wb") as file:
            file.write(b"RBSTPHAS" + struct.pack("<I", 1) + bytes(4096 - 12))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        asked = []
        rank = {"rank": 0, "world_size": 1, "local_rank": 0, "generation": 1, "incarnation": 1, "job": "j", "model": "", "page": page, "canary": None, "level": "weights", "keeps_state": False, "reshards": False, "phases": []}

        def answer(ask):
            if ask["ask"] == "attach":
                return {"answer": "attached", **rank, **told}
            if ask["ask"] == "published":
                return {"answer": "done"}
            placed, end = [], 0
            for tensor in ask["tensors"]:
                size = 4 * torch.Size(tensor["shape"]).numel()
                placed.append({**tensor, "start": end, "end": end + size})
                end += size
            with open(region, "wb") as file:
                file.truncate(end)
            return {"answer": "write", "of": len(asked), "place": {"path": region, "data": 0, "tensors": placed}}

        def serve():
            peer, _ = listener.accept()
            with peer, listener, peer.makefile("rb") as lines:
                for line in lines:
                    asked.append(json.loads(line))
                    peer.sendall(json.dumps(answer(asked[-1])).encode() + b"\n")

        threading.Thread(target=serve, daemon=True).start()
        os.environ["ROBUST_SOCKET"] = path
        return asked, region

    def test_under_robustd_its_engines_get_the_same_version(self):
        asked, region = self.shim()
        master, rollout = self.engines()
        self.update(master, rollout, step=7)
        self.update(master, rollout, step=8)
        self.addCleanup(master._job._wire.close)
        self.assertEqual([ask["ask"] for ask in asked], ["attach"] + ["publish", "published"] * 2)
        self.assertEqual([(t["name"], t["dtype"], t["shape"]) for t in asked[1]["tensors"]], [("model.embed_tokens.weight", "F32", [64, 48]), ("model.norm.weight", "F32", [48])])
        self.assertIsNone(asked[1]["version"], "the daemon numbers the versions of a program that publishes alone")
        with open(region, "rb") as file:
            there = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
        self.assertTrue(torch.equal(there, torch.cat([tensor.float().flatten() for _, tensor in weights(8)])))

    def test_a_job_file_that_does_not_fit_is_refused_before_a_byte_moves(self):
        for told, said in (({"level": "data"}, 'it has 1 and "data"'), ({"world_size": 4}, 'it has 4 and "weights"')):
            self.shim(**told)
            with self.assertRaisesRegex(Refused, said):
                self.engines()[0].prepare()
        os.environ.pop("ROBUST_SOCKET")
        with self.assertRaisesRegex(Refused, "publish = true, and ROBUST_SOCKET is not set"):
            self.engines(publish=True)[0].prepare()


if __name__ == "__main__":
    unittest.main()
