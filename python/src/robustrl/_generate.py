"""Asking the job's engines, through the router that outlives each of them."""

from __future__ import annotations

import http.client
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Sequence
from urllib.parse import urlsplit

from ._wire import Refused

_AT_A_TIME = 64
_LATER = (408, 429, 502, 503, 504)
_LONGEST_WAIT = 5.0


@dataclass
class Completion:
    """What an engine made of one prompt: ``n`` tokens."""

    ids: list[int]
    """``[n]``."""
    logprobs: list[float]
    """``[n]``: natural logarithm of each token's probability when it was drawn."""
    versions: list[tuple[int, int, int]]
    """Which weights made which tokens: version, first token, one past the last."""
    finish: str
    """``stop`` or ``length``."""


def generate(prompts: Sequence[Sequence[int]], timeout: float, sampling: dict[str, Any]) -> list[Completion]:
    """One completion a prompt, in their order. Raises Refused, or TimeoutError after ``timeout`` seconds."""
    address = os.environ.get("ROBUST_ROUTER")
    if not address:
        raise Refused(
            "robustrl: there are no engines to ask: robustd starts a router for a trainer with a loop of its own "
            "that has a [rollout], and for any other with --router; on its machine it tells the program ROBUST_ROUTER"
        )
    deadline = time.monotonic() + timeout
    one = lambda prompt: _ask(address, list(prompt), deadline, sampling)  # noqa: E731
    with ThreadPoolExecutor(max(1, min(_AT_A_TIME, len(prompts)))) as pool:
        return list(pool.map(one, prompts))


def _ask(address: str, prompt: list[int], deadline: float, sampling: dict[str, Any]) -> Completion:
    body = json.dumps({"input_ids": prompt, "sampling_params": sampling, "return_logprob": True, "stream": False})
    why = "no engine serves yet"
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"robustrl: the engines did not answer in time; the last one said: {why}")
        try:
            status, wait, text = _post(address, body, left)
        except (OSError, http.client.HTTPException) as error:
            # The router is where robustd is, and comes back with it.
            status, wait, text = 503, 1.0, f"{type(error).__name__}: {error}"
        if status == 200:
            return _completion(json.loads(text))
        why = f"{status}: {text[:500]}"
        if status not in _LATER:
            raise Refused(f"robustrl: the engine refused a prompt of {len(prompt)} tokens with {why}")
        time.sleep(min(wait, _LONGEST_WAIT, max(0.0, deadline - time.monotonic())))


def _post(address: str, body: str, timeout: float) -> tuple[int, float, str]:
    with open(os.environ["ROBUST_ROUTER_KEY_FILE"]) as file:
        key = file.read().strip()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=timeout)
    try:
        connection.request("POST", "/generate", body, headers)
        reply = connection.getresponse()
        text = reply.read().decode(errors="replace")
        return reply.status, float(reply.headers.get("Retry-After") or 1), text
    finally:
        connection.close()


def _completion(reply: dict[str, Any]) -> Completion:
    meta = reply["meta_info"]
    spans = meta.get("weight_versions") or []
    return Completion(
        ids=[int(token) for token in reply["output_ids"]],
        logprobs=[float(pair[0]) for pair in meta["output_token_logprobs"]],
        versions=[(int(span["version"]), span["start"], span["end"]) for span in spans],
        finish=meta["finish_reason"]["type"],
    )
