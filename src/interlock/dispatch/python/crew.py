"""The workers of a pool and the smallest things that are done with them: send, step up in line, finish, refuse.

Guarantee: `in_flight` counts the requests that were taken in and have no outcome yet; each gets one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from interlock.dispatch.base import NEVER, Outcome, Report, Request, Started
from interlock.dispatch.env.redact_base import NullRedactor, ResolvedEnv, redacted_message
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes.markers import Marker
from interlock.dispatch.python.ahead import Lines
from interlock.dispatch.python.jobs import framed
from interlock.dispatch.python.peer import Peer
from interlock.dispatch.python.places import Places
from interlock.dispatch.python.worker import FAILURE, GO_ON, SPOKE, UNIT
from interlock.model.states import Reason

_GO_ON: Final = framed(GO_ON, b"")


class Crew:
    """What `PythonPool` is built on; owned by the driving thread."""

    def __init__(self, marker: Marker, log: RunLog, report: Callable[[Report], None], places: Places) -> None:
        self._marker = marker
        self._log = log
        self._report = report
        self._places = places
        self._lines = Lines(places.peers)
        self._stopped: list[Peer] = []
        """Workers with a line that wait for a word after a failure."""
        self.sockets: Final = places.sockets
        self.in_flight = 0
        self.next_tick = NEVER
        """When (monotonic) `tick` has something to do."""

    def _wake_at(self, due: float) -> None:
        self.next_tick = min(self.next_tick, due)

    def _mark(self, request: Request) -> bytes:
        return (self._marker.prefix + request.dispatch).encode()

    # sending

    def _push(self, peer: Peer, frame: bytes) -> bool:
        try:
            sent = peer.socket.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        if sent < len(frame):
            peer.unsent = memoryview(frame)[sent:]
            self._places.want_write(peer, on=True)
        return True

    def _push_unit(self, peer: Peer, frames: bytes) -> bool:
        peer.plain += 1
        return self._push(peer, frames)

    def _push_more(self, peer: Peer, unsent: memoryview) -> None:
        try:
            peer.unsent = unsent[peer.socket.send(unsent) :] or None
        except BlockingIOError:
            return
        except OSError:
            # the zygote tells of its end
            peer.unsent = None
        if peer.unsent is None:
            self._places.want_write(peer, on=False)

    def _sent(self, peer: Peer, env: ResolvedEnv, request: Request, now: float, now_ms: int) -> None:
        self.in_flight += 1
        if request.process is not peer.process:
            self._report(Started(dispatch=request.dispatch, process=peer.process))
        self._wake_at(peer.begin(request, env, self._mark(request), now, now_ms))

    # the line

    def _step_up(self, peer: Peer, env: ResolvedEnv, kind: int, now_ms: int) -> None:
        """The first of the line is the worker's unit now; it has begun it by itself unless it stopped."""
        request = peer.step_up()
        self._wake_at(peer.begin(request, env, b"", time.monotonic(), now_ms))
        if kind == FAILURE:
            self._stopped.append(peer)
        elif kind == SPOKE or peer.later or peer.frame is not None:
            self._let_go(peer, stopped=kind == SPOKE)

    def _let_go(self, peer: Peer, *, stopped: bool) -> None:
        if peer.frame is not None:
            if self._push_unit(peer, framed(UNIT, peer.frame)):
                peer.frame = None
        elif stopped:
            self._push(peer, _GO_ON)
        if peer.later:
            peer.send_later()

    def go_on(self) -> None:
        """Let workers which stopped at a failure take the next of their lines: the failure was looked at."""
        stopped, self._stopped = self._stopped, []
        for peer in stopped:
            if peer.usable and peer.request is not None:
                self._let_go(peer, stopped=True)

    def _give_back(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.in_flight -= 1
            self._refuse(request, Reason.ABORTED, "called back before it began")

    # ends

    def _finish(self, peer: Peer, outcome: Outcome) -> None:
        if peer.notices:
            outcome = msgspec.structs.replace(outcome, notices=peer.notices)
        self.in_flight -= 1
        peer.finish()
        self._report(outcome)

    def _refuse(self, request: Request, reason: Reason, error: str) -> None:
        at = now_ms()
        status: Final = "aborted" if reason is Reason.ABORTED else "failed"
        self._report(
            Outcome(
                dispatch=request.dispatch,
                status=status,
                reason=reason,
                error=redacted_message(NullRedactor(), error),
                started_at=at,
                ended_at=at,
            )
        )


def now_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000
