"""One prompt's way through `opencode serve`, from sending to the answer.

Guarantees: a failing call is seen at its first repetition and ended, so the engine's own retries are the only ones;
a permission that opencode asks for is answered at once; an ended prompt is aborted, and a server that does not obey
is killed; a prompt that an earlier driver sent is found again and not paid for twice.
"""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from interlock.dispatch.agents.base import Answer
from interlock.dispatch.agents.helpers import Helper
from interlock.dispatch.agents.jsonl import dig, text_at
from interlock.dispatch.agents.live import Said, Talk
from interlock.dispatch.agents.opencode_http import CallError, Server
from interlock.dispatch.agents.opencode_prompt import Prompt, State, find, open_session, send
from interlock.dispatch.agents.opencode_server import SERVER, USED
from interlock.dispatch.agents.opencode_words import (
    error_answer,
    finish_answer,
    refused_tools,
    retry_answer,
    text_of,
    usage_of,
    used_tools,
)
from interlock.dispatch.agents.watch import EndedError
from interlock.dispatch.attempt import now_ms
from interlock.model.states import Reason

AUTO: Final = "--auto"
"""In the engine's `args`: allow what opencode would ask for."""
_POLL_S: Final = 0.25
_GONE_S: Final = 0.05
_DYING_S: Final = 1.0
_PATIENCE: Final = 5
"""Calls in a row that may go unanswered before the server counts as lost."""


class Conversation:
    """One prompt's way from sending to the answer."""

    def __init__(self, helper: Helper, talk: Talk) -> None:
        self._helper = helper
        self._talk = talk
        self._server: Server = helper.notes[SERVER]
        self._prompt: Prompt | None = None
        self._seen: bytes = b""
        self._denied: list[str] = []
        self._notices: list[str] = []
        self._failures = 0
        self._sent = False

    def run(self) -> Said:
        """Send, or find again, and follow."""
        try:
            answer = self._answer()
        except EndedError as ended:
            self._abort()
            return Said(self._known(None), self._helper.process, ended.ending)
        except CallError as error:
            return Said(self._lost(error), self._helper.process)
        return Said(answer, self._helper.process)

    def _answer(self) -> Answer:
        talk, used = self._talk, self._helper.notes[USED]
        found = find(self._server, talk.key, talk.ask, frozenset(used))
        if found is not None:
            self._prompt = found[0]
            self._notices.append(f"engine `{talk.ask.engine}`: a prompt sent earlier was found again, not sent anew")
        else:
            session, kept = open_session(self._server, talk.key, talk.ask)
            if talk.ask.session is not None and not kept:
                self._notices.append(
                    f"session {talk.ask.session} of engine `{talk.ask.engine}` is gone; a new one was started"
                )
            self._sent = True
            self._prompt = send(self._server, session, talk.key, talk.ask)
        used.add(self._prompt.message)
        return self._follow(self._prompt)

    def _follow(self, prompt: Prompt) -> Answer:
        while True:
            state = self._ask_state(prompt)
            if state is not None:
                self._note(state)
                if text_at(state.status, "type") == "retry":
                    return self._refuse_retry(prompt, state)
                if state.ended:
                    return self._read(state)
                self._permit(prompt)
            self._talk.watch.wait(_POLL_S)

    def _ask_state(self, prompt: Prompt) -> State | None:
        """Return the state; None for once when the server does not answer. Raises CallError when it is lost."""
        try:
            state = prompt.state(self._server)
        except CallError:
            self._failures += 1
            if self._failures >= _PATIENCE or not self._helper.alive():
                raise
            return None
        self._failures = 0
        return state

    def _note(self, state: State) -> None:
        """Log what is new; that it is new is progress."""
        said = msgspec.json.encode([state.status, state.replies])
        if said != self._seen:
            self._seen = said
            self._talk.heard(said)

    def _refuse_retry(self, prompt: Prompt, state: State) -> Answer:
        """End a call that opencode would repeat without end, and give its wait as the time to wait."""
        prompt.abort(self._server)
        return retry_answer(self._known(state), state.status, now_ms())

    def _read(self, state: State) -> Answer:
        known, last = self._known(state), state.replies[-1]
        error = dig(last, "info", "error")
        if error:
            return error_answer(known, error, now_ms())
        return finish_answer(known, text_at(last, "info", "finish"), text_of(last))

    def _known(self, state: State | None) -> Answer:
        replies = [] if state is None else state.replies
        infos = [info for reply in replies if isinstance(info := dig(reply, "info"), dict)]
        return Answer(
            session=None if self._prompt is None else self._prompt.session,
            model=next((text_at(info, "modelID") for info in reversed(infos)), None),
            usage=usage_of(infos),
            denied=(*self._denied, *(name for reply in replies for name in refused_tools(reply))),
            notices=tuple(self._notices),
            acted=state is None or any(used_tools(reply) for reply in replies),
        )

    def _permit(self, prompt: Prompt) -> None:
        """Answer what the session asks: all is allowed with `--auto`, else what asks is refused."""
        allow = AUTO in self._talk.ask.args
        for request in _of_session(self._server.get("/permission"), prompt.session):
            if not allow:
                self._denied.append(text_at(request, "permission") or "a tool")
            reply = {"reply": "once" if allow else "reject"}
            self._server.post(f"/permission/{text_at(request, 'id')}/reply", reply)
        for request in _of_session(self._server.get("/question"), prompt.session):
            self._denied.append("question")
            self._server.post(f"/question/{text_at(request, 'id')}/reject")

    def _abort(self) -> None:
        """Stop the prompt; a server that does not stop it in time is killed."""
        until = time.monotonic() + self._talk.watch.grace_s()
        prompt = self._prompt
        if prompt is None:
            return
        try:
            prompt.abort(self._server)
            while prompt.state(self._server).busy:
                if time.monotonic() >= until:
                    self._talk.helpers.end(self._helper)
                    return
                time.sleep(_GONE_S)
        except CallError:
            self._talk.helpers.end(self._helper)

    def _lost(self, error: CallError) -> Answer:
        """Say why there is no answer. The prompt may have been taken: a later attempt looks for it first."""
        alive = self._outlives(error)
        said = "" if alive else self._helper.tail()
        if not alive:
            self._talk.helpers.end(self._helper)
        text = f"`opencode serve` {'failed' if alive else 'ended in the middle'}: {error}"
        lost = Reason.NETWORK_ERROR if error.status is None else Reason.LLM_BAD_RESPONSE
        return msgspec.structs.replace(
            self._known(None),
            reason=lost if alive else Reason.KILLED,
            error=f"{text}: {said}" if said else text,
            acted=self._sent or self._prompt is not None,
        )

    def _outlives(self, error: CallError) -> bool:
        """Tell whether the server lives; one that is dying closes its connections first."""
        until = time.monotonic() + _DYING_S
        while error.status is None and self._helper.alive() and time.monotonic() < until:
            time.sleep(_GONE_S)
        return self._helper.alive()


def _of_session(found: Any, session: str) -> list[Any]:  # noqa: ANN401 - any JSON value
    return [one for one in found if text_at(one, "sessionID") == session] if isinstance(found, list) else []
