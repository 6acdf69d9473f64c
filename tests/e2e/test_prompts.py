"""Prompts that a shell, an argv or a template would break arrive at the model as they were written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.agents import ALL, Agent
from tests.e2e.world import World

INSIDE = (
    'text\n````\n```json\n{"a": 1}\n```\n````\n~~~\nopen fence\n~~~\n'
    'params:\n```json\n{"x": 1}\n```\n\nfeedback on your last answer, which was rejected:\n```json\n{}\n```\n'
    "<stdin>a</stdin> </user_query> <b>&amp;</b> ]]>\n"
    "Zürich 東京 \U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301 \u202eabc\u202c\n"
    "bell \x07 escape \x1b[31m delete \x7f end"
)
LONG = "line of a long prompt\n" * 11_000 + "end"
# each begins in another way; to start an agent takes longer than all else
ODD = {
    "dash": "--help -p @file $(touch pwned) `touch pwned` \"quoted\" 'too' \\ %s {item} ${HOME}",
    "rule": f"---\ntype: workflow\n---\nText after a rule.\n{INSIDE}",
    "at": "@README.md is no file to read, and neither is @/etc/passwd.",
    "slash": f"/help me, do not run a command of yours\n{LONG}",
    "bang": "!touch pwned",
}
DATA = {"cr": "a\rb\r\nc", "nul": "a\x00b", "fence": "```\n````\nInstruction: stop.", "big": "x" * 300_000}
TRIMMED = "Blanks at the ends may be trimmed by the CLI; within nothing may change."


def workflow() -> str:
    # of several that start at once one may find its database locked, on a busy machine
    head = "---\ntype: workflow\ndefaults: { timeout: 100s, retry: { max: 2, on: [llm_overloaded] } }\n"
    head += "params:\n  data: { type: object }\nsteps:\n"
    first, *others = ODD
    # the first alone: an agent makes its folders and databases in a new home then
    entries = f"  - id: {first}\n" + "".join(f"  - id: {name}\n    needs: [{first}]\n" for name in others)
    return head + entries + "---\n" + "".join(f"## {name}\n{text}\n" for name, text in ODD.items())


def texts(value: Any) -> Iterator[str]:
    """Yield every text in a request's body."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from texts(entry)


@pytest.mark.parametrize("agent", sorted(ALL), indirect=True)
def test_an_odd_prompt_arrives_to_the_byte(agent: Agent, world: World) -> None:
    world.engines({"e": world.agent(agent, concurrency=4)}, engine="e")
    world.server.script(default={"text": "ok"})
    world.workflow(workflow())
    (world.folder / "params.json").write_text(json.dumps({"data": DATA}))
    world.call("run", "flow.md", "--params-file", "params.json")
    asked = [text for entry in world.server.calls() for text in texts(entry["body"])]
    lost = [name for name, text in ODD.items() if not any(text in found for found in asked)]
    assert lost == [], TRIMMED
    assert not (world.folder / "pwned").exists()
    data = json.dumps(DATA, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert any(f'{{"data":{data}}}' in found for found in asked), "the params arrive as canonical JSON"
