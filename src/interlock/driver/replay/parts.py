"""The runs of a replayed family, each with what was recorded of it: a replay opens child runs with ids of its own.

A part is named by the units that lead to it, as `each:ab12/`, and by their steps, as `each>`. The first run's names are
empty, so that what is its own is called as ever.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from interlock.decide.work import base_id
from interlock.driver.replay.recording import Recording
from interlock.model.run import Snapshot
from interlock.store.base import RunRow, StepRow, Store, UnitRow


class Part(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One run that is being replayed; `recording` is None where the recorded run had none there."""

    recording: Recording | None
    units: str
    steps: str
    items: tuple[bytes | None, ...] = ()
    """Of each of those units, None of a solo step's."""
    snap: Snapshot


def part_of(recording: Recording, snap: Snapshot) -> Part:
    """Return a run under way with its part of the first run's recording."""
    if snap.above is None or snap.place is None:
        return Part(recording=recording, units="", steps="", snap=snap)
    above = part_of(recording, snap.above)
    step, unit = snap.place
    return Part(
        recording=None if above.recording is None else above.recording.child(unit.id),
        units=f"{above.units}{base_id(unit.id)}/",
        steps=f"{above.steps}{step.id}>",
        items=(*above.items, unit.item),
        snap=snap,
    )


def under_way(snap: Snapshot) -> Iterator[Snapshot]:
    """Yield the run and those below it that have not ended, each after its parent."""
    yield snap
    for below in snap.below:
        yield from under_way(below)


class Played(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One run as its replay left it."""

    recording: Recording | None
    units_path: str
    steps_path: str
    run: RunRow
    steps: tuple[StepRow, ...]
    units: tuple[UnitRow, ...]
    children: dict[str, Played]
    """By the unit that each is."""

    def family(self) -> Iterator[Played]:
        """Yield the run and those below it, each after its parent."""
        yield self
        for child in self.children.values():
            yield from child.family()

    def step_id(self, unit: UnitRow) -> str:
        """Return the id of the unit's step."""
        return self.steps[unit.step].id


def played(
    store: Store, run_id: str, recording: Recording | None, units_path: str = "", steps_path: str = ""
) -> Played:
    """Read a replayed run and those below it."""
    steps = tuple(store.steps(run_id))
    units = tuple(store.units(run_id))
    owners = {unit.id: steps[unit.step].id for unit in units}
    children: dict[str, Played] = {}
    for row in store.children(run_id):
        unit_id = row.parent_unit or ""
        below = None if recording is None else recording.child(unit_id)
        path = f"{steps_path}{owners.get(unit_id, '')}>"
        children[unit_id] = played(store, row.id, below, f"{units_path}{unit_id}/", path)
    return Played(
        recording=recording,
        units_path=units_path,
        steps_path=steps_path,
        run=store.run(run_id),
        steps=steps,
        units=units,
        children=children,
    )
