"""A fork before it starts: steps taken as they are, and which units would be reused, run, or can't be known yet.

The preview is the engine itself, asked for its decisions on a snapshot that nothing is dispatched for: what it
takes over here is what the fork takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, Literal

import msgspec

from interlock.decide.children import DEGRADED, is_degraded
from interlock.decide.next import next_actions
from interlock.decide.now import Now
from interlock.decide.reuse import Done, changed_parts
from interlock.decide.values import UnresolvedError
from interlock.decide.work import base_id, shared
from interlock.model import events as ev
from interlock.model.actions import Dispatch
from interlock.model.plan import Child
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Snapshot, Step, Unit
from interlock.model.states import RUN_ENDED, StepState, UnitState

_PAID: Final = ("work", "judge")
DoneOf = Callable[[str, Unit], Done]
TAKEN: Final = "taken:"
"""How the input hash of a unit begins that was taken whatever its hash would be here; the rest is the old one."""


class ForkUnit(msgspec.Struct, frozen=True, kw_only=True):
    """One unit of a fork: `reuse` with its origin, or `run` with what changed. `old` is the old run's unit, if any."""

    id: str
    action: Literal["reuse", "run"]
    why: str
    changed: tuple[str, ...] = ()
    origin: ev.Origin | None = None
    old: ev.Origin | None = None


class ForkStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a fork. `units` is None where they are not known before an earlier step has run.

    `beside` are other loops of these units, and judges: they cost tokens and money, and are counted in nothing else.
    """

    id: str
    action: Literal["reuse", "run", "ask", "decide", "skip", "unknown"]
    why: str
    units: tuple[ForkUnit, ...] | None = None
    beside: tuple[ForkUnit, ...] = ()


def as_it_is(old: Snapshot, snap: Snapshot, step: Step, done_of: DoneOf, at: int) -> list[ev.Event]:
    """Return what makes a step of the fork what it was in the old run, whatever its hashes say."""
    before = old.by_id[step.id]
    moved = ev.StepMoved(
        at=at,
        step=step.index,
        state=before.state,
        reason=before.reason,
        detail=before.detail,
        artifact=before.artifact,
        artifact_hash=before.artifact_hash,
        route=before.route,
    )
    if before.state is StepState.SKIPPED or snap.plan.steps[step.index].route is not None:
        return [moved]
    units = tuple(_as_it_was(n, done_of(step.id, unit)) for n, unit in enumerate(before.work))
    return [ev.StepStarted(at=at, step=step.index, round=1, loop=1, units=units), moved]


def _as_it_was(ordinal: int, done: Done) -> ev.NewUnit:
    unit = done.unit
    # units of child runs alone say what they are short of
    reason = DEGRADED if is_degraded(unit) else unit.reason
    ended = ev.Reused(done.origin, unit.state, reason, None, unit.result, unit.left)
    hashed = TAKEN + done.input_hash
    return ev.NewUnit(ordinal, unit.id, unit.index, unit.item, hashed, session=unit.session, reused=ended)


def play(snap: Snapshot, now: Now) -> None:
    """Let the engine decide until it would dispatch, or has nothing more to say."""
    while snap.run.state not in RUN_ENDED:
        events = [action for action in next_actions(snap, now) if not isinstance(action, Dispatch)]
        if not events:
            return
        snap.apply_all(events)


def explain(old: Snapshot, snap: Snapshot, gone: Collection[str] = ()) -> tuple[ForkStep, ...]:
    """Say of each step and unit of a played fork what becomes of it. `gone` are commits that the old run's units left."""
    found = (_step(old, snap, snap.plan.steps[step.index], step, gone) for step in snap.steps)
    return tuple(
        msgspec.structs.replace(one, beside=tuple(_beside(old, step, one.units or ())))
        for one, step in zip(found, snap.steps, strict=True)
    )


def _beside(old: Snapshot, step: Step, units: tuple[ForkUnit, ...]) -> Iterator[ForkUnit]:
    """Yield the loops before that were taken over, the judges that were, and those that are needed again."""
    listed = {unit.id for unit in units}
    for unit in step.units:
        if unit.origin is not None and unit.id not in listed and unit.kind in _PAID:
            yield ForkUnit(id=unit.id, action="reuse", why=f"{unit.state} in run {unit.origin.run}", origin=unit.origin)
    before = old.by_id.get(step.id)
    again = {base_id(unit.id) for unit in units if unit.action == "run"}
    asks = {unit.item for unit in step.units if unit.kind == "judge" and unit.origin is None}
    asks |= {unit.item for unit in step.work if base_id(unit.id) in again} | ({None} if again else set())
    known = {unit.origin for unit in step.units} | {unit.old for unit in units}
    for unit in () if before is None else before.units:
        place = unit.origin or ev.Origin(old.run.id, unit.id, unit.attempt)
        wanted = base_id(unit.id) in again if unit.kind == "work" else unit.kind == "judge" and unit.item in asks
        if wanted and place not in known:
            yield ForkUnit(id=unit.id, action="run", why="was needed in the old run", old=place)


def _step(
    old: Snapshot,
    snap: Snapshot,
    spec: PlanStep,
    step: Step,
    gone: Collection[str],
) -> ForkStep:
    if step.state is StepState.SKIPPED:
        return ForkStep(id=spec.id, action="skip", why="a route chose otherwise", units=())
    if step.state is StepState.PENDING:
        waits = [need for need in (*spec.needs, *spec.routers) if not snap.by_id[need].ended]
        why = (
            "not known before " + ", ".join(dict.fromkeys(waits)) + " has run"
            if waits
            else "another step stopped the run"
        )
        return ForkStep(id=spec.id, action="decide" if spec.route else "unknown", why=why)
    units = tuple(_unit(old, snap, spec, unit, gone) for unit in step.work)
    if step.state is StepState.BLOCKED:
        return ForkStep(id=spec.id, action="ask", why=step.reason or "blocked", units=units)
    if step.state is StepState.FAILED:
        return ForkStep(id=spec.id, action="run", why=f"would fail: {step.detail}", units=units)
    if step.state is StepState.COMPLETED:
        why = "by " + spec.route.input.text if spec.route else "all of it is taken over"
        return ForkStep(id=spec.id, action="decide" if spec.route else "reuse", why=why, units=units)
    again = sum(unit.action == "run" for unit in units)
    why = f"{again} of {len(units)} to run" if again else "its gate has to judge anew"
    return ForkStep(id=spec.id, action="run", why=why, units=units)


def _unit(old: Snapshot, snap: Snapshot, spec: PlanStep, unit: Unit, gone: Collection[str]) -> ForkUnit:
    origin = unit.origin
    if origin is not None:
        why = f"{unit.state} in run {origin.run}"
        return ForkUnit(id=unit.id, action="reuse", why=why, origin=origin)
    before = _before(old, spec.id, unit)
    if before is None:
        return ForkUnit(id=unit.id, action="run", why="new: the old run had no such unit", changed=("item",))
    place = before.origin or ev.Origin(old.run.id, before.id, before.attempt)
    if before.state is not UnitState.COMPLETED:
        reason = f" ({before.reason})" if before.reason else ""
        why = f"was {before.state} in the old run{reason}"
        return ForkUnit(id=unit.id, action="run", why=why, old=place)
    if isinstance(spec.target, Child) and is_degraded(before) and before.origin is None:
        why = "was degraded in the old run: what it completed is taken over, the rest is done again"
        return ForkUnit(id=unit.id, action="run", why=why, old=place)
    changed = _changed(old, snap, spec, unit, before)
    return ForkUnit(id=unit.id, action="run", why=_why(before, changed, gone), changed=changed, old=place)


def _why(before: Unit, changed: tuple[str, ...], gone: Collection[str]) -> str:
    if changed:
        return "changed: " + ", ".join(changed)
    if before.left in gone:
        return "what it left in its worktree is gone"
    taken = before.origin is not None
    return "the old run took it as it was, from another input" if taken else "its recorded input is another"


def _before(old: Snapshot, step_id: str, unit: Unit) -> Unit | None:
    """Find the old run's unit of the same item: of the same loop if there is one, else its last."""
    if step_id not in old.by_id:
        return None
    same = [one for one in old.by_id[step_id].units if one.kind == "work" and base_id(one.id) == base_id(unit.id)]
    looped = [one for one in same if one.loop == unit.loop]
    found = looped or same
    return found[-1] if found else None


def _changed(old: Snapshot, snap: Snapshot, spec: PlanStep, unit: Unit, before: Unit) -> tuple[str, ...]:
    theirs = old.plan.step(spec.id)
    try:
        ours = (snap.plan, spec, shared(snap, spec), unit.feedback)
        return tuple(changed_parts(ours, (old.plan, theirs, shared(old, theirs), before.feedback)))
    except UnresolvedError:
        return ("inputs",)
