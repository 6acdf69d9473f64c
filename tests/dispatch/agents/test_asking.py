from __future__ import annotations

import pytest

from interlock.dispatch.agents.asking import prompt_of
from interlock.dispatch.agents.registry import adapter
from interlock.dispatch.base import EngineCall, Job, Request
from interlock.dispatch.prompts.schema import with_schema
from interlock.model.plan import Prompt


def request(schema: str | None, cold: str | None) -> Request:
    call = EngineCall(engine="e", kind="agent", driver="x", schema_json=schema)
    job = Job(key="k", run_id="r", step_id="s", step=0, target=Prompt(text="t", engine="e"), call=call)
    return Request(
        job=job, dispatch="d", unit_id="u", attempt=2, idempotency_key="i", prompt="warm", cold_prompt=cold, session="s"
    )


@pytest.mark.parametrize("name", ["claude", "opencode", "command"])
def test_outside_of_its_session_a_correction_is_sent_with_its_task(name: str) -> None:
    chosen = adapter(name)
    assert prompt_of(request(None, "cold"), chosen, cold=False) == "warm"
    assert prompt_of(request(None, "cold"), chosen, cold=True) == "cold"
    assert prompt_of(request(None, None), chosen, cold=True) == "warm"


def test_the_schema_goes_with_either_text_where_the_agent_cannot_enforce_one() -> None:
    for cold, text in ((False, "warm"), (True, "cold")):
        assert prompt_of(request("{}", "cold"), adapter("command"), cold=cold) == with_schema(text, "{}")
