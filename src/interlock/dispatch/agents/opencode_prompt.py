"""One prompt in one session of `opencode serve`: sent once, followed by asking, found again after a crash.

A session's title holds the prompt's key, and the message's id ends with it. So a later attempt of the same unit that
sends the same prompt finds what an earlier driver paid for: an answer that is there is taken, one under way is
followed. What failed or was cut off is sent anew, in a session of its own. Guarantee: a message that the server has
is never sent a second time.
"""

from __future__ import annotations

import time
from typing import Any, Final
from urllib.parse import quote

import msgspec

from interlock.dispatch.agents.base import Ask
from interlock.dispatch.agents.jsonl import Event, dig, text_at
from interlock.dispatch.agents.opencode_config import provider_and_model
from interlock.dispatch.agents.opencode_http import CallError, Server

_ID_BITS: Final = 48
_GONE: Final = 404
_RECENT: Final = 40
"""Messages of a session that are looked at: a prompt's own are the newest."""


class State(msgspec.Struct, frozen=True):
    """What the server says of a prompt."""

    status: Event
    """`{"type": "busy" | "retry" | "idle"}` of the session."""
    replies: list[Event]
    """The messages that answer the prompt, oldest first, each with `info` and `parts`."""

    @property
    def busy(self) -> bool:
        """Tell whether the session is at work."""
        return text_at(self.status, "type") in {"busy", "retry"}

    @property
    def ended(self) -> bool:
        """Tell whether the last reply is a whole one or a failure."""
        if self.busy or not self.replies:
            return False
        info = dig(self.replies[-1], "info")
        return bool(dig(info, "error")) or text_at(info, "finish") not in {"", "tool-calls"}


class Prompt(msgspec.Struct, frozen=True):
    """Where a prompt stands: session and message."""

    session: str
    message: str

    def state(self, server: Server) -> State:
        """Ask the server. Raises CallError."""
        statuses = server.get("/session/status")
        messages = _messages(server, self.session)
        replies = [m for m in messages if text_at(m, "info", "parentID") == self.message]
        status = dig(statuses, self.session)
        return State(status if isinstance(status, dict) else {"type": "idle"}, replies)

    def abort(self, server: Server) -> None:
        """Ask the server to stop. Raises CallError."""
        server.post(f"/session/{self.session}/abort")


def find(server: Server, key: str, ask: Ask, used: frozenset[str]) -> tuple[Prompt, State] | None:
    """Return the prompt with that key which has an answer or is at work, unless it was used. Raises CallError."""
    for session in _candidates(server, key, ask):
        sent = [text_at(m, "info", "id") for m in _messages(server, session) if text_at(m, "info", "role") == "user"]
        for message in reversed(sent):
            if message.endswith(_suffix(key)) and message not in used:
                prompt = Prompt(session, message)
                state = prompt.state(server)
                whole = state.ended and text_at(state.replies[-1], "info", "finish") == "stop"
                return (prompt, state) if whole or state.busy else None
    return None


def open_session(server: Server, key: str, ask: Ask) -> tuple[str, bool]:
    """Return the session to prompt in, and whether it is the one that was asked for. Raises CallError."""
    if ask.session is not None:
        try:
            server.get(f"/session/{quote(ask.session, safe='')}")
        except CallError as error:
            if error.status is None or error.status not in {_GONE, 400}:
                raise
        else:
            return ask.session, True
    made = server.post("/session", {"title": _title(key)})
    session = text_at(made, "id")
    if not session:
        raise CallError("POST /session: no session came back")
    return session, False


def send(server: Server, session: str, key: str, ask: Ask) -> Prompt:
    """Send the prompt; it is answered while the caller asks for its state. Raises CallError."""
    # ids are compared by the server to tell old messages from new: they must begin with the time
    stamp = (time.time_ns() // 1_000_000 * 4096) % (1 << _ID_BITS)
    message = f"msg_{stamp:012x}{_suffix(key)}"
    body: dict[str, Any] = {"messageID": message, "parts": [{"type": "text", "text": ask.prompt}]}
    named = provider_and_model(ask)
    if named is not None and named[0]:
        body["model"] = {"providerID": named[0], "modelID": named[1]}
    server.post(f"/session/{session}/prompt_async", body)
    return Prompt(session, message)


def _candidates(server: Server, key: str, ask: Ask) -> list[str]:
    if ask.session is not None:
        return [ask.session]
    found = server.get("/session", query=f"search={key}&limit=5")
    sessions = found if isinstance(found, list) else []
    return [text_at(session, "id") for session in sessions if text_at(session, "title") == _title(key)][:1]


def _messages(server: Server, session: str) -> list[Any]:
    try:
        found = server.get(f"/session/{quote(session, safe='')}/message", query=f"limit={_RECENT}")
    except CallError as error:
        if error.status == _GONE:
            return []
        raise
    return found if isinstance(found, list) else []


def _title(key: str) -> str:
    return f"interlock {key}"


def _suffix(key: str) -> str:
    return key[:14]
