"""What a replay came to, and where it differs from the record, in the run and in the child runs below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from interlock.driver.export.scrubbing import HASH_HIDDEN
from interlock.driver.replay.executor import Tally
from interlock.driver.replay.faults import Fault
from interlock.driver.replay.parts import Played, played
from interlock.driver.replay.recording import Recording
from interlock.driver.result import FAILED, OK, exit_code
from interlock.model.run import Snapshot
from interlock.store.base import RunRow, StepRow, Store, UnitRow


class StepReplay(msgspec.Struct, frozen=True, kw_only=True):
    """One step as the replay left it, and as it was recorded (None: the recorded run has no such step)."""

    id: str
    state: str
    reason: str | None
    artifact: bytes | None
    artifact_hash: str | None
    recorded_state: str | None
    recorded_reason: str | None
    recorded_hash: str | None

    @property
    def same(self) -> bool:
        """Tell whether both came to the same."""
        replayed = (self.state, self.reason, self.artifact_hash)
        return replayed == (self.recorded_state, self.recorded_reason, self.recorded_hash)


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay came to. `run_exit_code` is what `interlock run` would have said of it."""

    run_id: str
    state: str
    outcome: str | None
    reason: str | None
    detail: str
    run_exit_code: int
    steps: tuple[StepReplay, ...]
    units: tuple[UnitRow, ...]
    """Of the child runs too, each with its path for an id: `each:ab12/say:solo`."""
    answered: int
    faulted: dict[str, str]
    not_recorded: dict[str, str]
    changed: tuple[str, ...]
    faults_unused: dict[str, str]
    """The faults that no dispatch met, each with why."""
    differences: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """With faults the replayed run's own; without, 0 when nothing differs and 1 when something does."""
        if self.faults_unused:
            return FAILED
        if self.faulted:
            return self.run_exit_code
        return FAILED if self.differences else OK


def report(store: Store, recording: Recording, snap: Snapshot, tally: Tally) -> Replay:
    """Compare the replayed run with the recorded one."""
    top = played(store, recording.run.id, recording)
    family = tuple(top.family())
    return Replay(
        run_id=top.run.id,
        state=top.run.state,
        outcome=top.run.outcome,
        reason=top.run.reason,
        detail=top.run.detail,
        run_exit_code=exit_code(snap.run),
        steps=tuple(_step(top, row, store.artifact(top.run.id, row.step)) for row in top.steps),
        units=tuple(_named(one, unit) for one in family for unit in one.units),
        answered=sum(tally.answered.values()),
        faulted=tally.faulted,
        not_recorded=tally.not_recorded,
        changed=tuple(path for one in family for path in _changed(one)),
        faults_unused={fault.text: _why_unmet(fault, family, tally) for fault in tally.open_faults},
        differences=tuple(_differences(top)),
    )


def _named(one: Played, unit: UnitRow) -> UnitRow:
    return msgspec.structs.replace(unit, id=one.units_path + unit.id) if one.units_path else unit


def _changed(one: Played) -> Iterator[str]:
    past = {} if one.recording is None else one.recording.units
    for unit in one.units:
        known = past.get(unit.id)
        if unit.kind == "work" and known is not None and known.row.input_hash not in (unit.input_hash, HASH_HIDDEN):
            yield one.units_path + unit.id


def _why_unmet(fault: Fault, family: Sequence[Played], tally: Tally) -> str:
    place, _, asked = fault.place.partition(".")
    kind = {"": "work", "check": "gate"}.get(asked, asked)
    items = dict.fromkeys(
        unit.item
        for one in family
        for unit in one.units
        if unit.item and unit.kind == kind and one.steps_path + one.step_id(unit) == place
    )
    return fault.why_unmet(fault.count(tally.dispatched), list(items))


def _step(one: Played, row: StepRow, artifact: bytes | None = None) -> StepReplay:
    rows = () if one.recording is None else one.recording.steps
    recorded = next((past for past in rows if past.id == row.id), None)
    return StepReplay(
        id=row.id,
        state=row.state,
        reason=row.reason,
        artifact=artifact,
        artifact_hash=row.artifact_hash,
        recorded_state=recorded.state if recorded else None,
        recorded_reason=recorded.reason if recorded else None,
        recorded_hash=recorded.artifact_hash if recorded else None,
    )


def _differences(one: Played) -> Iterator[str]:
    """Say what differs, in the order of the plan, in a child before in its parent; the first line is where to look."""
    if one.recording is None or _was_stopped(one.run) or _was_stopped(one.recording.run):
        return
    for row in one.steps:
        for unit in one.units:
            child = one.children.get(unit.id) if unit.step == row.step else None
            if child is not None:
                yield from _differences(child)
        step = _step(one, row)
        if not step.same:
            was = "no such step" if step.recorded_state is None else _words(step.recorded_state, step.recorded_reason)
            now = _words(step.state, step.reason)
            what = f"{was}, now {now}" if was != now else "another artifact"
            yield f"step {one.units_path}{step.id}: {what}{_first_unit(one, row)}"
    kept = {step.id for step in one.steps}
    for past in one.recording.steps:
        if past.id not in kept:
            yield f"step {one.units_path}{past.id}: recorded, and not in this workflow"
    run = one.recording.run
    if (run.state, run.outcome) != (one.run.state, one.run.outcome):
        named = "run" if not one.units_path else f"run {one.units_path.removesuffix('/')}"
        yield f"{named}: {_words(run.state, run.outcome)}, now {_words(one.run.state, one.run.outcome)}"


def _was_stopped(run: RunRow) -> bool:
    """Tell whether a child was ended with the run above: how far it had come is nothing of its own doing."""
    return run.parent is not None and (run.state, run.reason) == ("failed", "stopped")


def _first_unit(one: Played, step: StepRow) -> str:
    past = {} if one.recording is None else one.recording.units
    for unit in one.units:
        if unit.step != step.step or unit.kind == "approval":
            continue
        path = one.units_path + unit.id
        if unit.id not in past:
            return f"; first at unit {path}, which is not recorded"
        row = past[unit.id].row
        if (row.state, row.reason) != (unit.state, unit.reason):
            was, now = _words(row.state, row.reason), _words(unit.state, unit.reason)
            return f"; first at unit {path}: {was}, now {now}"
        if row.result != unit.result:
            return f"; first at unit {path}: another result"
    return ""


def _words(state: str, reason: str | None) -> str:
    return f"{state} ({reason})" if reason else state
