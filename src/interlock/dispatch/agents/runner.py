"""Runs one agent CLI for one prompt, whichever CLI it is: from the request to the outcome.

Guarantees: the prompt goes in by stdin or a private file, never through a shell; whatever fails before the CLI runs
is an outcome that says so; a CLI that gave its last event and does not exit within 10 s is ended and has succeeded;
when the outcome is given nothing that the agent started runs any more, and its private folder is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import select
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from interlock.dispatch.agents.asking import ask_of, environment, prompt_of
from interlock.dispatch.agents.base import Adapter, Answer, Ask, CannotAskError, Launch, Reply
from interlock.dispatch.agents.events import EventSink
from interlock.dispatch.agents.helpers import Helpers
from interlock.dispatch.agents.live import LiveAdapter, Talk, carry_out, same_prompt
from interlock.dispatch.agents.notices import notices
from interlock.dispatch.agents.registry import adapter, live_adapter
from interlock.dispatch.agents.verdict import conclude, hidden
from interlock.dispatch.agents.watch import Watch
from interlock.dispatch.attempt import Attempt, now_ms
from interlock.dispatch.base import EngineSettings, Outcome, Report, Started
from interlock.dispatch.commands.launch import explain, two_pipes
from interlock.dispatch.commands.output import TAIL_BYTES, Sink
from interlock.dispatch.commands.program import Programs, SpawnError
from interlock.dispatch.commands.supervisor import Supervisor
from interlock.dispatch.env.redact_base import Redactor, ResolvedEnv
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes.leftovers import end_strays
from interlock.dispatch.processes.markers import Marker
from interlock.dispatch.processes.reaper import Reaper
from interlock.model.states import Reason

LINGER_S: Final = 10.0
BUSY_SHARE: Final = 0.05
"""A CLI that waits for an answer turns its event loop over; real work uses more of a processor than this."""
_PIPE_BYTES: Final = 1_048_576
"""What Linux allows everybody."""
_UNBOUNDED: Final = 1 << 62


class _Place(msgspec.Struct, frozen=True):
    """Where one prompt is carried out: the thread's poller and what its output is redacted by."""

    attempt: Attempt
    redactor: Redactor
    env: dict[bytes, bytes]
    poller: select.poll
    wake_fd: int
    report: Callable[[Report], None]


class AgentRunner:
    """One per driver; each call in the thread that makes it. Safe from any thread."""

    def __init__(
        self,
        report: Callable[[Report], None],
        log: RunLog,
        scratch: Path,
        marker: Marker,
        base: dict[bytes, bytes],
        reaper: Reaper,
    ) -> None:
        self._report = report
        self._log = log
        self._marker = marker
        self._base = base
        self._reaper = reaper
        self._folder = scratch / f"agents-{marker.holder}-{marker.term}"
        self._state = scratch / "agents"
        self._programs = Programs()
        self._helpers = Helpers(self._folder, marker, reaper, self._programs)
        self._numbers = itertools.count(1)

    def answer(
        self,
        attempt: Attempt,
        settings: EngineSettings,
        env: ResolvedEnv,
        api_key: str | None,
        poller: select.poll,
        wake_fd: int,
    ) -> Outcome:
        """Carry out one prompt. `env` holds the values the CLI starts with; its redactor knows `api_key` too.

        `poller` is the calling thread's, with `wake_fd` registered; `attempt.cancel` ends the CLI and all it started.
        """
        if attempt.cancelled is not None:
            return attempt.never_began(None, "cancelled before it began")
        folder = self._folder / str(next(self._numbers))
        try:
            folder.mkdir(mode=0o700, parents=True)
            variables = environment(attempt.request, self._base, env.values, self._marker)
            place = _Place(attempt, env.redactor, variables, poller, wake_fd, _once(self._report))
            state = self._state / quote(settings.name, safe="")
            asked = partial(ask_of, attempt.request, settings, api_key, folder, state, env=variables)
            live = live_adapter(settings.driver)
            if live is not None:
                return self._converse(live, asked(live), place)
            chosen = adapter(settings.driver)
            return self._ask(chosen, asked(chosen), place)
        except CannotAskError as error:
            return attempt.never_began(error.reason, str(error))
        except SpawnError as error:
            return attempt.never_began(Reason.SPAWN_FAILED, str(error))
        except OSError as error:
            return attempt.never_began(*explain(error))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Release what is held; no attempt may be under way. Idempotent."""
        self._helpers.close()
        self._programs.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _converse(self, live: LiveAdapter, ask: Ask, place: _Place) -> Outcome:
        request = place.attempt.request
        log = self._log.attempt(request.dispatch, request.job.max_log_bytes)
        watch = Watch(place.attempt, place.poller, place.wake_fd)
        talk = Talk(
            ask=ask,
            key=same_prompt(request, ask),
            env=place.env,
            helpers=self._helpers,
            watch=watch,
            redactor=place.redactor,
            log=log,
            report=lambda process: place.report(Started(dispatch=request.dispatch, process=process)),
        )
        return carry_out(live, talk, place.attempt, notices(live.card, ask, Launch(argv=(), continues_session=True)))

    def _ask(self, chosen: Adapter, ask: Ask, place: _Place) -> Outcome:
        end, answer, settled, said = self._once(chosen, ask, place)
        if answer.session_gone and ask.session is not None and place.attempt.cancelled is None:
            prompt = prompt_of(place.attempt.request, chosen, cold=True)
            anew = msgspec.structs.replace(ask, prompt=prompt, session=None, session_usage=None)
            end, answer, settled, more = self._once(chosen, anew, place)
            gone = f"session {ask.session} of engine `{ask.engine}` is gone; a new one was started"
            said = (*said, *more, gone)
        answer = msgspec.structs.replace(answer, notices=tuple(dict.fromkeys((*said, *answer.notices))))
        return conclude(end, answer, settled=settled, max_result_bytes=place.attempt.request.job.max_result_bytes)

    def _once(self, chosen: Adapter, ask: Ask, place: _Place) -> tuple[Outcome, Answer, bool, tuple[str, ...]]:
        launch = chosen.launch(ask)
        _write_files(ask, launch)
        with _Prompt(Path(ask.folder), launch.stdin) as stdin:
            end, reply, watch = self._supervise(chosen, ask, launch, place, stdin)
        answer = hidden(chosen.read(reply), place.redactor)
        said = (*notices(chosen.card, ask, launch), *end.notices)
        return end, answer, watch.decides(answer), said

    def _supervise(
        self, chosen: Adapter, ask: Ask, launch: Launch, place: _Place, stdin: int
    ) -> tuple[Outcome, Reply, _Watch]:
        attempt = place.attempt
        request = attempt.request
        self._reaper.start()
        env = place.env | {os.fsencode(name): os.fsencode(value) for name, value in launch.env.items()}
        (reading_out, writing_out), (reading_err, writing_err) = two_pipes()
        _widen(writing_out)
        try:
            attempt.started_at = attempt.started_at or now_ms()
            popen = self._programs.spawn(launch.argv, ask.cwd, env, writing_out, writing_err, stdin)
        except BaseException:
            os.close(reading_out)
            os.close(reading_err)
            raise
        finally:
            os.close(writing_out)
            os.close(writing_err)
        log = self._log.attempt(request.dispatch, request.job.max_log_bytes)
        watch = _Watch(chosen)
        out = EventSink(reading_out, place.redactor, log, watch)
        err = Sink(reading_err, "err", TAIL_BYTES, place.redactor, log)
        mark = (self._marker.prefix + request.dispatch).encode()
        watch.supervisor = Supervisor(
            attempt, popen, (out, err), log, mark, max_out_bytes=_UNBOUNDED, busy_share=BUSY_SHARE
        )
        end = watch.supervisor.run(place.poller, place.wake_fd, place.report)
        end_strays(self._marker, request.dispatch.__eq__)
        reply = Reply(ask=ask, out=out.whole(), err=err.tail(), exit_code=end.exit_code, now_ms=end.ended_at)
        return end, reply, watch


class _Watch:
    """Looks for the last event; once it is there, the CLI has LINGER_S to exit."""

    def __init__(self, chosen: Adapter) -> None:
        self._chosen = chosen
        self.supervisor: Supervisor | None = None
        self._settled = False
        self._told_to_end = False

    def __call__(self, line: bytes) -> None:
        if not self._settled and self._chosen.is_terminal(line):
            self._settled = True
            if self.supervisor is not None:
                self._told_to_end = self.supervisor.ending
                self.supervisor.leave(LINGER_S)

    def decides(self, answer: Answer) -> bool:
        """Tell whether the last event is how it ended: a failure told after SIGTERM is only the echo of that."""
        return self._settled and not (self._told_to_end and (answer.reason is not None or answer.denied))


class _Prompt:
    """The text for stdin, in a file that has lost its name by the time the CLI reads it."""

    def __init__(self, folder: Path, text: bytes) -> None:
        self._path = folder / "prompt"
        self._text = text
        self._fd = -1

    def __enter__(self) -> int:
        self._path.write_bytes(self._text)
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        self._path.unlink()
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _write_files(ask: Ask, launch: Launch) -> None:
    for name, content in launch.files.items():
        (Path(ask.folder) / name).write_bytes(content)
    for name, content in launch.state_files.items():
        path = Path(ask.state) / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # another attempt may read it at this moment
            whole = Path(ask.folder) / "state"
            whole.write_bytes(content)
            whole.replace(path)


def _widen(pipe: int) -> None:
    """Let the pipe hold more: some CLIs exit without waiting for what they wrote to be read."""
    with contextlib.suppress(AttributeError, OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _once(report: Callable[[Report], None]) -> Callable[[Report], None]:
    """Report only the first start: an attempt has one process in the journal, its marker finds all others."""
    seen: list[Report] = []

    def forward(entry: Report) -> None:
        if not (isinstance(entry, Started) and seen):
            seen.append(entry)
            report(entry)

    return forward
