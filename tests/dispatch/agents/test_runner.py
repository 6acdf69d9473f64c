from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.dispatch.agents.desk import Asked, Desk
from tests.dispatch.shop import marked, runs, until

from interlock.dispatch.agents import events, runner
from interlock.dispatch.base import EngineSettings, Outcome, Started
from interlock.dispatch.env.redact import PatternRedactor
from interlock.model.states import Reason

UNWRITTEN = "the log /dev/full lacks some of what was said: it could not be written: No space left on device"
CLI = (sys.executable, "-S", str(Path(__file__).with_name("fake_cli.py")))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    try:
        yield made
    finally:
        made.close()
        assert marked(made.marker.run_id) == []
        assert list((tmp_path / "scratch").glob("agents-*")) == []


def engine(**changes: Any) -> EngineSettings:
    defaults: dict[str, Any] = {"name": "coder", "kind": "agent", "driver": "claude", "command": CLI}
    return EngineSettings(**(defaults | changes))


def start(desk: Desk, steps: dict[str, Any], settings: EngineSettings | None = None, **changes: Any) -> Asked:
    return desk.ask(settings or engine(), json.dumps(steps), **changes)


def run(desk: Desk, steps: dict[str, Any], settings: EngineSettings | None = None, **changes: Any) -> Outcome:
    return start(desk, steps, settings, **changes).outcome()


@pytest.mark.parametrize("prompt", ["", "-x", "--- \n", "a\rb\r\nc\n\n", "@a\x00é😀", "```\n" * 9, "y" * 300_000])
def test_a_prompt_arrives_byte_for_byte(desk: Desk, prompt: str) -> None:
    outcome = desk.ask(engine(), prompt).outcome()
    assert (outcome.status, outcome.output) == ("ok", prompt.encode())


def test_what_the_cli_exits_with_does_not_matter_once_it_answered(desk: Desk) -> None:
    outcome = run(desk, {"result": "yes", "exit": 3})
    assert (outcome.status, outcome.output, outcome.exit_code) == ("ok", b"yes", 3)


def test_exit_zero_without_the_last_event_is_no_success(desk: Desk) -> None:
    outcome = run(desk, {"err": "oops"})
    assert (outcome.status, outcome.reason) == ("failed", Reason.LLM_BAD_RESPONSE)
    assert outcome.error == "the agent ended without its last event, `result` (exit code 0): oops"


def test_a_cli_that_answered_and_does_not_exit_is_ended_and_has_succeeded(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LINGER_S", 0.2)
    outcome = run(desk, {"result": "yes", "hang": True}, timeout_ms=None)
    assert (outcome.status, outcome.reason, outcome.output, outcome.answered) == ("ok", None, b"yes", True)
    assert outcome.process is not None
    assert not runs(outcome.process.pid)


def test_a_tool_in_a_session_of_its_own_ends_with_the_agent(desk: Desk, tmp_path: Path) -> None:
    assert run(desk, {"stray": str(tmp_path / "pid"), "result": "yes"}).status == "ok"
    assert not runs(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("way", ["cancel", "timeout"])
def test_ending_an_agent_ends_its_tools_too(desk: Desk, tmp_path: Path, way: str) -> None:
    limit = 1_500 if way == "timeout" else None
    asked = start(desk, {"stray": str(tmp_path / "pid"), "hang": True}, timeout_ms=limit)
    pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
    if way == "cancel":
        asked.attempt.cancel(0.5)
    outcome = asked.outcome()
    assert outcome.reason is (Reason.ABORTED if way == "cancel" else Reason.TIMEOUT)
    assert not outcome.answered
    assert not runs(pid)


@pytest.mark.parametrize(("failure", "reason"), [({"is_error": True}, Reason.TIMEOUT), ({"result": "yes"}, None)])
def test_what_an_agent_says_when_it_is_told_to_end_counts_only_if_it_is_an_answer(
    desk: Desk, failure: dict[str, Any], reason: Reason | None
) -> None:
    outcome = run(desk, {"last_words": failure, "hang": True}, timeout_ms=2_000)
    assert outcome.reason is reason


def test_a_timeout_keeps_the_session_so_that_it_can_go_on(desk: Desk) -> None:
    outcome = run(desk, {"hang": True}, timeout_ms=1_000)
    assert outcome.reason is Reason.TIMEOUT
    assert outcome.answered_by is not None
    assert outcome.answered_by.session


def test_an_agent_that_only_turns_its_loop_over_is_idle(desk: Desk) -> None:
    outcome = run(desk, {"hang": True}, idle_timeout_ms=1_000)
    assert outcome.reason is Reason.IDLE_TIMEOUT


def test_events_are_progress(desk: Desk) -> None:
    assert run(desk, {"ticks": 25, "result": "yes"}, idle_timeout_ms=1_500).status == "ok"


def test_a_session_that_is_gone_is_replaced_by_a_new_one_and_that_is_said(desk: Desk) -> None:
    outcome = run(desk, {"gone": True, "result": "yes"}, session="old")
    assert (outcome.status, outcome.output) == ("ok", b"yes")
    assert outcome.answered_by is not None
    assert outcome.answered_by.session not in {None, "old"}
    assert outcome.notices == ("session old of engine `coder` is gone; a new one was started",)
    assert len([report for report in desk.reports if isinstance(report, Started)]) == 1


def test_a_session_that_is_there_is_continued(desk: Desk) -> None:
    outcome = run(desk, {"result": "yes"}, session="old")
    assert outcome.answered_by is not None
    assert (outcome.answered_by.session, outcome.notices) == ("old", ())


def test_the_key_reaches_the_agent_and_nothing_else(desk: Desk) -> None:
    desk.redactor = PatternRedactor({"FAST_KEY": "dummy-key"})
    outcome = run(desk, {"show": "ANTHROPIC_API_KEY", "err": "key: dummy-key"}, engine(api_key="FAST_KEY"))
    assert outcome.output == b"[redacted:FAST_KEY]"
    assert b"dummy-key" not in b"".join(path.read_bytes() for path in desk.folder.rglob("*") if path.is_file())


def test_an_agent_knows_by_whom_it_was_started(desk: Desk) -> None:
    outcome = run(desk, {"show": "INTERLOCK_IDEMPOTENCY_KEY"}, key="the-key")
    assert outcome.output == b"the-key"


def test_of_much_output_the_beginning_and_the_end_are_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "TAIL_BYTES", 3_000_000)
    outcome = run(desk, {"noise": 12, "result": "yes"})
    assert (outcome.status, outcome.output) == ("ok", b"yes")
    assert outcome.answered_by is not None
    assert outcome.answered_by.session


def test_what_an_agent_printed_stands_in_the_log(desk: Desk) -> None:
    outcome = run(desk, {"err": "oops", "result": "yes"})
    assert outcome.log is not None
    text = (desk.folder / f"{desk.marker.holder}.log").read_bytes()
    assert b"oops" in text
    assert b'"result": "yes"' in text


def test_a_log_that_takes_nothing_costs_no_answer(tmp_path: Path) -> None:
    desk = Desk(tmp_path, log=Path("/dev/full"))
    try:
        outcome = run(desk, {"err": "oops", "result": "yes"})
    finally:
        desk.close()
    assert (outcome.status, outcome.output, outcome.log) == ("ok", b"yes", None)
    assert outcome.notices == (UNWRITTEN,)


def test_an_agent_that_is_not_installed_fails_before_it_begins(desk: Desk) -> None:
    outcome = run(desk, {}, engine(command=("no-such-agent",)))
    assert (outcome.status, outcome.reason, outcome.answered) == ("failed", Reason.SPAWN_FAILED, True)
    assert outcome.error == "program `no-such-agent` was not found on PATH; install it or give its full path"


def test_settings_that_a_cli_reads_from_its_home_are_kept_from_prompt_to_prompt(desk: Desk) -> None:
    gemini = engine(name="g/1", driver="gemini", api_key="K", command=("sh", "-c", "echo $GEMINI_CLI_HOME >&2", "--"))
    error = run(desk, {}, gemini).error
    home = Path(error.rsplit(": ", 1)[1])
    assert home == desk.folder / "scratch" / "agents" / "g%2F1"
    assert json.loads((home / ".gemini" / "settings.json").read_text())["general"]["maxAttempts"] == 1


def test_the_clis_own_arguments_are_the_users(desk: Desk) -> None:
    shown = engine(command=("sh", "-c", 'echo "$@" >&2', "--"), args=("--max-turns", "3"))
    assert run(desk, {}, shown).error.endswith("--permission-mode acceptEdits --max-turns 3")
