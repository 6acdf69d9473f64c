"""Removing what is no longer wanted: old ended runs with their logs, what only they need, and worktrees.

Of worktrees only those go that hold nothing, of runs that have ended or are gone; the others are `interlock worktrees`.
"""

from __future__ import annotations

import os

import msgspec

from interlock.dispatch.git.base import IsolationError
from interlock.driver.birth import new_run_id
from interlock.driver.project import ProjectPaths
from interlock.driver.worktrees import Worktrees
from interlock.model.states import RUN_ENDED, RunState
from interlock.store.base import Store


class GcReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or would be."""

    runs: tuple[str, ...]
    artifacts: int
    worktrees: tuple[str, ...] = ()
    """Folders of those that held nothing."""


def collect(store: Store, project: ProjectPaths, before_ms: int, *, dry_run: bool) -> GcReport:
    """Remove runs that ended before `before_ms`. A run that can still go on by itself stays.

    So does one that an unfinished fork may take more from.
    """
    rows = store.runs(children=True)
    families = {row.id: row.family for row in rows}
    needed = {families.get(row.forked_from or "") for row in rows if RunState(row.state) not in RUN_ENDED}
    old = [
        row.id
        for row in store.runs()
        if RunState(row.state) in RUN_ENDED
        and row.ended_at is not None
        and row.ended_at < before_ms
        and row.id not in needed
    ]
    if not dry_run:
        for run_id in old:
            store.delete_run(run_id)
            (project.logs / f"{run_id}.log").unlink(missing_ok=True)
    artifacts = store.sweep_artifacts(dry_run=dry_run)
    worktrees = _worktrees(store, project, before_ms, dry_run=dry_run)
    return GcReport(runs=tuple(old), artifacts=artifacts, worktrees=worktrees)


def _worktrees(store: Store, project: ProjectPaths, before_ms: int, *, dry_run: bool) -> tuple[str, ...]:
    runs = store.runs(children=True)
    going_on = {row.id for row in runs if RunState(row.state) not in RUN_ENDED}
    try:
        found = Worktrees(project.root, project.state_dir, os.environ)
    except IsolationError:
        # no repository, or none that git lets us look into: no worktrees that could be removed
        return ()
    if not dry_run:
        # of a run that is being made there is a base before there is a row
        found.forget_bases({row.id for row in runs}, new_run_id(before_ms))
    return found.collect(going_on, dry_run=dry_run)
