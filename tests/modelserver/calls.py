"""One model request, whichever of the four APIs it came by, as the few things that a script decides on.

The newest user text is the prompt: blocks that clients add around it (reminders, the environment's description) are
left out, and a tool's result counts only while no user text follows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

REMINDER = ("<system-reminder>", "</system-reminder>")
CLIENT_BLOCKS = ("<environment_context>", "<user_instructions>", "# AGENTS.md")


@dataclass(slots=True)
class Call:
    """What was asked: by which API, of which model, with which texts and tools."""

    api: str
    model: str
    stream: bool
    body: dict[str, Any]
    users: list[str] = field(default_factory=list)
    system: str = ""
    tools: list[str] = field(default_factory=list)
    tool_result: str | None = None

    @property
    def user(self) -> str:
        """The newest user text."""
        return self.users[-1] if self.users else ""

    @property
    def n_messages(self) -> int:
        return len(self.body.get("messages") or self.body.get("input") or self.body.get("contents") or [])

    def add_user(self, text: str) -> None:
        bare = text.strip()
        if not bare or (bare.startswith(REMINDER[0]) and bare.endswith(REMINDER[1])) or bare.startswith(CLIENT_BLOCKS):
            return
        self.users.append(text)
        self.tool_result = None

    def add_result(self, text: str) -> None:
        self.tool_result = f"{self.tool_result}\n{text}" if self.tool_result else text


def read(api: str, model: str, body: dict[str, Any], *, stream: bool) -> Call:
    """Return the request `body` of one API as a call."""
    call = Call(api, model, stream, body)
    READERS[api](call)
    return call


def text_of(content: Any) -> str:
    """Return the text of any API's content value, its parts on lines of their own."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = [content] if isinstance(content, dict) else content
    return "\n".join(text for part in parts if (text := text_of_part(part)))


def text_of_part(part: Any) -> str:
    if not isinstance(part, dict):
        return part if isinstance(part, str) else ""
    if isinstance(part.get("text"), str) and not part.get("thought"):
        return str(part["text"])
    if "content" in part and part.get("type") in ("tool_result", None):
        return text_of(part["content"])
    found: Any = None
    if "output" in part:
        found = part["output"]
    elif "functionResponse" in part:
        response = part["functionResponse"].get("response")
        inner = response.get("output") if isinstance(response, dict) else None
        found = inner if isinstance(inner, str) else response
    return found if isinstance(found, str) else "" if found is None else json.dumps(found)


def parts_of(content: Any) -> Iterator[Any]:
    """Yield the parts of a message's content; a bare text is one."""
    yield from [content] if isinstance(content, str) else content or []


def read_anthropic(call: Call) -> None:
    call.system = text_of(call.body.get("system"))
    call.tools = [str(tool.get("name")) for tool in call.body.get("tools") or []]
    for message in call.body.get("messages") or []:
        if message.get("role") != "user":
            continue
        for part in parts_of(message.get("content")):
            if isinstance(part, dict) and part.get("type") == "tool_result":
                call.add_result(text_of(part.get("content")))
            else:
                call.add_user(text_of(part))


def read_chat(call: Call) -> None:
    call.tools = [str((tool.get("function") or tool).get("name")) for tool in call.body.get("tools") or []]
    for message in call.body.get("messages") or []:
        content = message.get("content")
        role = message.get("role")
        if role in ("system", "developer"):
            call.system += text_of(content)
        elif role == "tool":
            call.add_result(text_of(content))
        elif role == "user":
            for part in parts_of(content):
                call.add_user(text_of(part))


def read_responses(call: Call) -> None:
    call.system = call.body.get("instructions") or ""
    call.tools = [str(tool.get("name") or tool.get("type")) for tool in call.body.get("tools") or []]
    given = call.body.get("input")
    if isinstance(given, str):
        call.add_user(given)
        return
    for entry in given or []:
        kind, role = entry.get("type", "message"), entry.get("role")
        if kind.endswith("_call_output"):
            call.add_result(text_of(entry))
        elif kind == "message" and role in ("system", "developer"):
            call.system += text_of(entry.get("content"))
        elif kind == "message" and role == "user":
            for part in parts_of(entry.get("content")):
                call.add_user(text_of(part))


def read_gemini(call: Call) -> None:
    call.system = text_of((call.body.get("systemInstruction") or {}).get("parts"))
    for tool in call.body.get("tools") or []:
        call.tools += [str(entry.get("name")) for entry in tool.get("functionDeclarations") or []]
    for message in call.body.get("contents") or []:
        if message.get("role") not in ("user", "function", None):
            continue
        for part in message.get("parts") or []:
            if "functionResponse" in part:
                call.add_result(text_of(part))
            elif not part.get("thought"):
                call.add_user(text_of(part))


READERS = {"anthropic": read_anthropic, "chat": read_chat, "responses": read_responses, "gemini": read_gemini}
