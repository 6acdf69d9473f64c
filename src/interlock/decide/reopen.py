"""Going on: what a new driver closes, asks again or reopens before the loop takes over.

`interlock run RUN` closes what a dead driver left and asks again what was unavailable; `interlock resume`
also reopens what failed, was abandoned or was rejected. Both only give events; the loop is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from interlock.decide.fate import may_retry, took_effect
from interlock.decide.gate import tie_breakers
from interlock.decide.now import Now
from interlock.decide.quota import unpark
from interlock.decide.upcoming import engine_of
from interlock.decide.values import UnresolvedError
from interlock.decide.work import base_hash, input_hash, next_round, shared
from interlock.model import events as ev
from interlock.model.plan import Prompt
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import AttemptState, Reason, RunState, StepState, UnitState

ASKED_AGAIN: Final = frozenset({"check_unavailable", "judge_unavailable", "probe_unavailable"})
"""Reasons of a blocked step that the next `run` asks again."""
_LOOKED_AT_AGAIN: Final = ASKED_AGAIN | {"module_changed"}
"""A changed module may be back as it was; if it isn't, the step is blocked again before anything starts."""
_WHILE_RUNNING: Final = frozenset({"module_changed", "probe_unavailable"})
_REASONS: Final = frozenset(Reason)


def close_lost(snap: Snapshot, now: Now, trees: Mapping[str, ev.Tree] | None = None) -> list[ev.Event]:
    """Close every attempt that a dead driver left open as `lost`; retries are not charged.

    A child run's attempt stays open: it goes on with the run. `trees` says, by `<unit>/<attempt>`, what became of their worktrees.
    """
    events: list[ev.Event] = []
    for step in snap.steps:
        spec = snap.plan.steps[step.index]
        lost = [unit for unit in step.running.values() if not step.child or unit.kind != "work"]
        for unit in lost:
            unsure = unit.kind == "work" and spec.effects == "external"
            left = UnitState.UNKNOWN if unsure else UnitState.PENDING
            tree = (trees or {}).get(f"{unit.id}/{unit.attempt}")
            ended = _lost(step, unit, now, left, engine_of(spec, unit.kind))
            events.append(ended if tree is None else msgspec.structs.replace(ended, tree=tree))
    return events


def _lost(step: Step, unit: Unit, now: Now, left: UnitState, engine: str | None) -> ev.AttemptFinished:
    """An engine may have worked for it: what was reserved is charged."""
    return ev.AttemptFinished(
        at=now.at,
        step=step.index,
        unit=unit.ordinal,
        number=unit.attempt,
        dispatch=unit.dispatch or "",
        state=AttemptState.LOST,
        unit_state=left,
        reason=Reason.LOST,
        error="the driver died before it could record the end",
        retries=unit.retries,
        asks=unit.asks,
        usage=ev.Usage(output_tokens=unit.reserve_tokens, estimated=True) if unit.reserve_tokens else None,
        engine=engine,
    )


def go_on(snap: Snapshot, now: Now) -> list[ev.Event]:
    """Return the events by which `interlock run RUN` continues a blocked or waiting run."""
    if snap.run.state is RunState.FAILED:
        failed = [step for step in snap.steps if step.state is StepState.FAILED]
        return reopen(snap, now) if len(retry_left(snap)) == len(failed) else []
    asked = [*unpark(snap, now), *(event for step in snap.steps for event in _ask_again(step, now))]
    if snap.run.state is RunState.ACTIVE or not asked:
        return asked
    return [_activate(snap, now), *asked]


def _ask_again(step: Step, now: Now) -> list[ev.Event]:
    if step.state is not StepState.BLOCKED or step.reason not in _LOOKED_AT_AGAIN:
        return []
    state = StepState.RUNNING if step.reason in _WHILE_RUNNING else StepState.GATING
    again = [
        ev.UnitMoved(at=now.at, step=step.index, unit=unit.ordinal, state=UnitState.PENDING)
        for unit in step.asked
        if unit.state is UnitState.FAILED
    ]
    return [_moved(step, now, state), *again, *_break_ties(step, now)]


def _break_ties(step: Step, now: Now) -> list[ev.Event]:
    units = tie_breakers(step)
    if not units:
        return []
    return [
        ev.UnitsAdded(
            at=now.at,
            step=step.index,
            kind="judge",
            round=step.round,
            loop=step.loop,
            state=StepState.GATING,
            units=units,
        )
    ]


def retry_left(snap: Snapshot) -> list[Step]:
    """Return the failed steps all of whose failed units still have retries: `run RUN` may go on with these."""
    found = []
    for step in snap.steps:
        spec = snap.plan.steps[step.index]
        failed = [unit for unit in step.work if unit.state is UnitState.FAILED]
        if step.state is StepState.FAILED and failed and all(_has_retry(spec, unit) for unit in failed):
            found.append(step)
    return found


def _has_retry(spec: PlanStep, unit: Unit) -> bool:
    if unit.reason not in _REASONS or took_effect(spec, Reason(unit.reason)):
        return False
    return may_retry(spec.retry, Reason(unit.reason), unit.retries)


def reopen(snap: Snapshot, now: Now) -> list[ev.Event]:
    """Return the events by which `interlock resume` reopens a failed, abandoned or rejected run.

    Completed units stay; failed and unrun ones start a new round; unknown ones stay unknown. Raises
    UnresolvedError never: a step whose references fail simply fails again.
    """
    events = unpark(snap, now)
    for step in snap.steps:
        reopened = _REOPEN.get(step.state)
        if reopened is not None:
            events.extend(reopened(snap, step, now))
    if snap.run.state is RunState.ACTIVE:
        return events
    return [_activate(snap, now), *events] if events or snap.run.state is not RunState.BLOCKED else []


def grant(snap: Snapshot, now: Now, loops: int) -> list[ev.Event]:
    """Return the events by which rejected steps that can loop get more loops, with the feedback they have."""
    events: list[ev.Event] = []
    for step in snap.steps:
        spec = snap.plan.steps[step.index]
        if step.state is StepState.BLOCKED and step.reason == "gate_rejected" and isinstance(spec.target, Prompt):
            events.append(ev.LoopsGranted(at=now.at, step=step.index, more=loops))
            events.append(_moved(step, now, StepState.GATING))
    if not events or snap.run.state is RunState.ACTIVE:
        return events
    return [_activate(snap, now), *events]


def _moved(step: Step, now: Now, state: StepState) -> ev.StepMoved:
    return ev.StepMoved(at=now.at, step=step.index, state=state, round=step.round, loop=step.loop)


def _activate(snap: Snapshot, now: Now) -> ev.RunMoved:
    return ev.RunMoved(at=now.at, state=RunState.ACTIVE, driven_ms=now.driven_ms, reason=f"was {snap.run.state}")


def _reopen_failed(snap: Snapshot, step: Step, now: Now) -> list[ev.Event]:
    if not step.work:
        return [_moved(step, now, StepState.PENDING)]
    again = [unit for unit in step.work if unit.state in (UnitState.FAILED, UnitState.NOT_RUN)]
    hashes = _hashes(snap, snap.plan.steps[step.index], again)
    units = next_round(step, again, hashes)
    return [ev.StepStarted(at=now.at, step=step.index, round=step.round + 1, loop=step.loop, units=units)]


def _reopen_blocked(snap: Snapshot, step: Step, now: Now) -> list[ev.Event]:
    if step.reason in _LOOKED_AT_AGAIN:
        return _ask_again(step, now)
    if step.reason == "gate_rejected":
        return _reopen_failed(snap, step, now)
    if step.reason == "effect_unknown" and not any(unit.state is UnitState.UNKNOWN for unit in step.work):
        return [_moved(step, now, StepState.RUNNING)]
    return []


def _hashes(snap: Snapshot, spec: PlanStep, units: list[Unit]) -> dict[int | None, str]:
    if not units:
        return {}
    try:
        context = shared(snap, spec)
    except UnresolvedError:
        return dict.fromkeys((unit.index for unit in units), "")
    bases = {said: base_hash(snap.plan, spec, context, said) for said in {unit.feedback for unit in units}}
    return {unit.index: input_hash(bases[unit.feedback], unit.item) for unit in units}


def divergences(snap: Snapshot, recorded: dict[tuple[int, int], str], now: Now) -> list[ev.Event]:
    """Compare recorded input hashes of completed units of running steps with what the plan gives now."""
    events: list[ev.Event] = []
    for step in snap.steps:
        if step.state not in (StepState.RUNNING, StepState.GATING, StepState.BLOCKED) or not step.work:
            continue
        done = [unit for unit in step.work if unit.state is UnitState.COMPLETED]
        hashes = _hashes(snap, snap.plan.steps[step.index], done)
        for unit in done:
            was, now_is = recorded[step.index, unit.ordinal], hashes[unit.index]
            known = f"{ev.DIVERGENCE}{unit.id}" in snap.noticed
            if now_is and was.partition(":")[0] == now_is.partition(":")[0] and was != now_is and not known:
                events += _diverged(step, unit, now, was, now_is)
    return events


def _diverged(step: Step, unit: Unit, now: Now, was: str, now_is: str) -> list[ev.Event]:
    text = f"what unit {unit.id} was given is not what the plan gives it now; its completed result stands"
    return [
        ev.Divergence(at=now.at, step=step.index, unit=unit.ordinal, recorded=was, computed=now_is),
        ev.Notice(at=now.at, code=f"{ev.DIVERGENCE}{unit.id}", text=text, step=step.index),
    ]


_REOPEN: Final[dict[StepState, Callable[[Snapshot, Step, Now], list[ev.Event]]]] = {
    StepState.FAILED: _reopen_failed,
    StepState.BLOCKED: _reopen_blocked,
}
