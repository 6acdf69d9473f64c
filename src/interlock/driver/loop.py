"""The loop: one thread decides and writes; everything slow happens below the executor.

Each turn: take what is done, record it, ask what is next, reserve it, commit all of that in one transaction,
start what was reserved, wait. An interrupt, a lost lease, a failing journal or an abandon only change what the
next turns may do: nothing new starts, children end, their ends are recorded. Resume is the same loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

import msgspec

from interlock.decide import requests as asked
from interlock.decide.budget import ceiling, reservation
from interlock.decide.next import next_actions
from interlock.decide.now import Now
from interlock.decide.schedule import next_due
from interlock.decide.values import UnresolvedError
from interlock.dispatch.base import Request
from interlock.dispatch.markers import dispatch_id
from interlock.driver.clock import Clock
from interlock.driver.executor import Executor
from interlock.driver.jobs import JobBook, ModuleChangedError
from interlock.driver.lease import RENEW_MS, held_error, renewed
from interlock.driver.record import recorded
from interlock.errors import InterlockError, StoreError
from interlock.model import events as ev
from interlock.model.actions import Dispatch
from interlock.model.run import Lease, Snapshot, Step, Unit
from interlock.model.states import STEP_ENDED, RunState, StepState
from interlock.store.base import Store

POLL_MS: Final = 500
GRACE_S: Final = 5.0
_REFUSED: Final = "the end of attempt {} of run {} was not recorded: another driver had closed the attempt before"
_OVER: Final = frozenset({RunState.COMPLETED, RunState.ABANDONED})
"""What nobody can ask anything of any more."""

Opening = Callable[[Snapshot, Now], Sequence[ev.Event]]
Observer = Callable[[Sequence[ev.Event], Snapshot], None]


_Placed = tuple[Request, Step, Unit]


class Stop(Enum):
    """Why a loop ends before its run does."""

    INTERRUPT = "interrupt"
    ABANDON = "abandon"
    LEASE_LOST = "lease_lost"
    ERROR = "error"


class Loop:
    """Drives one run to where nothing can move, or until it is stopped."""

    def __init__(  # noqa: PLR0913 - all by name
        self,
        *,
        snap: Snapshot,
        lease: Lease,
        store: Store,
        executor: Executor,
        clock: Clock,
        observe: Observer,
        map_concurrency: int,
        timeout_ms: int | None = None,
        examine: bool = True,
    ) -> None:
        self._snap = snap
        self._lease = lease
        self._store = store
        self._executor = executor
        self._clock = clock
        self._observe = observe
        self._map_concurrency = map_concurrency
        self._jobs = JobBook(snap, examine=examine)
        self._inflight: dict[str, tuple[Step, Unit]] = {}
        self._counter = 0
        self._began_ms = clock.monotonic_ms()
        self._driven_before = snap.run.driven_ms
        self._began_boot = self._renewed_boot = clock.boot_ms()
        self._began_wall = clock.wall_ms()
        self._polled_ms = self._began_ms
        self._planned_at = self._began_wall
        self._deadline_ms = None if timeout_ms is None else self._began_ms + timeout_ms
        self._requests: list[int] = []
        self._signals = 0
        self._signals_seen = 0
        self.stop: Stop | None = None
        self.error: InterlockError | None = None

    def interrupt(self) -> None:
        """Stop as a signal asks: the first ends children gently, the second at once. Safe in a signal handler."""
        self._signals += 1
        self._executor.wake()

    def drive(self, openings: Sequence[Opening], *, settle_only: bool = False) -> None:
        """Run until nothing can move, or all children have ended after a stop.

        `openings` say what changes before the first decision, each looking at what the one before left.
        `settle_only` applies them and open requests, and dispatches nothing.
        """
        pending: list[ev.Event] = []
        for opening in openings:
            self._add(pending, opening(self._snap, self._now()))
        self._answer_requests(pending)
        if settle_only:
            self._part(pending)
            self._commit(pending, [])
            return
        while True:
            requests = self._plan_turn(pending)
            self._commit(pending, requests)
            if self._over():
                return
            reports = self._executor.wait(self._wait_s())
            pending = []
            for event in recorded(self._snap, self._inflight, reports, self._clock.wall_ms(), self._steady_ms()):
                self._add(pending, (event,))
            self._look_around(pending)

    @property
    def lease(self) -> Lease:
        """The lease as last renewed."""
        return self._lease

    # what is next

    def _plan_turn(self, pending: list[ev.Event]) -> list[_Placed]:
        requests: list[_Placed] = []
        while self.stop is None:
            now = self._now()
            self._planned_at = now.at
            actions = next_actions(self._snap, now)
            dispatches: list[Dispatch] = []
            for action in actions:
                if isinstance(action, Dispatch):
                    dispatches.append(action)
                else:
                    self._add(pending, (action,))
            blocked = self._reserve(dispatches, pending, requests)
            if len(dispatches) == len(actions) and not blocked:
                break
        if self.stop is Stop.ERROR and requests:
            # what will not start is not journaled: an external effect would be held for possibly done
            pending[:] = [event for event in pending if not isinstance(event, ev.AttemptReserved)]
        if not self._inflight:
            self._part(pending)
        return requests

    def _part(self, pending: list[ev.Event]) -> None:
        """Journal how a stopped run is left, once its children have ended."""
        if self.stop is Stop.ABANDON:
            self._add(pending, asked.abandon(self._snap, self._now()))
            self._close_requests(pending)
        elif self.stop is Stop.INTERRUPT and self._snap.run.state is RunState.ACTIVE:
            moved = ev.RunMoved(
                at=self._clock.wall_ms(), state=RunState.ACTIVE, reason="interrupted", driven_ms=self.driven_ms()
            )
            self._add(pending, (moved,))

    def _reserve(self, dispatches: list[Dispatch], pending: list[ev.Event], requests: list[_Placed]) -> bool:
        """Reserve what there is place for; tell whether a step was blocked, so that there is more to decide."""
        start, blocked = 0, False
        while start < len(dispatches) and self.stop is None:
            step = self._snap.steps[dispatches[start].step]
            end = start + 1
            while end < len(dispatches) and dispatches[end].step == step.index:
                end += 1
            try:
                self._reserve_step(step, dispatches[start:end], pending, requests)
            except ModuleChangedError as error:
                self._block(step, "module_changed", str(error), pending)
                blocked = True
            except (InterlockError, UnresolvedError) as error:
                self._fail(error if isinstance(error, InterlockError) else InterlockError("internal", str(error)))
            start = end
        return blocked

    def _reserve_step(
        self, step: Step, dispatches: list[Dispatch], pending: list[ev.Event], requests: list[_Placed]
    ) -> None:
        units = [step.units[dispatch.unit] for dispatch in dispatches]
        jobs = [self._jobs.job(step, unit) for unit in units]
        ahead = sum(dispatch.ahead for dispatch in dispatches)
        places = self._executor.capacity(jobs[0], len(units) - ahead, ahead)
        at = self._clock.wall_ms()
        reserve = reservation(self._snap, self._snap.plan.steps[step.index], units[0].kind)
        for dispatched, unit, job, process in zip(dispatches, units, jobs, places, strict=False):
            self._counter += 1
            dispatch = dispatch_id(self._lease.holder, step.index, self._counter)
            number = unit.attempt + 1
            request = self._jobs.request(job, step, unit, number, dispatch, process, ahead=dispatched.ahead)
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
            requests.append((request, step, unit))
            self._add(pending, (event,))
        for text in self._jobs.take_notices():
            if text not in self._snap.noticed:
                self._add(pending, (ev.Notice(at=at, code=text, text=text),))

    def _block(self, step: Step, reason: str, detail: str, pending: list[ev.Event]) -> None:
        moved = ev.StepMoved(
            at=self._clock.wall_ms(),
            step=step.index,
            state=StepState.BLOCKED,
            reason=reason,
            detail=detail,
            round=step.round,
            loop=step.loop,
        )
        self._add(pending, (moved,))

    # the journal

    def _add(self, pending: list[ev.Event], events: Sequence[ev.Event]) -> None:
        for event in events:
            self._snap.apply(event)
            pending.append(event)

    def _commit(self, pending: list[ev.Event], requests: list[_Placed]) -> None:
        if not pending:
            return
        try:
            done = self._store.commit(self._lease, pending)
        except StoreError as error:
            self._fail(error)
            self._spool(pending)
            return
        self._warn(done.refused)
        if done.lost:
            self._lose()
            return
        if requests and self.stop is None and self._still_ours():
            self._inflight.update({request.dispatch: (step, unit) for request, step, unit in requests})
            self._executor.start([request for request, _, _ in requests])
        for event in pending:
            if type(event) is ev.StepMoved and event.state in STEP_ENDED:
                self._executor.tidy(event.step)
        self._observe(pending, self._snap)

    def _warn(self, refused: Sequence[str]) -> None:
        """Tell of ends that came too late; the journal has another end of theirs, so it is not the place."""
        at, run = self._clock.wall_ms(), self._snap.run.id
        told = [
            ev.Notice(at=at, code=f"refused:{dispatch}", text=_REFUSED.format(dispatch, run)) for dispatch in refused
        ]
        if told:
            self._observe(told, self._snap)

    def _spool(self, pending: Sequence[ev.Event]) -> None:
        finished = [event for event in pending if isinstance(event, ev.AttemptFinished)]
        if not finished:
            return
        try:
            self._store.spool(self._snap.run.id, finished)
        except StoreError:
            # nothing can be written at all: the attempts stay open and the next driver closes them as lost
            self._observe(finished, self._snap)

    # time, people, signals

    def _look_around(self, pending: list[ev.Event]) -> None:
        if self._signals > self._signals_seen:
            self._signals_seen = self._signals
            self._halt(Stop.INTERRUPT, GRACE_S if self._signals == 1 else 0.0)
        if self._snap.halted is not None:
            self._executor.recall(self._snap.run.id)
        now = self._clock.monotonic_ms()
        if self._deadline_ms is not None and now >= self._deadline_ms and self.stop is None:
            self._halt(Stop.INTERRUPT, GRACE_S)
        if self._clock.boot_ms() - self._renewed_boot >= RENEW_MS:
            self._renew(pending)
        if now - self._polled_ms >= POLL_MS and self.stop in (None, Stop.INTERRUPT):
            self._polled_ms = now
            self._answer_requests(pending)

    def _still_ours(self) -> bool:
        """Look again after a pause between commit and start: another driver may have taken over meanwhile."""
        if self._clock.boot_ms() < self._lease.expires_boot_ms:
            return True
        self._renew([])
        return self.stop is None

    def _renew(self, pending: list[ev.Event]) -> None:
        if self.stop is Stop.LEASE_LOST:
            return
        lease = renewed(self._lease, self._clock)
        try:
            kept = self._store.renew(lease)
        except StoreError as error:
            if self._lease.expires_boot_ms <= self._clock.boot_ms():
                self._fail(error)
            return
        if not kept:
            self._lose()
            return
        self._lease, self._renewed_boot = lease, self._clock.boot_ms()
        run = self._snap.run
        if self.stop is None and run.state is RunState.ACTIVE and ceiling(self._snap, "max_duration_ms") is not None:
            # driven time that is not journaled would be lost with a killed driver
            self._add(pending, (ev.RunMoved(at=self._clock.wall_ms(), state=run.state, driven_ms=self.driven_ms()),))

    def _answer_requests(self, pending: list[ev.Event]) -> None:
        try:
            found = self._store.requests(self._snap.run.id)
        except StoreError:
            return
        for row in found:
            if row.id in self._requests:
                continue
            if row.kind == "abandon" and self._snap.run.state not in _OVER:
                self._requests.append(row.id)
                self._halt(Stop.ABANDON, GRACE_S)
                continue
            if self._snap.run.state in _OVER:
                reply = asked.Answer((), f"the run is {self._snap.run.state}")
            else:
                payload: dict[str, Any] = msgspec.json.decode(row.payload_json)
                reply = asked.answer(self._snap, row.kind, payload, self._now())
            self._add(pending, reply.events)
            self._add(pending, (ev.RequestApplied(at=self._clock.wall_ms(), request=row.id, outcome=reply.outcome),))

    def _close_requests(self, pending: list[ev.Event]) -> None:
        at = self._clock.wall_ms()
        for request in self._requests:
            self._add(pending, (ev.RequestApplied(at=at, request=request, outcome="applied"),))
        self._requests = []

    # stopping

    def _halt(self, stop: Stop, grace_s: float) -> None:
        if self.stop in (None, Stop.INTERRUPT) or stop is not Stop.INTERRUPT:
            self.stop = stop
        self._executor.cancel(None, grace_s)

    def _lose(self) -> None:
        if self.stop is Stop.LEASE_LOST:
            return
        try:
            holder = self._store.read_lease(self._snap.run.id)
        except StoreError:
            holder = None
        if self.error is None:
            self.error = held_error(self._snap.run.id, holder)
        self._halt(Stop.LEASE_LOST, 0.0)

    def _fail(self, error: InterlockError) -> None:
        if self.error is None:
            self.error = error
        if self.stop not in (Stop.ERROR, Stop.LEASE_LOST):
            self._halt(Stop.ERROR, GRACE_S)

    def _over(self) -> bool:
        if self._inflight:
            return False
        return self.stop is not None or self._snap.run.state is not RunState.ACTIVE

    def _now(self) -> Now:
        return Now(
            at=self._steady_ms(),
            driven_ms=self.driven_ms(),
            map_concurrency=self._map_concurrency,
            ahead=self._executor.ahead(self._snap.run.id),
        )

    def _steady_ms(self) -> int:
        """The wall clock of this driver's beginning, moved on by the boot clock: backoff knows no clock jumps."""
        return self._began_wall + self._clock.boot_ms() - self._began_boot

    def driven_ms(self) -> int:
        """Milliseconds this run has been driven, over all its drivers."""
        return self._driven_before + self._clock.monotonic_ms() - self._began_ms

    def _wait_s(self) -> float:
        ms = POLL_MS
        due = next_due(self._snap, self._planned_at) if self.stop is None else None
        if due is not None:
            ms = min(ms, max(0, due - self._steady_ms()))
        if self._deadline_ms is not None and self.stop is None:
            ms = min(ms, max(0, self._deadline_ms - self._clock.monotonic_ms()))
        return ms / 1000
