"""Outcomes to artifact: how a step's unit results come together."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import msgspec

from interlock.decide.values import schema_errors
from interlock.model.plan import Step as PlanStep
from interlock.model.run import Step, Unit
from interlock.model.states import NEVER_CONTINUED, Reason, UnitState


class Artifact(msgspec.Struct, frozen=True):
    """What the step promotes: canonical JSON, or None when absent."""

    json: bytes | None


class Broken(msgspec.Struct, frozen=True):
    """Why the step has no artifact. `misfits`: what the work made misses its schema, which feedback may mend."""

    reason: str
    detail: str
    misfits: bool = False


def reduce_step(spec: PlanStep, step: Step, max_bytes: int) -> Artifact | Broken:
    """Turn the settled units of `step` into its artifact, or say why it fails."""
    broken = fatal(spec, step)
    if broken is not None:
        return broken
    made = _make(spec, step)
    if isinstance(made, Broken):
        return made
    if made.json is not None and len(made.json) > max_bytes:
        limit = f"the limit is {max_bytes:,} (max_artifact_bytes of [limits])"
        return Broken(Reason.OUTPUT_TOO_LARGE, f"the artifact has {len(made.json):,} bytes; {limit}")
    if spec.map is not None and spec.output_schema_json is not None:
        errors = schema_errors(spec.output_schema_json, msgspec.json.decode(made.json or b"null"))
        if errors:
            text = "the artifact misses the step's schema: " + "; ".join(errors)
            return Broken(Reason.VALIDATION_ERROR, text, misfits=True)
    return made


def fatal(spec: PlanStep, step: Step) -> Broken | None:
    """Return the failed unit that the step fails with, whatever the others did.

    The first that failed, where that is known: others may only have been stopped because of it.
    """
    if step.counts[UnitState.FAILED] == 0:
        return None
    first = () if step.first_failure is None else (step.first_failure,)
    for unit in chain(first, step.work):
        if unit.state is UnitState.FAILED and (spec.on_error == "fail" or unit.reason in NEVER_CONTINUED):
            misfits = spec.map is None and unit.reason == Reason.VALIDATION_ERROR
            return msgspec.structs.replace(failure_of(unit), misfits=misfits)
    return None


def failure_of(unit: Unit) -> Broken:
    """Describe a failed unit as its step's failure."""
    text = f"unit {unit.id} failed: {unit.reason}"
    return Broken(unit.reason or Reason.DISPATCH_ERROR, f"{text}: {unit.error}" if unit.error else text)


def _make(spec: PlanStep, step: Step) -> Artifact | Broken:
    if spec.map is None:
        return Artifact(step.work[0].result)
    if spec.map.reducer == "merge":
        return _merged(step)
    if spec.map.reducer == "vote":
        return _vote(step)
    return Artifact(b"[" + b",".join(unit.result or b"null" for unit in step.work) + b"]")


def _merged(step: Step) -> Artifact | Broken:
    for unit in step.asked:
        if unit.kind == "merge" and unit.state is UnitState.COMPLETED:
            return Artifact(unit.result)
    return Broken("not_merged", "the units were not merged")


def _vote(step: Step) -> Artifact | Broken:
    if not step.work:
        return Artifact(None)
    votes = Counter(unit.result for unit in step.work if unit.state is UnitState.COMPLETED and unit.result is not None)
    cast = votes.total()
    if cast * 2 < len(step.work):
        return Broken("vote_failed", f"only {cast} of {len(step.work)} items voted; at least half must")
    (top, count), *rest = votes.most_common(2)
    if rest and rest[0][1] == count:
        tied = sum(others == count for others in votes.values())
        each = f"{count} vote{'s' if count > 1 else ''} each"
        return Broken("vote_failed", f"a tie at the top: {tied} results have {each}, of {cast}")
    return Artifact(top)
