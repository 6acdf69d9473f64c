"""A step and a call made into an answer: a text or a tool call, with how it ends and what it is said to have cost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.modelserver.calls import Call
from tests.modelserver.script import Step

STRUCTURED_TOOLS = ("StructuredOutput", "structured_output")
SHELL_TOOLS = (
    "Bash",
    "bash",
    "shell",
    "local_shell",
    "exec_command",
    "shell_command",
    "run_shell_command",
    "run_command",
    "execute_command",
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model asks for."""

    name: str
    input: dict[str, Any]

    @property
    def json(self) -> str:
        return json.dumps(self.input)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says: `tool`, else `text`."""

    text: str
    tool: Tool | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    by_length: bool

    @property
    def pieces(self) -> list[str]:
        """The text in at most four pieces, as a stream sends it."""
        size = max(1, -(-len(self.text) // 4))
        return [self.text[at : at + size] for at in range(0, len(self.text), size)] or [""]


def answer(step: Step, call: Call) -> Answer:
    """Return what `step` says to `call`."""
    text, tool = said(step, call)
    told = step.get("usage") or {}
    return Answer(
        text=text,
        tool=tool,
        input_tokens=told.get("in", max(1, len(json.dumps(call.body)) // 4)),
        output_tokens=told.get("out", max(1, len(text) // 4)),
        cached_tokens=told.get("cached", 0),
        by_length=step.get("stop") == "length",
    )


def said(step: Step, call: Call) -> tuple[str, Tool | None]:
    if "json" in step:
        offered = [name for name in call.tools if name in STRUCTURED_TOOLS]
        wanted = Tool(offered[0], step["json"]) if offered and call.tool_result is None else None
        return json.dumps(step["json"]), wanted
    if step.get("tool"):
        return used(step, call)
    return (str(step["text"]) if "text" in step else f"echo: {call.user}"), None


def used(step: Step, call: Call) -> tuple[str, Tool | None]:
    """Ask for the step's tool, or say what came of it once its result is in the history."""
    if call.tool_result is not None or not call.tools:
        return step.get("text") or f"tool said: {(call.tool_result or '').strip()[:400]}", None
    name = step["tool"]["name"]
    if name == "shell":
        name = next((known for known in SHELL_TOOLS if known in call.tools), "shell")
    return "", Tool(name, step["tool"].get("input", {}))
