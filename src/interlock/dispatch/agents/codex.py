"""Codex CLI: `codex exec --json`, the prompt on stdin.

Codex knows failures only as text (`turn.failed`); items of type `error` are warnings as well. A thread's id is
Codex's own and its usage is the thread's total, so what earlier attempts used is subtracted. Where a base URL is
given, a provider of our own speaks to it, with Codex's retries off. Measured with 0.171.0.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec

from interlock.dispatch.agents.base import Answer, Ask, Card, Launch, Reply
from interlock.dispatch.agents.endings import failed, unfinished
from interlock.dispatch.agents.faults import status_in
from interlock.dispatch.agents.jsonl import Event, count_at, dig, events, parse, text_at
from interlock.model.events import Usage
from interlock.model.states import Reason

_KEY: Final = "CODEX_API_KEY"
_SCHEMA: Final = "schema.json"
_CARD: Final = Card(
    program="codex",
    enforces_schema=True,
    cannot=frozenset({"temperature", "max_tokens", "extra_params"}),
    caveats=(
        'writes in the working directory and nowhere else; more takes `args = ["-s", "danger-full-access"]`',
        "without `base_url` its own retries stay as Codex has them; with one it must be a server of the Responses API",
        "the cost is never told",
    ),
)
_SANDBOX: Final = (
    *("-s", "--sandbox", "--full-auto", "--yolo", "--dangerously-bypass-approvals-and-sandbox", "-p", "--profile"),
)
_QUIET_ITEMS: Final = frozenset({"agent_message", "reasoning", "error", "todo_list"})
"""Kinds of items that touch nothing."""


class Codex:
    """The adapter."""

    card = _CARD

    def launch(self, ask: Ask) -> Launch:
        """Start it on the prompt, in a new thread or in the one asked for."""
        schema = () if ask.schema_json is None else ("--output-schema", f"{ask.folder}/{_SCHEMA}")
        return Launch(
            argv=(
                *ask.program(self.card),
                *("exec", "--json", "--skip-git-repo-check", "-C", ask.cwd),
                *(() if ask.model is None else ("-m", ask.model)),
                *ask.unless(_SANDBOX, ("-s", "workspace-write")),
                *_provider(ask),
                *schema,
                *ask.args,
                *(() if ask.session is None else ("resume", ask.session)),
                "-",
            ),
            stdin=ask.prompt.encode("utf-8", "replace"),
            env={} if ask.api_key is None else {_KEY: ask.api_key},
            files={} if ask.schema_json is None else {_SCHEMA: ask.schema_json.encode()},
            continues_session=ask.session is not None,
        )

    def is_terminal(self, line: bytes) -> bool:
        """Tell whether the turn is over."""
        return line.lstrip().startswith(b"{") and text_at(parse(line), "type") in {"turn.completed", "turn.failed"}

    def read(self, reply: Reply) -> Answer:
        """Read the last turn."""
        found = list(events(reply.out))
        session = next((text_at(event, "thread_id") for event in found if event.get("type") == "thread.started"), None)
        acted = any(_acts(event) for event in found)
        last = next((event for event in reversed(found) if _is_last(event)), None)
        if last is None:
            return _without_end(reply, found, session, acted=acted)
        if last.get("type") == "turn.failed":
            answer = _failure(reply, text_at(last, "error", "message"), acted=acted)
            return msgspec.structs.replace(answer, session=session)
        text = next((text_at(event, "item", "text") for event in reversed(found) if _is_message(event)), "")
        return Answer(text=text, session=session, usage=_usage(reply.ask, last), denied=_denied(found))


def _provider(ask: Ask) -> tuple[str, ...]:
    if ask.base_url is None:
        return ()
    fields = [
        'name="interlock"',
        f"base_url={json.dumps(ask.base_url)}",
        'wire_api="responses"',
        "request_max_retries=0",
        "stream_max_retries=0",
    ]
    if ask.api_key is not None:
        fields.append(f'env_key="{_KEY}"')
    return ("-c", 'model_provider="interlock"', "-c", f"model_providers.interlock={{{','.join(fields)}}}")


def _is_last(event: Event) -> bool:
    return event.get("type") in {"turn.completed", "turn.failed"}


def _is_message(event: Event) -> bool:
    return event.get("type") == "item.completed" and text_at(event, "item", "type") == "agent_message"


def _acts(event: Event) -> bool:
    return str(event.get("type", "")).startswith("item.") and text_at(event, "item", "type") not in _QUIET_ITEMS


def _denied(found: list[Event]) -> tuple[str, ...]:
    """Return what was asked for and refused; what the sandbox stops inside of a command is the command's own failure."""
    items = [dig(event, "item") for event in found if event.get("type") == "item.completed"]
    return tuple(text_at(item, "command") or text_at(item, "type") for item in items if _refused(item))


def _refused(item: object) -> bool:
    return text_at(item, "status") == "declined"


def _without_end(reply: Reply, found: list[Event], session: str | None, *, acted: bool) -> Answer:
    answer = unfinished(reply, "turn.completed", acted=acted, session=session)
    said = next((text_at(event, "message") for event in reversed(found) if event.get("type") == "error"), "")
    if said:
        answer = msgspec.structs.replace(_failure(reply, said, acted=acted), session=session)
    gone = reply.ask.session is not None and b"no rollout found" in reply.err
    return msgspec.structs.replace(answer, session_gone=gone)


def _failure(reply: Reply, message: str, *, acted: bool) -> Answer:
    # a refused request comes as the provider's body, which names no status
    body = parse(message.encode("utf-8", "replace")) if message.startswith("{") else None
    text = text_at(body, "error", "message") or message
    if "Incomplete response returned" in text:
        reason = Reason.LLM_CONTENT_FILTER if "content_filter" in text else Reason.LLM_BAD_RESPONSE
        return Answer(reason=reason, error=text, acted=acted)
    return failed(reply, text, status_in(message), acted=acted)


def _usage(ask: Ask, last: Event) -> Usage | None:
    """Return what this turn used: the thread's total less what was known before; None where that is unknown."""
    used = dig(last, "usage")
    before = ask.session_usage or (Usage() if ask.session is not None else _NOTHING)
    return Usage(
        input_tokens=_less(count_at(used, "input_tokens"), before.input_tokens),
        output_tokens=_less(count_at(used, "output_tokens"), before.output_tokens),
        cached_tokens=_less(count_at(used, "cached_input_tokens"), before.cached_tokens),
        reasoning_tokens=_less(count_at(used, "reasoning_output_tokens"), before.reasoning_tokens),
    )


_NOTHING: Final = Usage(input_tokens=0, output_tokens=0, cached_tokens=0, reasoning_tokens=0)


def _less(total: int | None, before: int | None) -> int | None:
    return None if total is None or before is None else max(0, total - before)


CODEX: Final = Codex()
