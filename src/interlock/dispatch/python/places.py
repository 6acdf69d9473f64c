"""The workers of a run: started when wanted, offered, claimed, and dropped when they end.

Guarantees: a worker that was offered is not offered again before the next start; every worker's descriptors are
watched by the one poller and closed once; a zygote that died is replaced at the next need.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from typing import Final

from interlock.dispatch.base import Request
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.python.link import Interpreter, Link, NoWorkerError
from interlock.dispatch.python.peer import Peer
from interlock.model.events import Process

EPOLLIN: Final = getattr(select, "EPOLLIN", 1)
EPOLLOUT: Final = getattr(select, "EPOLLOUT", 4)


class Places:
    """`ended` hears of each worker that ended: its peer, and its wait status where that is known.

    `catch_up` takes a worker's answers and tells whether there were any: it is asked before output is read.
    """

    def __init__(
        self,
        interpreter: Interpreter,
        log: RunLog,
        poller: select.epoll,
        ended: Callable[[Peer, int | None], None],
        catch_up: Callable[[Peer], bool],
    ) -> None:
        self._interpreter: Final = interpreter
        self._log = log
        self._poller = poller
        self._ended = ended
        self._catch_up = catch_up
        self._link: Link | None = None
        self.peers: dict[int, Peer] = {}
        self._idle: dict[int, Peer] = {}
        self._offered: dict[int, Peer] = {}
        self.handlers: dict[int, Callable[[], None]] = {}
        """By descriptor: pipes and the zygote. To be called before `sockets` of the same poll, so that a unit's
        output is taken before its answer."""
        self.sockets: dict[int, Peer] = {}

    def offer(self, wanted: int) -> list[Process | None]:
        """Return identities of idle workers, starting what is missing. None: one that could not be started."""
        missing = wanted - len(self._idle)
        if missing > 0:
            with contextlib.suppress(NoWorkerError):
                self._fork(missing)
        offered: list[Process | None] = []
        for pid in list(self._idle)[:wanted]:
            peer = self._offered[pid] = self._idle.pop(pid)
            offered.append(peer.process)
        offered.extend([None] * (wanted - len(offered)))
        return offered

    def take_back(self) -> None:
        """Places that were offered and not used are idle again."""
        if self._offered:
            self._idle.update(self._offered)
            self._offered.clear()

    def claim(self, request: Request) -> Peer:
        """Return the worker that was offered for the request, else any. Raises NoWorkerError."""
        if request.process is not None:
            pid = request.process.pid
            peer = self._offered.pop(pid, None) or self._idle.pop(pid, None)
            if peer is not None:
                return peer
        if not self._idle:
            self._fork(1)
        return self._idle.popitem()[1]

    @property
    def any_idle(self) -> bool:
        """Tell whether a worker has nothing to do."""
        return bool(self._idle)

    def release(self, peer: Peer) -> None:
        """The worker is idle again."""
        self._idle[peer.process.pid] = peer

    def prepare(self) -> None:
        """Start the interpreter, which then comes up while others work. Raises NoWorkerError."""
        self._zygote()

    def _zygote(self) -> Link:
        if self._link is None:
            self._link = Link(self._interpreter)
            self._watch(self._link.control.fileno(), self._on_news)
        return self._link

    def _fork(self, count: int) -> None:
        link = self._zygote()
        try:
            forked = link.fork(count)
        finally:
            self._on_news()
        for ends in forked:
            peer = Peer(ends)
            self.peers[ends.process.pid] = self._idle[ends.process.pid] = peer
            self.sockets[peer.fd] = peer
            self._poller.register(peer.fd, EPOLLIN)
            for pipe in (ends.out, ends.err):
                self._watch(pipe, self._output_handler(peer, pipe))

    def _output_handler(self, peer: Peer, pipe: int) -> Callable[[], None]:
        def read() -> None:
            # output that was there before the answers were taken is of the first unit without an answer: the worker
            # takes no other while it is unread
            if peer.line and (not peer.spoke(pipe) or self._catch_up(peer)):
                return
            if not peer.read_output(pipe, self._log):
                self._unwatch(pipe)

        return read

    def _watch(self, fd: int, handler: Callable[[], None]) -> None:
        self.handlers[fd] = handler
        self._poller.register(fd, EPOLLIN)

    def _unwatch(self, fd: int) -> None:
        if self.handlers.pop(fd, None):
            self._poller.unregister(fd)

    def want_write(self, peer: Peer, *, on: bool) -> None:
        """Have the poller tell when the worker's socket takes more."""
        self._poller.modify(peer.fd, EPOLLIN | EPOLLOUT if on else EPOLLIN)

    def silence(self, peer: Peer) -> None:
        """Neither poll its socket nor offer it any more."""
        if self.sockets.pop(peer.fd, None):
            self._poller.unregister(peer.fd)
        self._idle.pop(peer.process.pid, None)
        self._offered.pop(peer.process.pid, None)

    def drop(self, peer: Peer) -> None:
        """Be done with a worker that ended."""
        self.silence(peer)
        if self.peers.get(peer.process.pid) is peer:
            del self.peers[peer.process.pid]
            self._unwatch(peer.out)
            self._unwatch(peer.err)
            peer.close()

    def _on_news(self) -> None:
        """The zygote told of ends, or ended itself and all of them with it."""
        link = self._link
        if link is None:
            return
        for pid, status in link.ended():
            self._end(self.peers.get(pid), status)
        if link.dead:
            self._unwatch(link.control.fileno())
            self._link = None
            link.close()
            for peer in list(self.peers.values()):
                self._end(peer, None)

    def _end(self, peer: Peer | None, status: int | None) -> None:
        if peer is not None and not peer.exited:
            peer.exited = True
            peer.wait_status = status
            self._ended(peer, status)

    def close(self) -> None:
        """End the zygote and all workers. Idempotent."""
        for peer in list(self.peers.values()):
            self.drop(peer)
        link, self._link = self._link, None
        if link is not None:
            self._unwatch(link.control.fileno())
            link.close()
