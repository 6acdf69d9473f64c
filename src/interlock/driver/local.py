"""The executor of one machine: commands and prompts in threads, Python functions in warm workers, one that waits.

`wait` is one epoll over the workers and one eventfd, which threads and `wake` write. Guarantees: every started
request ends in exactly one Outcome; after `close` no process that was started here is left.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from interlock.dispatch.attempt import Attempt
from interlock.dispatch.base import NEVER, EngineSettings, EnvAudit, Job, Outcome, Report, Request
from interlock.dispatch.commands.nursery import Pump
from interlock.dispatch.commands.runner import CommandRunner
from interlock.dispatch.env.clean import clean
from interlock.dispatch.env.redact_base import ResolvedEnv
from interlock.dispatch.isolated import Isolation
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes.leftovers import end_strays
from interlock.dispatch.processes.markers import Marker, step_of
from interlock.dispatch.processes.open_files import OF_A_COMMAND, OF_A_PROMPT, OpenFiles
from interlock.dispatch.processes.reaper import Reaper
from interlock.dispatch.processes.reaper_main import sweep
from interlock.dispatch.python.pools import PythonPools
from interlock.errors import DispatchRefusedError
from interlock.model.actions import Ahead
from interlock.model.events import Process
from interlock.model.plan import Plan, PythonFunction, Step

if TYPE_CHECKING:
    from interlock.dispatch.prompts.runner import PromptRunner
    from interlock.dispatch.python.pool import PythonPool

_EVENTS: Final = 1_024
_GATHER_S: Final = 0.001
_GATHER_MS: Final = 1
"""Only units that took no longer than this are gathered: for slower ones the wait would cost more than a commit."""
_GATHER_COMMANDS_S: Final = 0.01
_GATHER_FROM: Final = 4
"""In flight: below, one commit for each outcome costs less than waiting for company."""
_GATHER_SHARE: Final = 0.75
_GATHER_MOST: Final = 128
"""More in one commit saves little, and what waits in line is not worth waiting for."""
_BIRTH_S: Final = 0.004


class Secrets(msgspec.Struct, frozen=True):
    """Where the values of env groups come from, as far as it is not for a job.

    `recall` makes known what earlier drivers told, and returns what it could not; `stop` ends what it and others wait for.
    """

    recall: Callable[[], Sequence[str]]
    stop: Callable[[], None]


class LocalExecutor:
    """A body of `driver.executor.Executor`, and the owner of `log`. Used by one thread, but for `wake`."""

    def __init__(
        self,
        *,
        python: Sequence[str],
        env_for: Callable[[Job], ResolvedEnv],
        marker: Marker,
        log: RunLog,
        scratch: Path,
        environ: Mapping[str, str] | None = None,
        settings: Callable[[str], EngineSettings] | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        base = clean(os.environ if environ is None else environ)
        self._env_for = env_for
        self._secrets = secrets
        self._recalled = self._recalling = False
        self._environ = os.environ if environ is None else environ
        self._base = base
        self._scratch = scratch
        self._settings = settings or _no_engine
        self._prompts: PromptRunner | None = None
        self._marker = marker
        self._log = log
        self._reaper = Reaper(marker, base)
        self._ready: list[Report] = []
        self._posted: deque[Report | Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._signalled = False
        self._woken = False
        self._closed = False
        self._used_python = False
        self._command_jobs: dict[int, set[str]] = {}
        self._python_steps: set[int] = set()
        self._offered_files = 0
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poller = select.epoll()
        self._poller.register(self._event, select.EPOLLIN)
        self._isolation = Isolation(marker, environ)
        self._commands = CommandRunner(
            self._post,
            env_for,
            log,
            scratch,
            marker,
            environ=environ,
            reaper=self._reaper,
            isolation=self._isolation,
            pump=Pump(self._poller, self._ready.append, lambda: self._post(_nothing)),
        )
        self._files = OpenFiles()
        self._python = (tuple(python), base)
        self._pools = PythonPools(self._new_pool)

    def _new_pool(self, path: tuple[str, ...]) -> PythonPool:
        from interlock.dispatch.python.link import Interpreter  # noqa: PLC0415 - as above
        from interlock.dispatch.python.pool import PythonPool  # noqa: PLC0415 - a run of commands needs none of it

        python, base = self._python
        return PythonPool(
            interpreter=Interpreter(python, path, base),
            env_for=self._env_for,
            marker=self._marker,
            log=self._log,
            poller=self._poller,
            report=self._ready.append,
            post=self._post,
        )

    def capacity(self, job: Job, wanted: int, ahead: int = 0) -> list[Process | None]:
        """Offer warm workers for a Python function, new processes for all else as long as there are files for them."""
        if wanted + ahead <= 0:
            return []
        if job.call is not None:
            return [None] * self._places(wanted, OF_A_PROMPT)
        if not _is_function(job):
            places = self._places(wanted, OF_A_COMMAND)
            # those in line are told from the others by standing after all of them
            return [None] * (places + (self._commands.offer(job, ahead, places) if places == wanted else 0))
        self._reaper.start()
        self._used_python = True
        return self._pools.offer(job, wanted, ahead)

    def ahead(self, run_id: str) -> dict[int, Ahead]:
        """Commands and Python functions may wait in line behind quick ones."""
        return self._pools.ahead(run_id) | self._commands.ahead(run_id)

    def recall(self, run_id: str) -> None:
        """Give back what waits in line."""
        self._pools.recall(run_id)
        self._commands.recall(run_id)

    def prepare(self, plan: Plan, ended: Collection[str]) -> None:
        """Start the interpreter for a step that wants it at once: it comes up while the first units are journaled."""
        if any(_is_next(spec, ended) for spec in plan.steps):
            self._reaper.start()
            self._used_python = True
            self._pools.prepare(plan.python_path)

    def _places(self, wanted: int, each: int) -> int:
        """Return how many more attempts that open `each` files may begin, and count them as offered."""
        prompts = 0 if self._prompts is None else self._prompts.under_way
        used = self._offered_files + OF_A_COMMAND * self._commands.under_way + OF_A_PROMPT * prompts
        idle = not used and not self._pools.in_flight
        places = self._files.places(wanted, each, held=used + self._pools.workers, idle=idle)
        self._offered_files += places * each
        return places

    def start(self, requests: list[Request]) -> None:
        """Begin the attempts."""
        self._offered_files = 0
        if not self._remember(requests):
            self._ready += [Attempt(request).never_began(None, "cancelled before it began") for request in requests]
            return
        now, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        for request in requests:
            if request.job.call is not None:
                self._prompt_runner().start(request)
            elif _is_function(request.job):
                self._pools.start(request, now, now_ms)
                self._python_steps.add(request.job.step)
            else:
                self._command_jobs.setdefault(request.job.step, set()).add(request.job.key)
                self._commands.start(request)
        self._pools.take_back()

    def _remember(self, requests: list[Request]) -> bool:
        """Before the first of this driver begins, make known what earlier ones told: it may show what they left.

        False when that was broken off by `wake`: what is not known can't be kept from being shown.
        """
        if self._secrets is None or not requests:
            return True
        # a secret's command is a child as well
        self._reaper.start()
        if self._recalled:
            return True
        self._recalled = self._recalling = True
        lost = tuple(self._secrets.recall())
        self._recalling = False
        if lost:
            self._ready.append(EnvAudit(step=requests[0].job.step, names=(), warnings=lost))
        return not self._woken

    def _stop_secrets(self) -> None:
        if self._secrets is not None:
            self._secrets.stop()

    def _prompt_runner(self) -> PromptRunner:
        """Make it at the first prompt: it brings an event loop and the agents' adapters along."""
        if self._prompts is None:
            from interlock.dispatch.agents.runner import AgentRunner  # noqa: PLC0415 - as the docstring says
            from interlock.dispatch.prompts.runner import PromptRunner  # noqa: PLC0415 - as the docstring says

            agents = AgentRunner(self._post, self._log, self._scratch, self._marker, self._base, self._reaper)
            self._prompts = PromptRunner(
                self._post,
                self._env_for,
                self._settings,
                self._log,
                agents,
                environ=self._environ,
                isolation=self._isolation,
            )
        return self._prompts

    def wait(self, timeout_s: float | None) -> list[Report]:
        """Return what has happened. Many short units in flight are gathered, for fewer and bigger commits."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        self._pools.go_on()
        self._commands.go_on()
        # the threads that start commands need the interpreter, and would have to take it from this one
        self._commands.await_births(_BIRTH_S)
        while True:
            self._poll(0.0 if self._ready else until)
            if self._woken or self._ready or (until is not None and time.monotonic() >= until):
                break
        self._woken = False
        self._gather()
        ready = self._ready.copy()
        self._ready.clear()
        return ready

    def _gather(self) -> None:
        first = self._ready[0] if self._ready else None
        if self._commands.waiting:
            self._gather_commands()
        if type(first) is not Outcome or not first.is_json or first.ended_at - first.started_at > _GATHER_MS:
            return
        total = len(self._ready) + self._pools.in_flight
        if total < _GATHER_FROM:
            return
        enough = min(_GATHER_MOST, total * _GATHER_SHARE)
        before = 0
        while before < len(self._ready) < enough:
            before = len(self._ready)
            self._poll(time.monotonic() + _GATHER_S)

    def _gather_commands(self) -> None:
        """Listen for a while as long as there is a next one for each place: nothing waits for a commit then."""
        until = time.monotonic() + _GATHER_COMMANDS_S
        while (
            not self._woken
            and len(self._ready) < _GATHER_MOST
            and self._commands.waiting >= self._commands.under_way
            and time.monotonic() < until
        ):
            self._poll(until)

    def _poll(self, until: float | None) -> None:
        """Handle what is there, waiting until something is, or the earlier of `until` and the pool's next tick."""
        now = time.monotonic()
        due = min(self._pools.next_tick, self._commands.next_tick)
        if until is not None:
            due = min(due, until)
        events = self._poller.poll(None if due == NEVER else max(0.0, due - now), _EVENTS)
        now_ms = time.time_ns() // 1_000_000
        answers = []
        for fd, mask in events:
            pool = self._pools.of_socket(fd)
            if pool is not None:
                answers.append((pool, fd, mask))
            elif fd == self._event:
                self._take_posted()
            elif not self._commands.on_event(fd):
                self._pools.on_handler(fd)
        for pool, fd, mask in answers:
            peer = pool.sockets.get(fd)
            if peer is not None:
                pool.on_socket(peer, mask, now_ms)
        self._commands.tick(time.monotonic())
        if self._pools.next_tick <= now or not events:
            self._pools.tick(time.monotonic())

    def _take_posted(self) -> None:
        os.eventfd_read(self._event)
        # before the queue is read: what is posted from here on writes the eventfd again
        self._signalled = False
        while self._posted:
            entry = self._posted.popleft()
            if callable(entry):
                entry()
            else:
                self._ready.append(entry)

    def _post(self, entry: Report | Callable[[], None]) -> None:
        """Hand over from another thread."""
        self._posted.append(entry)
        # held so that close cannot give the descriptor away in between
        with self._lock:
            if not self._signalled:
                self._signalled = True
                self._signal()

    def _signal(self) -> None:
        if not self._closed:
            os.eventfd_write(self._event, 1)

    def cancel(self, dispatches: list[str] | None, grace_s: float) -> None:
        """Ask attempts (None: all) to end."""
        self._commands.cancel(dispatches, grace_s)
        if self._prompts is not None:
            self._prompts.cancel(dispatches, grace_s)
        self._pools.cancel(None if dispatches is None else frozenset(dispatches), grace_s)
        if dispatches is None:
            self._stop_secrets()

    def tidy(self, steps: Collection[int]) -> list[str]:
        """End what the steps' attempts left running outside of their groups; return which worktrees had to stay."""
        for step in steps:
            for key in self._command_jobs.pop(step, ()):
                self._commands.end_strays(key)
        called = self._python_steps.intersection(steps)
        if called:
            self._python_steps -= called
            # one look at all processes for all of them: it costs more than most steps of a function
            end_strays(self._marker, lambda dispatch: step_of(dispatch) in called)
        return [text for step in steps for text in self._isolation.tidy(step)]

    def wake(self) -> None:
        """Make `wait` return, or `start` while it has secrets made known."""
        if self._recalling:
            self._stop_secrets()
        self._woken = True
        self._signal()

    def close(self) -> None:
        """End everything. Idempotent."""
        if self._closed:
            return
        self._stop_secrets()
        self._pools.close()
        if self._prompts is not None:
            self._prompts.close()
        self._commands.close()
        self._isolation.close()
        if self._used_python:
            prefix = self._marker.prefix.encode()
            # all that forked has been reaped, so nothing is caught between fork and exec: no need to wait between scans
            sweep(lambda value: any(mark.startswith(prefix) for mark in value.split(b" ")), between_scans_s=0.0)
        self._reaper.close()
        self._log.close()
        with self._lock:
            self._closed = True
            self._poller.close()
            os.close(self._event)


def _nothing() -> None:
    """What is posted to be noticed."""


def _is_function(job: Job) -> bool:
    return job.call is None and isinstance(job.target, PythonFunction)


def _is_next(spec: Step, ended: Collection[str]) -> bool:
    return (
        isinstance(spec.target, PythonFunction) and spec.id not in ended and all(name in ended for name in spec.needs)
    )


def _no_engine(name: str) -> EngineSettings:
    raise DispatchRefusedError(
        "no-engine", f"engine `{name}` is not configured", f"add [engines.{name}] to interlock.toml"
    )
