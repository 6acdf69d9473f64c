"""One run of the family that a loop drives: its snapshot, its jobs, and what is to be journaled of it next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from interlock.decide import requests as asked
from interlock.decide.budget import reservation
from interlock.decide.now import Now
from interlock.dispatch.base import Request
from interlock.driver.executor import Executor
from interlock.driver.jobs import JobBook
from interlock.model import events as ev
from interlock.model.actions import Ahead, Dispatch
from interlock.model.run import RunInfo, Snapshot, Step, Unit
from interlock.model.states import RUN_ENDED, STEP_ENDED, Reason, RunState
from interlock.store.base import RequestRow
from interlock.store.births import Below, NewRun

OVER: Final = frozenset({RunState.COMPLETED, RunState.ABANDONED})
"""What nobody can ask anything of any more."""


class Moment(msgspec.Struct, frozen=True):
    """One moment on all clocks, in milliseconds; `at` is the driver's steady wall clock."""

    at: int
    wall_ms: int
    monotonic_ms: int
    map_concurrency: int = 4


class Place(msgspec.Struct, frozen=True, eq=False):
    """Where an attempt belongs."""

    member: Member
    step: Step
    unit: Unit


Told = list["tuple[Member, ev.Event]"]
"""What is to be journaled of a whole family, in the order in which it came about."""


class Stopping(msgspec.Struct, frozen=True):
    """Why a child run is being ended from outside; `reason` is what its parent's unit failed with."""

    reason: Reason
    word: str
    detail: str


class Member:
    """The run itself, or a child run with its place in its parent."""

    def __init__(
        self, snap: Snapshot, jobs: JobBook, *, first: int, began_ms: int, told: Told, place: Place | None = None
    ) -> None:
        self.snap = snap
        self.jobs = jobs
        self.first = first
        """The executor's number of its first step."""
        self.place = place
        """Its unit in its parent, None of the run that has none."""
        self.born: NewRun | None = None
        """Its rows, until they are journaled."""
        self.pending: list[ev.Event] = []
        self._told = told
        self.forked_from: str | None = None
        self.stopping: Stopping | None = None
        self.deadline_ms: int | None = None
        """On the monotonic clock."""
        self._began_ms = began_ms
        self._driven_before = snap.run.driven_ms

    @property
    def parent(self) -> Member | None:
        """The run that it is a unit of."""
        return None if self.place is None else self.place.member

    def add(self, events: Sequence[ev.Event]) -> None:
        """Apply the events, and journal them next."""
        for event in events:
            self.snap.apply(event)
            self.pending.append(event)
            self._told.append((self, event))

    def ended_above(self) -> RunInfo | None:
        """Return the run above that has ended, the first of them all."""
        ended = [level.run for level in self.snap.levels[1:] if level.run.state in RUN_ENDED]
        return ended[-1] if ended else None

    def take(self) -> Below:
        """Hand over what is to be journaled."""
        taken = Below(run_id=self.snap.run.id, events=self.pending, new=self.born)
        self.pending, self.born = [], None
        return taken

    def driven_ms(self, monotonic_ms: int) -> int:
        """Milliseconds this run has been driven, over all its drivers."""
        return self._driven_before + monotonic_ms - self._began_ms

    def now(self, moment: Moment, ahead: Mapping[int, Ahead] = MappingProxyType({})) -> Now:
        """Return the moment of a decision about this run; `ahead` is by the executor's numbers of its steps."""
        levels: list[Member] = []
        level = self.parent
        while level is not None:
            levels.append(level)
            level = level.parent
        return Now(
            at=moment.at,
            driven_ms=self.driven_ms(moment.monotonic_ms),
            above_ms=tuple(above.driven_ms(moment.monotonic_ms) for above in levels),
            map_concurrency=moment.map_concurrency,
            ahead={number - self.first: line for number, line in ahead.items()} if self.first else ahead,
        )

    def stopped_by(self) -> Stopping | None:
        """Say why nothing new may start in this child: it, or a run above it, was stopped."""
        level: Member | None = self
        while level is not None and level.place is not None:
            if level.stopping is not None:
                return level.stopping if level is self else _WITH_PARENT
            if level.place.member.snap.halted is not None:
                return _WITH_PARENT
            level = level.place.member
        return None

    def reserve(
        self, step: Step, dispatches: Sequence[Dispatch], executor: Executor, ids: Sequence[str], at: int
    ) -> list[tuple[Request, Place]]:
        """Reserve the next attempts of units of one kind as far as the executor has places for them.

        `ids` are for all of them. Raises what JobBook.job and JobBook.request raise.
        """
        units = [step.units[dispatch.unit] for dispatch in dispatches]
        jobs = [self.jobs.job(step, unit) for unit in units]
        ahead = sum(dispatch.ahead for dispatch in dispatches)
        places = executor.capacity(jobs[0], len(units) - ahead, ahead)
        reserve = reservation(self.snap, self.snap.plan.steps[step.index], units[0].kind)
        found: list[tuple[Request, Place]] = []
        for wanted, unit, job, process, dispatch in zip(dispatches, units, jobs, places, ids, strict=False):
            number = unit.attempt + 1
            request = self.jobs.request(job, step, unit, number, dispatch, process, ahead=wanted.ahead)
            tree = request.worktree
            event = ev.AttemptReserved(
                at=at,
                step=step.index,
                unit=unit.ordinal,
                number=number,
                dispatch=dispatch,
                process=process,
                engine=job.call.engine if job.call else None,
                model=job.call.model if job.call else None,
                reserve_tokens=reserve,
                worktree=None if tree is None else tree.path,
                base=None if tree is None else tree.commit,
            )
            found.append((request, Place(self, step, unit)))
            self.add((event,))
        for text in self.jobs.take_notices():
            if text not in self.snap.noticed:
                self.add((ev.Notice(at=at, code=text, text=text),))
        return found

    def answer(self, row: RequestRow, moment: Moment) -> None:
        """Carry out what a person asked of this run, and journal what came of it."""
        run, above = self.snap.run, self.ended_above()
        if row.kind == "abandon" and run.state is RunState.ABANDONED:
            reply = asked.Answer(())
        elif run.state in OVER:
            reply = asked.Answer((), f"the run is {run.state}")
        elif above is not None:
            reply = asked.Answer((), above_ended(above.id, above.state))
        else:
            payload: dict[str, Any] = msgspec.json.decode(row.payload_json)
            reply = asked.answer(self.snap, row.kind, payload, self.now(moment))
        self.add((*reply.events, ev.RequestApplied(at=moment.wall_ms, request=row.id, outcome=reply.outcome)))

    def interrupted(self, moment: Moment) -> None:
        """Journal that the driver was interrupted."""
        if self.snap.run.state is RunState.ACTIVE:
            driven_ms = self.driven_ms(moment.monotonic_ms)
            moved = ev.RunMoved(at=moment.wall_ms, state=RunState.ACTIVE, reason="interrupted", driven_ms=driven_ms)
            self.add((moved,))


def above_ended(run_id: str, state: str) -> str:
    """Say why nothing can be asked of what is below a run that has ended."""
    return f"run {run_id} above it {state}; reopen that: interlock resume {run_id}"


def ended_steps(told: Sequence[tuple[Member, Sequence[ev.Event]]]) -> list[int]:
    """Return the executor's numbers of the steps that ended by these events, and were not reopened at once."""
    return [
        member.first + event.step
        for member, events in told
        for event in events
        if type(event) is ev.StepMoved and event.state in STEP_ENDED and member.snap.steps[event.step].ended
    ]


_WITH_PARENT = Stopping(Reason.CHILD_FAILED, "stopped", "stopped with the run above")
