from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.dispatch.base import EnvAudit, Job
from interlock.dispatch.env.redact_base import EnvUnresolvedError, ResolvedEnv
from interlock.dispatch.env.secrets import EnvResolver
from interlock.model.plan import Command, EnvGroup
from interlock.model.states import Reason

Make = Callable[..., Any]
VALUE = 'tok"en/ü 123'
WORK = """
import base64, json, os, urllib.parse

def tell(context):
    value = os.environ.get("TOKEN", "nothing")
    print("log", value, json.dumps(value), flush=True)
    raw = value.encode()
    return {"raw": value, "url": urllib.parse.quote(value), "b64": base64.b64encode(b"x" + raw + b"y").decode()}

def fail(context):
    raise ValueError("bad " + os.environ["TOKEN"])

def fail_at_length(context):
    raise ValueError("x" * context["item"] + os.environ["TOKEN"] + "y" * 9_000)

def crumble(context):
    raise_in = os.environ["TOKEN"]
    os.write(1, b"half a line " + raise_in.encode())
    os._exit(1)
"""


def env_for(folder: Path) -> Callable[[Job], ResolvedEnv]:
    resolver = EnvResolver((EnvGroup(name="g", vars=("TOKEN",)),), folder, environ={"TOKEN": VALUE})
    return lambda job: resolver.resolve(job.env)


def test_a_function_sees_the_value_and_nobody_else_does(make_functions: Make, tmp_path: Path) -> None:
    functions = make_functions(WORK, env_for=env_for(tmp_path))
    for outcome in functions.run("tell", 1, 2, env=("g",)):
        assert json.loads(outcome.output)["raw"] == "[redacted:TOKEN]"
        assert json.loads(outcome.output)["url"] == "[redacted:TOKEN]"
        assert "[redacted:TOKEN]" in json.loads(outcome.output)["b64"]
    [failed] = functions.run("fail", env=("g",))
    assert failed.error == "ValueError: bad [redacted:TOKEN]"
    [crumbled] = functions.run("crumble", env=("g",))
    assert crumbled.reason == Reason.KILLED
    log = functions.log()
    assert "f a line [redacted:TOKEN]" in log
    assert log.count("[redacted:TOKEN]") >= 4
    for spelling in (VALUE, json.dumps(VALUE)[1:-1], base64.b64encode(VALUE.encode()).decode()[:-4]):
        assert spelling not in log


@pytest.mark.parametrize("before", [1_980, 1_995, 4_080, 65_530])
def test_no_part_of_a_value_is_left_where_a_long_error_is_cut(
    make_functions: Make, tmp_path: Path, before: int
) -> None:
    functions = make_functions(WORK, env_for=env_for(tmp_path))
    [failed] = functions.run("fail_at_length", before, env=("g",))
    assert VALUE[:3] not in failed.error
    assert len(failed.error) == len("...") + 4_096
    assert ("[redacted:TOKEN]" in failed.error) == (before < 4_000)


def test_the_variable_is_gone_when_another_job_comes(make_functions: Make, tmp_path: Path) -> None:
    functions = make_functions(WORK, env_for=env_for(tmp_path))
    [first] = functions.run("tell", env=("g",))
    [second] = functions.run("tell", key="other")
    assert first.process == second.process
    assert json.loads(second.output)["raw"] == "nothing"


def test_names_are_audited_once_for_a_job(make_functions: Make, tmp_path: Path) -> None:
    functions = make_functions(WORK, env_for=env_for(tmp_path))
    for _ in range(2):
        functions.run("tell", 1, 2, env=("g",))
    audits = [report for report in functions.reports if isinstance(report, EnvAudit)]
    assert [(audit.step, audit.names) for audit in audits] == [(0, ("TOKEN",))]


def test_what_cannot_be_resolved_starts_nothing_and_is_asked_again(make_functions: Make, tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    resolver = EnvResolver((EnvGroup(name="g", vars=("TOKEN",)),), tmp_path, environ=environ)
    functions = make_functions(WORK, env_for=lambda job: resolver.resolve(job.env))
    for outcome in functions.run("tell", 1, 2, env=("g",)):
        assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.ENV_UNRESOLVED, True)
        assert outcome.error == "env group g: the variable TOKEN is not set"
    environ.update({"TOKEN": "now it is there"})
    assert functions.run("tell", env=("g",))[0].status == "ok"


def test_a_slow_secret_holds_up_only_its_own_units(make_functions: Make, tmp_path: Path) -> None:
    let_go = threading.Event()

    def slow(job: Job) -> ResolvedEnv:
        if job.env:
            assert let_go.wait(30)
        return env_for(tmp_path)(job)

    functions = make_functions(WORK, env_for=slow)
    waiting = functions.start(functions.job("tell", env=("g",)), 1, 2)
    functions.executor.cancel([waiting[0].dispatch], 5.0)
    [cancelled] = functions.outcomes(1).values()
    assert (cancelled.dispatch, cancelled.status, cancelled.answered) == (waiting[0].dispatch, "aborted", True)
    assert functions.run("tell", key="other")[0].status == "ok"
    let_go.set()
    [last] = functions.outcomes(1).values()
    assert (last.dispatch, last.status) == (waiting[1].dispatch, "ok")


def test_a_fault_while_resolving_becomes_an_outcome_without_its_text(make_functions: Make) -> None:
    def broken(_job: Job) -> ResolvedEnv:
        raise RuntimeError("the value is 12345678")

    functions = make_functions(WORK, env_for=broken)
    [outcome] = functions.run("tell", env=("g",))
    assert outcome.reason == Reason.ENV_UNRESOLVED
    assert outcome.error == "RuntimeError while resolving env"


@pytest.mark.parametrize("target", ["python", "command"])
def test_commands_and_functions_are_refused_alike(make_functions: Make, tmp_path: Path, target: str) -> None:
    def refuse(_job: Job) -> ResolvedEnv:
        raise EnvUnresolvedError("env-unresolved", "no value", "set it")

    functions = make_functions(WORK, env_for=refuse)
    job = functions.job("tell", env=("g",))
    if target == "command":
        job = Job(
            key="c",
            run_id=functions.run_id,
            step_id="s",
            step=0,
            target=Command(argv=("true",)),
            env=("g",),
            cwd=str(tmp_path),
        )
    functions.start(job, 1)
    [outcome] = functions.outcomes(1).values()
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.ENV_UNRESOLVED, True)
    assert "no value" in outcome.error
