"""What Claude Code and Qwen Code both print: JSON lines of messages in the manner of the Anthropic API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from interlock.dispatch.agents.jsonl import Event, dig, parse, text_at

LAST_EVENT: Final = "result"
_OWN_TOOLS: Final = frozenset({"StructuredOutput", "structured_output"})
"""By which a schema's answer is given: they change nothing."""


class Seen(msgspec.Struct, kw_only=True):
    """What the lines of one invocation say."""

    result: Event | None = None
    session: str | None = None
    model: str | None = None
    acted: bool = False


def user_message(*texts: str) -> bytes:
    """Return a line for stdin that holds the texts as one message of the user."""
    content = [{"type": "text", "text": text.encode("utf-8", "replace").decode()} for text in texts]
    message = {"type": "user", "message": {"role": "user", "content": content}}
    return msgspec.json.encode(message | {"parent_tool_use_id": None, "session_id": ""}) + b"\n"


def is_result(line: bytes) -> bool:
    """Tell whether the line is the last event."""
    return b'"result"' in line and line.lstrip().startswith(b"{") and text_at(parse(line), "type") == LAST_EVENT


def see(events: Iterable[Event]) -> Seen:
    """Read all lines."""
    seen = Seen()
    for event in events:
        seen.session = text_at(event, "session_id") or seen.session
        if event.get("type") == "assistant":
            _see_message(seen, event.get("message"))
        elif event.get("type") == LAST_EVENT:
            seen.result = event
    return seen


def _see_message(seen: Seen, message: Any) -> None:  # noqa: ANN401 - any JSON value
    model = text_at(message, "model")
    if model and model != "<synthetic>":
        seen.model = model
    content = dig(message, "content")
    for part in content if isinstance(content, list) else []:
        if text_at(part, "type") == "tool_use" and text_at(part, "name") not in _OWN_TOOLS:
            seen.acted = True


def denied(result: Event) -> tuple[str, ...]:
    """Return the tools that were refused."""
    refusals = result.get("permission_denials")
    return tuple(text_at(entry, "tool_name") or "?" for entry in refusals) if isinstance(refusals, list) else ()
