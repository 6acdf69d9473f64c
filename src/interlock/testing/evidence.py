"""What a project shows about its run: the journal, git, and what the work itself left behind.

They are different witnesses: attempts are what the engine says it did, lines of the files `ran` and `changed` are
what was really done, and git is where a change must be found.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from interlock.dispatch.processes.reaper_main import marker_of, pids
from interlock.errors import StoreError
from interlock.model import canon
from interlock.model.states import AttemptState, StepState, UnitState
from interlock.plan.freeze import thaw
from interlock.store.base import RunRow, StepRow, UnitRow
from interlock.store.sqlite import SqliteStore

_GONE_S: Final = 5.0
Attempt = tuple[str, int]


class Ending(msgspec.Struct, frozen=True):
    """What a run came to; equal for two runs exactly where nobody could tell them apart by what they made and took."""

    state: str
    outcome: str | None
    steps: tuple[tuple[str, str, bytes | None], ...]
    units: tuple[tuple[str, str, bytes | None, str | None], ...]
    taken: frozenset[str]
    """Units taken over from the run that this one was forked from."""


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


def gather(project: Path, besides: Collection[str] = ()) -> Evidence | None:
    """Read what there is of the only run, or the only one `besides` those; None before there is one."""
    ran = Counter(_attempt(line) for line in lines(project / "ran"))
    try:
        store = SqliteStore.open(journal(project), read_only=True)
    except StoreError as error:
        if error.code == "no-journal":
            return None
        raise
    with store:
        runs = [run for run in store.runs() if run.id not in besides]
        if not runs:
            return None
        (run,) = runs
        family = [_run_evidence(store, one, ran) for one in _family(store, run)]
    attempts = {attempt: state for one in family for attempt, state in one.attempts.items()}
    ungated = tuple(step for one in family for step in one.ungated)
    ending = Ending(
        run.state,
        run.outcome,
        tuple(made for one in family for made in one.ending.steps),
        tuple(sorted(seen for one in family for seen in one.ending.units)),
        frozenset(unit for one in family for unit in one.ending.taken),
    )
    return Evidence(run.id, ending, attempts, ungated, ran)


def _family(store: SqliteStore, run: RunRow) -> list[RunRow]:
    """Return the run and those below it; units of the sample and its children have different names."""
    return [run, *(below for child in store.children(run.id) for below in _family(store, child))]


def _run_evidence(store: SqliteStore, run: RunRow, ran: Counter[Attempt]) -> Evidence:
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
    made = tuple((step.id, step.state, _essence(store.artifact(run.id, step.step))) for step in steps)
    seen = tuple((unit.id, unit.state, _essence(unit.result), unit.verdict) for unit in units if unit.kind != "probe")
    passed = {step.id for step in gated if _passed(step, units, ran)}
    ungated = tuple(step.id for step in gated if step.state == StepState.COMPLETED and step.id not in passed)
    taken = frozenset(unit.id for unit in units if unit.reused is not None)
    ending = Ending(run.state, run.outcome, made, tuple(sorted(seen)), taken)
    return Evidence(run.id, ending, attempts, ungated, ran)


def _essence(made: bytes | None) -> bytes | None:
    """Return an artifact without what differs from run to run: of a merge, its names and the dates in its commits."""
    value = None if made is None else msgspec.json.decode(made)
    if not isinstance(value, dict) or "tree" not in value:
        return made
    kept = {name: [entry["item"] for entry in value[name]] for name in ("merged", "conflicts", "rejected")}
    return canon.dumps({"tree": value["tree"], **kept})


def _passed(step: StepRow, units: list[UnitRow], ran: Counter[Attempt]) -> bool:
    mine = [unit for unit in units if unit.step == step.step]
    merges = [unit for unit in mine if unit.kind == "merge" and unit.state == UnitState.COMPLETED]
    if merges:
        # a merge asks no question of its own: its check runs for each part, and each time leaves a line
        merged = msgspec.json.decode(merges[-1].result or b"{}")
        asked = sum(count for (unit, _), count in ran.items() if unit == merges[-1].id)
        return asked >= len(merged["merged"]) + len(merged["rejected"])
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


def left(run_id: str, project: Path, patience_s: float = _GONE_S) -> int:
    """Return how many processes carry the run's mark or stand in the project still, once they had time to go.

    The second are the calls of git by which worktrees are made and merged: they are the driver's own, and unmarked.
    """
    give_up = time.monotonic() + patience_s
    mark, folder = f"{run_id}:".encode(), os.path.realpath(project)
    while found := sum(_stands_in(pid, folder) or mark in marker_of(pid) for pid in pids()):
        if time.monotonic() >= give_up:
            return found
        time.sleep(0.01)
    return 0


def _stands_in(pid: int, folder: str) -> bool:
    try:
        place = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - one of hundreds, and only compared
    except OSError:
        return False
    return f"{place}/".startswith(f"{folder}/")


def digest(project: Path) -> str:
    """Return a hash of all that the journal holds."""
    db = sqlite3.connect(f"file:{journal(project)}?mode=ro", uri=True)
    try:
        return sha256("\n".join(db.iterdump()).encode("utf-8", "surrogateescape")).hexdigest()
    finally:
        db.close()


def told(project: Path) -> int:
    """Return how many events the journal holds."""
    return int(_asked(project, "SELECT count(*) FROM event"))


def integrity(project: Path) -> str:
    """Return what SQLite's own check says about the journal: `ok` where it is sound."""
    return str(_asked(project, "PRAGMA integrity_check"))


def _asked(project: Path, query: str) -> Any:  # noqa: ANN401 - what the query selects
    db = sqlite3.connect(f"file:{journal(project)}?mode=ro", uri=True)
    try:
        return db.execute(query).fetchone()[0]
    finally:
        db.close()
