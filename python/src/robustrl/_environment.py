"""Environments and rewards of your own: what ``[agent.command]`` of the job file starts.

The program speaks to the ``robust-shim`` beside it; the protocol is written down in
``daemon/shim/src/agent/words.rs``. No torch is needed here.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import traceback
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Awaitable, Callable, Sequence

from ._generate import Completion
from ._wire import Refused

_PROTOCOL = 1
_VERSION = "0.1.0"
_LONGEST_LINE = 1 << 26
_FIRST_WAIT = 0.1


class Unable(Exception):
    """A conversation cannot be held, by no doing of the model's: it is no sample, and is given back."""


@dataclass
class Prompt:
    """What a conversation begins with."""

    text: str
    """The dataset's prompt."""
    answer: str
    """The dataset's answer, for the reward."""
    seed: int
    """What randomness of your own may derive from: the same in each attempt of this conversation."""


@dataclass
class Job:
    """The job that the program works for."""

    name: str
    index: int
    """Which of the job's agent workers this is."""
    model: str
    """Folder of the initial weights (Hugging Face layout)."""
    tokenizer_path: str
    """``tokenizer.json`` of the job."""

    @cached_property
    def tokenizer(self) -> Any:
        """The job's tokenizer (package ``tokenizers``): ``encode(text).ids`` and ``decode(ids)``."""
        from tokenizers import Tokenizer

        return Tokenizer.from_file(self.tokenizer_path)

    def prompt_ids(self, text: str) -> list[int]:
        """The tokens of a prompt as the built-in agents have them without a chat template: what the tokenizer makes of
        the text, and ``<bos>`` first where the vocabulary has it and the tokenizer does not add it by itself."""
        ids = list(self.tokenizer.encode(text).ids)
        bos = self.tokenizer.token_to_id("<bos>")
        return ids if bos is None or ids[:1] == [bos] else [bos, *ids]


@dataclass
class Engine:
    """The job's engines, and the record of one conversation with them."""

    job: Job
    _ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
    _recorded: list[dict[str, str]]
    _calls: list[dict[str, str]] = field(default_factory=list)

    async def generate(
        self,
        ids: Sequence[int],
        max_new_tokens: int | None = None,
        temperature: float | None = None,
        stop: Sequence[int] | None = None,
    ) -> Completion:
        """Lets the model go on after these tokens: the prompt, what it said, and what was added since; all of it.

        What it said is durable when this returns. An engine that dies meanwhile is not noticed: another goes on
        from the tokens so far. After a death of this program the conversation begins anew, and turns that were
        stored are returned again. Left out: the job's ``rollout.max_new_tokens`` and ``temperature``, and the
        model's own end of a sequence as ``stop``. Raises Refused where the tokens do not go on from those
        before, or the context is full.
        """
        calls, self._calls = self._calls, []
        told = await self._ask(
            {
                "say": "generate",
                "ids": list(ids),
                "max_new_tokens": max_new_tokens,
                "temperature": temperature,
                "stop": None if stop is None else list(stop),
                "calls": calls,
            }
        )
        return Completion(
            ids=told["ids"],
            logprobs=told["logprobs"],
            versions=[(version, start, end) for version, start, end in told["versions"]],
            finish=told["finish"],
        )

    async def tool(self, name: str, function: Callable[..., Any], *arguments: Any, retries: int = 2) -> Any:
        """Calls a function, or a coroutine function, and records what it returns: after a death the record is
        returned instead. Arguments and result must be plain (JSON).

        What the model did wrong is a result: return it, and let the model see it. What raises is taken for the
        machine's fault: it is tried again ``retries`` times, a moment later each time, and then the
        conversation is given back, for an infrastructure failure is never a sample.
        """
        call = json.dumps(list(arguments))
        if self._recorded:
            known = self._recorded.pop(0)
            if (known["name"], known["call"]) == (name, call):
                self._calls.append(known)
                return json.loads(known["result"])
            # The shim sees by the tokens whether that is another conversation.
            self._recorded.clear()
        result = await _patiently(name, function, arguments, retries)
        try:
            text = json.dumps(result)
        except TypeError as error:
            raise TypeError(f"robustrl: the tool {name} returned what cannot be recorded: {error}") from None
        self._calls.append({"name": name, "call": call, "result": text})
        return result


async def _patiently(name: str, function: Callable[..., Any], arguments: Sequence[Any], retries: int) -> Any:
    wait = _FIRST_WAIT
    for left in range(retries, -1, -1):
        try:
            if inspect.iscoroutinefunction(function):
                return await function(*arguments)
            return await asyncio.to_thread(function, *arguments)
        except Exception as error:  # whatever a tool's own code raises
            if left == 0:
                raise Unable(f"the tool {name} failed {retries + 1} times, at last with {type(error).__name__}: {error}") from error
            await asyncio.sleep(wait)
            wait *= 2


Rollout = Callable[[Prompt, Engine], Awaitable[Any]]
_rollout: list[Rollout] = []


def environment(function: Rollout) -> Rollout:
    """Makes ``async def rollout(prompt, engine)`` the job's environment: it returns the reward, a finite number, or
    the reward and the answer as a text for people who look.

    It must come to the same point when it begins anew with the same prompt: randomness from ``prompt.seed``, and
    whatever else is not a function of the model's tokens through ``engine.tool``. What it raises gives the
    conversation back.
    """
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"robustrl: {function.__name__} must be an `async def`")
    _rollout[:] = [function]
    return function


def reward(function: Callable[[Prompt, str], float]) -> Callable[[Prompt, str], float]:
    """Makes ``def reward(prompt, text)`` the job's reward, of conversations of one turn: the prompt is
    :meth:`Job.prompt_ids` of it, and the text is what the model said, special tokens left out."""

    async def rollout(prompt: Prompt, engine: Engine) -> Any:
        said = await engine.generate(engine.job.prompt_ids(prompt.text))
        text = engine.job.tokenizer.decode(said.ids)
        return function(prompt, text), text

    _rollout[:] = [rollout]
    return function


def serve() -> None:
    """Holds the job's conversations until the job is over. Call it last, after ``@environment`` or ``@reward``.

    Raises Refused where nothing was decorated or the package and robust-shim are of different versions, and
    ConnectionError where the program was not started by robustd.
    """
    if not _rollout:
        raise Refused("robustrl: there is no environment; decorate one with @robustrl.environment, or a reward with @robustrl.reward")
    path = os.environ.get("ROBUST_SOCKET")
    if not path:
        raise ConnectionError("robustrl: ROBUST_SOCKET is not set: robustd starts this program, by [agent.command] of a job file")
    asyncio.run(_Server(_rollout[0]).run(path))


class _Server:
    """One connection, and a task for each conversation."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def run(self, path: str) -> None:
        reader, self._writer = await asyncio.open_unix_connection(path, limit=_LONGEST_LINE)
        self._say({"say": "attach", "protocol": _PROTOCOL, "pid": os.getpid(), "package": _VERSION})
        try:
            while line := await reader.readline():
                told = json.loads(line)
                if told["tell"] == "over":
                    break
                self._hear(told)
        finally:
            for task in self._tasks.values():
                task.cancel()
            self._writer.close()

    def _hear(self, told: dict[str, Any]) -> None:
        what, number = told["tell"], told.get("conversation", 0)
        if what == "error":
            raise Refused(f"robustrl: {told['reason']}")
        if what == "attached":
            self._job = Job(told["job"], told["index"], told["model"], told["tokenizer"])
        elif what == "begin":
            task = asyncio.get_running_loop().create_task(self._hold(number, told))
            self._tasks[number] = task
            task.add_done_callback(lambda _: self._forget(number))
        elif what == "cancel":
            if number in self._tasks:
                self._tasks[number].cancel()
        elif (answer := self._answers.pop(number, None)) and not answer.done():
            answer.set_result(told)

    def _forget(self, number: int) -> None:
        self._tasks.pop(number, None)
        self._answers.pop(number, None)

    async def _hold(self, number: int, told: dict[str, Any]) -> None:
        async def ask(question: dict[str, Any]) -> dict[str, Any]:
            if number in self._answers:
                raise Refused("robustrl: one conversation generates one turn at a time; await engine.generate() before the next")
            answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            self._answers[number] = answer
            self._say({"conversation": number, **question})
            said = await answer
            if said["tell"] == "refused":
                raise Refused(f"robustrl: {said['reason']}")
            return said

        engine = Engine(self._job, ask, told["calls"])
        try:
            ended = await self._rollout(Prompt(told["prompt"], told["answer"], told["seed"]), engine)
            worth, answer = ended if isinstance(ended, tuple) else (ended, "")
            reward = repr(float(worth))
        except Exception as error:  # whatever the environment's own code raises
            traceback.print_exc(file=sys.stderr)
            reason = str(error) if isinstance(error, Unable) else f"{type(error).__name__}: {error}"
            self._say({"say": "unable", "conversation": number, "reason": reason})
            return
        finish = asyncio.get_running_loop().create_future()
        self._answers[number] = finish
        self._say({"say": "finish", "conversation": number, "reward": reward, "answer": str(answer)})
        said = await finish
        if said["tell"] == "refused":
            self._say({"say": "unable", "conversation": number, "reason": said["reason"]})

    def _say(self, words: dict[str, Any]) -> None:
        self._writer.write(json.dumps(words).encode() + b"\n")
