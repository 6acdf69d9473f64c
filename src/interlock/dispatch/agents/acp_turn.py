"""One prompt in the words of the Agent Client Protocol: messages in, messages out, no process in sight.

initialize, then session/load or session/new, the model where it can be set, session/prompt. Guarantees: every request
of the agent is answered at once, permissions by the policy; a stop that is not the end of a turn is no answer; an
error that the agent passes off as text is a failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from interlock.dispatch.agents.acp_policy import Policy
from interlock.dispatch.agents.acp_words import failure, passed_off, stop_failure, usage_at
from interlock.dispatch.agents.base import Answer, Ask
from interlock.dispatch.agents.jsonl import dig, text_at
from interlock.model.events import Usage
from interlock.version import __version__

Message = dict[str, Any]
_UNKNOWN_METHOD: Final = -32601
_NOISE: Final = re.compile(r"Info: Request failed due to .* Retrying\.\.\.\s*")


class Turn:
    """`known` is what this process said of itself to an earlier prompt; None for the first."""

    def __init__(self, ask: Ask, policy: Policy, known: Message | None, live_sessions: frozenset[str]) -> None:
        self._ask = ask
        self._policy = policy
        self._live = live_sessions
        self.next_id = 1
        self._awaited: dict[int, Callable[[Message], list[Message]]] = {}
        self._segments: list[list[str]] = [[]]
        self._usage: Usage | None = None
        self._denied: list[str] = []
        self._notices: list[str] = []
        self._listening = False
        self._acted = False
        self.cancelled = False
        self.known = known
        self.session: str | None = None
        self.answer: Answer | None = None

    def begin(self, first_id: int) -> list[Message]:
        """Return what to send first. Ids count on from `first_id`, since the process may have seen others."""
        self.next_id = first_id
        if self.known is not None:
            return self._open()
        about = {
            "protocolVersion": 1,
            "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
            "clientInfo": {"name": "interlock", "version": __version__},
        }
        return [self._request("initialize", about, self._initialized)]

    def take(self, message: Message, now_ms: int) -> list[Message]:
        """Take a message and return what to send."""
        self._now_ms = now_ms
        method, number = message.get("method"), message.get("id")
        if isinstance(method, str):
            if "id" in message:
                return [self._asked(method, message)]
            self._update(dig(message, "params", "update"))
            return []
        then = self._awaited.pop(number, None) if isinstance(number, int) else None
        return [] if then is None else then(message)

    def cancel(self) -> list[Message]:
        """Return what asks the agent to stop."""
        self.cancelled = True
        return [] if self.session is None else [_note("session/cancel", {"sessionId": self.session})]

    def so_far(self) -> Answer:
        """Return what is known without an answer."""
        return Answer(session=self.session, usage=self._usage, denied=tuple(self._denied), notices=tuple(self._notices))

    def _request(self, method: str, params: Message, then: Callable[[Message], list[Message]]) -> Message:
        number = self.next_id
        self.next_id += 1
        self._awaited[number] = then
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    def _initialized(self, reply: Message) -> list[Message]:
        if not isinstance(reply.get("result"), dict):
            return self._fail(reply, acted=False)
        self.known = reply["result"]
        return self._open()

    def _open(self) -> list[Message]:
        where = {"cwd": self._ask.cwd, "mcpServers": []}
        session = self._ask.session
        if session is not None and session in self._live:
            return self._opened(session, {})
        if session is not None and dig(self.known, "agentCapabilities", "loadSession") is True:
            return [self._request("session/load", {"sessionId": session, **where}, self._loaded)]
        if session is not None:
            self._notices.append(f"engine `{self._ask.engine}` cannot go on in a session; a new one was started")
        return [self._request("session/new", where, self._made)]

    def _loaded(self, reply: Message) -> list[Message]:
        if "error" in reply:
            gone = f"session {self._ask.session} of engine `{self._ask.engine}` is gone; a new one was started"
            self._notices.append(gone)
            return [self._request("session/new", {"cwd": self._ask.cwd, "mcpServers": []}, self._made)]
        return self._opened(self._ask.session or "", reply.get("result") or {})

    def _made(self, reply: Message) -> list[Message]:
        session = text_at(reply, "result", "sessionId")
        return self._opened(session, reply["result"]) if session else self._fail(reply, acted=False)

    def _opened(self, session: str, about: Message) -> list[Message]:
        self.session = session
        model = self._ask.model
        options = about.get("configOptions")
        named = [o for o in options if dig(o, "category") == "model"] if isinstance(options, list) else []
        if model is None or model in (
            text_at(about, "models", "currentModelId"),
            *(dig(o, "currentValue") for o in named),
        ):
            return self._prompt()
        if named:
            params = {"sessionId": session, "configId": named[0].get("id"), "value": model}
            return [self._request("session/set_config_option", params, self._model_set)]
        if about.get("models"):
            params = {"sessionId": session, "modelId": model}
            return [self._request("session/set_model", params, self._model_set)]
        if session not in self._live:
            self._notices.append(
                f"engine `{self._ask.engine}`: its agent lets nobody choose a model; `{model}` was not set"
            )
        return self._prompt()

    def _model_set(self, reply: Message) -> list[Message]:
        if "error" in reply:
            said = failure(self.so_far(), reply["error"], self._now_ms).error
            self._notices.append(f"engine `{self._ask.engine}`: model `{self._ask.model}` was not set: {said}")
        return self._prompt()

    def _prompt(self) -> list[Message]:
        self._listening = True
        params = {"sessionId": self.session, "prompt": [{"type": "text", "text": self._ask.prompt}]}
        return [self._request("session/prompt", params, self._ended)]

    def _ended(self, reply: Message) -> list[Message]:
        if not isinstance(reply.get("result"), dict):
            return self._fail(reply, acted=self._acted)
        result = reply["result"]
        self._usage = usage_at(result) or self._usage
        chunks = next((kept for kept in reversed(self._segments) if "".join(kept).strip()), [])
        known = self.so_far()
        stop = text_at(result, "stopReason")
        self.answer = stop_failure(known, stop) or passed_off(known, chunks, self._now_ms) or _with_text(known, chunks)
        return []

    def _fail(self, reply: Message, *, acted: bool) -> list[Message]:
        self.answer = failure(self.so_far(), reply.get("error"), self._now_ms, acted=acted)
        return []

    def _update(self, update: Any) -> None:  # noqa: ANN401 - any JSON value
        """Follow what the agent does; what it tells of an old session while that is loaded is not heard."""
        if not self._listening:
            return
        match text_at(update, "sessionUpdate"):
            case "agent_message_chunk":
                text = text_at(update, "content", "text")
                if text and not _NOISE.fullmatch(text):
                    self._segments[-1].append(text)
                self._usage = usage_at(update, self._usage) or self._usage
            case "tool_call":
                # what was said before a tool was used is no part of the answer
                self._acted = True
                self._segments.append([])
            case _:
                pass

    def _asked(self, method: str, message: Message) -> Message:
        reply: Message = {"jsonrpc": "2.0", "id": message["id"]}
        if method != "session/request_permission":
            return reply | {"error": {"code": _UNKNOWN_METHOD, "message": f"interlock does not offer {method}"}}
        call = dig(message, "params", "toolCall")
        allowed = self._policy.allows(call, self._ask.cwd)
        if not allowed:
            self._denied.append(text_at(call, "title") or text_at(call, "kind") or "a tool")
        chosen = None if self.cancelled else self._policy.option(dig(message, "params", "options"), allow=allowed)
        outcome = {"outcome": "cancelled"} if chosen is None else {"outcome": "selected", "optionId": chosen}
        return reply | {"result": {"outcome": outcome}}


def _with_text(known: Answer, chunks: list[str]) -> Answer:
    return msgspec.structs.replace(known, text="".join(chunks))


def _note(method: str, params: Message) -> Message:
    return {"jsonrpc": "2.0", "method": method, "params": params}
