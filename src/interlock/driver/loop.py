"""The loop: one thread decides and writes; everything slow happens below the executor.

Each turn: take what is done, record it, ask what is next, reserve it, commit all of that in one transaction,
start what was reserved, wait. An interrupt, a lost lease, a failing journal or an abandon only change what the
next turns may do: nothing new starts, children end, their ends are recorded. Resume is the same loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from itertools import groupby
from typing import Final

from interlock.decide import requests as asked
from interlock.decide.budget import ceiling
from interlock.decide.endings import block
from interlock.decide.next import next_actions
from interlock.decide.schedule import next_due
from interlock.decide.values import UnresolvedError
from interlock.dispatch.base import Report, Request
from interlock.dispatch.processes.markers import dispatch_id
from interlock.driver.answering import abandoned, answer
from interlock.driver.clock import Clock
from interlock.driver.executor import Executor
from interlock.driver.family import Family, Instead, Opening, Revive
from interlock.driver.jobs import ModuleChangedError
from interlock.driver.lease import lost_error, renewal_due, renewed
from interlock.driver.member import OVER, Member, Moment, Place, ended_steps
from interlock.driver.record import recorded, unwritten
from interlock.errors import InterlockError, StoreError
from interlock.model import events as ev
from interlock.model.actions import Dispatch
from interlock.model.run import Lease, Snapshot, Step
from interlock.model.states import RunState
from interlock.store.base import RequestRow, Store
from interlock.store.births import Below

POLL_MS: Final = 500
GRACE_S: Final = 5.0
_REFUSED: Final = "the end of attempt {} of run {} was not recorded: another driver had closed the attempt before"

Observer = Callable[[Sequence[ev.Event], Snapshot], None]


_Placed = tuple[Request, Place]


class Stop(Enum):
    """Why a loop ends before its run does."""

    INTERRUPT = "interrupt"
    ABANDON = "abandon"
    LEASE_LOST = "lease_lost"
    ERROR = "error"


class Loop:
    """Drives one run, and those below it, to where nothing can move, or until it is stopped."""

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
        revive: Revive,
        forked_from: str | None = None,
        examine: bool = True,
        instead: Instead | None = None,
    ) -> None:
        self._snap = snap
        self._lease = lease
        self._store = store
        self._executor = executor
        self._clock = clock
        self._observe = observe
        self._map_concurrency = map_concurrency
        self._inflight: dict[str, Place] = {}
        self._counter = 0
        self._began_ms = clock.monotonic_ms()
        self._family = Family(snap, store, revive, forked_from, instead, began_ms=self._began_ms, examine=examine)
        self._began_boot = clock.boot_ms()
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

    def drive(self, openings: Sequence[Opening], *, first: Sequence[Opening] = (), settle_only: bool = False) -> None:
        """Run until nothing can move, or all children have ended after a stop.

        `first` is for this run; then `openings` say what changes in it and in those below it before the first decision,
        each looking at what the one before left. `settle_only` applies them and open requests, and dispatches nothing.
        """
        for opening in first:
            self._family.root.add(opening(self._snap, self._family.root.now(self._moment())))
        self._family.load(self._moment())
        self._family.apply(openings, self._moment())
        self._answer_requests()
        if settle_only:
            self._family.settle(self._moment())
            self._part()
            self._commit([])
            return
        while True:
            self._look_around()
            requests = self._plan_turn()
            self._commit(requests)
            if self._over():
                return
            self._record(self._executor.wait(self._wait_s()))

    def _record(self, reports: Sequence[Report]) -> None:
        # who took over during a pause may have ended what was ours, or taken its place away: that is no end of its own
        self._still_ours()
        moment, lost = self._moment(), self.stop is Stop.LEASE_LOST
        for member, event in recorded(self._family, self._inflight, reports, moment, failures=not lost):
            member.add((event,))

    @property
    def lease(self) -> Lease:
        """The lease as last renewed."""
        return self._lease

    # what is next

    def _plan_turn(self) -> list[_Placed]:
        requests: list[_Placed] = []
        moved = True
        while moved and self.stop is None:
            moved = False
            moment = self._moment()
            self._planned_at = moment.at
            self._family.wake(moment)
            for member in self._family.moving(moment):
                moved |= self._plan(member, requests)
            moved |= self._family.end_stopped(moment)
            moved |= self._family.settle(moment)
        if self.stop is Stop.ERROR and requests:
            # what will not start is not journaled: an external effect would be held for possibly done
            self._family.drop_reservations()
        if not self._inflight:
            self._part()
        return requests

    def _plan(self, member: Member, requests: list[_Placed]) -> bool:
        """Decide what is next in one run until there is nothing more; tell whether a child run was opened."""
        opened = False
        run_id = member.snap.run.id
        while self.stop is None and member.stopped_by() is None:
            actions = next_actions(member.snap, member.now(self._moment(), self._executor.ahead(run_id)))
            dispatches: list[Dispatch] = []
            for action in actions:
                if isinstance(action, Dispatch):
                    dispatches.append(action)
                else:
                    member.add((action,))
            blocked = False
            for step, group in _by_step(member.snap, dispatches):
                if step.child and step.units[group[0].unit].kind == "work":
                    opened = True
                    self._open(member, step, group)
                else:
                    blocked |= self._reserve(member, step, group, requests)
            if len(dispatches) == len(actions) and not blocked:
                break
        return opened

    def _part(self) -> None:
        """Journal how a stopped run is left, once its children have ended."""
        moment = self._moment()
        if self.stop is Stop.ABANDON:
            self._family.abandon(moment)
            self._family.root.add(asked.abandon(self._snap, self._family.root.now(moment)))
            self._close_requests()
        elif self.stop is Stop.INTERRUPT:
            for member in self._family:
                member.interrupted(moment)

    def _open(self, member: Member, step: Step, dispatches: list[Dispatch]) -> None:
        for dispatch in dispatches:
            try:
                place = Place(member, step, step.units[dispatch.unit])
                self._family.open(place, self._dispatch_id(member, step), self._moment())
            except InterlockError as error:
                self._fail(error)
                return

    def _dispatch_id(self, member: Member, step: Step) -> str:
        self._counter += 1
        return dispatch_id(self._lease.holder, member.first + step.index, self._counter)

    def _reserve(self, member: Member, step: Step, dispatches: list[Dispatch], requests: list[_Placed]) -> bool:
        """Reserve what there is place for; tell whether the step was blocked, so that there is more to decide."""
        if self.stop is not None:
            return False
        at = self._clock.wall_ms()
        try:
            ids = [self._dispatch_id(member, step) for _ in dispatches]
            requests += member.reserve(step, dispatches, self._executor, ids, at)
        except ModuleChangedError as error:
            member.add((block(step, at, "module_changed", str(error)),))
            return True
        except (InterlockError, UnresolvedError) as error:
            self._fail(error if isinstance(error, InterlockError) else InterlockError("internal", str(error)))
        return False

    # the journal

    def _commit(self, requests: list[_Placed]) -> None:
        taken, told = self._family.take(), self._family.tell()
        if not taken[0][1].events and len(taken) == 1:
            return
        parts = [part for _, part in taken]
        try:
            done = self._store.commit(self._lease, parts[0].events, parts[1:])
        except StoreError as error:
            self._fail(error)
            self._spool(taken)
            return
        self._warn([_REFUSED.format(one, self._snap.run.id) for one in done.refused])
        if done.lost:
            self._lose()
            return
        if requests and self.stop is None and self._still_ours():
            self._inflight.update({request.dispatch: place for request, place in requests})
            self._executor.start([request for request, _ in requests])
        if ended := ended_steps(told):
            self._warn(self._executor.tidy(ended))
        for member, events in told:
            self._observe(events, member.snap)

    def _warn(self, texts: Sequence[str]) -> None:
        """Tell whoever watches what has no place in the journal: that an end came too late, what could not be removed."""
        at = self._clock.wall_ms()
        if told := [ev.Notice(at=at, code=text, text=text) for text in texts]:
            self._observe(told, self._snap)

    def _spool(self, taken: Sequence[tuple[Member, Below]]) -> None:
        for member, part in taken:
            finished = [event for event in part.events if isinstance(event, ev.AttemptFinished)]
            if notices := [event for event in part.events if isinstance(event, ev.Notice)]:
                # no spool keeps them
                self._observe(notices, member.snap)
            if not finished:
                continue
            try:
                self._store.spool(part.run_id, finished)
            except StoreError as error:
                self._observe([unwritten(event, error) for event in finished], member.snap)

    # time, people, signals

    def _look_around(self) -> None:
        if self._signals > self._signals_seen:
            self._signals_seen = self._signals
            self._halt(Stop.INTERRUPT, GRACE_S if self._signals == 1 else 0.0)
        for member in self._family:
            if member.snap.halted is not None or member.stopped_by() is not None:
                self._executor.recall(member.snap.run.id)
        now = self._clock.monotonic_ms()
        if self._deadline_ms is not None and now >= self._deadline_ms and self.stop is None:
            self._halt(Stop.INTERRUPT, GRACE_S)
        self._expire()
        if renewal_due(self._lease, self._clock):
            self._renew()
        if now - self._polled_ms >= POLL_MS and self.stop in (None, Stop.INTERRUPT):
            self._polled_ms = now
            self._answer_requests()

    def _expire(self) -> None:
        """End the work of child runs whose time is over."""
        for member in self._family.expire(self._moment()):
            doomed = self._family.below(member)
            self._executor.cancel([dispatch for dispatch, at in self._inflight.items() if at.member in doomed], GRACE_S)

    def _still_ours(self) -> bool:
        """Look again after a pause, which may also be in looking: another driver may have taken over meanwhile."""
        while self._clock.boot_ms() >= self._lease.expires_boot_ms:
            if not self._renew():
                return False
        return True

    def _renew(self) -> bool:
        if self.stop is Stop.LEASE_LOST:
            return False
        lease = renewed(self._lease, self._clock)
        try:
            kept = self._store.renew(lease)
        except StoreError as error:
            if self._lease.expires_boot_ms <= self._clock.boot_ms():
                self._fail(error)
            return False
        if not kept:
            self._lose()
            return False
        self._lease = lease
        if self.stop is None:
            for member in self._family:
                self._note_time(member)
        return True

    def _note_time(self, member: Member) -> None:
        """Journal driven time that a ceiling or timeout is for: with a killed driver it would be lost."""
        run = member.snap.run
        limited = member.deadline_ms is not None or ceiling(member.snap, "max_duration_ms") is not None
        if run.state is RunState.ACTIVE and limited:
            driven_ms = member.driven_ms(self._clock.monotonic_ms())
            member.add((ev.RunMoved(at=self._clock.wall_ms(), state=run.state, driven_ms=driven_ms),))

    def _answer_requests(self) -> None:
        # who can't read now looks again soon
        with suppress(StoreError):
            for row in self._store.open_requests(self._snap.run.id):
                if row.id not in self._requests:
                    self._answer(row)

    def _answer(self, row: RequestRow) -> None:
        if row.kind == "abandon" and row.run_id == self._snap.run.id and self._snap.run.state not in OVER:
            self._requests.append(row.id)
            self._halt(Stop.ABANDON, GRACE_S)
        else:
            answer(self._family, self._store, row, self._moment())

    def _close_requests(self) -> None:
        self._family.root.add(abandoned(self._store, self._snap.run.id, self._requests, self._clock.wall_ms()))
        self._requests = []

    # stopping

    def _halt(self, stop: Stop, grace_s: float) -> None:
        if self.stop in (None, Stop.INTERRUPT) or stop is not Stop.INTERRUPT:
            self.stop = stop
        self._executor.cancel(None, grace_s)

    def _lose(self) -> None:
        if self.stop is Stop.LEASE_LOST:
            return
        if self.error is None:
            self.error = lost_error(self._store, self._snap.run.id)
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

    def _moment(self) -> Moment:
        wall_ms, monotonic_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        return Moment(self._steady_ms(), wall_ms, monotonic_ms, self._map_concurrency)

    def _steady_ms(self) -> int:
        """The wall clock of this driver's beginning, moved on by the boot clock: backoff knows no clock jumps."""
        return self._began_wall + self._clock.boot_ms() - self._began_boot

    def _wait_s(self) -> float:
        if self.stop is not None:
            return POLL_MS / 1000
        due = [next_due(member.snap, self._planned_at) for member in self._family]
        due.append(self._family.next_wake())
        waits = [at - self._steady_ms() for at in due if at is not None]
        waits += [at - self._clock.monotonic_ms() for at in self._deadlines() if at is not None]
        return min([POLL_MS, *(max(0, ms) for ms in waits)]) / 1000

    def _deadlines(self) -> list[int | None]:
        return [self._deadline_ms, *(member.deadline_ms for member in self._family)]


def _by_step(snap: Snapshot, dispatches: Sequence[Dispatch]) -> list[tuple[Step, list[Dispatch]]]:
    """Gather dispatches of one step, which come one after the other."""
    grouped = groupby(dispatches, key=lambda dispatch: dispatch.step)
    return [(snap.steps[index], list(group)) for index, group in grouped]
