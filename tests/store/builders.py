"""Values for store tests: short spellings of runs, leases and events. Times are small numbers, never the clock."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from interlock.model import canon
from interlock.model import events as ev
from interlock.model.run import Lease
from interlock.model.states import AttemptState, Reason, RunState, StepState, UnitState
from interlock.store.base import Store
from interlock.store.births import Below, NewRun, NewStep, Stage

RUN = "20300101-r1"
Gate = tuple[Stage | Literal["each"], ...]
"""What a gate holds, and whether it looks at each item."""
PROCESS = ev.Process(4242, 777, "5f0c2e2e-boot")


def lease(run_id: str = RUN, holder: str = "h1", term: int = 1, **changes: Any) -> Lease:
    fields: dict[str, Any] = {
        "pid": 1,
        "start_ticks": 2,
        "boot_id": "b",
        "pid_namespace": "n",
        "host": "here",
        "since_ms": 10,
        "renewed_ms": 10,
        "expires_ms": 100,
        "expires_boot_ms": 100,
    }
    return Lease(run_id=run_id, holder=holder, term=term, **{**fields, **changes})


def new_run(run_id: str = RUN, gates: tuple[Gate, ...] = ((),), **changes: Any) -> NewRun:
    fields: dict[str, Any] = {
        "workflow": "w.md",
        "plan_hash": "sha256:plan",
        "plan_json": b'{"plan":1}',
        "params_json": b'{"p":1}',
        "created_at": 1,
    }
    steps = tuple(
        NewStep(id=f"s{i}", stages=tuple(stage for stage in gate if stage != "each"), each="each" in gate)
        for i, gate in enumerate(gates)
    )
    return NewRun(id=run_id, steps=steps, **{**fields, **changes})


CHILD = "20300101-r1-child"


def new_child(run_id: str = CHILD, parent: str = RUN, root: str = RUN, unit: str = "s:w0", **changes: Any) -> NewRun:
    return new_run(run_id, parent=parent, root=root, parent_unit=unit, **changes)


def with_child(store: Store) -> Lease:
    """A run whose one step has one unit, which is a child run whose one step has begun with one unit."""
    mine = lease()
    run = new_run()
    step = msgspec.structs.replace(run.steps[0], child=True)
    store.create_run(msgspec.structs.replace(run, steps=(step,)), mine)
    below = Below(run_id=CHILD, events=[started(1)], new=new_child())
    store.commit(mine, [started(1), reserved(0)], [below])
    return mine


def begin(store: Store, units: int = 1, gate: Gate = ()) -> Lease:
    """A run whose one step has begun with so many units."""
    mine = lease()
    store.create_run(new_run(gates=(gate,)), mine)
    store.commit(mine, [started(units)])
    return mine


def new_unit(ordinal: int, index: int | None = None, subject: str | None = None, name: str = "w") -> ev.NewUnit:
    item = None if index is None else b"%d" % index
    return ev.NewUnit(ordinal, f"s:{name}{ordinal}", index, item, f"sha256:in{ordinal}", subject)


def started(units: int, step: int = 0, first: int = 0, round_: int = 1, loop: int = 1) -> ev.StepStarted:
    fresh = tuple(new_unit(first + i, i) for i in range(units))
    return ev.StepStarted(at=20, step=step, round=round_, loop=loop, units=fresh)


def dispatch(unit: int, number: int = 1, step: int = 0) -> str:
    return f"d{step}.{unit}.{number}"


def reserved(unit: int, number: int = 1, step: int = 0, *, warm: bool = False) -> ev.AttemptReserved:
    process = PROCESS if warm else None
    return ev.AttemptReserved(
        at=30, step=step, unit=unit, number=number, dispatch=dispatch(unit, number, step), process=process
    )


def running(unit: int, number: int = 1, step: int = 0) -> ev.AttemptStarted:
    return ev.AttemptStarted(
        at=31, step=step, unit=unit, number=number, dispatch=dispatch(unit, number, step), process=PROCESS
    )


def finished(unit: int, number: int = 1, step: int = 0, **changes: Any) -> ev.AttemptFinished:
    fields: dict[str, Any] = {
        "state": AttemptState.COMPLETED,
        "unit_state": UnitState.COMPLETED,
        "result": b'"ok"',
        "exit_code": 0,
        "dispatch": dispatch(unit, number, step),
    }
    return ev.AttemptFinished(at=40, step=step, unit=unit, number=number, **{**fields, **changes})


def failed(unit: int, number: int = 1, step: int = 0, **changes: Any) -> ev.AttemptFinished:
    fields: dict[str, Any] = {
        "state": AttemptState.FAILED,
        "unit_state": UnitState.FAILED,
        "reason": Reason.NON_ZERO_EXIT,
        "error": "exit 1",
        "result": None,
        "exit_code": 1,
    }
    return finished(unit, number, step, **{**fields, **changes})


def approved(unit: int, subject: str, verdict: ev.Verdict = "pass", step: int = 0, **changes: Any) -> ev.Approved:
    return ev.Approved(at=55, step=step, unit=unit, by="ann", verdict=verdict, subject=subject, **changes)


def waiting(unit: int, number: int = 1, step: int = 0, retries: int = 1) -> ev.AttemptFinished:
    return failed(unit, number, step, unit_state=UnitState.WAITING, retries=retries, not_before=500)


def asked(
    *subjects: str, first: int, step: int = 0, kind: ev.UnitKind = "gate", round_: int = 1, loop: int = 1
) -> ev.UnitsAdded:
    units = tuple(new_unit(first + i, i, subject, kind) for i, subject in enumerate(subjects))
    state = StepState.RUNNING if kind == "probe" else StepState.GATING
    return ev.UnitsAdded(at=50, step=step, kind=kind, round=round_, loop=loop, state=state, units=units)


def completed(artifact: bytes | None = b'["ok"]', step: int = 0, **changes: Any) -> ev.StepMoved:
    tagged = canon.sha256(b"null" if artifact is None else artifact)
    fields: dict[str, Any] = {"artifact": artifact, "artifact_hash": tagged}
    return ev.StepMoved(at=60, step=step, state=StepState.COMPLETED, **{**fields, **changes})


def step_moved(state: StepState, step: int = 0, **changes: Any) -> ev.StepMoved:
    return ev.StepMoved(at=60, step=step, state=state, **changes)


def run_moved(state: RunState, **changes: Any) -> ev.RunMoved:
    return ev.RunMoved(at=70, state=state, **changes)


def finish_run(store: Store, mine: Lease) -> None:
    """Fail the run, which ends it whatever its steps do."""
    store.commit(mine, [run_moved(RunState.FAILED, reason="non_zero_exit", outcome="failed", driven_ms=5)])
