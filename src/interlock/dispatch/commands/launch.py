"""From a request to a supervised process: environment, context file, pipes, start; and the words for what failed.

Guarantees: whatever fails before the program runs is an outcome that says so (`answered`, nothing happened), with a
reason that tells the environment, the disk and the program apart; a script of the plan is started as it was frozen.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from interlock.dispatch.attempt import Attempt, now_ms
from interlock.dispatch.base import EnvAudit, Job, Outcome, Report
from interlock.dispatch.commands.context import JobContext
from interlock.dispatch.commands.context_files import ContextFiles
from interlock.dispatch.commands.output import CHECK_BYTES, TAIL_BYTES, Sink
from interlock.dispatch.commands.program import Programs, SpawnError
from interlock.dispatch.commands.scripts import ScriptCopy, ScriptStore
from interlock.dispatch.commands.supervisor import Supervisor
from interlock.dispatch.env.redact_base import EnvUnresolvedError, Redactor, ResolvedEnv
from interlock.dispatch.logs.log import RunLog
from interlock.dispatch.processes.markers import Marker
from interlock.dispatch.processes.reaper import Reaper
from interlock.errors import NO_SPACE
from interlock.model.plan import Command, Prompt, PythonFunction, Script
from interlock.model.states import Reason


class _Shared(msgspec.Struct, frozen=True):
    """What the attempts of one job share."""

    context: JobContext
    redactor: Redactor
    argv: tuple[str, ...]
    script: ScriptCopy | None
    """Of the plan; `argv` ends with its path."""


class Launcher:
    """Starts attempts, each in the thread that calls. Safe from any thread."""

    def __init__(
        self,
        report: Callable[[Report], None],
        env_for: Callable[[Job], ResolvedEnv],
        log: RunLog,
        scratch: Path,
        marker: Marker,
        base: dict[bytes, bytes],
        reaper: Reaper,
    ) -> None:
        self._report = report
        self._env_for = env_for
        self._log = log
        self._marker = marker
        self._base = base
        self._reaper = reaper
        self._contexts = ContextFiles(scratch, f"{marker.holder}-{marker.term}")
        self._scripts = ScriptStore(scratch / "scripts")
        self._programs = Programs()
        self._lock = threading.Lock()
        self._jobs: dict[str, tuple[threading.Lock, list[_Shared]]] = {}

    def carry_out(self, attempt: Attempt, poller: select.poll, wake_fd: int) -> Outcome:
        """Run one attempt to its end."""
        begun = self.begin(attempt)
        try:
            if isinstance(begun, Outcome):
                return begun
            return begun.run(poller, wake_fd, _mute if attempt.quiet else self._report)
        finally:
            self.release(attempt)

    def is_ready(self, job: Job) -> bool:
        """Tell whether to begin an attempt of the job has to wait for nobody: no secret's command, for one."""
        made = self._jobs.get(job.key)
        return bool(made and made[1]) or not (job.env or isinstance(job.target, Script))

    def release(self, attempt: Attempt) -> None:
        """Take back what the attempt was given; it is over."""
        context, attempt.context = attempt.context, None
        if context is not None:
            self._contexts.give_back(context)

    def begin(self, attempt: Attempt, *, patient: bool = True) -> Supervisor | Outcome:
        """Start the process; if that fails, it is an outcome. Raises BusyError if not `patient`."""
        if attempt.cancelled is not None:
            return attempt.never_began(None, "cancelled before it began")
        try:
            shared = self._shared(attempt.request.job)
            attempt.context = self._contexts.put(shared.context.content(attempt.request))
            return self._begin(attempt, shared, attempt.context, patient=patient)
        except EnvUnresolvedError as error:
            return attempt.never_began(error.reason, error.message)
        except SpawnError as error:
            return attempt.never_began(Reason.SPAWN_FAILED, str(error))
        except OSError as error:
            return attempt.never_began(*explain(error))

    def _begin(self, attempt: Attempt, shared: _Shared, context: bytes, *, patient: bool) -> Supervisor | Outcome:
        request = attempt.request
        if attempt.cancelled is not None:
            # while the environment was resolved, which may take its time
            return attempt.never_began(None, "cancelled before it began")
        self._reaper.start()
        env = shared.context.environment(request, context, self._marker)
        (reading_out, writing_out), (reading_err, writing_err) = two_pipes()
        try:
            attempt.started_at = now_ms()
            if shared.script is not None:
                shared.script.renew()
            popen = self._programs.spawn(shared.argv, request.folder, env, writing_out, writing_err, patient=patient)
        except BaseException:
            os.close(reading_out)
            os.close(reading_err)
            raise
        finally:
            os.close(writing_out)
            os.close(writing_err)
        log = self._log.attempt(request.dispatch, request.job.max_log_bytes)
        ends = request.job.keeps_end
        kept_bytes = CHECK_BYTES if ends else request.job.max_result_bytes + 1
        out = Sink(reading_out, "out", kept_bytes, shared.redactor, log, keeps_end=ends)
        err = Sink(reading_err, "err", TAIL_BYTES, shared.redactor, log)
        mark = (self._marker.prefix + request.dispatch).encode()
        return Supervisor(attempt, popen, (out, err), log, mark)

    def _shared(self, job: Job) -> _Shared:
        with self._lock:
            lock, made = self._jobs.setdefault(job.key, (threading.Lock(), []))
        if not made:
            with lock:
                if not made:
                    made.append(self._prepare(job))
        return made[0]

    def _prepare(self, job: Job) -> _Shared:
        resolved = self._env_for(job)
        if resolved.names or resolved.warnings:
            self._report(EnvAudit(step=job.step, names=resolved.names, warnings=resolved.warnings))
        argv, script = self._program(job)
        return _Shared(JobContext(job, self._base, resolved.values), resolved.redactor, argv, script)

    def _program(self, job: Job) -> tuple[tuple[str, ...], ScriptCopy | None]:
        match job.target:
            case Command(text=None, argv=argv):
                return argv, None
            case Command(text=text):
                return (*job.shell, text or ""), None
            case Script() as script:
                try:
                    copy = self._scripts.copy(script)
                except ValueError as error:
                    raise SpawnError(str(error)) from error
                return (*script.interpreter, str(copy.path)), copy
            case PythonFunction() | Prompt():
                raise SpawnError(f"`{job.step_id}` is not a command")

    def forget(self, job_key: str) -> None:
        """Drop what the attempts of a job shared."""
        with self._lock:
            self._jobs.pop(job_key, None)

    def close(self) -> None:
        """Release what is held; no attempt may be under way. Idempotent."""
        self._programs.close()
        self._contexts.remove()
        self._scripts.remove()


def _mute(_report: Report) -> None:
    """A start that nobody is to hear of."""


def two_pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Return two pipes, reading end first, or none. Raises OSError."""
    first = os.pipe()
    try:
        return first, os.pipe()
    except OSError:
        for fd in first:
            os.close(fd)
        raise


def explain(error: OSError) -> tuple[Reason, str]:
    """Say what could not be made before a program was started."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return Reason.SPAWN_FAILED, "too many open files; raise `ulimit -n` or lower the concurrency"
    reason = Reason.DISK_FULL if error.errno in NO_SPACE else Reason.DISPATCH_ERROR
    place = os.fsdecode(error.filename) if error.filename else "the scratch folder"
    return reason, f"`{place}` could not be written: {error.strerror}"
