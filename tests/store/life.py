"""A run's life at random, as rules: its driver, its units and their attempts. `life_gates.py` adds its gates."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.crash.faults import Sql, planted
from tests.store import builders as b
from tests.store.rebuild import compare

from interlock.errors import StoreError
from interlock.model import events as ev
from interlock.model.run import Lease
from interlock.model.states import AttemptState, Reason, RunState, UnitState
from interlock.store.base import StepRow, UnitRow
from interlock.store.births import Committed
from interlock.store.sqlite import SqliteStore

GATES: tuple[b.Gate, ...] = (
    (),
    ("check",),
    ("judge",),
    ("check", "judge", "approval"),
    ("check", "each"),
    ("judge", "approval", "each"),
)
ANSWERS: tuple[dict[str, Any], ...] = (
    {},
    {"usage": ev.Usage(input_tokens=1, cost_usd=0.5), "answered": ev.Answered(session="s", model="m")},
    {"usage": ev.Usage(output_tokens=2, estimated=True), "asks": 1},
    {"answered": ev.Answered(request_id="q"), "usage": ev.Usage()},
)
"""What an end may tell of an engine, in turn."""
LIVELY = [*[RunState.ACTIVE] * 8, *sorted(RunState)]
picks = st.integers(min_value=0, max_value=1_000)


class Life(RuleBasedStateMachine):
    """The driver's view is kept beside the journal; whatever the journal accepts must be what was legal."""

    memory = False
    fault: Sql | None = None

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        if self.memory:
            self.store = SqliteStore.in_memory(self.folder)
        else:
            self.store = SqliteStore.open(self.folder / "journal.db")
        if self.fault is not None:
            self.store._queries = planted(self.store._queries, [self.fault])  # noqa: SLF001 - where the rule stands
        self.lease = b.lease()
        self.old: list[Lease] = []
        self.dispatches: dict[str, ev.AttemptReserved] = {}
        self.ended: set[str] = set()
        self.completed: set[tuple[int, int]] = set()
        self.clock = 100

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @initialize(gates=st.lists(st.sampled_from(GATES), min_size=1, max_size=3))
    def create(self, gates: list[b.Gate]) -> None:
        self.store.create_run(b.new_run(gates=tuple(gates)), self.lease)

    # helpers

    def at(self) -> int:
        self.clock += 1
        return self.clock

    def units(self) -> list[UnitRow]:
        return list(self.store.units(b.RUN))

    def of(self, step: StepRow) -> list[UnitRow]:
        return list(self.store.units(b.RUN, step=step.step))

    def free(self) -> list[UnitRow]:
        return [unit for unit in self.units() if unit.state in ("pending", "waiting") and unit.kind != "approval"]

    def active(self) -> bool:
        return self.store.run(b.RUN).state == "active"

    def legal(self, *events: ev.Event) -> None:
        assert self.store.commit(self.lease, list(events)) == Committed()

    def illegal(self, *events: ev.Event) -> None:
        before = self.store.events(b.RUN)
        with pytest.raises(StoreError):
            self.store.commit(self.lease, list(events))
        assert self.store.events(b.RUN) == before

    def unreserved(self, event: ev.AttemptStarted) -> None:
        """Nothing starts that was not reserved before."""
        before = self.store.events(b.RUN)
        assert self.store.commit(self.lease, [event]).refused == (event.dispatch,)
        assert self.store.events(b.RUN) == before

    # rules

    @precondition(lambda self: self.active())
    @rule(pick=picks, count=st.integers(0, 4))
    def start_step(self, pick: int, count: int) -> None:
        steps = self.store.steps(b.RUN)
        step = steps[pick % len(steps)]
        mine = [unit for unit in self.units() if unit.step == step.step]
        if step.state == "pending":
            units = tuple(b.new_unit(i, i) for i in range(count))
            event = ev.StepStarted(at=self.at(), step=step.step, round=1, loop=1, units=units if not mine else ())
            self.legal(event)
        elif step.state == "failed":
            last = {unit.index: unit for unit in mine if unit.kind == "work"}
            again = [unit.index for unit in last.values() if unit.state in ("failed", "not_run")]
            units = tuple(b.new_unit(len(mine) + i, index) for i, index in enumerate(again))
            self.legal(ev.StepStarted(at=self.at(), step=step.step, round=step.round + 1, loop=step.loop, units=units))

    @precondition(lambda self: self.active())
    @rule(picked=st.lists(picks, min_size=1, max_size=5), warm=st.booleans())
    def reserve(self, picked: list[int], warm: bool) -> None:  # noqa: FBT001 - hypothesis names its arguments
        free = self.free()
        if not free:
            return
        chosen = {(unit.step, unit.ordinal): unit for unit in (free[pick % len(free)] for pick in picked)}
        engine: dict[str, Any] = {"engine": "e1", "model": "m1", "reserve_tokens": 7} if picked[0] % 2 else {}
        events = [
            msgspec.structs.replace(b.reserved(unit.ordinal, unit.attempt + 1, unit.step, warm=warm), **engine)
            for unit in chosen.values()
        ]
        self.legal(*events)
        self.dispatches.update({event.dispatch: event for event in events})

    @precondition(lambda self: self.active())
    @rule(pick=picks, ahead=st.integers(2, 4))
    def reserve_wrongly(self, pick: int, ahead: int) -> None:
        if not self.free():
            self.start_step(pick, 1)
        # what is free first: there alone the number is all that is wrong
        units = self.free() or self.units()
        if units:
            unit = units[pick % len(units)]
            self.illegal(b.reserved(unit.ordinal, unit.attempt + ahead, unit.step))
            self.illegal(b.reserved(unit.ordinal, unit.attempt or 9, unit.step))
            self.unreserved(b.running(unit.ordinal, unit.attempt + ahead, unit.step))

    def open(self) -> list[ev.AttemptReserved]:
        return [event for name, event in self.dispatches.items() if name not in self.ended]

    @rule(pick=picks)
    def start(self, pick: int) -> None:
        waiting = [event for event in self.open() if self._attempt(event.dispatch) == "reserved"]
        if waiting:
            event = waiting[pick % len(waiting)]
            self.legal(b.running(event.unit, event.number, event.step))

    def _attempt(self, name: str) -> str:
        event = self.dispatches[name]
        return self.store.attempts(b.RUN, event.step, event.unit)[event.number - 1].state

    @rule(
        picked=st.lists(picks, min_size=1, max_size=5),
        fate=st.sampled_from(["completed", "failed", "waiting", "unknown", "aborted"]),
        verdict=st.sampled_from(["pass", "reject"]),
        owner=st.booleans(),
    )
    def finish(self, picked: list[int], fate: str, verdict: ev.Verdict, owner: bool) -> None:  # noqa: FBT001
        known = list(self.dispatches.values())
        if not known:
            return
        chosen = {event.dispatch: event for event in (known[pick % len(known)] for pick in picked)}
        lease = self.lease if owner or not self.old else self.old[-1]
        events: list[ev.Event] = [self.end(event, fate, verdict) for event in chosen.values()]
        late = tuple(name for name in chosen if name in self.ended)
        assert self.store.commit(lease, events) == Committed(lost=lease is not self.lease, refused=late)
        self.ended.update(chosen)

    def end(self, event: ev.AttemptReserved, fate: str, verdict: ev.Verdict) -> ev.AttemptFinished:
        kind = next(u.kind for u in self.units() if (u.step, u.ordinal) == (event.step, event.unit))
        place = (event.unit, event.number, event.step)
        fates: dict[str, dict[str, Any]] = {
            "completed": {"verdict": verdict if kind in ("gate", "judge") else None, "started_at": self.at()},
            "failed": {},
            "waiting": {"unit_state": UnitState.WAITING, "not_before": 7, "retries": event.number},
            "unknown": {"unit_state": UnitState.UNKNOWN, "reason": Reason.TIMEOUT},
            "aborted": {"state": AttemptState.ABORTED, "unit_state": UnitState.PENDING, "reason": Reason.ABORTED},
        }
        changes = {**fates[fate], **ANSWERS[self.clock % len(ANSWERS)]}
        return b.finished(*place, **changes) if fate == "completed" else b.failed(*place, **changes)

    def carry_out(self, free: list[UnitRow], fate: str, verdict: ev.Verdict) -> None:
        reserved = [b.reserved(unit.ordinal, unit.attempt + 1, unit.step) for unit in free]
        self.dispatches.update({event.dispatch: event for event in reserved})
        ends = [self.end(event, fate, verdict) for event in reserved]
        self.legal(*reserved, *ends)
        self.ended.update(event.dispatch for event in ends)

    @precondition(lambda self: self.active())
    @rule(fate=st.sampled_from(["completed", "completed", "failed"]), verdict=st.sampled_from(["pass", "reject"]))
    def carry_out_everything(self, fate: str, verdict: ev.Verdict) -> None:
        self.carry_out(self.free(), fate, verdict)

    @rule(pick=picks)
    def finish_under_a_strange_name(self, pick: int) -> None:
        if self.active() and not self.open():
            # lives in which one is open by chance are rare, and an open one is where a stranger might be believed
            self.start_step(pick, 1)
            self.reserve([pick], warm=False)
        tried = [unit for unit in self.units() if unit.attempt]
        units = [unit for unit in tried if unit.state == "running"] or tried
        if units:
            unit = units[pick % len(units)]
            end = b.finished(unit.ordinal, unit.attempt, unit.step, dispatch="stranger")
            assert self.store.commit(self.lease, [end]).refused == ("stranger",)

    @rule(holder=st.booleans())
    def write_with_a_stale_lease(self, holder: bool) -> None:  # noqa: FBT001
        stale = [b.lease(holder="nobody", term=self.lease.term), b.lease(holder=self.lease.holder, term=99)][holder]
        before = self.store.events(b.RUN)
        events: list[ev.Event] = [b.run_moved(RunState.ACTIVE, driven_ms=999), ev.Notice(at=1, code="c", text="t")]
        assert self.store.commit(stale, events) == Committed(lost=True)
        assert self.store.events(b.RUN) == before

    @rule(crash=st.booleans())
    def change_driver(self, crash: bool) -> None:  # noqa: FBT001
        if not crash:
            self.store.release(self.lease)
        seen = self.store.read_lease(b.RUN)
        taken = b.lease(holder=f"h{self.lease.term + 1}", term=self.lease.term + 1)
        assert self.store.take_lease(taken, seen)
        assert not self.store.take_lease(b.lease(holder="late", term=self.lease.term + 2), seen)
        self.old.append(self.lease)
        self.lease = taken
        lost = [
            b.failed(
                row.unit,
                row.number,
                row.step,
                state=AttemptState.LOST,
                unit_state=UnitState.PENDING,
                reason=Reason.LOST,
            )
            for row in self.store.load(b.RUN).open
        ]
        self.legal(*lost)
        self.ended.update(end.dispatch for end in lost)

    @rule(pick=picks, to=st.sampled_from([UnitState.COMPLETED, UnitState.PENDING, UnitState.FAILED]))
    def answer_unknown(self, pick: int, to: UnitState) -> None:
        unsure = [unit for unit in self.units() if unit.state == "unknown"]
        if unsure:
            unit = unsure[pick % len(unsure)]
            self.legal(ev.UnitMoved(at=self.at(), step=unit.step, unit=unit.ordinal, state=to, reason="asked"))

    @rule(to=st.sampled_from(LIVELY), driven=st.integers(0, 9))
    def move_run(self, to: RunState, driven: int) -> None:
        row = self.store.run(b.RUN)
        wait = 9 if to is RunState.WAITING else None
        outcome: Any = {"completed": "ok", "failed": "failed", "abandoned": "abandoned"}.get(to.value)
        event = b.run_moved(to, reason="r", wait_until=wait, outcome=outcome, driven_ms=driven)
        open_steps = any(step.state not in ("completed", "skipped") for step in self.store.steps(b.RUN))
        going_on = row.state == "active" or to in (RunState.ACTIVE, RunState.ABANDONED)
        stays = row.state == to.value and row.state != "active"
        if row.state == "completed" or stays or not going_on or (to is RunState.COMPLETED and open_steps):
            self.illegal(event)
        else:
            self.legal(event)

    @rule(pick=picks, until=st.none() | st.integers(0, 9))
    def amend(self, pick: int, until: int | None) -> None:
        granted = ev.LoopsGranted(at=self.at(), step=pick % len(self.store.steps(b.RUN)), more=pick % 3 + 1)
        self.legal(ev.EngineParked(at=self.at(), engine=f"e{pick % 2}", until=until), granted)

    @rule()
    def reopen_the_file(self) -> None:
        if not self.memory:
            self.store.close()
            self.store = SqliteStore.open(self.folder / "journal.db")

    # what always holds

    @invariant()
    def rows_are_what_the_events_amount_to(self) -> None:
        if self.store.runs():
            compare(self.store, b.RUN)

    @invariant()
    def what_completed_stays_completed(self) -> None:
        if self.store.runs():
            done = {(u.step, u.ordinal) for u in self.units() if u.state == "completed"}
            assert self.completed <= done
            self.completed = done

    @invariant()
    def an_attempt_is_open_exactly_while_its_unit_runs(self) -> None:
        if self.store.runs():
            running = [(u.step, u.ordinal) for u in self.units() if u.state == "running"]
            assert running == [(a.step, a.unit) for a in self.store.load(b.RUN).open]
            assert {a.dispatch for a in self.store.load(b.RUN).open} == {event.dispatch for event in self.open()}
