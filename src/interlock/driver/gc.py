"""Removing what is no longer wanted: old ended runs with their logs, what only they need, and worktrees.

Of worktrees only those go that hold nothing, of runs that have ended or are gone; the others are `interlock worktrees`.
Guarantee: nothing is taken from under a driver, also not from one that starts at this moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

import msgspec

from interlock.dispatch.git.base import IsolationError
from interlock.driver.birth import new_run_id
from interlock.driver.clock import Clock
from interlock.driver.lease import held_now, kept_off
from interlock.driver.project import ProjectPaths
from interlock.driver.worktrees import Worktrees
from interlock.errors import StoreError
from interlock.model.states import RUN_ENDED, RunState
from interlock.store.base import RunRow, Store
from interlock.store.held import Held
from interlock.store.room import Room

_BIRTH_MS: Final = 3_600_000
"""A run without a row that began later may still be in the making."""
_NEEDED: Final = frozenset({"run-driven", "run-needed", "run-not-ended"})
_NO_RUN: Final = frozenset({"run-not-found", "bad-row"})


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is old enough and stays."""

    run: str
    why: str


class GcReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or would be."""

    runs: tuple[str, ...]
    kept: tuple[Kept, ...] = ()
    artifacts: int
    worktrees: tuple[str, ...] = ()
    """Folders of those that held nothing."""
    journal: Room | None = None
    """What became of the journal's free room; None where nothing was to be done."""


def collect(store: Store, project: ProjectPaths, clock: Clock, older_than_ms: int, *, dry_run: bool) -> GcReport:
    """Remove runs that ended longer ago than that. A run that can still go on by itself stays.

    So does one that is driven, and one that a fork may take more from.
    """
    before_ms = clock.wall_ms() - older_than_ms
    held = held_now(clock)
    remover = _Remover(store, project, held, dry_run=dry_run)
    old = [
        row.id
        for row in store.runs()
        if RunState(row.state) in RUN_ENDED and row.ended_at is not None and row.ended_at < before_ms
    ]
    full = remover.remove(old)
    artifacts = store.sweep_artifacts(dry_run=dry_run)
    worktrees = _worktrees(store, project, clock, remover.removed, before_ms, dry_run=dry_run)
    journal = None if dry_run else store.give_back(held)
    if full and remover.removed:
        # what went has left room
        full = remover.remove(list(full))
    if full and not remover.removed:
        raise next(iter(full.values()))
    kept = {**remover.kept, **{run: f"run {run} can't be removed: {error.message}" for run, error in full.items()}}
    return GcReport(
        runs=tuple(remover.removed),
        kept=tuple(Kept(run=run, why=why) for run, why in kept.items()),
        artifacts=artifacts,
        worktrees=worktrees,
        journal=journal,
    )


class _Remover:
    """Removes runs one by one; a run that stays says why."""

    def __init__(self, store: Store, project: ProjectPaths, held: Held, *, dry_run: bool) -> None:
        self._store = store
        self._logs = project.logs
        self._held = held
        self._dry_run = dry_run
        self.removed: list[str] = []
        self.kept: dict[str, str] = {}

    def remove(self, runs: Sequence[str]) -> dict[str, StoreError]:
        """Remove the runs; return those that the disk has no room for: to remove one takes about what it takes itself."""
        full: dict[str, StoreError] = {}
        for run_id in runs:
            try:
                self._store.delete_run(run_id, self._held, dry_run=self._dry_run)
            except StoreError as error:
                if error.code == "journal-full":
                    full[run_id] = error
                elif error.code in _NEEDED:
                    self.kept[run_id] = error.message
                elif error.code != "run-not-found":
                    raise
                continue
            self.removed.append(run_id)
            if not self._dry_run:
                (self._logs / f"{run_id}.log").unlink(missing_ok=True)
        return full


def _worktrees(
    store: Store, project: ProjectPaths, clock: Clock, removed: list[str], before_ms: int, *, dry_run: bool
) -> tuple[str, ...]:
    try:
        found = Worktrees(project.root, project.state_dir, os.environ)
    except IsolationError:
        # no repository, or none that git lets us look into: no worktrees that could be removed
        return ()
    if not dry_run:
        # of a run that is being made there is a base before there is a row
        until = new_run_id(min(before_ms, clock.wall_ms() - _BIRTH_MS))
        found.forget_bases(lambda run: run in removed or (run < until and _family(store, run) is None))
    return found.collect(_Bystander(store, clock, dry_run=dry_run).alone, dry_run=dry_run)


class _Bystander:
    """Tells for a worktree whether its run needs it, and keeps drivers from needing it while it is looked at.

    A worktree is made after the row of its run: one that was seen and has no row is of a run that is gone.
    """

    def __init__(self, store: Store, clock: Clock, *, dry_run: bool) -> None:
        self._store = store
        self._clock = clock
        self._dry_run = dry_run

    @contextmanager
    def alone(self, run_id: str) -> Iterator[bool]:
        top = _family(self._store, run_id)
        if top is None:
            yield True
        elif self._dry_run:
            lease = self._store.read_lease(top.id)
            yield _ended(top) and (lease is None or not held_now(self._clock)(lease))
        elif not _ended(top):
            yield False
        else:
            with ExitStack() as stack:
                try:
                    free = stack.enter_context(kept_off(self._store, top.id, self._clock))
                except StoreError as error:
                    if error.code != "journal-full":
                        raise
                    free = False
                # somebody may have reopened it meanwhile, and left again
                yield free and _ended(self._store.run(top.id))


def _ended(row: RunRow) -> bool:
    return RunState(row.state) in RUN_ENDED


def _family(store: Store, run_id: str) -> RunRow | None:
    """Return the run whose lease is that of the run, None where there is no such run."""
    try:
        row = store.run(run_id)
        return row if row.root is None else store.run(row.root)
    except StoreError as error:
        if error.code in _NO_RUN:
            return None
        raise
