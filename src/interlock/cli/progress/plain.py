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
from interlock.cli.progress.gates import feedback_of, gate_line, parked
from interlock.cli.progress.spending import Spending
from interlock.cli.text import clip, count, duration, safe
from interlock.model import events as ev
from interlock.model.run import Snapshot, Step
from interlock.model.states import RunState, StepState, UnitState

HEARTBEAT_S: Final = 30.0
_MOST_FAILURES: Final = 10
Tone = Literal["plain", "good", "bad", "note"]
"""What a line means, for a terminal that has colours."""
_TONES: Final[dict[StepState, Tone]] = {
    StepState.COMPLETED: "good",
    StepState.FAILED: "bad",
    StepState.BLOCKED: "note",
    StepState.WAITING: "note",
}
_AGAIN: Final = {UnitState.WAITING: "will be tried again", UnitState.PENDING: "will be tried again"}
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
        self._since_ms: dict[int, int] = {}
        self._failures: Counter[int] = Counter()
        self.spending = Spending()

    def begin(self, snapshot: Snapshot, ended: int) -> None:
        """Name the run."""
        went = f", {ended} of {count(len(snapshot.steps), 'step')} ended before" if ended else ""
        self._line(f"run {snapshot.run.id} of {safe(snapshot.plan.source)}{went}")

    def show(self, events: Sequence[ev.Event], snapshot: Snapshot, dropped: int) -> None:
        """Write a line for what a person would want to know."""
        for event in events:
            self.spending.see(event)
            self._tell(event, snapshot)
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
                self._moved(event, snapshot.steps[event.step])
            case ev.RunMoved(state=RunState.WAITING):
                self._line(f"run waiting: {safe(event.detail or event.reason or '')}")
            case ev.Notice():
                self._line(f"notice: {safe(event.text)}", "note")
            case ev.EngineParked():
                self._line(parked(event), "note")
            case _:
                line = gate_line(event, snapshot)
                if line:
                    self._line(line)

    def _started(self, event: ev.StepStarted, snapshot: Snapshot) -> None:
        step, spec = snapshot.steps[event.step], snapshot.plan.steps[event.step]
        self._since_ms[event.step] = event.at
        again = f" (round {event.round})" if event.round > 1 else ""
        if event.loop > 1:
            most = max(event.loop, (spec.gate.max_loops if spec.gate else 1) + snapshot.granted.get(event.step, 0))
            again = f" (loop {event.loop} of {most})"
        many = f" with {count(len(event.units), 'unit')}" if len(event.units) != 1 else ""
        told = feedback_of(event)
        self._line(f"step {step.id} started{many}{again}" + (f", told: {told}" if told else ""))

    def _failed(self, event: ev.AttemptFinished, snapshot: Snapshot) -> None:
        step = snapshot.steps[event.step]
        self._failures[event.step] += 1
        if self._failures[event.step] > _MOST_FAILURES:
            return
        unit = step.units[event.unit]
        item = "" if unit.item is None else f", item {_shown(unit.item, snapshot)},"
        what = _AGAIN.get(event.unit_state, str(event.unit_state.value))
        if event.asks and event.unit_state is UnitState.PENDING:
            what = "is asked again for an answer that fits"
        error = f": {clip(safe(event.error), _ERROR_CHARACTERS)}" if event.error else ""
        reason = f" ({event.reason.value})" if event.reason else ""
        tone: Tone = "bad" if event.unit_state is UnitState.FAILED else "note"
        self._line(f"unit {safe(unit.id)}{item} {what}{reason}{error}", tone)
        if self._failures[event.step] == _MOST_FAILURES:
            self._line(f"step {step.id}: further failing units are counted, not shown")

    def _moved(self, event: ev.StepMoved, step: Step) -> None:
        took = ""
        if event.step in self._since_ms and event.state in {StepState.COMPLETED, StepState.FAILED}:
            took = f" after {duration(event.at - self._since_ms[event.step])}"
        counts = f" ({_counts(step)})" if len(step.work) > 1 and event.state is not StepState.SKIPPED else ""
        route = f" -> {', '.join(event.route)}" if event.route else ""
        reason = f" ({event.reason})" if event.reason else ""
        # what a unit's own line has told is not told again
        told = event.state is StepState.SKIPPED or self._failures[event.step]
        detail = f": {clip(safe(event.detail), _ERROR_CHARACTERS)}" if event.detail and not told else ""
        self._line(
            f"step {step.id} {event.state.value}{reason}{took}{counts}{route}{detail}", _TONES.get(event.state, "plain")
        )

    def _heartbeat(self, snapshot: Snapshot) -> str:
        """What is under way, while nothing else is worth a line."""
        running = [
            f"{step.id} {_counts(step)}" if len(step.work) > 1 else step.id
            for step in snapshot.steps
            if step.state in {StepState.RUNNING, StepState.GATING, StepState.WAITING}
        ]
        gone = f"{duration((self._clock() - self._began) * 1000)}{self.spending.text(snapshot)}"
        return f"still running after {gone}: {'; '.join(running) or 'nothing'}"


def _shown(item: bytes, snapshot: Snapshot) -> str:
    hide = hide_of((param.name for param in snapshot.plan.params if param.secret), snapshot.run.params)
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
