"""Progress as plain lines: steps as they start and end, each failing unit with its reason, and a sign of life.

At least one line every half minute, so that a log never falls silent for an hour; at most a handful of
failing units a step, since a thousand equal lines tell nobody more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Literal

from interlock.cli.hiding import hide_of
from interlock.cli.progress.feed import Change
from interlock.cli.progress.gates import feedback_of, gate_line, parked
from interlock.cli.progress.spending import Spending
from interlock.cli.text import clip, count, duration, safe
from interlock.model import events as ev
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import UNIT_ENDED, AttemptState, RunState, StepState, UnitState

HEARTBEAT_S: Final = 30.0
_MOST_FAILURES: Final = 10
_MOST_RUNNING: Final = 10
Tone = Literal["plain", "good", "bad", "note"]
"""What a line means, for a terminal that has colours."""
_TONES: Final[dict[StepState, Tone]] = {
    StepState.COMPLETED: "good",
    StepState.FAILED: "bad",
    StepState.BLOCKED: "note",
    StepState.WAITING: "note",
}
_AGAIN: Final = frozenset({UnitState.WAITING, UnitState.PENDING})
_ERROR_CHARACTERS: Final = 300


class PlainRenderer:
    """Writes lines through `write`, which may block or raise OSError."""

    def __init__(
        self,
        write: Callable[[str, Tone], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._write = write
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._began = self._spoke = clock()
        self._since_ms: dict[tuple[str, int], int] = {}
        self._failures: Counter[tuple[str, int]] = Counter()
        self._noticed: set[str] = set()
        self.spending = Spending()

    def begin(self, snapshot: Snapshot, ended: int) -> None:
        """Name the run."""
        went = f", {ended} of {count(len(snapshot.steps), 'step')} ended before" if ended else ""
        self._line(f"run {snapshot.run.id} of {safe(snapshot.plan.source)}{went}")

    def show(self, changes: Sequence[Change], snapshot: Snapshot, dropped: int) -> None:
        """Write a line for what a person would want to know."""
        for change in changes:
            of = change.snapshot
            for event in change.events:
                self.spending.see(event)
                if not (in_map(of) and _is_routine(event)):
                    self._tell(event, of)
        if dropped:
            self._line(f"({count(dropped, 'event')} not shown: the reader was too slow)", "note")
        if self._clock() - self._spoke >= self._heartbeat_s:
            self._line(self._heartbeat(snapshot))

    def end(self) -> None:
        """Nothing stands on the screen."""

    def _line(self, text: str, tone: Tone = "plain") -> None:
        self._spoke = self._clock()
        self._write(text + "\n", tone)

    def _tell(self, event: ev.Event, snapshot: Snapshot) -> None:
        match event:
            case ev.StepStarted():
                self._started(event, snapshot)
            case ev.AttemptFinished() if event.unit_state is not UnitState.COMPLETED:
                self._failed(event, snapshot)
            case ev.StepMoved():
                self._moved(event, snapshot)
            case ev.RunMoved(state=RunState.WAITING):
                run = "run" if snapshot.above is None else f"run {snapshot.run.id}"
                self._line(f"{run} waiting: {safe(event.detail or event.reason or '')}")
            case ev.Notice():
                self._notice(event, snapshot)
            case ev.EngineParked():
                self._once(parked(event))
            case _:
                line = gate_line(event, snapshot, label(snapshot))
                if line:
                    self._line(line)

    def _notice(self, event: ev.Notice, snapshot: Snapshot) -> None:
        """Say it once: the child runs of a map have much the same to say."""
        of_plan = snapshot.above is not None and event.code.startswith("plan:")
        file = f"{safe(snapshot.plan.source)}, " if of_plan else ""
        self._once(f"notice: {file}{safe(event.text)}")

    def _once(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._line(text, "note")

    def _started(self, event: ev.StepStarted, snapshot: Snapshot) -> None:
        step, spec = snapshot.steps[event.step], snapshot.plan.steps[event.step]
        self._since_ms[snapshot.run.id, event.step] = event.at
        again = f" (round {event.round})" if event.round > 1 else ""
        if event.loop > 1:
            most = max(event.loop, (spec.gate.max_loops if spec.gate else 1) + snapshot.granted.get(event.step, 0))
            again = f" (loop {event.loop} of {most})"
        many = f" with {count(len(event.units), 'unit')}" if len(event.units) != 1 else ""
        begun = f"started{many}"
        if step.work and not event.units:
            begun = "reopened, its work stands"
        told = feedback_of(event)
        self._line(f"step {label(snapshot)}{step.id} {begun}{again}" + (f", told: {told}" if told else ""))

    def _failed(self, event: ev.AttemptFinished, snapshot: Snapshot) -> None:
        step, place = snapshot.steps[event.step], (snapshot.run.id, event.step)
        self._failures[place] += 1
        if self._failures[place] > _MOST_FAILURES:
            return
        unit = step.units[event.unit]
        item = "" if unit.item is None else f", item {_shown(unit.item, snapshot)},"
        error = f": {clip(safe(event.error), _ERROR_CHARACTERS)}" if event.error else ""
        reason = f" ({event.reason.value})" if event.reason else ""
        tone: Tone = "bad" if event.unit_state is UnitState.FAILED else "note"
        self._line(f"unit {label(snapshot)}{safe(unit.id)}{item} {_fate(event, unit)}{reason}{error}", tone)
        if self._failures[place] == _MOST_FAILURES:
            self._line(f"step {label(snapshot)}{step.id}: further failing units are counted, not shown")

    def _moved(self, event: ev.StepMoved, snapshot: Snapshot) -> None:
        step, place = snapshot.steps[event.step], (snapshot.run.id, event.step)
        took = ""
        if place in self._since_ms and event.state in {StepState.COMPLETED, StepState.FAILED}:
            took = f" after {duration(event.at - self._since_ms[place])}"
        short = event.state is StepState.COMPLETED and step.counts[UnitState.FAILED]
        many = len(step.work) > 1 and event.state is not StepState.SKIPPED
        counts = f" ({_counts(step)})" if many or short else ""
        route = f" -> {', '.join(event.route)}" if event.route else ""
        reason = f" ({event.reason})" if event.reason else ""
        # what a unit's own line has told is not told again
        told = event.state is StepState.SKIPPED or self._failures[place]
        detail = f": {clip(safe(event.detail), _ERROR_CHARACTERS)}" if event.detail and not told else ""
        self._line(
            f"step {label(snapshot)}{step.id} {event.state.value}{reason}{took}{counts}{route}{detail}",
            _TONES.get(event.state, "plain"),
        )

    def _heartbeat(self, snapshot: Snapshot) -> str:
        """What is under way, while nothing else is worth a line."""
        running = [
            f"{label(of)}{step.id} {_counts(step)}" if len(step.work) > 1 else f"{label(of)}{step.id}"
            for of in under_way(snapshot)
            for step in of.steps
            if step.state in {StepState.RUNNING, StepState.GATING, StepState.WAITING}
        ]
        more = len(running) - _MOST_RUNNING
        running[_MOST_RUNNING:] = [f"and {more} more"] if more > 0 else []
        gone = f"{duration((self._clock() - self._began) * 1000)}{self.spending.text(snapshot)}"
        return f"still running after {gone}: {'; '.join(running) or 'nothing'}"


def label(snapshot: Snapshot) -> str:
    """Return what stands before the steps of a child run: the units that it is, from the first run on."""
    if snapshot.place is None or snapshot.above is None:
        return ""
    step, unit = snapshot.place
    item = "" if unit.item is None else f"[{_shown(unit.item, snapshot.above)}]"
    return f"{label(snapshot.above)}{step.id}{item} > "


def under_way(snapshot: Snapshot) -> list[Snapshot]:
    """Return the run and those below it that are under way, each after its parent."""
    return [snapshot, *(found for below in list(snapshot.below) for found in under_way(below))]


def in_map(snapshot: Snapshot) -> bool:
    """Tell whether the run is one of many, of which only what goes wrong is told."""
    return any(level.place is not None and level.place[1].item is not None for level in snapshot.levels)


def _fate(event: ev.AttemptFinished, unit: Unit) -> str:
    """Say what becomes of a unit whose attempt did not complete it; of one that was stopped nobody knows yet."""
    if event.unit_state not in _AGAIN:
        return event.unit_state.value
    if event.state is AttemptState.ABORTED:
        return "was stopped"
    if unit.attempt == event.number and unit.state in UNIT_ENDED:
        return "is not tried again"
    asked = event.asks and event.unit_state is UnitState.PENDING
    return "is asked again for an answer that fits" if asked else "will be tried again"


def _is_routine(event: ev.Event) -> bool:
    return isinstance(event, ev.StepStarted | ev.UnitsAdded) or (
        isinstance(event, ev.StepMoved) and event.state not in {StepState.FAILED, StepState.BLOCKED, StepState.WAITING}
    )


def _shown(item: bytes, snapshot: Snapshot) -> str:
    levels = snapshot.levels
    hide = hide_of(((param.name for param in level.plan.params if param.secret), level.run.params) for level in levels)
    return clip(safe(hide(item)[:200].decode("utf-8", "replace")), 60)


def _counts(step: Step) -> str:
    counts = dict(step.counts)
    parts = [f"{counts[UnitState.COMPLETED]:,}/{len(step.work):,} completed"]
    parts += [
        f"{counts[state]:,} {state.value.replace('_', ' ')}"
        for state in (UnitState.FAILED, UnitState.UNKNOWN, UnitState.NOT_RUN)
        if counts[state]
    ]
    return ", ".join(parts)
