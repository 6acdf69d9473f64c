"""Prompts through the executor of one machine, beside commands and Python functions."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.modelserver.fakellm import FakeLLM

from interlock.dispatch.base import EngineCall, EngineSettings, Job, Outcome, Request
from interlock.dispatch.env.redact_base import NullRedactor, ResolvedEnv
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes.markers import Marker
from interlock.driver.local import LocalExecutor
from interlock.model.plan import Command, Prompt, Work
from interlock.model.states import Reason

BOUND_S = 30.0


@pytest.fixture
def executor(tmp_path: Path, model_server: FakeLLM) -> Iterator[LocalExecutor]:
    settings = EngineSettings(name="fast", kind="llm", driver="openai", base_url=f"{model_server.url}/v1")
    made = LocalExecutor(
        python=(sys.executable,),
        env_for=lambda _: ResolvedEnv({}, NullRedactor()),
        marker=Marker(uuid.uuid4().hex, "holder", 1),
        log=RunLog(tmp_path / "run.log"),
        scratch=tmp_path,
        environ={"XDG_STATE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        settings={"fast": settings}.__getitem__,
    )
    yield made
    made.close()


def request(folder: Path, target: Work, **changes: Any) -> Request:
    job: dict[str, Any] = {
        "key": "job",
        "run_id": "run",
        "step_id": "step",
        "step": 0,
        "cwd": str(folder),
        "shell": ("sh", "-c"),
    }
    return Request(
        job=Job(target=target, **(job | changes)),
        dispatch=uuid.uuid4().hex,
        unit_id="step:solo",
        attempt=1,
        idempotency_key="key",
        prompt="hello",
    )


def prompt(folder: Path, **changes: Any) -> Request:
    call = EngineCall(engine="fast", kind="llm", driver="openai", model="fake-model")
    return request(folder, Prompt(text="", engine="fast"), **({"call": call} | changes))


def outcome(executor: LocalExecutor, wanted: Request) -> Outcome:
    until = time.monotonic() + BOUND_S
    while (left := until - time.monotonic()) > 0:
        for report in executor.wait(left):
            if isinstance(report, Outcome) and report.dispatch == wanted.dispatch:
                return report
    raise AssertionError("no outcome came")


def test_a_job_with_a_call_goes_to_its_engine(executor: LocalExecutor, tmp_path: Path) -> None:
    asked = prompt(tmp_path)
    assert executor.capacity(asked.job, 3) == [None, None, None]
    executor.start([asked])
    assert outcome(executor, asked).output == b"echo: hello"


def test_a_command_is_still_a_command(executor: LocalExecutor, tmp_path: Path) -> None:
    asked = request(tmp_path, Command(text="echo hi"))
    executor.start([asked])
    assert outcome(executor, asked).output == b"hi\n"


def test_a_prompt_is_cancelled_with_all_else(executor: LocalExecutor, model_server: FakeLLM, tmp_path: Path) -> None:
    model_server.script({"hang": True})
    asked = prompt(tmp_path)
    executor.start([asked])
    executor.cancel(None, 5.0)
    assert outcome(executor, asked).status == "aborted"


def test_without_settings_an_engine_is_not_configured(tmp_path: Path) -> None:
    executor = LocalExecutor(
        python=(sys.executable,),
        env_for=lambda _: ResolvedEnv({}, NullRedactor()),
        marker=Marker(uuid.uuid4().hex, "holder", 1),
        log=RunLog(tmp_path / "run.log"),
        scratch=tmp_path,
    )
    asked = prompt(tmp_path)
    executor.start([asked])
    ended = outcome(executor, asked)
    executor.close()
    assert ended.reason is Reason.DISPATCH_ERROR
    assert ended.error == "engine `fast` is not configured; add [engines.fast] to interlock.toml"
