"""The runs that one loop drives: the run itself, and the child runs that are units of it or of each other.

Guarantees: a child run is born in the transaction that reserves its parent's unit, and what it came to is recorded in
the transaction in which it ends; there is one for each unit, which a later attempt, round or driver goes on with; a
child that cannot move holds its parent's step up, and no longer than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Final

import msgspec

from interlock.decide import children
from interlock.decide.endings import end_run
from interlock.decide.now import Now
from interlock.decide.outcome import record
from interlock.decide.reopen import go_on, reopen
from interlock.decide.work import base_id
from interlock.driver.attempt_time import began_at_ms
from interlock.driver.birth import new_run, new_run_id
from interlock.driver.ended_children import ends, why_ended
from interlock.driver.jobs import JobBook
from interlock.driver.member import Member, Moment, Place, Stopping, Told
from interlock.driver.turns import Turns
from interlock.errors import StoreError
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.outcome import Outcome
from interlock.model.plan import Child, Plan
from interlock.model.run import RunInfo, Snapshot, Step, Unit
from interlock.model.states import RUN_ENDED, Reason, RunState
from interlock.store.base import RunRow, Store
from interlock.store.births import Below, NewRun

_STOPPABLE: Final = frozenset({RunState.ACTIVE, RunState.BLOCKED, RunState.WAITING})


Opening = Callable[[Snapshot, Now], Sequence[ev.Event]]
"""Says what changes in a run before its first decision, given what the one before left."""


class Revived(msgspec.Struct, frozen=True, eq=False):
    """A run as the journal has it, and what it says of what its last driver left open."""

    snap: Snapshot
    openings: Sequence[Opening]
    forked_from: str | None = None


Revive = Callable[[str, Snapshot | None], Revived]
"""Reads the run of that id, which is a child of the other."""

Instead = Callable[[Snapshot, Step, Unit], Outcome | None]
"""Says what a unit came to whose child run need not be opened for it."""


class Family:
    """The member without a parent comes first, each child after its parent."""

    def __init__(
        self,
        snap: Snapshot,
        store: Store,
        revive: Revive,
        forked_from: str | None,
        instead: Instead | None,
        *,
        began_ms: int,
        examine: bool,
    ) -> None:
        self._store = store
        self._revive = revive
        self._instead = instead
        self._examine = examine
        self._next = 0
        self._known: dict[str, dict[str, str]] = {}
        self._births: dict[str, tuple[Plan, NewRun]] = {}
        """By the key of an embedded plan, which many children share: the plan by itself, and the rows that it gives."""
        self._over: list[Member] = []
        self._openings: Sequence[Opening] = ()
        self._asked: set[str] = set()
        """Runs that the openings are not for, or no longer."""
        self._told: Told = []
        self._notes: list[Below] = []
        self._turns = Turns()
        self.root = self._member(snap, began_ms, None)
        self.root.forked_from = forked_from
        self.members = [self.root]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    def find(self, number: int) -> Member | None:
        """Return the member that a step belongs to, by the executor's number of it; None once it is over."""
        found = (one for one in self.members if one.first <= number < one.first + len(one.snap.steps))
        return next(found, None)

    def load(self, moment: Moment) -> None:
        """Take in the child runs that are under way, and theirs."""
        self._load_below(self.root, moment)
        self.settle(moment)

    def _load_below(self, member: Member, moment: Moment) -> None:
        for step in member.snap.steps:
            for unit in step.running.values():
                if step.child and unit.kind == "work":
                    self._load_below(self._open(Place(member, step, unit), moment, anew=False), moment)

    def apply(self, openings: Sequence[Opening], moment: Moment) -> None:
        """Let each run change as asked; what is below a run that has ended is asked once that is reopened."""
        self._openings = openings
        for member in self.members:
            if member.ended_above() is None:
                self._ask(member, moment)
        self.settle(moment)

    def _ask(self, member: Member, moment: Moment) -> None:
        run = member.snap.run
        if run.id not in self._asked and run.state is not RunState.COMPLETED:
            self._asked.add(run.id)
            for opening in self._openings:
                member.add(opening(member.snap, member.now(moment)))

    # opening

    def open(self, place: Place, dispatch: str, moment: Moment) -> None:
        """Reserve the unit's attempt, and begin its run or go on with it, if what it comes to is not known already."""
        step, unit = place.step, place.unit
        number = unit.attempt + 1
        reserved = ev.AttemptReserved(
            at=moment.wall_ms, step=step.index, unit=unit.ordinal, number=number, dispatch=dispatch
        )
        place.member.add((reserved,))
        known = None if self._instead is None else self._instead(place.member.snap, step, unit)
        if known is not None:
            place.member.add(record(place.member.snap, step, unit, known, moment.at))
            return
        child = self._open(place, moment, anew=True)
        self._ask(child, moment)
        if child.snap.run.state in (RunState.FAILED, RunState.ABANDONED):
            child.add(reopen(child.snap, child.now(moment)))
        self._load_below(child, moment)
        for member in self.below(child)[1:]:
            self._ask(member, moment)

    def _open(self, place: Place, moment: Moment, *, anew: bool) -> Member:
        """Begin the unit's run or go on with it; `anew` says that its attempt begins now."""
        parent = place.member.snap
        spec = parent.plan.steps[place.step.index]
        if not isinstance(spec.target, Child):
            raise TypeError(f"step '{spec.id}' runs no child workflow")
        known = self._ids(parent.run.id).get(base_id(place.unit.id))
        if known is None:
            child = self._begin(place, spec.target, moment)
        else:
            child = self._ended_just_now(known, place) or self._go_on(known, place, moment)
        if spec.timeout_ms is not None and (anew or child.deadline_ms is None):
            spent_ms = 0 if anew else child.snap.run.driven_ms - began_at_ms(self._store, place.unit, known)
            child.deadline_ms = moment.monotonic_ms + max(0, spec.timeout_ms - spent_ms)
        child.snap.place = (place.step, place.unit)
        parent.below.append(child.snap)
        self.members.append(child)
        self._turns.join(child)
        return child

    def _ended_just_now(self, run_id: str, place: Place) -> Member | None:
        """Return the child whose end is not in the journal yet."""
        found = next((one for one in self._over if one.snap.run.id == run_id), None)
        if found is not None:
            self._over.remove(found)
            found.place, found.stopping = place, None
        return found

    def _go_on(self, run_id: str, place: Place, moment: Moment) -> Member:
        revived = self._revive(run_id, place.member.snap)
        child = self._member(revived.snap, moment.monotonic_ms, place)
        child.forked_from = revived.forked_from
        for opening in revived.openings:
            child.add(opening(child.snap, child.now(moment)))
        return child

    def _begin(self, place: Place, target: Child, moment: Moment) -> Member:
        parent, at = place.member.snap, moment.wall_ms
        if target.plan not in self._births:
            plan = children.plan_of(parent.plan, target)
            self._births[target.plan] = (plan, new_run(plan, "", b"", 0, None))
        plan, template = self._births[target.plan]
        params = children.params_of(parent, target, place.unit.item)
        new = msgspec.structs.replace(template, id=new_run_id(at), params_json=canon.dumps(params), created_at=at)
        unit_id = base_id(place.unit.id)
        root = self.root.snap.run.id
        # a fork's child takes over from the child that the old run had there
        source = None if place.member.forked_from is None else self._ids(place.member.forked_from).get(unit_id)
        born = msgspec.structs.replace(new, parent=parent.run.id, parent_unit=unit_id, root=root, forked_from=source)
        self._ids(parent.run.id)[unit_id] = born.id
        self._known[born.id] = {}
        self._asked.add(born.id)
        snap = Snapshot(plan, RunInfo(id=born.id, created_at=at, params=params), parent)
        child = self._member(snap, moment.monotonic_ms, place)
        child.born = born
        child.forked_from = source
        child.add([ev.Notice(at=at, code=f"plan:{n}", text=text) for n, text in enumerate(plan.notices)])
        for opening in taken_from(self._store, snap, born):
            child.add(opening(snap, child.now(moment)))
        return child

    def _ids(self, parent: str) -> dict[str, str]:
        """Return a run's child runs by their units."""
        if parent not in self._known:
            rows = self._children(parent)
            self._known[parent] = {row.parent_unit: row.id for row in rows if row.parent_unit is not None}
        return self._known[parent]

    def _children(self, parent: str) -> list[RunRow]:
        try:
            return self._store.children(parent)
        except StoreError as error:
            if error.code != "run-not-found":
                raise
            # a fork's source may be gone
            return []

    def _member(self, snap: Snapshot, began_ms: int, place: Place | None) -> Member:
        first = self._next
        self._next += len(snap.steps)
        jobs = JobBook(snap, first=first, examine=self._examine)
        return Member(snap, jobs, first=first, began_ms=began_ms, told=self._told, place=place)

    # between parent and child

    def moving(self, moment: Moment) -> list[Member]:
        """Return the runs that may decide something now, each after its parent."""
        active = [member for member in self.members if member.snap.run.state is RunState.ACTIVE]
        return [member for member in active if self._turns.has(member, moment.map_concurrency)]

    def settle(self, moment: Moment) -> bool:
        """Tell parents what their children came to, and which cannot move; return whether there is more to decide."""
        changed = False
        for member in self._deepest_first():
            place = member.place
            if place is not None:
                changed |= self._settle(member, place, moment)
        return changed

    def _settle(self, member: Member, place: Place, moment: Moment) -> bool:
        parent, step, unit = place.member, place.step, place.unit
        if member.snap.run.state in RUN_ENDED:
            held_up = unit.ordinal in step.held
            outcome = children.ended(unit, member.snap, moment.wall_ms, why_ended(member, moment))
            parent.add(record(parent.snap, step, unit, outcome, moment.at))
            if held_up:
                parent.add(children.go_on(parent.snap, step, parent.now(moment)))
            self._close(member)
            return True
        held = children.held(member.snap)
        if held is None and unit.ordinal in step.held:
            parent.snap.release(step, unit)
            self._turns.join(member)
            parent.add(children.go_on(parent.snap, step, parent.now(moment)))
            return True
        if held is not None and step.held.get(unit.ordinal) != held:
            parent.snap.hold(step, unit, held)
            self._turns.leave(member)
            return True
        return False

    def _close(self, member: Member) -> None:
        """Let go of a run, and of those below it that wait: they are taken in again when it goes on."""
        for one in reversed(self.below(member)):
            self.members.remove(one)
            self._over.append(one)
            self._turns.leave(one)
            if one.place is not None:
                one.place.member.snap.below.remove(one.snap)

    def wake(self, moment: Moment) -> None:
        """Go on with child runs that waited and are due."""
        for member in self._deepest_first():
            until = member.snap.run.wait_until
            if member.place is not None and until is not None and until <= moment.at:
                member.add(go_on(member.snap, member.now(moment)))

    def next_wake(self) -> int | None:
        """Return when the next waiting child run is due, in epoch ms."""
        due = [until for member in islice(self.members, 1, None) if (until := member.snap.run.wait_until) is not None]
        return min(due, default=None)

    # stopping

    def end_stopped(self, moment: Moment) -> bool:
        """End child runs that were stopped and whose work has ended; one that waits for a person is left to wait.

        Return whether there is more to decide.
        """
        changed = False
        for member in self._deepest_first():
            why, run = member.stopped_by(), member.snap.run
            if why is None or member.snap.running or run.state not in _STOPPABLE:
                continue
            if ends(member):
                member.add(end_run(member.snap, member.now(moment), RunState.FAILED, why.word, why.detail))
                changed = True
        return changed

    def expire(self, moment: Moment) -> list[Member]:
        """Return the child runs whose time is over, each once."""
        over = [m for m in self.members if m.deadline_ms is not None and m.deadline_ms <= moment.monotonic_ms]
        for member in over:
            member.deadline_ms = None
            member.stopping = Stopping(Reason.TIMEOUT, "timeout", "its time is over")
        return over

    def abandon(self, moment: Moment) -> None:
        """End all child runs as abandoned."""
        for member in self._deepest_first():
            if member.place is not None and member.snap.run.state in _STOPPABLE:
                detail = "abandoned with the run above"
                member.add(end_run(member.snap, member.now(moment), RunState.ABANDONED, "abandoned", detail))
                self._settle(member, member.place, moment)

    def below(self, member: Member) -> list[Member]:
        """Return the member and those below it."""
        found = [member]
        for other in self.members if member.snap.below else ():
            # each comes after its parent
            if other.parent in found:
                found.append(other)
        return found

    # the journal

    def take(self) -> list[tuple[Member, Below]]:
        """Hand over what is to be journaled, the root's first."""
        rest = [one for one in (*self.members[1:], *self._over) if one.pending or one.born is not None]
        notes = [(self.root, note) for note in self._notes]
        self._over, self._notes = [], []
        return [*((member, member.take()) for member in (self.root, *rest)), *notes]

    def note(self, run_id: str, event: ev.RequestApplied) -> None:
        """Journal that of a run below which is not under way."""
        self._notes.append(Below(run_id=run_id, events=[event]))

    def tell(self) -> list[tuple[Member, list[ev.Event]]]:
        """Hand over what is to be told once it is journaled, in the order in which it came about."""
        told = self._told.copy()
        self._told.clear()
        grouped = groupby(told, key=itemgetter(0))
        return [(member, [event for _, event in group]) for member, group in grouped]

    def drop_reservations(self) -> None:
        """Forget attempts and child runs that will not be journaled."""
        for member in self._deepest_first():
            member.pending = [event for event in member.pending if not isinstance(event, ev.AttemptReserved)]
            if member.born is not None:
                self._close(member)
        self._over = [member for member in self._over if member.born is None]
        kept = [one for one in self._told if one[0].born is None and not isinstance(one[1], ev.AttemptReserved)]
        self._told[:] = kept

    def _deepest_first(self) -> list[Member]:
        return self.members[::-1]


def taken_from(store: Store, snap: Snapshot, row: RunRow | NewRun) -> list[Opening]:
    """Return what takes over from the run that this one is a fork of."""
    if row.forked_from is None:
        return []
    from interlock.driver.forking import fork_openings  # noqa: PLC0415 - most runs are no forks

    return fork_openings(store, snap, row, row.forked_from)


__all__ = ["Family", "Instead", "Opening", "Revive", "Revived", "taken_from"]
