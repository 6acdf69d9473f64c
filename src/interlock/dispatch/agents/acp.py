"""Any agent that speaks the Agent Client Protocol: JSON-RPC in lines over the stdin and stdout of its process.

A process serves one prompt at a time and is given out again for the next, so agents need not keep sessions apart.
Guarantees: a prompt that is ended is cancelled first, then its process is killed with all that it started; one whose
turn failed is not given out again; a line may have 50 MB.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable
from typing import Final

import msgspec

from interlock.dispatch.agents import slash
from interlock.dispatch.agents.acp_policy import Policy, policy_of
from interlock.dispatch.agents.acp_turn import Message, Turn
from interlock.dispatch.agents.base import Answer, CannotAskError, Card
from interlock.dispatch.agents.faults import fault_of
from interlock.dispatch.agents.helpers import Helper, Key
from interlock.dispatch.agents.jsonl import parse
from interlock.dispatch.agents.live import Said, Talk
from interlock.dispatch.agents.watch import EndedError
from interlock.dispatch.attempt import now_ms
from interlock.dispatch.commands.output import CHUNK_BYTES
from interlock.model.states import Reason

MAX_LINE_BYTES: Final = 50_000_000
_KNOWN, _NEXT_ID, _SESSIONS = "known", "next_id", "sessions"


class AcpAdapter:
    """The engine's `command` is the agent: `["gemini", "--acp"]`, `["opencode", "acp"]`."""

    card: Final = Card(
        program="acp",
        version=(),
        cannot=frozenset({"base_url", "api_key", "temperature", "max_tokens", "extra_params"}),
        caveats=(
            'It may read, and change files below the working directory; `args = ["permissions=all"]` allows everything it asks for.',
            "An answer that the model cut short is not told from a whole one by every agent: give steps an `output` schema.",
            "The model is set where the agent lets it be set; else it is a notice, and the agent's own arguments choose it.",
        ),
    )

    def converse(self, talk: Talk) -> Said:
        """Have one prompt answered."""
        ask = talk.ask
        if not ask.command:
            message = f'engine `{ask.engine}` names no agent; give it `command`, such as ["gemini", "--acp"]'
            raise CannotAskError(Reason.SPAWN_FAILED, message)
        policy, args = policy_of(ask.args)
        argv = (*ask.command, *args)
        key = Key.of(argv, ask.cwd, talk.env)
        idle = talk.helpers.take(key, ask.session)
        if idle is not None:
            said = _serve(idle, key, policy, talk)
            if said.answer.reason is not Reason.SPAWN_FAILED:
                return said
            # it ended while nobody looked, before it had heard the prompt
        return _serve(talk.helpers.start(argv, ask.cwd, talk.env, pipes=True), key, policy, talk)


def _serve(helper: Helper, key: Key, policy: Policy, talk: Talk) -> Said:
    ask = msgspec.structs.replace(talk.ask, prompt=slash.guarded(talk.ask.prompt))
    turn = Turn(ask, policy, helper.notes.get(_KNOWN), frozenset(helper.notes.get(_SESSIONS, ())))
    talk.watch.cpu_ticks = helper.tree.cpu_ticks
    if helper.process is not None:
        talk.report(helper.process)
    said = _Line(helper, turn, talk).run(key)
    told = slash.notice(ask.engine, ask.command[0], talk.ask.prompt)
    return msgspec.structs.replace(
        said, answer=msgspec.structs.replace(said.answer, notices=(*told, *said.answer.notices))
    )


class _Line:
    """The connection to one process while it serves one prompt."""

    def __init__(self, helper: Helper, turn: Turn, talk: Talk) -> None:
        self._helper = helper
        self._turn = turn
        self._talk = talk
        self._parts: list[bytes] = []
        self._bytes, self._sending = 0, b""
        os.set_blocking(helper.stdin, False)
        os.set_blocking(helper.stdout, False)

    def run(self, key: Key) -> Said:
        """Follow the turn to its end."""
        try:
            self._send(self._turn.begin(self._helper.notes.get(_NEXT_ID, 1)))
            lost = self._follow(lambda: self._talk.watch.wait(None, self._wanted()))
        except EndedError as ended:
            self._stop_politely()
            self._talk.helpers.end(self._helper)
            return Said(self._turn.so_far(), self._helper.process, ended.ending)
        except BaseException:
            self._talk.helpers.end(self._helper)
            raise
        if lost is not None:
            return Said(self._lost(lost), self._helper.process)
        answer = self._turn.answer or self._turn.so_far()
        self._put_away(key, answer)
        return Said(answer, self._helper.process)

    def _wanted(self) -> dict[int, int]:
        reading = {self._helper.stdout: select.POLLIN}
        return reading | {self._helper.stdin: select.POLLOUT} if self._sending else reading

    def _follow(self, wait: Callable[[], set[int]]) -> str | None:
        """Read and write until the turn has its answer; return why that cannot be had, if so."""
        while self._turn.answer is None:
            ready = wait()
            if not ready:
                return "it was silent"
            error = self._write() if self._helper.stdin in ready else None
            error = (self._read() if self._helper.stdout in ready else None) or error
            if error is not None:
                return error
        return None

    def _send(self, messages: list[Message]) -> None:
        for message in messages:
            self._sending += msgspec.json.encode(message) + b"\n"

    def _write(self) -> str | None:
        try:
            written = os.write(self._helper.stdin, self._sending[:CHUNK_BYTES])
        except BlockingIOError:
            return None
        except OSError as error:
            return f"it does not take its input: {error.strerror}"
        self._sending = self._sending[written:]
        return None

    def _read(self) -> str | None:
        try:
            data = os.read(self._helper.stdout, CHUNK_BYTES)
        except BlockingIOError:
            return None
        if not data:
            return "it closed its output"
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._parts.append(part)
            self._line(b"".join(self._parts))
            self._parts, self._bytes = [], 0
        self._parts.append(rest)
        self._bytes += len(rest)
        return f"it sent a line of more than {MAX_LINE_BYTES} bytes" if self._bytes > MAX_LINE_BYTES else None

    def _line(self, line: bytes) -> None:
        message = parse(self._talk.heard(line)) if line.strip() else None
        if isinstance(message, dict):
            self._send(self._turn.take(message, now_ms()))

    def _stop_politely(self) -> None:
        """Ask the agent to stop, and leave it the time there is for ending its tools."""
        until = time.monotonic() + self._talk.watch.grace_s()
        self._send(self._turn.cancel())
        poller = select.poll()

        def wait() -> set[int]:
            wanted = self._wanted()
            for fd, events in wanted.items():
                poller.register(fd, events)
            ready = {fd for fd, _ in poller.poll(max(0.0, until - time.monotonic()) * 1000)}
            for fd in wanted:
                poller.unregister(fd)
            return ready if time.monotonic() < until else set()

        if self._turn.session is not None:
            with contextlib.suppress(OSError):
                self._follow(wait)

    def _lost(self, why: str) -> Answer:
        said = self._helper.tail()
        code = self._talk.helpers.end(self._helper)
        opened = self._turn.session is not None
        text = f"the agent ended in the middle: {why}" if opened else f"the agent does not speak ACP: {why}"
        text += f" (exit code {code})" if code is not None and code >= 0 else ""
        fault = fault_of(said, now_ms()) if said else None
        reason = fault.reason if fault else Reason.KILLED if opened else Reason.SPAWN_FAILED
        error = f"{text}: {said}" if said else text
        return msgspec.structs.replace(self._turn.so_far(), reason=reason, error=error, acted=opened)

    def _put_away(self, key: Key, answer: Answer) -> None:
        notes = self._helper.notes
        notes[_KNOWN], notes[_NEXT_ID] = self._turn.known, self._turn.next_id
        notes[_SESSIONS] = {*notes.get(_SESSIONS, ()), self._turn.session}
        if answer.reason is None:
            self._talk.helpers.give_back(key, self._helper)
        else:
            self._talk.helpers.end(self._helper)


ACP: Final = AcpAdapter()
