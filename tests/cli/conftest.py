"""Rows, plans and snapshots for the command line's tests, and the program as a function."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.model.plan import Command, Map, Plan, Project, Reference, Route, Step
from interlock.model.run import RunInfo, Snapshot
from interlock.store.base import Census, RunRow, StepRow, UnitRow

_RUN = RunRow(
    id="01JDRUN",
    workflow="flow.md",
    state="completed",
    reason=None,
    detail="",
    outcome="ok",
    wait_until=None,
    key=None,
    parent=None,
    plan_hash="sha256:0",
    params_json=b"{}",
    created_at=1_700_000_000_123,
    ended_at=1_700_000_004_123,
    driven_ms=4000,
)
_STEP = StepRow(
    step=0,
    id="one",
    state="completed",
    reason=None,
    detail="",
    round=1,
    loop=1,
    gate="none",
    artifact=b'"x"',
    artifact_hash="sha256:1",
    artifact_size=3,
    route=(),
    started_at=1_700_000_000_200,
    ended_at=1_700_000_000_300,
)
_UNIT = UnitRow(
    step=0,
    ordinal=0,
    id="one:solo",
    kind="work",
    round=1,
    loop=1,
    index=None,
    item=None,
    subject=None,
    input_hash="h",
    state="completed",
    attempt=1,
    retries=0,
    not_before=None,
    reason=None,
    error="",
    result=b'"x"',
    verdict=None,
    dispatch="d",
    started_at=1_700_000_000_200,
    ended_at=1_700_000_000_300,
)


class Rows:
    """Makes journal rows; every field has a value that a case may change."""

    @staticmethod
    def run(**fields: Any) -> RunRow:
        return msgspec.structs.replace(_RUN, **fields)

    @staticmethod
    def step(**fields: Any) -> StepRow:
        return msgspec.structs.replace(_STEP, **fields)

    @staticmethod
    def unit(**fields: Any) -> UnitRow:
        return msgspec.structs.replace(_UNIT, **fields)

    @staticmethod
    def census(step: int = 0, by_reason: dict[str, int] | None = None, **states: int) -> Census:
        return Census(step=step, by_state=states, by_reason=by_reason or {})


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def snapshot() -> Snapshot:
    """A run of three steps: a command, a map and a route."""
    command = Command(text="true")
    output = Reference(text="steps.one.output", root="steps", name="one")
    plan = Plan(
        format=1,
        name="flow",
        source="flow.md",
        source_sha256="sha256:0",
        steps=(
            Step(id="one", target=command),
            Step(id="many", target=command, map=Map(over=output), on_error="continue", needs=("one",)),
            Step(id="way", route=Route(input=output, when=(), default="many"), needs=("many",)),
        ),
        project=Project(root="/p", device=1, inode=1, id="p"),
    )
    return Snapshot(plan, RunInfo(id="01JDRUN", params={}))


@pytest.fixture
def interlock() -> Callable[..., subprocess.CompletedProcess[str]]:
    """The program as a process of its own, in a folder."""

    def call(*arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from interlock.cli.entry import main; main()", *arguments],
            cwd=cwd,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    return call
