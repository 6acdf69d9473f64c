"""Removing what is no longer wanted: old ended runs with their logs, and artifacts that no run refers to."""

from __future__ import annotations

import shutil

import msgspec

from interlock.driver.project import ProjectPaths
from interlock.model.states import RUN_ENDED, RunState
from interlock.store.base import Store


class GcReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or would be."""

    runs: tuple[str, ...]
    artifacts: int


def collect(store: Store, project: ProjectPaths, before_ms: int, *, dry_run: bool) -> GcReport:
    """Remove runs that ended before `before_ms`. A run that can still go on by itself stays."""
    old = [
        row.id
        for row in store.runs()
        if RunState(row.state) in RUN_ENDED and row.ended_at is not None and row.ended_at < before_ms
    ]
    if not dry_run:
        for run_id in old:
            store.delete_run(run_id)
            (project.logs / f"{run_id}.log").unlink(missing_ok=True)
    return GcReport(runs=tuple(old), artifacts=_artifacts(store, project, dry_run=dry_run))


def _artifacts(store: Store, project: ProjectPaths, *, dry_run: bool) -> int:
    folder = project.state_dir / "artifacts"
    kept = store.referenced_artifacts()
    loose = [path for path in folder.iterdir() if f"sha256:{path.name}" not in kept] if folder.is_dir() else []
    if not dry_run:
        for path in loose:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    return len(loose)
