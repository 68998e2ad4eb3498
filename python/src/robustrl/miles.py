"""A controller for the cells of a miles trainer: ``python -m robustrl.miles --server http://HOST:PORT``.

miles restarts a data-parallel replica (a *cell*) when its control server is asked to suspend and to resume it
(``--control-server-port``). This program asks for it: it polls the cells, restarts those that failed, within a budget
and with growing pauses, and says of each decision on what evidence and after what time it was made. It takes the place
of miles' own ``--mini-ft-controller-enable``; do not run both. See docs/miles.md.

Exit codes: 0 stopped by SIGTERM or SIGINT, or ``--once`` and every cell is well; 1 ``--once``, and one is not;
2 wrong arguments; 3 the server does not answer; 4 no cell runs, so miles cannot heal any; 5 what answers is no control
server of miles.

Python's standard library is all it needs. Held against miles 31f1ca9 of 2026-08-21.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import sys
import threading
import time
from datetime import datetime, timezone
from typing import Any, Sequence
from urllib.parse import quote, urlsplit

from ._cells import Action, Cell, Controller, Event, Rules

STOPPED, NOT_WELL, UNREACHABLE, LOST, NOT_MILES = 0, 1, 3, 4, 5
_LONGEST_TEXT = 500


class Unreachable(Exception):
    """The server did not answer, or said that it could not; it may later."""


class NotMiles(Exception):
    """What answers speaks another protocol."""


class Server:
    """miles' control server."""

    def __init__(self, address: str, timeout: float) -> None:
        """``address``: ``http://HOST:PORT``. ``timeout``: seconds for one request. Raises ValueError for another address."""
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the server's address is {address!r}; it must be http://HOST:PORT")
        self._of = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._path, self._timeout = parts.netloc, parts.path.rstrip("/"), timeout

    def cells(self) -> list[Cell]:
        """Raises Unreachable, or NotMiles."""
        status, text = self._ask("GET", "/api/v1/cells", None)
        if status >= 500 or status in (408, 429):
            raise Unreachable(f"GET /api/v1/cells: {status}: {_sentence(text)}")
        try:
            told = json.loads(text)
            if status != 200 or told["kind"] != "CellList":
                raise ValueError(f"{status}: {_sentence(text)}")
            return [Cell.of(one) for one in told["items"]]
        except (ValueError, KeyError, TypeError) as error:
            raise NotMiles(f"GET /api/v1/cells was not answered as miles' control server answers: {error}") from error

    def patch(self, action: Action) -> None:
        """Suspends or resumes a cell. Raises Unreachable with the server's own sentence."""
        path = f"/api/v1/cells/{quote(action.cell, safe='')}"
        status, text = self._ask("PATCH", path, {"spec": {"suspend": action.suspend}})
        if status != 200:
            raise Unreachable(f"PATCH {path}: {status}: {_sentence(text)}")

    def _ask(self, method: str, path: str, body: Any) -> tuple[int, str]:
        connection = self._of(self._host, timeout=self._timeout)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, self._path + path, content, {} if content is None else {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()


def _sentence(text: str) -> str:
    """The message of a Kubernetes ``Status``, which miles answers errors with, or the text itself."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:_LONGEST_TEXT]


class Log:
    """One line an event, on standard output: a sentence, or a JSON object."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def say(self, event: Event) -> None:
        """``at``: seconds since 1970 in JSON, UTC in a sentence."""
        if self._as_json:
            line = json.dumps({"at": round(time.time(), 3), "event": event.kind, "cell": event.cell, "text": event.text, **event.figures})
        else:
            figures = " ".join(f"{name}={value}" for name, value in event.figures.items() if name != "evidence")
            at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            line = f"{at} {event.cell or 'all'} {event.kind}: {event.text}" + (f" [{figures}]" if figures else "")
        print(line, flush=True)


def watch(server: Server, rules: Rules, log: Log, poll: float, unreachable_s: float, stop: threading.Event) -> int:
    """Polls every ``poll`` seconds and acts until ``stop`` is set; returns the exit code."""
    controller = Controller(rules)
    answered = time.monotonic()
    silent = met = False
    while not stop.is_set():
        began = time.monotonic()
        try:
            cells = server.cells()
            answered, met, silent = time.monotonic(), True, _again(log, silent)
            if not _act(server, controller, cells, log):
                return LOST
        except (Unreachable, NotMiles) as error:
            if isinstance(error, NotMiles) and not met:
                log.say(Event("not_miles", "", str(error)))
                return NOT_MILES
            if not silent:
                log.say(Event("unreachable", "", f"{error}; cells cannot be watched, and the end of the job looks the same"))
            silent = True
            if time.monotonic() - answered >= unreachable_s:
                log.say(Event("unreachable", "", f"{error}; the server has not answered for {unreachable_s:g} s"))
                return UNREACHABLE
        stop.wait(max(0.0, poll - (time.monotonic() - began)))
    return STOPPED


def _again(log: Log, silent: bool) -> bool:
    if silent:
        log.say(Event("reachable", "", "the server answers again"))
    return False


def _act(server: Server, controller: Controller, cells: Sequence[Cell], log: Log) -> bool:
    """One round. False where the trainer is lost."""
    actions, events = controller.observe(cells, time.monotonic())
    for event in events:
        log.say(event)
    if controller.lost:
        return False
    for action in actions:
        try:
            server.patch(action)
            error = None
        except Unreachable as refused:
            error = str(refused)
        log.say(controller.ended(action, time.monotonic(), error))
    return True


def look(server: Server, rules: Rules, log: Log) -> int:
    """Says what the cells are and what would be done, and does nothing."""
    try:
        cells = server.cells()
    except (Unreachable, NotMiles) as error:
        miles = isinstance(error, Unreachable)
        log.say(Event("unreachable" if miles else "not_miles", "", str(error)))
        return UNREACHABLE if miles else NOT_MILES
    actions, events = Controller(rules).observe(cells, time.monotonic())
    would = {action.cell: "suspended and resumed" for action in actions}
    would |= {event.cell: would.get(event.cell, "resumed") for event in events if event.kind == "detected"}
    if not any(cell.state in ("healthy", "unknown") for cell in cells):
        would = {}
    for cell in cells:
        text = cell.evidence + (f"; it would be {would[cell.name]}" if cell.name in would else "")
        log.say(Event(cell.state, cell.name, text, {"evidence": cell.evidence}))
    return STOPPED if cells and all(cell.state in ("healthy", "unknown") for cell in cells) else NOT_WELL


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: seconds, 0 or more")
    return value


def _arguments() -> argparse.ArgumentParser:
    rules = Rules()
    parser = argparse.ArgumentParser(prog="python -m robustrl.miles", description="Restarts the failed cells of a miles trainer.")
    add = parser.add_argument
    add("--server", required=True, metavar="URL", help="miles' control server, http://HOST:PORT (its --control-server-port)")
    add("--once", action="store_true", help="look once, say what would be done, do nothing")
    add("--json", action="store_true", help="a JSON object a line")
    add("--poll", type=_seconds, default=5.0, metavar="S", help="between two looks (%(default)g)")
    add("--timeout", type=_seconds, default=30.0, metavar="S", help="for one request (%(default)g)")
    add("--unreachable-after", type=_seconds, default=300.0, metavar="S", help="without an answer the program ends with code 3 (%(default)g)")
    add("--failed-after", type=_seconds, default=rules.failed_s, metavar="S", help="a failed cell is restarted (%(default)g)")
    add("--unknown-after", type=_seconds, default=None, metavar="S", help="a cell of unknown health is restarted (never)")
    add("--pending-after", type=_seconds, default=rules.pending_s, metavar="S", help="a cell that waits for its start is reported (%(default)g)")
    add("--resume-delay", type=_seconds, default=rules.resume_delay_s, metavar="S", help="from suspending to resuming; doubles with each restart in the window (%(default)g)")
    add("--settle", type=_seconds, default=rules.settle_s, metavar="S", help="a cell must take part before it counts as recovered (%(default)g)")
    add("--budget", type=int, default=rules.budget, metavar="N", help="restarts of a cell within the window (%(default)d)")
    add("--window", type=_seconds, default=rules.window_s, metavar="S", help="(%(default)g)")
    add("--lost-after", type=_seconds, default=rules.lost_s, metavar="S", help="no cell runs: the program ends with code 4 (%(default)g)")
    add("--hold", action="append", default=[], metavar="CELL", help="leave this cell alone, such as one that you suspended; may be repeated")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = _arguments()
    args = parser.parse_args(argv)
    if args.budget < 0:
        parser.error(f"--budget is {args.budget}; it must be 0 or more")
    rules = Rules(
        failed_s=args.failed_after,
        unknown_s=args.unknown_after,
        pending_s=args.pending_after,
        resume_delay_s=args.resume_delay,
        settle_s=args.settle,
        budget=args.budget,
        window_s=args.window,
        lost_s=args.lost_after,
        held=frozenset(args.hold),
    )
    try:
        server = Server(args.server, args.timeout)
    except ValueError as error:
        parser.error(str(error))
    log = Log(args.json)
    if args.once:
        return look(server, rules, log)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return watch(server, rules, log, args.poll, args.unreachable_after, stop)


if __name__ == "__main__":
    sys.exit(main())
