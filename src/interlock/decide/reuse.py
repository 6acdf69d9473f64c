"""What a fork takes over, and why not: units by the hash of their input, verdicts by what was judged and by whom.

Guarantees: a taken unit is born completed, so it is never dispatched and costs nothing; nothing but equal hashes
decides; an approval is never taken over, and a judge that gave no answer is asked, whatever the others said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from interlock.decide.children import is_degraded
from interlock.decide.work import Shared, base_id, shape_of, shared, shell_of
from interlock.model import canon
from interlock.model.events import NewUnit, Origin, Reused, UnitKind
from interlock.model.plan import Child, Plan, Prompt, PythonFunction
from interlock.model.plan import Step as PlanStep
from interlock.model.reuse import Reuse, Taken, VerdictKey, WorkKey
from interlock.model.run import Snapshot, Unit
from interlock.model.states import UnitState


class Done(msgspec.Struct, frozen=True):
    """A unit of the old run: as its snapshot has it, the recorded hash of its input, and where it was really done."""

    step: str
    unit: Unit
    input_hash: str
    origin: Origin


def taken_over(snap: Snapshot, spec: PlanStep, units: tuple[NewUnit, ...]) -> tuple[NewUnit, ...]:
    """Return the work units with those already ended that the old run completed on the same input."""
    if snap.reuse is None:
        return units
    work = snap.reuse.work
    return tuple(_with(unit, work.get((spec.id, base_id(unit.id), unit.input_hash))) for unit in units)


def _with(unit: NewUnit, taken: Taken | None) -> NewUnit:
    if taken is None:
        return unit
    return msgspec.structs.replace(unit, reused=taken.reused, session=taken.session)


def judged_before(snap: Snapshot, spec: PlanStep, kind: UnitKind, units: tuple[NewUnit, ...]) -> tuple[NewUnit, ...]:
    """Return the gate's questions with those answered that the old run answered, of the same thing by the same judge."""
    if snap.reuse is None or kind not in ("gate", "judge"):
        return units
    asker = asker_hash(snap, spec, kind)
    places: dict[VerdictKey, list[int]] = {}
    for place, unit in enumerate(units):
        places.setdefault((spec.id, kind, unit.item, unit.subject or "", asker), []).append(place)
    found = list(units)
    for key, asked in places.items():
        answers = snap.reuse.verdicts.get(key, ())
        for place, answer in zip(asked, answers, strict=False):
            found[place] = _with(found[place], answer)
        found += _tie_breakers(units[0].ordinal + len(found), units[asked[-1]], len(asked), answers)
    return tuple(found)


def _tie_breakers(ordinal: int, last: NewUnit, asked: int, answers: tuple[Taken | None, ...]) -> Iterator[NewUnit]:
    """Yield the judges that were asked beyond the first ones, with their answers: they made a majority of a tie."""
    said = answers[asked:] if all(answers[:asked]) else ()
    stem = last.id.rpartition(".j")[0]
    for n, answer in enumerate(said):
        if answer is not None:
            unit = msgspec.structs.replace(last, ordinal=ordinal + n, id=f"{stem}.j{asked + n + 1}")
            yield _with(unit, answer)


def asker_hash(snap: Snapshot, spec: PlanStep, kind: UnitKind) -> str:
    """Hash who or what judges: the judge with its rubric and engine, or the check with all that it sees."""
    plan, gate = snap.plan, spec.gate
    if gate is None:
        return ""
    if kind == "judge" and gate.judge is not None:
        engine = next(engine for engine in plan.engines if engine.name == gate.judge.engine)
        who = {"kind": engine.kind, "driver": engine.driver, "model": gate.judge.model or engine.model}
        return canon.sha256(canon.dumps({"judge": msgspec.to_builtins(gate.judge), "engine": who}))
    context = shared(snap, spec)
    shape = {**shape_of(plan, spec, None), "target": msgspec.to_builtins(gate.check), "engine": None, "schema": None}
    shape |= {"commit": plan.project.commit, "root": plan.project.root, "cwd": spec.cwd}
    shape["shell"] = shell_of(plan, gate.check)
    return canon.sha256(b"\0".join((canon.dumps(shape), context.params_json, context.inputs_json)))


def index(old: Snapshot, done: Iterable[Done]) -> Reuse:
    """Build the index of an old run from its units, in their order."""
    work: dict[WorkKey, Taken] = {}
    latest: dict[VerdictKey, tuple[tuple[int, int], list[Taken | None]]] = {}
    askers: dict[tuple[str, UnitKind], str | None] = {}
    for one in done:
        unit, spec = one.unit, old.plan.step(one.step)
        if unit.kind == "work":
            # a degraded child is gone on with, where it is the old run's own
            whole = unit.origin is not None or not (isinstance(spec.target, Child) and is_degraded(unit))
            if unit.state is UnitState.COMPLETED and whole and _as_frozen(old, spec):
                work[one.step, base_id(unit.id), one.input_hash] = _taken(one)
        elif unit.kind in ("gate", "judge"):
            place = (one.step, unit.kind)
            if place not in askers:
                askers[place] = asker_hash(old, spec, unit.kind)
            _note(latest, one, askers[place] or "")
    verdicts = {key: tuple(answers) for key, (_, answers) in latest.items() if any(answers)}
    return Reuse(old.run.id, work, verdicts)


def _note(latest: dict[VerdictKey, tuple[tuple[int, int], list[Taken | None]]], one: Done, asker: str) -> None:
    unit = one.unit
    key: VerdictKey = (one.step, unit.kind, unit.item, unit.subject or "", asker)
    when = (unit.round, unit.loop)
    if key not in latest or latest[key][0] != when:
        latest[key] = (when, [])
    answered = unit.state is UnitState.COMPLETED and unit.verdict is not None
    latest[key][1].append(_taken(one) if answered else None)


def _taken(one: Done) -> Taken:
    unit = one.unit
    return Taken(Reused(one.origin, unit.state, unit.reason, unit.verdict, unit.result, unit.left), unit.session)


def _as_frozen(old: Snapshot, spec: PlanStep) -> bool:
    """Tell whether the step's results came from the frozen module, not from one accepted later."""
    target = spec.target
    return not isinstance(target, PythonFunction) or old.accepted.get(target.file, target.sha256) == target.sha256


def changed_parts(
    new: tuple[Plan, PlanStep, Shared, bytes | None], old: tuple[Plan, PlanStep, Shared, bytes | None]
) -> list[str]:
    """Name the parts of an input hash that differ between two (plan, step, shared context, feedback)."""
    ours, theirs = _parts(*new), _parts(*old)
    names = {"prompt": ours.get("prompt") is not None or theirs.get("prompt") is not None}
    order = [name for name in ours if names.get(name, True)]
    return [name for name in order if ours[name] != theirs[name]]


def _parts(plan: Plan, spec: PlanStep, context: Shared, feedback: bytes | None) -> dict[str, Any]:
    shape = shape_of(plan, spec, feedback)
    target = spec.target
    prompt = target.text if isinstance(target, Prompt) else None
    if isinstance(shape["target"], dict) and prompt is not None:
        shape["target"] = {name: value for name, value in shape["target"].items() if name != "text"}
    return {
        "prompt": prompt,
        **shape,
        "worktree": context.base,
        "params": context.params_json,
        "inputs": context.inputs_json,
    }
