"""What a project shows about its run: the journal, and what the work itself left behind.

The two are told by different witnesses: attempts are what the engine says it did, lines of the file `ran` are
what was really done.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from interlock.dispatch.reaper_main import marker_of, pids
from interlock.errors import StoreError
from interlock.model.states import AttemptState, StepState, UnitState
from interlock.plan.freeze import thaw
from interlock.store.base import StepRow, UnitRow
from interlock.store.sqlite import SqliteStore

_GONE_S: Final = 5.0
Attempt = tuple[str, int]


class Ending(msgspec.Struct, frozen=True):
    """What a run came to; equal for two runs exactly where nobody could tell them apart by what they made."""

    state: str
    outcome: str | None
    steps: tuple[tuple[str, str, bytes | None], ...]
    units: tuple[tuple[str, str, bytes | None, str | None], ...]


class Evidence(msgspec.Struct, frozen=True):
    """A journal read, with the lines of `ran` as they were just before."""

    run_id: str
    ending: Ending
    attempts: dict[Attempt, str]
    ungated: tuple[str, ...]
    """Steps completed without the verdicts that their gates ask for."""
    ran: Counter[Attempt]

    def completed(self) -> set[str]:
        """Return the units one of whose attempts is journaled as completed."""
        return {unit for (unit, _), state in self.attempts.items() if state == AttemptState.COMPLETED}

    def dispatches(self, unit: str) -> int:
        """Return how often the unit was dispatched, as the journal says."""
        return sum(name == unit for name, _ in self.attempts)

    def times(self, unit: str) -> int:
        """Return how often the unit's work really ran."""
        return sum(count for (name, _), count in self.ran.items() if name == unit)

    def unasked(self) -> list[Attempt]:
        """Return what ran although no attempt of it is journaled."""
        return sorted(attempt for attempt in self.ran if attempt not in self.attempts)


def journal(project: Path) -> Path:
    """Return the place of the project's journal."""
    return project / ".interlock" / "journal.db"


def gather(project: Path) -> Evidence | None:
    """Read what there is; None before there is a run."""
    ran = Counter(_attempt(line) for line in lines(project / "ran"))
    try:
        store = SqliteStore.open(journal(project), read_only=True)
    except StoreError as error:
        if error.code == "no-journal":
            return None
        raise
    with store:
        runs = store.runs()
        if not runs:
            return None
        (run,) = runs
        plan = thaw(store.plan(run.id)[1], run.plan_hash, run.id)
        units = list(store.units(run.id))
        steps = store.steps(run.id)
        gated = [step for step, spec in zip(steps, plan.steps, strict=True) if spec.gate is not None]
        names = {(unit.step, unit.ordinal): unit.id for unit in units}
        attempts = {
            (names[unit.step, unit.ordinal], row.number): row.state
            for unit in units
            for row in store.attempts(run.id, unit.step, unit.ordinal)
        }
        made = tuple((step.id, step.state, store.artifact(run.id, step.step)) for step in steps)
    seen = tuple((unit.id, unit.state, unit.result, unit.verdict) for unit in units if unit.kind != "probe")
    ungated = tuple(step.id for step in gated if step.state == StepState.COMPLETED and not _passed(step, units))
    return Evidence(run.id, Ending(run.state, run.outcome, made, tuple(sorted(seen))), attempts, ungated, ran)


def _passed(step: StepRow, units: list[UnitRow]) -> bool:
    mine = [unit for unit in units if unit.step == step.step]
    passed = {
        unit.index
        for unit in mine
        if unit.kind == "gate" and unit.verdict == "pass" and (unit.round, unit.loop) == (step.round, step.loop)
    }
    work = {unit.index for unit in mine if unit.kind == "work" and unit.state == UnitState.COMPLETED}
    return work <= passed if step.each or None not in work else None in passed


def lines(path: Path) -> list[str]:
    """Return the lines of a file; none where there is no file."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _attempt(line: str) -> Attempt:
    unit, _, number = line.rpartition(" ")
    return unit, int(number)


def left(run_id: str, patience_s: float = _GONE_S) -> int:
    """Return how many processes carry the run's mark still, once they had time to go."""
    give_up = time.monotonic() + patience_s
    while found := sum(f"{run_id}:".encode() in marker_of(pid) for pid in pids()):
        if time.monotonic() >= give_up:
            return found
        time.sleep(0.01)
    return 0


def digest(project: Path) -> str:
    """Return a hash of all that the journal holds."""
    db = sqlite3.connect(f"file:{journal(project)}?mode=ro", uri=True)
    try:
        return sha256("\n".join(db.iterdump()).encode("utf-8", "surrogateescape")).hexdigest()
    finally:
        db.close()


def integrity(project: Path) -> str:
    """Return what SQLite's own check says about the journal: `ok` where it is sound."""
    db = sqlite3.connect(f"file:{journal(project)}?mode=ro", uri=True)
    try:
        return str(db.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        db.close()
