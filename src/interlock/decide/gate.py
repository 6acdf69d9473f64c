"""Artifact to questions, answers to verdict. What can't be judged doesn't pass.

A gate asks in stages, cheapest first: a check, a judge (several times where the plan says so), a person. With
`each` every item is a subject of its own and goes from stage to stage by itself; else the artifact is the one.
A verdict holds for the subject's hash only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from interlock.decide.work import base_id
from interlock.model import canon
from interlock.model.events import NewUnit, UnitKind, Verdict
from interlock.model.outcome import FEEDBACK_CHARS, feedback_of
from interlock.model.plan import Gate
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Step, Unit
from interlock.model.states import UnitState

OVERRIDE: Final = ".override"
_SUFFIX: Final[dict[UnitKind, str]] = {"gate": "", "approval": ".approval"}
_Answer = Literal["pass", "reject", "unavailable", "open"]


class Subject(msgspec.Struct, frozen=True):
    """What is judged: an item's result, or (index None) the artifact."""

    index: int | None
    item: bytes | None
    hash: str
    id_part: str


class Ask(msgspec.Struct, frozen=True):
    """The next stage's units."""

    kind: UnitKind
    units: tuple[NewUnit, ...]


class Rejected(msgspec.Struct, frozen=True):
    """What did not pass, with feedback `{feedback, missing}` by index.

    `by_person`: a person said so; `final`: and without a note, so that nothing is left to say in a loop.
    """

    feedback: dict[int | None, bytes]
    detail: str
    by_person: bool
    final: bool = False


class Blocked(msgspec.Struct, frozen=True):
    """No verdict can be had without a person, or before something works again."""

    reason: Literal["approval_needed", "judge_unavailable", "check_unavailable"]
    detail: str


class Passed(msgspec.Struct, frozen=True):
    """Every subject passed every stage."""


Judged = Ask | Rejected | Blocked | Passed
_Answers = dict[tuple[str, int | None, str | None], list[Unit]]
_Refusal = tuple[Subject, UnitKind, list[Unit]]


def stages(gate: Gate) -> tuple[UnitKind, ...]:
    """Return the kinds of unit that the gate asks, in order."""
    found: list[UnitKind] = []
    if gate.check is not None:
        found.append("gate")
    if gate.judge is not None:
        found.append("judge")
    if gate.approval:
        found.append("approval")
    return tuple(found)


def subjects(gate: Gate, step: Step, artifact_hash: str) -> list[Subject]:
    """Return what has to pass, with `each` without the items that passed in an earlier loop."""
    if not gate.each:
        return [Subject(None, None, artifact_hash, "")]
    done = _passed_before(gate, step)
    found = []
    for unit in step.work:
        if unit.state is UnitState.COMPLETED:
            subject = canon.sha256(unit.result or b"null")
            if (unit.index, subject) not in done:
                found.append(Subject(unit.index, unit.item, subject, ":" + item_part(unit)))
    return found


def judge(spec: PlanStep, step: Step, artifact_hash: str) -> Judged:
    """Say what the gate needs next, or what all its answers come to. No asked unit may be under way."""
    found = _walk(spec, step, artifact_hash)
    if found.ask is not None:
        return found.ask
    if found.broken:
        return _with_refused(found.broken[0][1], found.refused)
    return _rejected(found.refused) if found.refused else Passed()


def _with_refused(blocked: Blocked, refused: list[_Refusal]) -> Blocked:
    """Return it with what is rejected already: who is asked about the other items wants to know."""
    if not refused:
        return blocked
    told = f"{blocked.detail}; rejected already: {_rejected(refused).detail}"
    return msgspec.structs.replace(blocked, detail=told[:FEEDBACK_CHARS])


def not_passed(spec: PlanStep, step: Step, artifact_hash: str) -> list[Subject]:
    """Return what was rejected or could not be judged, with `each` item by item."""
    found = _walk(spec, step, artifact_hash)
    return [*(subject for subject, _, _ in found.refused), *(subject for subject, _ in found.broken)]


class _Walk(msgspec.Struct):
    """What the answers given so far come to, stage by stage."""

    ask: Ask | None = None
    refused: list[_Refusal] = []
    broken: list[tuple[Subject, Blocked]] = []


def _walk(spec: PlanStep, step: Step, artifact_hash: str) -> _Walk:
    gate = _asked_gate(spec)
    answers = _by_subject(step.asked)
    found = _Walk()
    left = _without_overridden(answers, subjects(gate, step, artifact_hash), found.refused)
    for kind in stages(gate):
        fresh = [subject for subject in left if (kind, subject.index, subject.hash) not in answers]
        if fresh:
            found.ask = Ask(kind, _units(gate, spec, step, kind, fresh))
            return found
        left = [subject for subject in left if _passes(step, found, kind, subject, answers)]
    return found


def _asked_gate(spec: PlanStep) -> Gate:
    """Return what is asked about the artifact; a merge had its check after each of its parts."""
    gate = spec.gate or Gate()
    merged = spec.map is not None and spec.map.reducer == "merge"
    return msgspec.structs.replace(gate, check=None) if merged else gate


def _passes(step: Step, found: _Walk, kind: UnitKind, subject: Subject, answers: _Answers) -> bool:
    """Tell whether the subject passed the stage; note in `found` what became of it otherwise."""
    units = answers[kind, subject.index, subject.hash]
    said = verdict(units)
    if said == "reject":
        found.refused.append((subject, kind, units))
    elif said == "open":
        found.broken.append((subject, _waits(step, units)))
    elif said == "unavailable":
        found.broken.append((subject, _unavailable(kind, units)))
    return said == "pass"


def tie_breakers(step: Step) -> tuple[NewUnit, ...]:
    """Return one more judge for each subject of which as many said yes as no."""
    found: list[NewUnit] = []
    for (kind, index, subject), units in _by_subject(step.asked).items():
        if kind == "judge" and verdict(units) == "unavailable" and all(unit.verdict for unit in units):
            unit_id = f"{units[0].id.rpartition('.j')[0]}.j{len(units) + 1}"
            ordinal = len(step.units) + len(found)
            found.append(NewUnit(ordinal, unit_id, index, units[0].item, units[0].subject or "", subject))
    return tuple(found)


def verdict(units: list[Unit]) -> _Answer:
    """Return what the answers about one subject come to: a strict majority of those asked decides."""
    if any(unit.state not in (UnitState.COMPLETED, UnitState.FAILED) for unit in units):
        return "open"
    for wanted in ("pass", "reject"):
        if 2 * sum(unit.verdict == wanted for unit in units) > len(units):
            return wanted
    return "unavailable"


def _by_subject(units: Iterable[Unit]) -> _Answers:
    found: _Answers = {}
    for unit in units:
        if unit.kind not in ("probe", "merge"):
            kind = OVERRIDE if unit.id.endswith(OVERRIDE) else unit.kind
            found.setdefault((kind, unit.index, unit.subject), []).append(unit)
    return found


def _without_overridden(answers: _Answers, subjects: list[Subject], refused: list[_Refusal]) -> list[Subject]:
    """Take out what a person overruled: what was passed is done, what was rejected joins `refused`."""
    left = []
    for subject in subjects:
        units = answers.get((OVERRIDE, subject.index, subject.hash), [])[-1:]
        if not units:
            left.append(subject)
        elif units[0].verdict == "reject":
            refused.append((subject, "approval", units))
    return left


def _passed_before(gate: Gate, step: Step) -> set[tuple[int | None, str | None]]:
    """Return the items that passed in a loop before this one: an earlier loop's that were not rejected in it."""
    last = stages(gate)[-1:]
    earlier = [unit for unit in step.units if unit.kind not in ("work", "probe", "merge")]
    answers = _by_subject(unit for unit in earlier if (unit.round, unit.loop) != (step.round, step.loop))
    return {
        (index, subject)
        for (kind, index, subject), units in answers.items()
        if (kind in last and verdict(units) == "pass") or (kind == OVERRIDE and units[-1].verdict == "pass")
    }


def _units(gate: Gate, spec: PlanStep, step: Step, kind: UnitKind, fresh: list[Subject]) -> tuple[NewUnit, ...]:
    asked = gate.judge.asked if kind == "judge" and gate.judge is not None else 1
    suffixes = [f".j{k}" for k in range(1, asked + 1)] if kind == "judge" else [_SUFFIX[kind]]
    pairs = [(subject, suffix) for subject in fresh for suffix in suffixes]
    return tuple(unit_of(spec, step, subject, suffix, n) for n, (subject, suffix) in enumerate(pairs))


def unit_of(spec: PlanStep, step: Step, subject: Subject, suffix: str, offset: int) -> NewUnit:
    """Return one gate unit; its id is `<step>.gate[:<item>][~r<r>]:l<n>` and a suffix for judges and persons."""
    round_part = f"~r{step.round}" if step.round > 1 else ""
    unit_id = f"{spec.id}.gate{subject.id_part}{round_part}:l{step.loop}{suffix}"
    return NewUnit(len(step.units) + offset, unit_id, subject.index, subject.item, subject.hash, subject.hash)


def item_part(unit: Unit) -> str:
    """Return what follows the step's id in a work unit's id: `solo` or the item's digest."""
    return base_id(unit.id).rpartition(":")[2]


def _waits(step: Step, units: list[Unit]) -> Blocked:
    what = f"item {units[0].item.decode()}" if units[0].item is not None else "its artifact"
    return Blocked(
        "approval_needed", f"a person has to approve {what}" + (f" (loop {step.loop})" if step.loop > 1 else "")
    )


def _unavailable(kind: UnitKind, units: list[Unit]) -> Blocked:
    reason: Literal["judge_unavailable", "check_unavailable"]
    reason = "judge_unavailable" if kind == "judge" else "check_unavailable"
    failed = [unit for unit in units if unit.state is UnitState.FAILED]
    if not failed:
        return Blocked(reason, f"{units[0].id}: {len(units)} answers give no majority")
    return Blocked(reason, f"{failed[0].id} gave no verdict: {failed[0].reason}: {failed[0].error}")


def _rejected(refused: list[_Refusal]) -> Rejected:
    feedback: dict[int | None, bytes] = {}
    lines = []
    for subject, _, units in refused:
        texts, missing = _said([unit for unit in units if unit.verdict == "reject"])
        feedback[subject.index] = canon.dumps({"feedback": "\n".join(texts)[:FEEDBACK_CHARS], "missing": missing})
        about = f"item {subject.item.decode()}: " if subject.item is not None else ""
        lines.append(about + "\n".join([*texts, *(f"missing: {entry}" for entry in missing)]))
    by_people = [units for _, kind, units in refused if kind == "approval"]
    final = any(not _said(units)[0] for units in by_people)
    return Rejected(feedback, "\n".join(lines).strip()[:FEEDBACK_CHARS], bool(by_people), final)


def _said(units: list[Unit]) -> tuple[list[str], list[str]]:
    texts: dict[str, None] = {}
    missing: dict[str, None] = {}
    for unit in units:
        answer = msgspec.json.decode(unit.result or b"{}")
        if answer.get("feedback"):
            texts[answer["feedback"]] = None
        missing.update(dict.fromkeys(answer.get("missing", ())))
    return list(texts), list(missing)


def verdict_of(exit_code: int | None) -> Verdict | None:
    """Read a check's exit: 0 passes; 126, 127 and death by signal mean that it could not start."""
    if exit_code is None or exit_code in (126, 127) or exit_code < 0:
        return None
    return "pass" if exit_code == 0 else "reject"


def answer_json(verdict: Verdict, output: bytes) -> bytes:
    """Return the journaled answer of a check: its verdict, and the end of its output as feedback."""
    return canon.dumps({"verdict": verdict, "feedback": feedback_of(output)})
