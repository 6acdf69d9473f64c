"""What a prompt goes through before and after its engine: key, environment, limit, cancel, close."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.dispatch.prompting import KEY, Prompts
from tests.dispatch.shop import until
from tests.modelserver.fakellm import FakeLLM

from interlock.dispatch.base import EnvAudit, Job, Outcome
from interlock.dispatch.env.redact import PatternRedactor
from interlock.dispatch.env.redact_base import EnvUnresolvedError, ResolvedEnv
from interlock.errors import ConfigError, Diagnostic, DispatchRefusedError
from interlock.model.states import Reason


def change(prompts: Prompts, engine: str, **changes: Any) -> None:
    prompts.engines[engine] = msgspec.structs.replace(prompts.engines[engine], **changes)


def threads() -> set[str]:
    return {t.name for t in threading.enumerate() if t.name.startswith(("prompt-", "llm-loop"))}


@pytest.mark.parametrize("engine", ["openai", "coder"])
def test_a_missing_key_names_variable_and_engine(prompts: Prompts, model_server: FakeLLM, engine: str) -> None:
    del prompts.environ["THE_KEY"]
    outcome = prompts.ask(engine)
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.ENV_UNRESOLVED, True)
    assert outcome.error == (
        f"the key of engine `{engine}` cannot be had: the variable THE_KEY is not set; set it before you start "
        f"interlock, or change `api_key` in [engines.{engine}]"
    )
    assert model_server.calls() == []
    assert prompts.agents.asked == []


@pytest.mark.parametrize(
    ("driver", "variable"),
    [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY"), ("gemini", "GEMINI_API_KEY")],
)
def test_an_official_endpoint_has_its_own_key_variable(prompts: Prompts, driver: str, variable: str) -> None:
    change(prompts, driver, base_url=None, api_key=None)
    assert f"the variable {variable} is not set" in prompts.ask(driver).error


def test_an_endpoint_of_ones_own_never_gets_another_ones_key(
    prompts: Prompts, model_server: FakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "not-for-you")
    monkeypatch.setenv("OPENAI_ORG_ID", "not-for-you")
    for driver in ("openai", "anthropic", "gemini"):
        change(prompts, driver, api_key=None)
        assert prompts.ask(driver).status == "ok"
    assert "not-for-you" not in str([call["headers"] for call in model_server.calls()])
    assert len(model_server.calls()) == 3


def test_a_key_may_come_from_an_env_group_and_all_values_are_hidden(prompts: Prompts) -> None:
    del prompts.environ["THE_KEY"]
    values = {"THE_KEY": KEY, "OTHER": "another-secret"}
    prompts.env_for = lambda _: ResolvedEnv(values, PatternRedactor({"OTHER": "another-secret"}), ("OTHER", "THE_KEY"))
    outcome = prompts.ask("openai", f"{KEY} another-secret")
    assert outcome.output == b"echo: [redacted:THE_KEY] [redacted:OTHER]"


@pytest.mark.parametrize("before", [1_960, 1_995, 4_060])
def test_no_part_of_a_key_is_left_where_a_long_error_is_cut(
    prompts: Prompts, model_server: FakeLLM, before: int
) -> None:
    model_server.script({"status": 400, "text": "x" * before + KEY + "y" * 9_000})
    outcome = prompts.ask("openai")
    assert outcome.status == "failed"
    assert KEY[:4] not in outcome.error
    assert len(outcome.error) == len("...") + 4_096


def test_the_names_that_were_resolved_are_told_once_a_job(prompts: Prompts) -> None:
    prompts.environ["THE_KEY"] = "tiny"
    request = prompts.request()
    prompts.runner.start(request)
    prompts.outcome(request)
    again = msgspec.structs.replace(request, dispatch="again")
    prompts.runner.start(again)
    prompts.outcome(again)
    assert prompts.audits() == [
        EnvAudit(
            step=3,
            names=("THE_KEY",),
            warnings=("the value of THE_KEY is shorter than 6 characters, so it cannot be redacted",),
        )
    ]


def test_what_cannot_be_resolved_is_no_dispatch(prompts: Prompts, model_server: FakeLLM) -> None:
    def broken(_: Job) -> ResolvedEnv:
        raise EnvUnresolvedError("env-unresolved", "env group x: the variable Y is not set")

    prompts.env_for = broken
    outcome = prompts.ask()
    assert (outcome.reason, outcome.error) == (Reason.ENV_UNRESOLVED, "env group x: the variable Y is not set")
    assert model_server.calls() == []


def test_an_engine_that_is_gone_is_named_with_the_next_step(prompts: Prompts) -> None:
    def gone(name: str) -> Any:
        found = Diagnostic(
            file="interlock.toml", line=1, column=1, code="x", message=f"no engine `{name}`", hint="add it"
        )
        raise ConfigError((found,))

    def refused(name: str) -> Any:
        raise DispatchRefusedError("no-engine", f"engine `{name}` is not configured", "add it")

    prompts.settings = gone
    first = prompts.ask()
    prompts.settings = refused
    second = prompts.ask()
    assert (first.reason, first.error) == (Reason.DISPATCH_ERROR, "no engine `openai` (add it)")
    assert (second.reason, second.error) == (Reason.DISPATCH_ERROR, "engine `openai` is not configured; add it")


def test_an_engine_without_a_model_says_where_to_set_it(prompts: Prompts, model_server: FakeLLM) -> None:
    outcome = prompts.ask(model=None)
    assert outcome.error == "engine `openai` has no model; set `model` there or on the step"
    assert model_server.calls() == []


def test_waiting_for_a_place_counts_against_no_timeout(prompts: Prompts, model_server: FakeLLM) -> None:
    change(prompts, "openai", concurrency=1)
    model_server.script(default={"echo": True, "delay": 0.3})
    requests = [prompts.start("openai", f"prompt {n}", timeout_ms=5_000 if n == 0 else 2_000) for n in range(4)]
    outcomes = [prompts.outcome(request) for request in requests]
    assert [o.status for o in outcomes] == ["ok"] * 4
    spans = sorted((o.started_at, o.ended_at) for o in outcomes)
    assert all(later[0] >= earlier[1] - 1 for earlier, later in itertools.pairwise(spans))


def test_who_waits_for_a_place_can_be_cancelled(prompts: Prompts, model_server: FakeLLM) -> None:
    change(prompts, "openai", concurrency=1)
    model_server.script({"hang": True})
    first = prompts.start()
    until(model_server.calls)
    second = prompts.start()
    line = prompts.runner._limiter.of(prompts.engines["openai"])._line  # noqa: SLF001 - nobody else tells who waits
    until(lambda: line)
    prompts.runner.cancel([second.dispatch], 60.0)
    outcome = prompts.outcome(second)
    assert (outcome.status, outcome.error) == ("aborted", "cancelled while it waited for its engine")
    assert outcome.answered
    prompts.runner.cancel(None, 60.0)
    assert prompts.outcome(first).status == "aborted"
    assert prompts.ask().status == "ok"


@pytest.mark.parametrize("status", [429, 529])
def test_an_overloaded_engine_is_given_half(prompts: Prompts, model_server: FakeLLM, status: int) -> None:
    change(prompts, "openai", concurrency=4)
    model_server.script(*[{"status": status, "delay": 0.3}] * 4, default={"echo": True, "delay": 0.2})
    for request in [prompts.start() for _ in range(4)]:
        assert prompts.outcome(request).status == "failed"
    spans = [(o.started_at, o.ended_at) for o in [prompts.outcome(r) for r in [prompts.start() for _ in range(6)]]]
    most = max(sum(1 for start, end in spans if start <= moment < end) for moment, _ in spans)
    assert most <= 2


def test_a_state_folder_that_cannot_be_used_is_said_and_does_no_harm(prompts: Prompts, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    outcome = prompts.ask()
    assert outcome.status == "ok"
    assert len(outcome.notices) == 1
    assert outcome.notices[0].startswith("the limit of engine `openai` holds for this run alone: ")


def test_an_agent_gets_settings_environment_and_key(prompts: Prompts) -> None:
    outcome = prompts.ask("coder")
    assert (outcome.status, outcome.output) == ("ok", b"done")
    [(settings, env, key)] = prompts.agents.asked
    assert (settings.name, key) == ("coder", KEY)
    assert env.redactor.text(KEY.encode()) == b"[redacted:THE_KEY]"


def test_an_agent_without_a_key_gets_none(prompts: Prompts) -> None:
    change(prompts, "coder", api_key=None)
    assert prompts.ask("coder").status == "ok"
    assert prompts.agents.asked[0][2] is None


def test_a_cancelled_agent_is_woken(prompts: Prompts) -> None:
    prompts.agents.waits = True
    request = prompts.start("coder")
    until(lambda: prompts.agents.asked)
    prompts.runner.cancel([request.dispatch], 5.0)
    assert prompts.outcome(request).status == "aborted"


def test_a_fault_of_ours_is_an_outcome_and_frees_the_place(prompts: Prompts) -> None:
    change(prompts, "coder", concurrency=1)
    prompts.agents.breaks = True
    outcome = prompts.ask("coder")
    assert (outcome.reason, outcome.answered) == (Reason.DISPATCH_ERROR, False)
    assert outcome.error == "interlock failed to carry out the prompt: RuntimeError: the adapter is broken"
    prompts.agents.breaks = False
    assert prompts.ask("coder").status == "ok"


def test_the_log_holds_answer_and_error(prompts: Prompts, model_server: FakeLLM) -> None:
    model_server.script({"text": "the answer"}, {"status": 500})
    answer, failure = prompts.ask(), prompts.ask()
    whole = prompts.log_path.read_bytes()
    assert answer.log is not None
    assert failure.log is not None
    assert b"the answer" in whole[answer.log.offset : answer.log.offset + answer.log.length]
    assert b"HTTP 500: fake error 500" in whole[failure.log.offset : failure.log.offset + failure.log.length]


def test_a_log_that_takes_nothing_costs_no_answer(tmp_path: Path, model_server: FakeLLM) -> None:
    (tmp_path / "run.log").symlink_to("/dev/full")
    model_server.script({"text": "the answer"}, {"status": 500})
    prompts = Prompts(tmp_path, model_server.url)
    try:
        answer, failure = prompts.ask(), prompts.ask()
    finally:
        prompts.close()
    assert (answer.status, answer.output, answer.log) == ("ok", b"the answer", None)
    assert (failure.reason, failure.log) == (Reason.LLM_OVERLOADED, None)
    told = f"the log {tmp_path}/run.log lacks some of what was said: it could not be written: No space left on device"
    assert answer.notices == failure.notices == (told,)


def test_closing_ends_what_is_under_way_and_leaves_no_thread(prompts: Prompts, model_server: FakeLLM) -> None:
    change(prompts, "openai", concurrency=2)
    model_server.script(default={"hang": True})
    prompts.agents.waits = True
    requests = [prompts.start() for _ in range(3)] + [prompts.start("coder")]
    until(lambda: len(model_server.calls()) == 2 and prompts.agents.asked)
    began = time.monotonic()
    prompts.runner.close()
    assert time.monotonic() - began < 20
    assert {prompts.outcome(request).status for request in requests} == {"aborted"}
    assert prompts.agents.closed == 1
    assert threads() == set()
    late = prompts.ask()
    assert (late.status, late.error) == ("aborted", "cancelled before it began")
    prompts.runner.close()
    assert prompts.agents.closed == 1


def test_every_request_gets_one_outcome(prompts: Prompts, model_server: FakeLLM) -> None:
    model_server.script(default={"echo": True, "delay": 0.05})
    requests = [prompts.start("openai", timeout_ms=1 if n % 3 == 0 else None) for n in range(30)]
    for request in requests[1::3]:
        prompts.runner.cancel([request.dispatch], 1.0)
    for request in requests:
        prompts.outcome(request)
    prompts.close()
    ends = [report.dispatch for report in prompts.seen if isinstance(report, Outcome)]
    assert sorted(ends) == sorted(request.dispatch for request in requests)
    assert prompts.reports.empty()
