"""The adapter against TRL's own classes: its protocol, its loop over callbacks, its rollouts' requests."""

import asyncio
import importlib.util
import json
import os
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from unittest import mock

import torch

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
if importlib.util.find_spec("trl") is None:
    raise unittest.SkipTest("TRL is not installed here; scripts/trl.sh makes a python that has it")

from transformers import Qwen3Config, Qwen3ForCausalLM, TrainerControl, TrainerState
from trl.experimental.async_grpo import AsyncGRPOConfig
from trl.experimental.async_grpo import async_grpo_trainer as theirs
from trl.experimental.async_grpo import async_rollout_worker as rollouts
from trl.experimental.async_grpo.packing import TREE_ATTENTION, register_tree_attention
from trl.trainer.utils import add_fused_lm_head

import robustrl
from robustrl import trl as ours

PROTOCOL = theirs.WeightTransferProtocol
ROUTER = "http://127.0.0.1:7080"


class Told:
    """A job that writes down what it is told."""

    rank, world_size, attached, over, level, canary_prompt = 0, 1, True, False, "weights", None

    def __init__(self):
        self.heard = []

    def phase(self, name):
        self.heard.append(name)
        return mock.MagicMock()

    def beat(self):
        self.heard.append("beat")

    def commit(self, **figures):
        self.heard.append(("commit", figures))

    def publish(self, named, canary=None):
        self.heard.append(("publish", named, canary))


class OfAJob(unittest.TestCase):
    def setUp(self):
        self.job = Told()
        link = mock.patch.multiple(ours._Link, job=None, model=None, processes=1)
        link.start()
        self.addCleanup(link.stop)
        self.addCleanup(setattr, rollouts.AsyncRolloutWorker, "_loop_cls", rollouts._AsyncRolloutLoop)
        attach = mock.patch.object(ours, "attach", lambda: self.job)
        attach.start()
        self.addCleanup(attach.stop)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def args(self, **more):
        return AsyncGRPOConfig(output_dir=self.folder, use_cpu=True, bf16=False, report_to="none", **{"token_budget": 512, **more})

    def callback(self, args, environment=None):
        callback = ours.Callback()
        with mock.patch.dict(os.environ, environment or {"ROBUST_ROUTER": ROUTER}):
            callback.on_init_end(args, None, None)
        return callback


class Weights(OfAJob):
    def test_it_has_every_method_of_the_protocol(self):
        methods = [name for name in vars(PROTOCOL) if not name.startswith("_")]
        self.assertEqual(sorted(methods), ["destroy", "init_weight_transfer", "pause", "resume", "send_weights"])
        for name in methods:
            self.assertTrue(callable(getattr(ours.WeightTransfer(), name)), name)

    def test_trl_publishes_its_weights_under_their_names_in_its_own_order_of_calls(self):
        model = torch.nn.ModuleDict({"_checkpoint_wrapped_module": torch.nn.Linear(2, 2, dtype=torch.bfloat16)})
        trainer = mock.MagicMock(model=model, model_version=4, weight_transfer=ours.WeightTransfer(), _lora_sync=False)
        trainer.accelerator.unwrap_model = lambda model: model
        trainer.accelerator.device = torch.device("cpu")
        trainer._streaming_iter = lambda: theirs.AsyncGRPOTrainer._streaming_iter(trainer)
        trainer.weight_transfer.init_weight_transfer()
        theirs.AsyncGRPOTrainer._sync_weight_merged(trainer, 0.0)
        (what, named, canary), after = self.job.heard
        self.assertEqual((what, list(named), canary, after), ("publish", ["weight", "bias"], None, "beat"))
        self.assertTrue(torch.equal(named["weight"], model["_checkpoint_wrapped_module"].weight))
        self.assertEqual(trainer.model_version, 5)

    def test_weights_that_are_no_numbers_are_not_published(self):
        for bad in (float("nan"), float("inf")):
            with self.assertRaisesRegex(FloatingPointError, "`b` has elements"):
                ours.WeightTransfer().send_weights(iter([("a", torch.ones(2)), ("b", torch.tensor([1.0, bad]))]))
        self.assertEqual(self.job.heard, [])

    def test_what_cannot_work_is_refused_with_what_to_change(self):
        for change, words in (
            ({"attached": False}, "robustd did not start this program"),
            ({"level": "state"}, "trainer.command.level \"weights\""),
            ({"world_size": 2}, "`ranks = 1`"),
        ):
            self.job, ours._Link.job = Told(), None
            for name, value in change.items():
                setattr(self.job, name, value)
            with self.assertRaisesRegex(robustrl.Refused, words):
                ours.WeightTransfer().init_weight_transfer()

    def test_a_canary_is_what_the_plain_model_answers_and_trl_has_its_attention_back(self):
        torch.manual_seed(3)
        shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 40}
        heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
        model = Qwen3ForCausalLM(Qwen3Config(**shape, **heads, attn_implementation="sdpa"))
        asked = {"prompt_ids": [3, 1, 4], "tokens": 4}
        expected = ours_canary(model, asked)
        register_tree_attention()
        model.set_attn_implementation(TREE_ATTENTION)
        add_fused_lm_head(model, temperature=0.7, outputs=("log_probs", "entropy"))
        self.job.canary_prompt = asked["prompt_ids"]
        self.job.canary = lambda model: ours_canary(model, asked)
        ours.Callback().on_train_begin(None, None, None, model=model)
        ours.WeightTransfer().send_weights(iter([("a", torch.ones(2))]))
        self.assertEqual(self.job.heard[0][2], expected)
        self.assertEqual(len(expected["ids"]), 4)
        self.assertEqual(model.config._attn_implementation, TREE_ATTENTION)
        ours._Link.processes = 2
        with self.assertRaisesRegex(robustrl.Refused, "verify = "):
            ours.WeightTransfer().send_weights(iter([("a", torch.ones(2))]))


def ours_canary(model, asked):
    from robustrl._canary import answer

    return answer(model, asked)


class Callbacks(OfAJob):
    def test_the_engines_are_the_jobs_where_trl_would_ask_at_its_default(self):
        args = self.args()
        self.callback(args)
        self.assertEqual(args.vllm_server_base_url, ROUTER)
        self.assertIs(rollouts.AsyncRolloutWorker._loop_cls, ours._KeyedLoop)

    def test_an_address_of_the_users_own_is_left_alone_and_shown_no_key(self):
        args = self.args(vllm_server_base_url="http://127.0.0.1:31000")
        self.callback(args)
        self.assertEqual(args.vllm_server_base_url, "http://127.0.0.1:31000")
        self.assertIs(rollouts.AsyncRolloutWorker._loop_cls, rollouts._AsyncRolloutLoop)

    def test_a_budget_that_trl_would_ask_an_engine_for_is_wanted_at_once(self):
        with self.assertRaisesRegex(robustrl.Refused, "token_budget"):
            self.callback(self.args(token_budget=None))

    def test_steps_are_told_where_versions_are_sent_with_what_was_logged_before(self):
        args = self.args(weight_sync_steps=2)
        callback, state, control = self.callback(args), TrainerState(), TrainerControl()
        callback.on_train_begin(args, state, control)
        for step in range(1, 7):
            state.global_step = step
            callback.on_step_begin(args, state, control)
            callback.on_step_end(args, state, control)
            logs = {"loss": 0.5 / step, "grad_norm": float("inf"), "reward": 0.25, "batch/trained_tokens_per_step": 30.0}
            if step in (1, 3):
                callback.on_log(args, state, control, logs=logs)
        told = [heard[1] for heard in self.job.heard if heard[0] == "commit"]
        first, last = ({"loss": loss, "reward": 0.25, "tokens": 30.0} for loss in (0.5, 0.5 / 3))
        self.assertEqual(told, [first, last, last])
        phases = [heard for heard in self.job.heard if isinstance(heard, str)]
        self.assertEqual(phases[:5], ["await_batch", "update", "await_batch", "update", "await_batch"])
        self.assertFalse(control.should_training_stop)
        self.job.over = True
        callback.on_step_end(args, state, control)
        self.assertTrue(control.should_training_stop)

    def test_without_a_daemon_and_in_other_processes_nothing_is_said(self):
        self.job.attached = False
        args = self.args(token_budget=None)
        self.callback(args)
        self.assertEqual(args.vllm_server_base_url, ours._default_address())
        other = ours.Callback()
        with mock.patch.object(AsyncGRPOConfig, "process_index", 1):
            other.on_init_end(args, None, None)
        state, heard = TrainerState(), list(self.job.heard)
        for event in (other.on_train_begin, other.on_step_begin, other.on_step_end, other.on_save, other.on_train_end):
            event(args, state, TrainerControl())
        self.assertEqual(self.job.heard, heard)


class Requests(unittest.TestCase):
    def test_every_request_of_trls_rollouts_shows_the_key(self):
        seen = []

        class Router(BaseHTTPRequestHandler):
            def do_POST(self):
                seen.append((self.path, self.headers["Authorization"]))
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                choice = {"token_ids": asked["prompt"] + [7], "logprobs": {"token_logprobs": [-0.5]}}
                body = json.dumps({"choices": [choice]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Router)
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        said = []

        async def one_turn(loop, stop_event):
            said.append(await loop._generate_one_turn([1, 2]))

        loop = ours._KeyedLoop.__new__(ours._KeyedLoop)
        loop.vllm_server_url, loop.request_timeout = f"http://127.0.0.1:{server.server_port}", 10
        loop.model_name, loop.lora_name = "m", None
        loop.max_tokens, loop.temperature, loop.top_p, loop.top_k, loop.min_p, loop.repetition_penalty = 4, 1.0, 1.0, 0, None, 1.0
        loop.num_generations = loop.max_inflight_tasks = 1
        loop._score_loop = lambda stop_event: asyncio.sleep(0)
        with tempfile.NamedTemporaryFile("w") as file, mock.patch.object(rollouts._AsyncRolloutLoop, "_generate_loop", one_turn):
            file.write("secret\n")
            file.flush()
            with mock.patch.dict(os.environ, {"ROBUST_ROUTER_KEY_FILE": file.name}):
                asyncio.run(loop._run_loops(asyncio.Event()))
        self.assertEqual(said, [([1, 2, 7], [-0.5])])
        self.assertEqual(seen, [("/v1/completions", "Bearer secret")])

    def test_the_loop_can_be_given_to_the_process_that_trl_starts(self):
        import pickle

        self.assertIs(pickle.loads(pickle.dumps(ours._KeyedLoop)), ours._KeyedLoop)


class Checkpoints(unittest.TestCase):
    def test_the_newest_that_is_whole_is_taken_up(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(ours.last_checkpoint(os.path.join(folder, "none")))
            self.assertIsNone(ours.last_checkpoint(folder))
            for name, text in {
                "checkpoint-9": '{"global_step": 9}',
                "checkpoint-10": '{"global_step": 10}',
                "checkpoint-11": '{"global_st',
                "checkpoint-12": None,
                "checkpoint-best": '{"global_step": 99}',
            }.items():
                os.mkdir(os.path.join(folder, name))
                if text is not None:
                    with open(os.path.join(folder, name, "trainer_state.json"), "w") as file:
                        file.write(text)
            self.assertEqual(ours.last_checkpoint(folder), os.path.join(folder, "checkpoint-10"))


if __name__ == "__main__":
    unittest.main()
