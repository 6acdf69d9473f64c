"""A loop on a real journal, with a clock and an executor that a test plays by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from interlock.decide.reopen import close_lost, go_on
from interlock.dispatch.base import Report
from interlock.driver import birth
from interlock.driver.family import Opening, Revived
from interlock.driver.lease import Host, fresh
from interlock.driver.load import restore
from interlock.driver.loop import Loop
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.events import Process
from interlock.model.plan import Plan, Project, Step
from interlock.model.run import Lease, Snapshot
from interlock.store.base import RequestKind
from interlock.store.births import NewRun
from interlock.store.sqlite import SqliteStore
from interlock.testing.build import ok, plan
from interlock.testing.clock import FakeClock
from interlock.testing.executors import HandExecutor

Play = Callable[["Desk"], Iterator[list[Report]]]
RUN = "run-1"
HOST = Host(Process(1, 1, "boot"), "ns", "host")


def real_plan(root: Path, *steps: Step, **settings: Any) -> Plan:
    """Build a plan that is at home in `root`."""
    stat = root.stat()
    project = Project(root=str(root.resolve()), device=stat.st_dev, inode=stat.st_ino, id="p")
    return msgspec.structs.replace(plan(*steps, **settings), project=project)


def new_run(specs: Plan, params: dict[str, Any]) -> NewRun:
    return birth.new_run(specs, RUN, canon.dumps(params), 1, None)


class Desk:
    """One run in a journal of its own; `sit` puts a driver before it."""

    def __init__(self, folder: Path, specs: Plan, params: dict[str, Any] | None = None) -> None:
        self.specs = specs
        self.path = folder / "journal.db"
        self.clock = FakeClock()
        self.told: list[ev.Event] = []
        self.hook: Callable[[str], None] = lambda _moment: None
        self.store = SqliteStore.open(self.path, on_commit=self._committing)
        self.lease = fresh(RUN, 1, HOST, self.clock)
        self.store.create_run(new_run(specs, params or {}), self.lease)

    def close(self) -> None:
        self.store.close()

    def _committing(self, moment: str) -> None:
        self.hook(moment)

    def restore(self) -> Snapshot:
        return restore(self.specs, self.store.load(RUN), self.store.units(RUN))[0]

    def sit(
        self,
        play: Play,
        *,
        store: Any = None,
        places: int = 100,
        timeout_ms: int | None = None,
        lease: Lease | None = None,
    ) -> tuple[Loop, HandExecutor]:
        """Make a driver of the run as it stands, whose executor does what `play` says."""
        self.snap = self.restore()
        self.hand = HandExecutor(self.clock, lambda _hand: play(self), places=places)
        self.loop = Loop(
            snap=self.snap,
            lease=lease or self.lease,
            store=store or self.store,
            executor=self.hand,
            clock=self.clock,
            observe=lambda events, _snap: self.told.extend(events),
            map_concurrency=4,
            timeout_ms=timeout_ms,
            revive=_no_child,
        )
        return self.loop, self.hand

    def drive(self, play: Play, openings: Sequence[Opening] = (close_lost, go_on), **settings: Any) -> Loop:
        """Drive to the end of the play."""
        loop, _ = self.sit(play, **settings)
        loop.drive(openings)
        return loop

    def take_over(self) -> Lease:
        """Take the lease as another driver does."""
        other = SqliteStore.open(self.path)
        try:
            held = other.read_lease(RUN)
            assert held is not None
            lease = fresh(RUN, held.term + 1, HOST, self.clock)
            assert other.take_lease(lease, held)
            return lease
        finally:
            other.close()

    def ask(self, kind: RequestKind, payload: dict[str, Any] | None = None) -> int:
        return self.store.request(RUN, kind, canon.dumps(payload or {}), "me", self.clock.wall_ms())

    def outcome(self, request: int) -> str | None:
        return next(row.outcome for row in self.store.requests(RUN, open_only=False) if row.id == request)

    def history(self) -> list[str]:
        """Return the types of the events that the journal holds."""
        return [row.type for row in self.store.events(RUN)]

    def attempts(self) -> list[tuple[str, int, str]]:
        """Return unit id, number and state of all attempts."""
        return [
            (unit.id, row.number, row.state)
            for unit in self.store.units(RUN)
            for row in self.store.attempts(RUN, unit.step, unit.ordinal)
        ]

    def units(self) -> dict[str, str]:
        return {unit.id: unit.state for unit in self.store.units(RUN)}


def all_well(desk: Desk) -> Iterator[list[Report]]:
    """End everything well, for ever."""
    while True:
        yield desk.hand.end_all(ok("x"))


def _no_child(run_id: str, above: Snapshot | None) -> Revived:
    raise AssertionError(f"run {run_id} has no child runs{'' if above is None else f', nor {above.run.id}'}")
