"""What the units of one `python:` job share on the driver's side: its frame for workers, its resolved environment.

Guarantee: environment that needs a file or a command is resolved on a thread of its own, so the loop never waits for
it; units that came meanwhile are kept in order. A failed resolution is forgotten, so that a retry asks anew.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from interlock.dispatch.base import FrozenModule, Job, Request
from interlock.dispatch.env.redact_base import EnvUnresolvedError, ResolvedEnv
from interlock.dispatch.processes.markers import Marker
from interlock.dispatch.python.worker import HEAD, JOB
from interlock.model.plan import PythonFunction

_KEPT: Final = 16
_ANY: Final = FrozenModule(file="", place="", sha256="")
_encode: Final = msgspec.json.Encoder().encode


class SharedJob:
    """One job; `env` is None while it is being resolved."""

    __slots__ = ("env", "frame", "job", "number", "waiting")

    def __init__(self, job: Job, number: int) -> None:
        self.job = job
        self.number = number
        self.env: ResolvedEnv | None = None
        self.frame = b""
        self.waiting: list[Request] = []


class SharedJobs:
    """The jobs in use, a few at a time; numbers are never used twice, so workers cannot mix jobs up."""

    def __init__(
        self,
        env_for: Callable[[Job], ResolvedEnv],
        marker: Marker,
        post: Callable[[Callable[[], None]], None],
        resolved: Callable[[SharedJob, EnvUnresolvedError | None], None],
    ) -> None:
        self._env_for = env_for
        self._marker = marker.value("\0").split("\0")
        self._post = post
        self._resolved = resolved
        self._jobs: dict[str, SharedJob] = {}
        self._numbers = 0

    def get(self, job: Job) -> SharedJob:
        """Return the job's shared part, perhaps still without its environment."""
        shared = self._jobs.get(job.key)
        if shared is None:
            shared = self._open(job)
        return shared

    def _open(self, job: Job) -> SharedJob:
        while len(self._jobs) >= _KEPT:
            oldest = next((key for key, kept in self._jobs.items() if kept.env is not None), None)
            if oldest is None:
                break
            del self._jobs[oldest]
        self._numbers += 1
        shared = self._jobs[job.key] = SharedJob(job, self._numbers)
        if job.env:
            threading.Thread(target=self._resolve, args=(shared,), name="interlock-env", daemon=True).start()
        else:
            self._set(shared, self._env_for(job))
        return shared

    def _resolve(self, shared: SharedJob) -> None:
        try:
            env = self._env_for(shared.job)
        except EnvUnresolvedError as error:
            failed = error
            self._post(lambda: self._finish(shared, failed))
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to; the units must hear of it
            broken = EnvUnresolvedError("env-unresolved", f"{type(error).__name__} while resolving env")
            self._post(lambda: self._finish(shared, broken))
        else:
            self._post(lambda: self._finish(shared, env))

    def _finish(self, shared: SharedJob, found: ResolvedEnv | EnvUnresolvedError) -> None:
        if isinstance(found, EnvUnresolvedError):
            self._jobs.pop(shared.job.key, None)
            self._resolved(shared, found)
        else:
            self._set(shared, found)
            self._resolved(shared, None)

    def _set(self, shared: SharedJob, env: ResolvedEnv) -> None:
        shared.env = env
        shared.frame = self._frame(shared.job, shared.number, env)

    def _frame(self, job: Job, number: int, env: ResolvedEnv) -> bytes:
        target = job.target
        if not isinstance(target, PythonFunction):
            raise TypeError(f"job {job.key} is no python: job")
        body = _encode(
            {
                "number": number,
                "module": target.module,
                "frozen": job.frozen or _ANY,
                "function": target.function,
                "cwd": job.cwd,
                # a value that is no UTF-8 has lone surrogates, which only JSON in ASCII can hold
                "env": msgspec.Raw(json.dumps(env.values).encode()),
                "marker": self._marker,
                "run_id": job.run_id,
                "step_id": job.step_id,
                "max_result_bytes": job.max_result_bytes,
                "params": msgspec.Raw(job.params_json),
                "inputs": msgspec.Raw(job.inputs_json),
                "feedback": msgspec.Raw(job.feedback_json),
            }
        )
        return framed(JOB, body)

    def cancel(self, chosen: Callable[[Request], bool]) -> list[Request]:
        """Take out the chosen requests that still wait for their environment."""
        taken: list[Request] = []
        for shared in self._jobs.values():
            if shared.waiting:
                taken += filter(chosen, shared.waiting)
                shared.waiting = [request for request in shared.waiting if not chosen(request)]
        return taken


def body_of(shared: SharedJob, request: Request) -> bytes:
    """Return what a worker has to know of a unit."""
    item = None if request.item_json is None else msgspec.Raw(request.item_json)
    key = request.idempotency_key
    return _encode((shared.number, request.dispatch, request.unit_id, request.attempt, key, request.index, item))


def framed(kind: int, body: bytes) -> bytes:
    """Return a frame for a worker."""
    return HEAD.pack(kind, len(body)) + body
