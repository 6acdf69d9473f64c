"""Gemini CLI: JSON lines on stdout, the prompt on stdin.

What it takes from a settings file only (its retries; which kind of key) stands in a home of ours where a key or URL
is configured, since it believes no such file elsewhere unless every folder above is safe; a user's own login stays in
the user's home. Its exit code is the HTTP status & 0xFF, or 41 to 55 for faults of its own. Measured with 0.61.0.
"""

from __future__ import annotations

import json
from typing import Final

import msgspec

from interlock.dispatch.agents import slash
from interlock.dispatch.agents.base import Answer, Ask, Card, Launch, Reply
from interlock.dispatch.agents.endings import failed, unfinished
from interlock.dispatch.agents.faults import status_in
from interlock.dispatch.agents.jsonl import Event, count_at, dig, events, parse, text_at
from interlock.model.events import Usage
from interlock.model.states import Reason

_CARD: Final = Card(
    program="gemini",
    cannot=frozenset({"temperature", "max_tokens", "extra_params"}),
    caveats=(
        'edits files in the working directory, runs no commands; more takes `args = ["--approval-mode", "yolo"]`',
        "with `base_url` or `api_key` it has a home of its own: nothing of `~/.gemini` is read",
        "an answer cut off at the token limit looks like any other",
        "without `api_key` its own retries stay as they are set in `~/.gemini/settings.json`",
    ),
)
_MODES: Final = ("--approval-mode", "-y", "--yolo")
_SETTINGS: Final = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"maxAttempts": 1, "enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
}
_STATUSES: Final = {status & 0xFF: status for status in (400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 504, 529)}
_AUTH_EXIT: Final = 41
_TURNS_EXIT: Final = 53
_REFUSALS: Final = frozenset({"policy_violation", "permission_denied", "execution_denied"})
_WITHHELD: Final = frozenset({"run_shell_command", "write_file", "replace", "web_fetch"})
"""Tools that are not offered where the mode doesn't allow them: the refusal comes as an unknown tool."""


class Gemini:
    """The adapter."""

    card = _CARD

    def launch(self, ask: Ask) -> Launch:
        """Start it on the prompt, in a new session of a known id or in the one asked for."""
        session = ("--session-id", ask.new_session) if ask.session is None else ("--resume", ask.session)
        own_home = ask.api_key is not None or ask.base_url is not None
        return Launch(
            argv=(
                *ask.program(self.card),
                *("-o", "stream-json"),
                *(() if ask.model is None else ("-m", ask.model)),
                *session,
                *ask.unless(_MODES, ("--approval-mode", "auto_edit")),
                *ask.args,
            ),
            stdin=slash.guarded(ask.prompt).encode("utf-8", "replace"),
            env=_env(ask, own_home=own_home),
            state_files={".gemini/settings.json": json.dumps(_SETTINGS).encode()} if own_home else {},
            notices=slash.notice(ask.engine, self.card.program, ask.prompt),
            continues_session=ask.session is not None,
        )

    def is_terminal(self, line: bytes) -> bool:
        """Tell whether it is the result."""
        return b'"result"' in line and line.lstrip().startswith(b"{") and text_at(parse(line), "type") == "result"

    def read(self, reply: Reply) -> Answer:
        """Read the result; the answer is what was said after the last tool."""
        found = list(events(reply.out))
        first = next((event for event in found if event.get("type") == "init"), {})
        last = next((event for event in reversed(found) if event.get("type") == "result"), None)
        acted = any(event.get("type") == "tool_use" for event in found)
        session = text_at(first, "session_id") or None
        if last is None:
            return _without_end(reply, session, acted=acted)
        usage = _usage(last)
        if text_at(last, "status") != "success":
            answer = _failure(reply, text_at(last, "error", "message"), acted=acted)
            return msgspec.structs.replace(answer, session=session, usage=usage)
        return Answer(
            text=_text(found),
            denied=_denied(found),
            session=session,
            model=_model(last) or text_at(first, "model") or None,
            usage=usage,
        )


def _env(ask: Ask, *, own_home: bool) -> dict[str, str]:
    env = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "1"}
    if own_home:
        env["GEMINI_CLI_HOME"] = ask.state
    if ask.base_url is not None:
        env["GOOGLE_GEMINI_BASE_URL"] = ask.base_url
    if ask.api_key is not None:
        env["GEMINI_API_KEY"] = ask.api_key
    return env


def _text(found: list[Event]) -> str:
    said: list[str] = []
    for event in found:
        if event.get("type") == "tool_use":
            said.clear()
        elif event.get("type") == "message" and event.get("role") == "assistant":
            said.append(text_at(event, "content"))
    return "".join(said)


def _denied(found: list[Event]) -> tuple[str, ...]:
    names = {
        text_at(event, "tool_id"): text_at(event, "tool_name") for event in found if event.get("type") == "tool_use"
    }
    refused = []
    for event in found:
        kind, name = text_at(event, "error", "type"), names.get(text_at(event, "tool_id"), "")
        if event.get("type") == "tool_result" and (
            kind in _REFUSALS or (kind == "tool_not_registered" and name in _WITHHELD)
        ):
            refused.append(name or kind)
    return tuple(refused)


def _model(last: Event) -> str | None:
    models = dig(last, "stats", "models")
    return next(iter(models)) if isinstance(models, dict) and len(models) == 1 else None


def _usage(last: Event) -> Usage | None:
    """Return the tokens; what the model thought is in the total alone."""
    stats = dig(last, "stats")
    used, said, total = (count_at(stats, name) for name in ("input_tokens", "output_tokens", "total_tokens"))
    if used is None or said is None:
        return None
    thought = max(0, (total or 0) - used - said)
    return Usage(
        input_tokens=used,
        output_tokens=said + thought,
        cached_tokens=count_at(stats, "cached"),
        reasoning_tokens=thought,
    )


def _without_end(reply: Reply, session: str | None, *, acted: bool) -> Answer:
    answer = unfinished(reply, "result", acted=acted, session=session)
    gone = reply.ask.session is not None and b"Error resuming session" in reply.err
    if reply.exit_code == _AUTH_EXIT:
        answer = msgspec.structs.replace(answer, reason=Reason.LLM_AUTH)
    elif reply.exit_code in _STATUSES:
        answer = _failure(reply, answer.error, acted=acted)
    return msgspec.structs.replace(answer, session=session, session_gone=gone)


def _failure(reply: Reply, text: str, *, acted: bool) -> Answer:
    if reply.exit_code == _TURNS_EXIT:
        return Answer(reason=Reason.LLM_BAD_RESPONSE, error=text, acted=acted)
    status = status_in(text) or status_in(reply.err.decode("utf-8", "replace"))
    return failed(reply, text, status or _STATUSES.get(reply.exit_code or 0), acted=acted)


GEMINI: Final = Gemini()
