"""Make `journal-v<n>.db` of the current version. Run once per format; the files of older formats are kept for ever."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from tests.store import builders as b

from interlock.model import canon
from interlock.model import events as ev
from interlock.model.states import RunState, StepState
from interlock.store.births import Below
from interlock.store.sqlite import SqliteStore

OLD = "20300101-r0"
FAMILY = "20300101-r2"


def fill(store: SqliteStore) -> None:
    """One run that ended degraded, with a check, a retry and a request; one that prompts, is judged and under way."""
    mine = b.lease(OLD)
    artifact = b'["ok",null]'
    store.create_run(b.new_run(OLD, gates=(("check",),), key="nightly"), mine)
    store.request(OLD, "raise", b'{"max_units":9}', "somebody", 5)
    store.commit(mine, [b.started(2), b.reserved(0), b.reserved(1, warm=True), b.running(0)])
    store.commit(mine, [b.finished(0, usage=ev.Usage(input_tokens=5, cost_usd=0.25)), b.waiting(1)])
    store.commit(mine, [b.reserved(1, 2), b.failed(1, 2, retries=1), b.asked(canon.sha256(artifact), first=2)])
    store.commit(mine, [b.reserved(2), b.finished(2, verdict="pass"), b.completed(artifact)])
    store.commit(
        mine,
        [
            ev.BudgetRaised(at=60, name="max_units", value=9),
            ev.RequestApplied(at=60, request=1, outcome="applied"),
            ev.Notice(at=61, code="n", text="t"),
            b.run_moved(RunState.COMPLETED, outcome="degraded", driven_ms=9),
        ],
    )
    store.release(mine)
    prompting(store)


def prompting(store: SqliteStore) -> None:
    """A judged and approved step in its second loop; its engine is parked and a prompt is under way."""
    mine = b.lease()
    artifact = b'["ok"]'
    store.create_run(b.new_run(gates=(("judge", "approval"), ())), mine)
    asks = ev.AttemptReserved(at=30, step=0, unit=0, number=1, dispatch="p1", engine="coder", model="big-1")
    answered = ev.Answered(session="s1", model="big-1-2030", request_id="q1")
    usage = ev.Usage(input_tokens=70, output_tokens=30, cost_usd=0.5, cached_tokens=60, reasoning_tokens=10)
    store.commit(mine, [b.started(1), asks, b.finished(0, dispatch="p1", usage=usage, answered=answered)])
    store.commit(mine, [b.asked(*[canon.sha256(artifact)] * 3, first=1, kind="judge")])
    store.commit(
        mine, [event for unit in (1, 2, 3) for event in (b.reserved(unit), b.finished(unit, verdict="reject"))]
    )
    again = ev.NewUnit(4, "s0:solo~l2", 0, None, "h2", None, b'{"feedback":"more","missing":[]}', "s1")
    store.commit(mine, [ev.StepStarted(at=80, step=0, round=1, loop=2, units=(again,))])
    store.commit(mine, [b.reserved(4), b.finished(4, usage=ev.Usage(input_tokens=20_000, estimated=True), asks=1)])
    store.commit(mine, [b.asked(canon.sha256(artifact), first=5, kind="approval", loop=2)])
    store.commit(
        mine, [b.approved(5, canon.sha256(artifact), override=True, note="good enough"), b.completed(artifact)]
    )
    amended: list[ev.Event] = [
        ev.LoopsGranted(at=90, step=1, more=2),
        ev.EngineParked(at=90, engine="coder", until=900),
    ]
    store.commit(mine, [*amended, b.started(1, step=1), b.reserved(0, step=1)])
    below(store)


def below(store: SqliteStore) -> None:
    """A run with a child under way, which waits for a person."""
    mine = b.lease(FAMILY)
    run = b.new_run(FAMILY)
    step = msgspec.structs.replace(run.steps[0], child=True)
    store.create_run(msgspec.structs.replace(run, steps=(step,)), mine)
    new = b.new_child(f"{FAMILY}-child", FAMILY, FAMILY)
    store.commit(mine, [b.started(1), b.reserved(0)], [Below(run_id=new.id, events=[b.started(1)], new=new)])
    waits: list[ev.Event] = [
        b.step_moved(StepState.BLOCKED, reason="approval_needed", detail="d"),
        b.run_moved(RunState.BLOCKED, reason="approval_needed", detail="d", driven_ms=5),
    ]
    store.commit(mine, [], [Below(run_id=new.id, events=[b.reserved(0), b.finished(0), *waits])])


if __name__ == "__main__":
    with SqliteStore.open(Path(sys.argv[1])) as made:
        fill(made)
