"""Environments against the lines that robust-shim and the package exchange."""

import asyncio
import json
import os
import tempfile
import unittest
from unittest import mock

import robustrl
from robustrl import _environment as environment

BEGIN = {"tell": "begin", "conversation": 1, "prompt": "1+1=", "answer": "2", "seed": 7, "calls": []}
TOKENS = {"tell": "tokens", "conversation": 1, "ids": [3, 4], "logprobs": [-0.5, -0.1], "versions": [[2, 0, 2]], "finish": "stop"}
ATTACHED = {"tell": "attached", "index": 0, "job": "j", "model": "m", "tokenizer": "t.json", "concurrency": 4}


def held(rollout, *told):
    """What a program with this environment says when it is told this, one after each thing that it said."""

    async def serve():
        said = []

        async def shim(reader, writer):
            for line in [ATTACHED, *told, {"tell": "over"}]:
                # Answered like one that is asked.
                if line["tell"] in ("attached", "tokens", "refused", "finished", "over"):
                    said.append(json.loads(await asyncio.wait_for(reader.readline(), 20)))
                writer.write(json.dumps(line).encode() + b"\n")
            writer.close()

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "socket")
            server = await asyncio.start_unix_server(shim, path)
            await environment._Server(rollout).run(path)
            server.close()
        return said

    with mock.patch.object(environment, "_FIRST_WAIT", 0.001), mock.patch("traceback.print_exc"):
        return asyncio.run(serve())


class Conversations(unittest.TestCase):
    def test_a_turn_and_a_reward(self):
        async def rollout(prompt, engine):
            said = await engine.generate([1, 2], max_new_tokens=5, stop=[4])
            self.assertEqual((said.ids, said.versions, prompt.seed, engine.job.name), ([3, 4], [(2, 0, 2)], 7, "j"))
            return 0.5, "two"

        attach, generate, finish = held(rollout, BEGIN, TOKENS)
        self.assertEqual((attach["say"], attach["protocol"]), ("attach", 1))
        self.assertEqual((generate["ids"], generate["max_new_tokens"], generate["stop"], generate["calls"]), ([1, 2], 5, [4], []))
        self.assertEqual((finish["say"], finish["reward"], finish["answer"]), ("finish", "0.5", "two"))

    def test_what_a_tool_said_is_recorded_and_after_a_death_not_asked_again(self):
        asked = []

        async def rollout(prompt, engine):
            result = await engine.tool("add", lambda a, b: asked.append((a, b)) or a + b, 1, 2)
            await engine.generate([1, result])
            return 1

        _, generate, _ = held(rollout, BEGIN, TOKENS)
        recorded = {"name": "add", "call": "[1, 2]", "result": "3"}
        self.assertEqual((generate["calls"], asked), ([recorded], [(1, 2)]))
        _, generate, _ = held(rollout, {**BEGIN, "calls": [{**recorded, "result": "30"}]}, TOKENS)
        self.assertEqual((generate["ids"], asked), ([1, 30], [(1, 2)]))

    def test_a_tool_that_raises_is_tried_again_and_then_the_conversation_is_given_back(self):
        tries = []

        async def rollout(prompt, engine):
            async def tool():
                tries.append(1)
                raise OSError("no space left")

            await engine.tool("disk", tool, retries=2)

        _, unable = held(rollout, BEGIN)
        self.assertEqual((unable["say"], len(tries)), ("unable", 3))
        self.assertEqual(unable["reason"], "the tool disk failed 3 times, at last with OSError: no space left")

    def test_what_the_environment_raises_and_what_is_no_number_is_no_sample(self):
        async def raises(prompt, engine):
            raise KeyError("x")

        async def nothing(prompt, engine):
            return None

        self.assertEqual(held(raises, BEGIN)[1]["reason"], "KeyError: 'x'")
        self.assertEqual(held(nothing, BEGIN)[1]["say"], "unable")

    def test_what_is_refused_reaches_the_program_as_an_exception(self):
        async def rollout(prompt, engine):
            try:
                await engine.generate([])
            except robustrl.Refused as error:
                return float("no tokens" in str(error))

        told = {"tell": "refused", "conversation": 1, "reason": "no tokens were given"}
        *_, finish = held(rollout, BEGIN, told)
        self.assertEqual(finish["reward"], "1.0")

    def test_an_environment_is_a_coroutine_function_and_must_be_there(self):
        with self.assertRaisesRegex(TypeError, "must be an `async def`"):
            robustrl.environment(lambda prompt, engine: 0)
        with mock.patch.object(environment, "_rollout", []), self.assertRaisesRegex(robustrl.Refused, "there is no environment"):
            robustrl.serve()
        with mock.patch.object(environment, "_rollout", [None]), mock.patch.dict(os.environ):
            os.environ.pop("ROBUST_SOCKET", None)
            with self.assertRaisesRegex(ConnectionError, "robustd starts this program"):
                robustrl.serve()


if __name__ == "__main__":
    unittest.main()
