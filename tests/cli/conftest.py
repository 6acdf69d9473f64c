"""Rows, plans and snapshots for the command line's tests, and the program as a function."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.app import App
from interlock.cli import program
from interlock.cli.session import Session
from interlock.dispatch.logs.log import RunLog, Stream
from interlock.driver.project import project_at
from interlock.model import canon
from interlock.model import events as ev
from interlock.model.plan import Command, Map, Plan, Project, Reference, Route, Step
from interlock.model.run import Lease, RunInfo, Snapshot
from interlock.model.states import AttemptState, Reason, RunState, StepState, UnitState
from interlock.plan.config import Config
from interlock.store.base import Census, RunRow, StepRow, UnitRow
from interlock.store.births import NewRun, NewStep
from interlock.store.sqlite import SqliteStore

PROGRAM = [sys.executable, "-c", "from interlock.cli.entry import main; main()"]
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
    stages=(),
    child=False,
    each=False,
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
def begin() -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    """Starts the program as a process of its own, without input; what runs at the end of the test is killed."""
    started: list[subprocess.Popen[Any]] = []

    def call(*arguments: str, program: Sequence[str] = PROGRAM, **how: Any) -> subprocess.Popen[Any]:
        process = subprocess.Popen([*program, *arguments], stdin=subprocess.DEVNULL, **how)
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def interlock() -> Callable[..., subprocess.CompletedProcess[str]]:
    """The program as a process of its own, in a folder."""

    def call(*arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *arguments],
            cwd=cwd,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    return call


class Journal:
    """A journal of one finished run and one that a person must answer for, written through the store's own verbs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = project_at(root)
        self.paths.state_dir.mkdir(mode=0o700)
        self.paths.logs.mkdir()
        self.store = SqliteStore.open(self.paths.journal)

    def run(self, run_id: str, plan: Plan, params: bytes = b'{"who":"me"}') -> Lease:
        frozen = msgspec.json.encode(plan)
        lease = Lease(
            run_id=run_id,
            holder="h",
            term=1,
            pid=1,
            start_ticks=1,
            boot_id="b",
            pid_namespace="n",
            host="here",
            since_ms=0,
            renewed_ms=0,
            expires_ms=1,
            expires_boot_ms=1,
        )
        steps = tuple(NewStep(id=step.id) for step in plan.steps)
        new = NewRun(
            id=run_id,
            workflow=plan.source,
            plan_hash=canon.sha256(frozen),
            plan_json=frozen,
            params_json=params,
            created_at=1_700_000_000_000,
            steps=steps,
        )
        self.store.create_run(new, lease)
        return lease


def attempt(step: int, unit: int, dispatch: str, state: UnitState, **fields: Any) -> list[ev.Event]:
    """The two events of one attempt."""
    ended = AttemptState.COMPLETED if state is UnitState.COMPLETED else AttemptState.FAILED
    return [
        ev.AttemptReserved(at=1_700_000_001_000, step=step, unit=unit, number=1, dispatch=dispatch),
        ev.AttemptFinished(
            at=1_700_000_002_000,
            step=step,
            unit=unit,
            number=1,
            dispatch=dispatch,
            state=ended,
            unit_state=state,
            started_at=1_700_000_001_500,
            **fields,
        ),
    ]


def started(step: int, *ids: str) -> ev.StepStarted:
    units = tuple(
        ev.NewUnit(i, name, i if len(ids) > 1 else None, str(i).encode() if len(ids) > 1 else None, "sha256:h")
        for i, name in enumerate(ids)
    )
    return ev.StepStarted(at=1_700_000_001_000, step=step, round=1, loop=1, units=units)


@pytest.fixture
def journal(tmp_path: Path, snapshot: Snapshot) -> Journal:
    """Two runs: `01AAA` degraded, with a log; `01BBB` blocked on an effect that nobody knows of."""
    journal = Journal(tmp_path)
    store = journal.store
    lease = journal.run("01AAA", snapshot.plan)
    store.commit(
        lease,
        [
            started(0, "one:solo"),
            *attempt(0, 0, "h.1", UnitState.COMPLETED, result=b'["x","y"]'),
            ev.StepMoved(
                at=3, step=0, state=StepState.COMPLETED, artifact=b'["x","y"]', artifact_hash=canon.sha256(b'["x","y"]')
            ),
            started(1, "many:a", "many:b"),
            *attempt(1, 0, "h.2", UnitState.COMPLETED, result=b'"did \\u001b[2J x"'),
            *attempt(1, 1, "h.3", UnitState.FAILED, reason=Reason.TIMEOUT, error="took\x1b[31m too long"),
            ev.StepMoved(
                at=4,
                step=1,
                state=StepState.COMPLETED,
                artifact=b'["did",null]',
                artifact_hash=canon.sha256(b'["did",null]'),
            ),
            ev.StepMoved(at=5, step=2, state=StepState.SKIPPED, reason="not_chosen"),
            ev.RunMoved(at=1_700_000_009_000, state=RunState.COMPLETED, outcome="degraded", driven_ms=8_000),
        ],
    )
    store.release(lease)
    log = RunLog(journal.paths.logs / "01AAA.log")
    said: tuple[tuple[str, Stream, bytes], ...] = (
        ("h.1", "out", b'["x",'),
        ("h.2", "err", b"warning \x1b[2J\nno end"),
        ("h.1", "out", b'"y"]\n'),
    )
    for dispatch, stream, text in said:
        share = log.attempt(dispatch, 1_000)
        share.add(stream, text)
        share.close()
    log.close()
    lease = journal.run("01BBB", snapshot.plan)
    store.commit(
        lease,
        [
            started(0, "one:solo"),
            *attempt(0, 0, "h.9", UnitState.UNKNOWN, reason=Reason.TIMEOUT, error="no answer"),
            ev.StepMoved(at=3, step=0, state=StepState.BLOCKED, reason="effect_unknown", detail="did it happen?"),
            ev.RunMoved(at=4, state=RunState.BLOCKED, reason="effect_unknown", detail="step 'one': did it happen?"),
        ],
    )
    store.release(lease)
    store.close()
    return journal


def reading(root: Path) -> Session:
    """A session over the journal there, whatever this machine has configured."""
    return Session(lambda _: App(project_at(root), Config()))


@pytest.fixture
def read(journal: Journal, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a reading command says of the journal; it must succeed."""

    def call(*arguments: str) -> str:
        code = program.run(list(arguments), reading(journal.root))
        told = capfd.readouterr()
        assert (code, told.err) == (0, "")
        return told.out

    return call


FLOW = """---
params: {{ who: {{ type: string, default: world }} }}
steps:
  - id: greet
    run: echo "hello $INTERLOCK_PARAM_WHO"
{steps}---
# Flow
"""


@pytest.fixture
def flow(tmp_path: Path) -> Callable[..., Path]:
    """Writes a workflow of a greeting and more steps, one mapping a line."""

    def write(*steps: str, name: str = "flow.md") -> Path:
        lines = "".join(f"  - {{ {step} }}\n" for step in steps)
        path = tmp_path / name
        path.write_text(FLOW.format(steps=lines), encoding="utf-8")
        return path

    return write
