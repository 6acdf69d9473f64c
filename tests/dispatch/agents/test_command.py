"""A program of the user's own as an agent, as a real process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.dispatch.agents.desk import Desk

from interlock.dispatch.base import EngineSettings, Outcome
from interlock.model.events import Usage
from interlock.model.states import Reason

Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    desk = Desk(tmp_path)

    def one(code: str, prompt: str = "hi", output: Literal["text", "json"] = "text", **changes: Any) -> Outcome:
        settings = EngineSettings(
            name="mine", kind="agent", driver="command", command=(sys.executable, "-c", code), output=output,
            base_url="http://x", api_key="MY_KEY",
        )  # fmt: skip
        return desk.ask(settings, prompt, **changes).outcome()

    yield one
    desk.close()


ECHO = "import sys; sys.stdout.write(sys.stdin.read())"


@pytest.mark.parametrize(
    "prompt", ["-x --help", "@file", "---\na: b", "a\0b", "a\rb", "é" * 150_000, "```json\n{}\n```"]
)
def test_a_prompt_arrives_byte_for_byte_and_comes_back(run: Run, prompt: str) -> None:
    outcome = run(ECHO, prompt)
    assert (outcome.status, outcome.output) == ("ok", prompt.encode())


def test_the_final_newline_of_a_text_is_no_part_of_it(run: Run) -> None:
    assert run("print('done\\n')").output == b"done\n"


def test_an_object_tells_text_session_and_usage(run: Run) -> None:
    code = (
        "import json, os; print(json.dumps({'text': 'from ' + os.environ['INTERLOCK_SESSION'], 'session': 's-2',"
        "'usage': {'input_tokens': 5, 'output_tokens': 6, 'cost_usd': 0.25}}))"
    )
    outcome = run(code, output="json", session="s-1")
    assert outcome.output == b"from s-1"
    assert outcome.usage == Usage(input_tokens=5, output_tokens=6, cost_usd=0.25)
    assert outcome.answered_by is not None
    assert outcome.answered_by.session == "s-2"
    assert outcome.notices == ()


def test_what_the_engine_asks_for_stands_in_variables(run: Run) -> None:
    code = "import os; print([os.environ[f'INTERLOCK_{n}'] for n in ('MODEL', 'BASE_URL', 'API_KEY')])"
    assert run(code, model="m-1").output == b"['m-1', 'http://x', 'dummy-key']"


@pytest.mark.parametrize(
    ("code", "output", "reason", "error"),
    [
        ("import sys; sys.exit('it broke')", "text", Reason.NON_ZERO_EXIT, "exit code 1: it broke"),
        (
            "import sys; sys.exit('429 Too Many Requests')",
            "text",
            Reason.LLM_RATE_LIMIT,
            "exit code 1: 429 Too Many Requests",
        ),
        ('print(\'{"error": "401 unauthorized"}\')', "json", Reason.LLM_AUTH, "401 unauthorized"),
        ("print('{}')", "json", Reason.LLM_BAD_RESPONSE, "it gave no answer"),
        (
            "print('plain')",
            "json",
            Reason.LLM_BAD_RESPONSE,
            "its output is not the one JSON object that was to come",
        ),
    ],
)
def test_what_is_no_answer_fails(run: Run, code: str, output: str, reason: Reason, error: str) -> None:
    outcome = run(code, output=output)
    assert (outcome.status, outcome.reason, outcome.error) == ("failed", reason, error)


def test_a_text_agent_cannot_go_on_in_a_session_and_that_is_said(run: Run) -> None:
    assert run(ECHO, session="s-1").notices == (
        "engine `mine` (command) cannot go on in a session; a new one was started",
    )
