"""`python:` units in worker processes kept warm for the run; one unit at a time in each.

Driven by one thread, which passes on what its poller saw and the time; nothing here blocks but the first start of
the interpreter. Guarantees: a timeout, crash or cancel ends that unit's worker and tree, and no other; its outcome
comes when nothing of the tree runs any more; why it was ended is decided before anything is killed. A unit that waits
in line behind another begins only after that one's answer, after a failed one only once the driver looked at it; one
that cannot begin soon is given back as aborted.
"""

from __future__ import annotations

import contextlib
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from interlock.dispatch.base import NEVER, EnvAudit, Job, Outcome, Report, Request
from interlock.dispatch.env.redact_base import EnvUnresolvedError, NullRedactor, ResolvedEnv
from interlock.dispatch.logs.log import FLUSH_AFTER_S, RunLog
from interlock.dispatch.processes.markers import VARIABLE, Marker, dispatch_id
from interlock.dispatch.processes.tree import Tree
from interlock.dispatch.python import outcome as outcomes
from interlock.dispatch.python.crew import Crew, now_ms
from interlock.dispatch.python.jobs import SharedJob, SharedJobs, body_of, framed
from interlock.dispatch.python.link import Interpreter, NoWorkerError
from interlock.dispatch.python.outcome import Ending
from interlock.dispatch.python.peer import SLOW_S, Peer
from interlock.dispatch.python.places import EPOLLOUT, Places
from interlock.dispatch.python.worker import FAILURE, FORGET, RESULT, UNIT
from interlock.model.actions import Ahead
from interlock.model.durations import spelled_duration
from interlock.model.events import Process
from interlock.model.plan import PythonFunction
from interlock.model.states import Reason

KILL_AFTER_S: Final = 5.0
"""From SIGTERM to SIGKILL after a timeout."""
_LOST_S: Final = 1.0
"""How long a worker whose socket closed may take to end by itself."""
_JOBS_PER_WORKER: Final = 8
_TRIES: Final = 3
_MOST: Final = 10**12
_NO_SECRETS: Final = ResolvedEnv({}, NullRedactor())


class PythonPool(Crew):
    """`report` takes outcomes as they come; `post` brings a call from another thread into the driving one."""

    def __init__(
        self,
        *,
        interpreter: Interpreter,
        env_for: Callable[[Job], ResolvedEnv],
        marker: Marker,
        log: RunLog,
        poller: select.epoll,
        report: Callable[[Report], None],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        # what only forks writes its own marker over this one
        room = len(dispatch_id(marker.holder, _MOST, _MOST))
        marked = {**interpreter.env, VARIABLE.encode(): marker.value("zygote".ljust(room, "_")).encode()}
        places = Places(msgspec.structs.replace(interpreter, env=marked), log, poller, self._ended, self._catch_up)
        super().__init__(marker, log, report, places)
        self._post = post
        self._jobs = SharedJobs(env_for, marker, post, self._resolved)
        self._audited: set[str] = set()

    # starting

    def prepare(self) -> None:
        """Start the interpreter before it is needed; where that cannot be, the first unit will say why."""
        with contextlib.suppress(NoWorkerError):
            self._places.prepare()

    def offer(self, job: Job, wanted: int, ahead: int) -> list[Process | None]:
        """Return identities of idle workers, starting what is missing, then of those with a place in their line."""
        fresh = self._places.offer(wanted)
        return fresh + self._lines.offer(job, ahead, fresh)

    def take_back(self) -> None:
        """Places that were offered and not used are free again."""
        self._places.take_back()
        self._lines.take_back()

    def ahead(self, run_id: str) -> dict[int, Ahead]:
        """Return how many attempts wait in line and how many may behind each worker, by step."""
        return self._lines.state(run_id)

    def start(self, request: Request, now: float, now_ms: int) -> None:
        """Send the unit to its worker, now or when its environment is there."""
        shared = self._jobs.get(request.job)
        if shared.env is None:
            shared.waiting.append(request)
        else:
            self._begin(shared, shared.env, request, now, now_ms)

    def _resolved(self, shared: SharedJob, error: EnvUnresolvedError | None) -> None:
        waiting, shared.waiting = shared.waiting, []
        for request in waiting:
            if shared.env is not None:
                self._begin(shared, shared.env, request, time.monotonic(), now_ms())
            elif error is not None:
                self._refuse(request, error.reason or Reason.ABORTED, str(error))

    def _begin(self, shared: SharedJob, env: ResolvedEnv, request: Request, now: float, now_ms: int) -> None:
        if env.names and shared.job.key not in self._audited:
            self._audited.add(shared.job.key)
            self._report(EnvAudit(step=shared.job.step, names=env.names, warnings=env.warnings))
        if request.ahead:
            self._join(shared, request)
            return
        for _ in range(_TRIES):
            try:
                peer = self._places.claim(request)
            except NoWorkerError as error:
                self._refuse(request, Reason.SPAWN_FAILED, _no_worker(shared.job, error))
                return
            if self._send(peer, shared, request):
                self._sent(peer, env, request, now, now_ms)
                return
            self._on_lost(peer)
        self._refuse(request, Reason.SPAWN_FAILED, f"{_TRIES} workers died before they could begin")

    def _join(self, shared: SharedJob, request: Request) -> None:
        self.in_flight += 1
        peer = self._lines.behind(request)
        if peer is None:
            self._give_back([request])
        else:
            peer.join(request, body_of(shared, request))
            self._wake_at(peer.look_at)

    def _send(self, peer: Peer, shared: SharedJob, request: Request) -> bool:
        """False when the worker is gone, so that nothing can have begun."""
        frame = framed(UNIT, body_of(shared, request))
        if shared.number not in peer.known:
            frame = self._introduce(peer, shared) + frame
        return self._push_unit(peer, frame)

    def _introduce(self, peer: Peer, shared: SharedJob) -> bytes:
        forget = b""
        if len(peer.known) >= _JOBS_PER_WORKER:
            peer.known.clear()
            forget = framed(FORGET, b"")
        peer.known.add(shared.number)
        return forget + shared.frame

    # what the poller saw

    def on_handler(self, fd: int) -> None:
        """A pipe or the zygote's socket is ready; output that is held for the log is due a little later."""
        handler = self._places.handlers.get(fd)
        if handler is not None:
            handler()
            self._wake_at(time.monotonic() + FLUSH_AFTER_S)

    def on_socket(self, peer: Peer, mask: int, now_ms: int) -> None:
        """A worker's socket is ready."""
        if peer.unsent is not None and mask & EPOLLOUT:
            self._push_more(peer, peer.unsent)
        if mask == EPOLLOUT:
            return
        for answer in peer.receive():
            self._answered(peer, *answer, now_ms)
        if peer.lost:
            self._on_lost(peer)

    def _catch_up(self, peer: Peer) -> bool:
        """Take all answers that are there; tell whether there were any."""
        any_came = False
        while not peer.lost and (answers := peer.receive()):
            any_came = True
            for answer in answers:
                self._answered(peer, *answer, now_ms())
        return any_came

    def _answered(self, peer: Peer, kind: int, body: bytes, took_us: int, now_ms: int) -> None:
        request = peer.request
        if request is None:
            self._on_lost(peer)
            return
        if peer.ending is not None and (peer.ending.status == "failed" or kind == FAILURE):
            # too late: its outcome comes when its tree is gone
            return
        try:
            env, outcome = self._taken_in(peer, request, kind, body, took_us, now_ms)
        except Exception as error:  # noqa: BLE001 - whatever a worker says must end as its unit's outcome, not ours
            self._fault(peer, error)
            return
        self._lines.note(request.job, took_us)
        self._finish(peer, outcome)
        if peer.line:
            self._step_up(peer, env, kind, now_ms)
        elif peer.usable:
            self._places.release(peer)

    def _taken_in(
        self, peer: Peer, request: Request, kind: int, body: bytes, took_us: int, now_ms: int
    ) -> tuple[ResolvedEnv, Outcome]:
        env = peer.env or _NO_SECRETS
        plain = type(env.redactor) is NullRedactor
        if kind != RESULT:
            # it waits: all that lies unread is this unit's
            peer.read_all(self._log)
        outcome = Outcome(
            dispatch=request.dispatch,
            status="ok",
            output=body if plain or kind == FAILURE else env.redactor.json(body),
            is_json=True,
            process=peer.process,
            started_at=min(peer.started_at, now_ms - took_us // 1_000),
            ended_at=now_ms,
        )
        if kind == FAILURE:
            outcome = outcomes.failure(env.redactor, body, outcome)
        if peer.log is not None:
            # after all that can fail: a fault needs it as well
            log = peer.close_log(self._log, silent=kind != RESULT or bool(peer.line))
            outcome = msgspec.structs.replace(outcome, log=log)
        return env, outcome

    # endings

    def _on_lost(self, peer: Peer) -> None:
        """Nothing can be said to it any more. Its end is told by the zygote, unless it only closed its descriptors."""
        peer.lost = True
        self._places.silence(peer)
        self._give_back(peer.call_back())
        if not peer.exited and peer.kill_at == NEVER:
            peer.kill_at = time.monotonic() + _LOST_S
            self._wake_at(peer.kill_at)

    def _fault(self, peer: Peer, error: Exception) -> None:
        """What it said cannot be taken in: nothing else that it says can be trusted, and its unit has failed."""
        self._places.silence(peer)
        self._give_back(peer.call_back())
        text = f"interlock failed to take in the worker's answer: {type(error).__name__}: {error}"
        self._end(peer, Ending("failed", Reason.DISPATCH_ERROR, text), 0.0)

    def _ended(self, peer: Peer, _status: int | None) -> None:
        """The worker's process is gone; perhaps it answered before."""
        if peer.request is not None and peer.ending is None:
            self._catch_up(peer)
        self._give_back(peer.call_back())
        if peer.request is None and not peer.killing and peer.wait_status is not None:
            self._places.drop(peer)
            return
        self._places.silence(peer)
        self._kill(peer)

    def _end(self, peer: Peer, ending: Ending, grace_s: float) -> None:
        kill_at = time.monotonic() + grace_s
        if peer.ending is None:
            peer.ending = ending
            if grace_s > 0:
                self._tree(peer).signal(signal.SIGTERM)
        elif peer.kill_at <= kill_at:
            return
        peer.kill_at = kill_at
        self._wake_at(kill_at)

    def _tree(self, peer: Peer) -> Tree:
        if peer.tree is None:
            mark = self._mark(peer.request) if peer.request else b""
            peer.tree = Tree(peer.process.pid, mark)
        return peer.tree

    def _kill(self, peer: Peer) -> None:
        """End what is left of the tree, on a thread of its own since that may take a while."""
        if peer.killing:
            return
        peer.killing = True
        peer.kill_at = NEVER
        tree = self._tree(peer)

        def kill() -> None:
            tree.kill()
            self._post(lambda: self._gone(peer))

        threading.Thread(target=kill, name="interlock-kill", daemon=True).start()

    def _gone(self, peer: Peer) -> None:
        """Nothing of the tree runs any more: now the outcome may be told."""
        request = peer.request
        while request is not None:
            outcome = Outcome(
                dispatch=request.dispatch,
                status="failed",
                process=peer.process,
                log=peer.close_log(self._log),
                started_at=peer.started_at,
                ended_at=now_ms(),
            )
            redactor = (peer.env or _NO_SECRETS).redactor
            if peer.ending is not None:
                outcome = outcomes.ended(redactor, peer.ending, outcome)
            else:
                outcome = outcomes.died(peer.wait_status, outcome)
            self._finish(peer, outcome)
            # what could not be called back may have begun
            request = peer.request = peer.line.popleft() if peer.line else None
        self._places.drop(peer)

    def cancel(self, dispatches: frozenset[str] | None, grace_s: float) -> None:
        """End the attempts (None: all); their outcomes follow."""

        def chosen(request: Request) -> bool:
            return dispatches is None or request.dispatch in dispatches

        for request in self._jobs.cancel(chosen):
            self._refuse(request, Reason.ABORTED, "cancelled before it began")
        for peer in list(self._places.peers.values()):
            if any(map(chosen, (*peer.line, peer.request) if peer.request else ())):
                self._empty_line(peer)
                if peer.request is not None and chosen(peer.request):
                    self._end(peer, Ending("aborted", Reason.ABORTED, "cancelled"), grace_s)

    def recall(self, run_id: str) -> None:
        """Give back all of the run that waits in line."""
        for peer in list(self._places.peers.values()):
            if peer.request is not None and peer.request.job.run_id == run_id:
                self._empty_line(peer)

    def _empty_line(self, peer: Peer) -> None:
        """Give back what waits in line; what the worker has now is known then."""
        if peer in self._stopped:
            # the next unit that is sent by the plain way tells it to go on
            self._stopped.remove(peer)
        elif not peer.line:
            return
        self._give_back(peer.call_back())
        self._catch_up(peer)
        if peer.request is None and peer.usable:
            self._places.release(peer)

    # time

    def tick(self, now: float) -> None:
        """Do what is due: timeouts, kills, held log frames."""
        self.next_tick = NEVER
        for peer in list(self._places.peers.values()):
            due = peer.due
            if due <= now:
                self._due(peer, now)
                due = peer.due
            self._wake_at(due)

    def _due(self, peer: Peer, now: float) -> None:
        if peer.kill_at <= now:
            self._kill(peer)
        if peer.line and min(peer.deadline, peer.look_at) <= now:
            self._look(peer, now)
        request = peer.request
        if request is None:
            return
        if peer.deadline <= now:
            peer.deadline = NEVER
            text = f"timed out after {spelled_duration(request.job.timeout_ms)}"
            self._end(peer, Ending("failed", Reason.TIMEOUT, text), KILL_AFTER_S)
        if peer.idle_at <= now:
            peer.idle_at = NEVER
            if peer.idled(request.job, now):
                text = f"no output and no processor time for {spelled_duration(request.job.idle_timeout_ms)}"
                self._end(peer, Ending("failed", Reason.IDLE_TIMEOUT, text), KILL_AFTER_S)
        if peer.log is not None and peer.log.flush_at is not None and peer.log.flush_at <= now:
            peer.flush_log()

    def _look(self, peer: Peer, now: float) -> None:
        """Empty the line of a worker whose unit is slow, where others could take it, or at its end."""
        before = peer.request
        self._catch_up(peer)
        if peer.request is before:
            peer.look_at = now + SLOW_S
            if self._places.any_idle or peer.deadline <= now:
                self._empty_line(peer)

    def close(self) -> None:
        """End all workers, busy ones with their trees. Idempotent."""
        for peer in list(self._places.peers.values()):
            if peer.request is not None:
                self._tree(peer).kill()
                peer.line.clear()
                peer.close_log(self._log)
        self._places.close()
        self.in_flight = 0


def _no_worker(job: Job, error: NoWorkerError) -> str:
    target = job.target
    name = f"python:{target.module}:{target.function}" if isinstance(target, PythonFunction) else job.step_id
    return f"{name}: cannot start a Python worker: {error}"
