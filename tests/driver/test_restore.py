from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.store import builders as b

from interlock.driver.birth import new_run
from interlock.driver.load import restore
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.plan import Command, Gate, Judge, Plan
from interlock.model.run import RunInfo, Snapshot
from interlock.model.states import AttemptState, Reason, RunState, StepState, UnitState
from interlock.model.unit import Step, Unit
from interlock.store.sqlite import SqliteStore
from interlock.testing import build

THIS = canon.sha256(b'["ok"]')
RESULT = canon.sha256(b'"ok"')
USED = ev.Usage(input_tokens=70, output_tokens=30, cost_usd=0.5)
GATE = Gate(check=Command(text="true"), judge=Judge(rubric="r", engine="fast", asked=3), approval=True, max_loops=3)


def plan(*, each: bool) -> Plan:
    gate = Gate(judge=GATE.judge, approval=True, each=True) if each else GATE
    return build.plan(build.step("s0", gate=gate), build.step("s1", needs=[], on_error="continue"))


def prompted(unit: int, number: int = 1, step: int = 0, engine: str = "coder") -> ev.AttemptReserved:
    return ev.AttemptReserved(
        at=30,
        step=step,
        unit=unit,
        number=number,
        dispatch=b.dispatch(unit, number, step),
        engine=engine,
        model="m",
        reserve_tokens=500,
    )


def told(unit: int, number: int = 1, **changes: Any) -> ev.AttemptFinished:
    return b.finished(unit, number, usage=USED, engine="coder", answered=ev.Answered(session=f"s{unit}"), **changes)


def prompts() -> Iterator[ev.Event]:
    """Two items in a re-ask and a backoff; the third is under way, the other step has a failure."""
    yield b.started(3)
    yield from (prompted(unit) for unit in range(3))
    yield told(
        0, state=AttemptState.FAILED, unit_state=UnitState.PENDING, reason=Reason.PARSE_ERROR, asks=1, result=None
    )
    yield b.waiting(1)
    yield b.started(2, step=1)
    yield from (b.reserved(0, step=1), b.failed(0, step=1))
    yield ev.EngineParked(at=50, engine="coder", until=900)
    yield ev.EngineParked(at=50, engine="fast")


def judged() -> Iterator[ev.Event]:
    """A second loop with feedback whose judges are half asked; a person is asked as well."""
    yield b.started(1)
    yield from (prompted(0), told(0), b.asked(THIS, first=1), b.reserved(1), b.finished(1, verdict="reject"))
    again = ev.NewUnit(2, "s:w0~l2", 0, b"0", "h", None, b'{"feedback":"more","missing":["x"]}', "s0")
    yield ev.StepStarted(at=60, step=0, round=1, loop=2, units=(again,))
    yield from (prompted(2), told(2), b.asked(THIS, THIS, THIS, first=3, kind="judge", loop=2))
    yield from (prompted(3, engine="fast"), b.finished(3, verdict="pass"))
    yield from (prompted(4, engine="fast"), b.failed(4, retries=3, asks=1))
    yield ev.UnitMoved(at=61, step=0, unit=4, state=UnitState.PENDING)
    yield b.asked(THIS, first=6, kind="approval", loop=2)
    yield ev.LoopsGranted(at=61, step=0, more=2)


def approved() -> Iterator[ev.Event]:
    """One item approved, one rejected by a person and in its next loop."""
    yield b.started(2)
    yield from (event for unit in (0, 1) for event in (b.reserved(unit), b.finished(unit)))
    yield b.asked(RESULT, RESULT, first=2, kind="approval")
    yield from (b.approved(2, RESULT), b.approved(3, RESULT, "reject", note="no"))
    again = ev.NewUnit(4, "s:w1~l2", 1, b"1", "h", None, b'{"feedback":"no","missing":[]}')
    yield ev.StepStarted(at=60, step=0, round=1, loop=2, units=(again,))
    yield b.reserved(4)


def blocked() -> Iterator[ev.Event]:
    """The artifact waits for a person and nothing else can move."""
    yield from (b.started(1), b.reserved(0), b.finished(0), b.asked(THIS, first=1, kind="approval"))
    yield b.step_moved(StepState.BLOCKED, reason="approval_needed", detail="d")
    yield b.run_moved(RunState.BLOCKED, reason="approval_needed", detail="d", driven_ms=5)


def plain(value: Any) -> Any:
    """A snapshot as values that can be compared; units of queues by their ordinals."""
    if isinstance(value, Unit):
        return {name: plain(getattr(value, name)) for name in Unit.__slots__}
    if isinstance(value, deque):
        return sorted(unit.ordinal for unit in value)
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    if isinstance(value, (Snapshot, Step)):
        left_out = ("plan", "by_id", "levels", "place")
        return {key: plain(entry) for key, entry in vars(value).items() if key not in left_out}
    return value


@pytest.mark.parametrize(
    ("events", "each"),
    [(prompts(), False), (judged(), False), (approved(), True), (blocked(), False)],
    ids=["prompts", "judged", "approved", "blocked"],
)
def test_a_restored_snapshot_is_the_one_that_lived_through_the_events(
    tmp_path: Path,
    events: Iterator[ev.Event],
    each: bool,  # noqa: FBT001 - a case's plan
) -> None:
    frozen, batch = plan(each=each), list(events)
    lived = Snapshot(frozen, RunInfo(id=b.RUN, created_at=1, params={"p": 1}))
    lived.apply_all(batch)
    with SqliteStore.open(tmp_path / "journal.db") as store:
        commit(store, frozen, batch)
        restored, _ = restore(frozen, store.load(b.RUN), store.units(b.RUN))
    assert plain(restored) == plain(lived)


def commit(store: SqliteStore, frozen: Plan, batch: Sequence[ev.Event]) -> None:
    births = new_run(frozen, b.RUN, b'{"p":1}', 1, None)
    store.create_run(births, b.lease())
    for event in batch:
        store.commit(b.lease(), [event])


def test_a_lost_prompts_reservation_is_given_back_once(tmp_path: Path) -> None:
    frozen = plan(each=False)
    with SqliteStore.open(tmp_path / "journal.db") as store:
        commit(store, frozen, [b.started(2), prompted(0), prompted(1)])
        snap, _ = restore(frozen, store.load(b.RUN), store.units(b.RUN))
    assert snap.reserved_tokens == 1_000
    snap.apply(b.failed(0, state=AttemptState.LOST, unit_state=UnitState.PENDING, reason=Reason.LOST))
    assert snap.reserved_tokens == 500
