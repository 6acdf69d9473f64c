"""A person's verdict on a gate: what it is about, and what it changes.

A verdict holds for the hash of the artifact or item result that it was given for. `override` passes what a check
or a judge rejected or could not judge; a rejection with a note runs one more loop where the step can loop.
"""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.decide import gate
from interlock.decide.now import Now
from interlock.decide.reduce import Broken, reduce_step
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.plan import Prompt
from interlock.model.run import Snapshot, Step
from interlock.model.states import RunState, StepState, UnitState
from interlock.model.unit import Unit

_OVERRIDABLE = ("gate_rejected", "check_unavailable", "judge_unavailable")


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    verdict: ev.Verdict
    by: str
    note: str
    override: bool


def approve(snap: Snapshot, payload: dict[str, Any], now: Now, *, verdict: ev.Verdict) -> tuple[list[ev.Event], str]:
    """Return what the verdict changes and `applied`, or nothing and why it cannot be taken.

    `payload` holds `by`, and may hold `target` (a step's or gate unit's id), `note` and `override`.
    """
    said = _Said(
        verdict=verdict, by=payload["by"], note=payload.get("note", ""), override=payload.get("override", False)
    )
    target = payload.get("target")
    if snap.run.state is RunState.FAILED:
        return [], f"the run failed; reopen it first: interlock resume {snap.run.id}"
    steps = [step for step in snap.steps if _may_answer(step, said) and _is_target(step, target)]
    if len(steps) > 1:
        return [], "several steps wait: name one of " + ", ".join(step.id for step in steps)
    if not steps:
        return [], _nothing(snap, target, override=said.override)
    step = steps[0]
    asked = _asked(snap, step, target, now, said)
    if isinstance(asked, str):
        return [], asked
    answered = {event.unit for event in asked if isinstance(event, ev.Approved)}
    if any(unit.ordinal not in answered for unit in _waiting(step)):
        # other items of the step still wait for a person: it stays where it is
        return [*_one_more(snap, step, now, said), *asked], "applied"
    return [*_activate(snap, now), _moved(step, now), *_one_more(snap, step, now, said), *asked], "applied"


def _waiting(step: Step) -> list[Unit]:
    return [unit for unit in step.asked if unit.kind == "approval" and unit.state is UnitState.PENDING]


def _may_answer(step: Step, said: _Said) -> bool:
    if step.state is not StepState.BLOCKED:
        return False
    overrides = said.override or said.verdict == "reject"
    return bool(_waiting(step)) or (overrides and step.reason in _OVERRIDABLE)


def _is_target(step: Step, target: str | None) -> bool:
    return target is None or target == step.id or any(unit.id == target for unit in step.asked)


def _asked(snap: Snapshot, step: Step, target: str | None, now: Now, said: _Said) -> list[ev.Event] | str:
    named = next((unit for unit in step.asked if unit.id == target), None)
    units = [unit for unit in _waiting(step) if named is None or unit is named]
    if units:
        plain = msgspec.structs.replace(said, override=False)
        return [_verdict(step, unit.ordinal, unit.subject or "", now, plain) for unit in units]
    if step.reason not in _OVERRIDABLE or not (said.override or said.verdict == "reject"):
        return f"'{target}' is not waiting for a person"
    return _override(snap, step, named, now, said)


def _override(snap: Snapshot, step: Step, named: Unit | None, now: Now, said: _Said) -> list[ev.Event] | str:
    spec = snap.plan.steps[step.index]
    made = reduce_step(spec, step, snap.plan.limits.max_artifact_bytes)
    if isinstance(made, Broken):
        return f"step '{step.id}' has no artifact to pass"
    left = gate.not_passed(spec, step, canon.sha256(made.json or b"null"))
    subjects = [subject for subject in left if named is None or subject.index == named.index]
    if not subjects:
        return f"'{named.id if named else step.id}' has passed already"
    times = sum(unit.id.endswith(gate.OVERRIDE) for unit in step.units)
    suffix = f".{times}{gate.OVERRIDE}" if times else gate.OVERRIDE
    units = tuple(gate.unit_of(spec, step, subject, suffix, n) for n, subject in enumerate(subjects))
    added = ev.UnitsAdded(
        at=now.at,
        step=step.index,
        kind="approval",
        round=step.round,
        loop=step.loop,
        state=StepState.GATING,
        units=units,
    )
    overriding = msgspec.structs.replace(said, override=True)
    return [added, *(_verdict(step, unit.ordinal, unit.subject or "", now, overriding) for unit in units)]


def _verdict(step: Step, ordinal: int, subject: str, now: Now, said: _Said) -> ev.Approved:
    return ev.Approved(
        at=now.at,
        step=step.index,
        unit=ordinal,
        by=said.by,
        verdict=said.verdict,
        subject=subject,
        note=said.note,
        override=said.override,
    )


def _one_more(snap: Snapshot, step: Step, now: Now, said: _Said) -> list[ev.Event]:
    """A person's note is worth a loop even when the plan's are spent; without one there is nothing new to say."""
    spec = snap.plan.steps[step.index]
    if said.verdict == "pass" or not said.note or spec.gate is None or not isinstance(spec.target, Prompt):
        return []
    spent = step.loop - spec.gate.max_loops - snap.granted.get(step.index, 0)
    return [ev.LoopsGranted(at=now.at, step=step.index, more=spent + 1)] if spent >= 0 else []


def _activate(snap: Snapshot, now: Now) -> list[ev.Event]:
    if snap.run.state is RunState.ACTIVE:
        return []
    return [ev.RunMoved(at=now.at, state=RunState.ACTIVE, driven_ms=now.driven_ms, reason="a person answered")]


def _moved(step: Step, now: Now) -> ev.StepMoved:
    return ev.StepMoved(at=now.at, step=step.index, state=StepState.GATING, round=step.round, loop=step.loop)


def _nothing(snap: Snapshot, target: str | None, *, override: bool) -> str:
    if (
        target is not None
        and target not in snap.by_id
        and not any(unit.id == target for step in snap.steps for unit in step.asked)
    ):
        return f"no step or gate '{target}' in this run"
    named = [step for step in snap.steps if _is_target(step, target)]
    rejected = [step.id for step in named if step.reason in _OVERRIDABLE]
    if rejected and not override:
        return f"step '{rejected[0]}' was rejected or could not be judged; pass it all the same with --override"
    others = [step.id for step in snap.steps if step.state is StepState.BLOCKED and _waiting(step)]
    if target is None or not others:
        return "nothing waits for a person here"
    return f"'{target}' does not wait for a person; " + _listed(others)


def _listed(steps: list[str]) -> str:
    return ", ".join(f"'{step}'" for step in steps) + (" does" if len(steps) == 1 else " do")
