"""What is to be done about the cells of a miles trainer: the rules alone, which are told the time and do no I/O.

A cell is one data-parallel replica. What miles says of it (``miles/utils/ft_utils/control_server/models.py``,
``miles/ray/train/cell_monitor.py``) is read as one of five states:

===========  =====================================================================================
``healthy``  phase ``Running``, condition ``Healthy`` is ``True``; one that still initializes says so, too
``unknown``  phase ``Running``, and miles does not know: its checks wait, or are paused, or there are none
``failed``   phase ``Running``, ``Healthy`` is ``False``
``stopped``  phase ``Suspended``: it was suspended, or it raised an exception and miles ended its processes
``pending``  phase ``Pending``: resumed; miles starts it at the beginning of its next training step
===========  =====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Sequence

_LONGEST_DELAY = 300.0


@dataclass(frozen=True)
class Cell:
    """A cell as the control server describes it at one moment."""

    name: str
    state: str
    """``healthy``, ``unknown``, ``failed``, ``stopped`` or ``pending``."""
    evidence: str
    """What of the server's answer the state was read from."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Cell:
        """Reads an item of ``GET /api/v1/cells``. Raises ValueError where it is none of miles' API ``miles.io/v1``."""
        try:
            name, phase = told["metadata"]["name"], told["status"]["phase"]
            conditions = {one["type"]: (one["status"], one.get("reason")) for one in told["status"]["conditions"]}
        except (KeyError, TypeError) as error:
            raise ValueError(f"a cell of the answer has not the fields of miles.io/v1: {type(error).__name__}: {error}") from error
        health, reason = conditions.get("Healthy", ("absent", None))
        states = {"Suspended": "stopped", "Pending": "pending"}
        running = {"True": "healthy", "False": "failed"}.get(health, "unknown")
        if phase != "Running" and phase not in states:
            raise ValueError(f"the cell {name} is in the phase {phase!r}; those of miles.io/v1 are Pending, Running and Suspended")
        evidence = f"phase {phase}, Healthy {health}" + (f" ({reason})" if reason else "")
        return cls(name, states.get(phase, running), evidence)


@dataclass(frozen=True)
class Rules:
    """Bounds, in seconds where nothing else is said."""

    failed_s: float = 0.0
    """How long a cell is ``failed`` before it is restarted. miles has waited for three checks by then."""
    unknown_s: float | None = None
    """How long one is ``unknown`` before it is restarted; None: never, for miles says so of healthy cells, too."""
    pending_s: float = 1800.0
    """How long one is ``pending`` before that is told. Nothing can be done about it from outside."""
    resume_delay_s: float = 10.0
    """From suspending to resuming, doubled by each further restart within the window, at most 300: miles kills the
    processes, and says that they are stopped before they are gone."""
    settle_s: float = 30.0
    """How long a cell takes part before it counts as recovered. miles says ``healthy`` of one that still initializes,
    ``unknown`` once it has and its checks begin, then ``healthy``: so it takes part from when it was ``unknown``."""
    unseen_s: float = 600.0
    """How long it is ``healthy`` before it counts as recovered, where it was never seen to be ``unknown``."""
    budget: int = 5
    """Restarts of one cell within the window; the next one leaves it suspended, and the others go on."""
    window_s: float = 3600.0
    lost_s: float = 60.0
    """How long no cell runs before the trainer counts as lost: miles takes a cell's state from one that lives."""
    held: frozenset[str] = frozenset()
    """Cells that are left alone."""


@dataclass(frozen=True)
class Action:
    """What is to be asked of the server."""

    cell: str
    suspend: bool


@dataclass
class Event:
    """What happened, with everything that is known of it."""

    kind: str
    """``detected``, ``suspended``, ``resumed``, ``recovered``, ``exhausted``, ``refused``, ``overdue``, ``lost``,
    ``gone`` or ``by_hand``."""
    cell: str
    """Empty where all of them are meant."""
    text: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Incident:
    """From a cell's fault to its recovery."""

    detected: float
    last_well: float | None
    fault: str
    """The state that was the fault."""
    evidence: str
    resume_at: float | None = None
    """When it may be resumed; None: it was not suspended yet."""
    resumed: float | None = None
    running_since: float | None = None
    taking_part_since: float | None = None
    exhausted: bool = False
    refusals: int = 0
    not_before: float = 0.0
    """After a refusal of the server."""


@dataclass
class _Known:
    """What is remembered of a cell."""

    state: str
    since: float
    last_well: float | None = None
    restarts: list[float] = field(default_factory=list)
    incident: _Incident | None = None
    told_overdue: bool = False


class Controller:
    """Decides. Told what the cells are (:meth:`observe`) it answers with actions, and wants to know how each ended
    (:meth:`ended`)."""

    lost: bool
    """Whether no cell has run for so long that miles cannot heal any: the job must be started from its checkpoint."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._cells: dict[str, _Known] = {}
        self._none_since: float | None = None
        self._ran = False
        self.lost = False

    # ---- what the cells are -----------------------------------------------------------------------

    def observe(self, cells: Sequence[Cell], now: float) -> tuple[list[Action], list[Event]]:
        """The cells are these, ``now`` (any clock that never goes back). What is to be done, and what is new."""
        events = [*self._gone(cells)]
        for cell in cells:
            self._see(cell, now)
        events += self._look_for_loss(cells, now)
        actions: list[Action] = []
        for cell in cells:
            if cell.name in self._rules.held:
                continue
            more, said = self._judge(cell, cells, now)
            actions += more
            events += said
        return actions, events

    def _see(self, cell: Cell, now: float) -> None:
        known = self._cells.setdefault(cell.name, _Known(cell.state, now))
        if known.state != cell.state:
            known.state, known.since, known.told_overdue = cell.state, now, False
        if cell.state in ("healthy", "unknown"):
            known.last_well = now
        known.restarts = [at for at in known.restarts if now - at < self._rules.window_s]

    def _gone(self, cells: Sequence[Cell]) -> Iterable[Event]:
        there = {cell.name for cell in cells}
        for name in [name for name in self._cells if name not in there]:
            del self._cells[name]
            yield Event("gone", name, "the server does not name the cell any more")

    def _look_for_loss(self, cells: Sequence[Cell], now: float) -> list[Event]:
        if any(cell.state in ("healthy", "unknown") for cell in cells):
            self._none_since, self._ran = None, True
            return []
        if not self._ran or self.lost:
            return []
        self._none_since = now if self._none_since is None else self._none_since
        if now - self._none_since < self._rules.lost_s:
            return []
        self.lost = True
        seen = "; ".join(f"{cell.name}: {cell.evidence}" for cell in cells) or "there are no cells"
        text = f"no cell has run for {now - self._none_since:.1f} s, and miles heals a cell from one that runs: start the job from its checkpoint"
        return [Event("lost", "", f"{text} ({seen})")]

    # ---- one cell ---------------------------------------------------------------------------------

    def _judge(self, cell: Cell, cells: Sequence[Cell], now: float) -> tuple[list[Action], list[Event]]:
        known = self._cells[cell.name]
        events: list[Event] = []
        if known.incident is not None and (said := self._progress(cell, known, now)) is not None:
            events.append(said)
        incident = known.incident
        if incident is None:
            why = self._fault(cell, known, now)
            if why is None:
                return [], events + self._overdue(cell, known, now)
            incident, said = self._open(cell, known, why, now)
            events.append(said)
        action = self._next(cell, cells, incident, now)
        return ([] if action is None else [action]), events + self._overdue(cell, known, now)

    def _fault(self, cell: Cell, known: _Known, now: float) -> str | None:
        bounds = {"stopped": 0.0, "failed": self._rules.failed_s, "unknown": self._rules.unknown_s}
        bound = bounds.get(cell.state)
        if bound is None or now - known.since < bound:
            return None
        return cell.evidence + (f" for {now - known.since:.1f} s" if bound else "")

    def _open(self, cell: Cell, known: _Known, why: str, now: float) -> tuple[_Incident, Event]:
        last_well = known.last_well if cell.state != "unknown" else known.since
        incident = known.incident = _Incident(now, last_well, cell.state, why)
        figures: dict[str, Any] = {"evidence": why, "restarts_in_window": len(known.restarts)}
        if last_well is not None:
            figures["detection_s"] = round(now - last_well, 3)
        if len(known.restarts) >= self._rules.budget:
            incident.exhausted = True
            text = (
                f"{why}: it was restarted {len(known.restarts)} times within {self._rules.window_s:g} s, which is its budget, "
                "and stays suspended: the others go on without it. Resume it by hand once its cause is gone"
            )
            return incident, Event("exhausted", cell.name, text, figures)
        if cell.state == "stopped":
            # Its processes are miles' own to end, and may be on their way still.
            incident.resume_at = now + self._delay(known)
        return incident, Event("detected", cell.name, why, figures)

    def _next(self, cell: Cell, cells: Sequence[Cell], incident: _Incident, now: float) -> Action | None:
        if now < incident.not_before:
            return None
        if incident.resume_at is None:
            # A hung cell keeps the others waiting until it is stopped, so one beyond its budget is stopped, too.
            others = any(other.name != cell.name and other.state in ("healthy", "unknown") for other in cells)
            return Action(cell.name, suspend=True) if others and cell.state in ("failed", incident.fault) else None
        waits = cell.state == "stopped" and incident.resumed is None
        if waits and not incident.exhausted and now >= incident.resume_at:
            return Action(cell.name, suspend=False)
        return None

    def _progress(self, cell: Cell, known: _Known, now: float) -> Event | None:
        """How an open incident goes on by what the cell is now; ends it where it ends."""
        incident = known.incident
        assert incident is not None
        runs = cell.state in ("healthy", "unknown")
        if incident.resumed is None:
            if incident.resume_at is None and cell.state == "stopped":
                incident.resume_at = now + self._delay(known)
            elif incident.resume_at is not None and cell.state == "failed" and now >= incident.resume_at:
                # Somebody resumed it meanwhile, and it failed again.
                incident.resume_at = None
            well = cell.state == "healthy" or (runs and incident.resume_at is not None)
            if well or cell.state == "pending":
                known.incident = None
                return Event("by_hand", cell.name, f"it got well without having been resumed from here: {cell.evidence}")
            return None
        if cell.state in ("failed", "stopped"):
            # It failed again: a new incident, which counts against the budget. What was true before it was resumed
            # may be said for a moment still.
            if now - incident.resumed >= self._rules.resume_delay_s or incident.running_since is not None:
                known.incident = None
            return None
        if not runs:
            incident.running_since = incident.taking_part_since = None
            return None
        incident.running_since = now if incident.running_since is None else incident.running_since
        if cell.state == "unknown" and incident.taking_part_since is None:
            incident.taking_part_since = now
        initialized = incident.taking_part_since is not None
        since = incident.taking_part_since if initialized else incident.running_since
        if now - since < (self._rules.settle_s if initialized else self._rules.unseen_s):
            return None
        known.incident = None
        figures: dict[str, Any] = {
            "restart_s": round(incident.resumed - incident.detected, 3),
            "recovery_s": round(since - incident.detected, 3),
            "evidence": cell.evidence,
        }
        if incident.last_well is not None:
            figures["detection_s"] = round(incident.detected - incident.last_well, 3)
        text = f"it takes part again, {figures['recovery_s']:g} s after its fault was detected: {cell.evidence}"
        return Event("recovered", cell.name, text, figures)

    def _overdue(self, cell: Cell, known: _Known, now: float) -> list[Event]:
        if cell.state != "pending" or known.told_overdue or now - known.since < self._rules.pending_s:
            return []
        known.told_overdue = True
        text = f"it has waited {now - known.since:.1f} s for miles' next training step, which starts it: {cell.evidence}"
        return [Event("overdue", cell.name, text)]

    def _delay(self, known: _Known) -> float:
        return min(self._rules.resume_delay_s * 2.0 ** len(known.restarts), max(_LONGEST_DELAY, self._rules.resume_delay_s))

    # ---- how actions ended --------------------------------------------------------------------------

    def ended(self, action: Action, now: float, error: str | None = None) -> Event:
        """The action was done at ``now``, or the server refused it: it is asked again, after 5 s and then doubly as
        long each time, at most 300."""
        known = self._cells[action.cell]
        incident = known.incident
        assert incident is not None, "actions belong to incidents"
        since = {"since_detected_s": round(now - incident.detected, 3)}
        if error is not None:
            incident.refusals += 1
            wait = min(5.0 * 2.0 ** (incident.refusals - 1), _LONGEST_DELAY)
            incident.not_before = now + wait
            what = "suspend" if action.suspend else "resume"
            return Event("refused", action.cell, f"the server did not {what} it: {error}; it is asked again in {wait:g} s", since)
        incident.refusals = 0
        if action.suspend:
            incident.resume_at = now + self._delay(known)
            after = "it stays suspended" if incident.exhausted else f"it is resumed in {incident.resume_at - now:g} s"
            return Event("suspended", action.cell, f"{incident.evidence}; {after}", since)
        incident.resumed = now
        known.restarts.append(now)
        text = f"restart {len(known.restarts)} of {self._rules.budget} within {self._rules.window_s:g} s; miles starts it with its next training step"
        return Event("resumed", action.cell, text, since)
