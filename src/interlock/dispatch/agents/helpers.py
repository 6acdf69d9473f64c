"""Long-lived agent processes of one run: started when first needed, given out again, all ended on the way out.

Guarantees: every helper carries a mark of its own under the driver's prefix, so reaper, leftover search and `close`
find all it started; `close` costs nothing when none was started, and leaves none.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from interlock.dispatch.commands.program import Programs
from interlock.dispatch.processes import identity
from interlock.dispatch.processes.leftovers import end_strays
from interlock.dispatch.processes.markers import VARIABLE, Marker
from interlock.dispatch.processes.reaper import Reaper
from interlock.dispatch.processes.tree import Tree
from interlock.model.events import Process

OF_ONE_ATTEMPT: Final = frozenset(
    [b"INTERLOCK_UNIT_ID", b"INTERLOCK_STEP_ID", b"INTERLOCK_ATTEMPT", b"INTERLOCK_IDEMPOTENCY_KEY", VARIABLE.encode()]
)
"""Variables that a process which serves many attempts must not have."""
_MAX_STDERR_BYTES: Final = 8_388_608
_TAIL_BYTES: Final = 2_048


class Key(tuple[Any, ...]):
    """What must be equal for two prompts to be served by one helper: program, folder and environment."""

    __slots__ = ()

    @staticmethod
    def of(argv: tuple[str, ...], cwd: str, env: Mapping[bytes, bytes]) -> Key:
        """Return the key."""
        return Key((argv, cwd, tuple(sorted((n, v) for n, v in env.items() if n not in OF_ONE_ATTEMPT))))


class Helper:
    """One running process. `stdin` and `stdout` are ours when it was started with pipes, else -1."""

    def __init__(
        self, popen: subprocess.Popen[bytes], name: str, mark: bytes, said: tuple[Path, Path], pipes: tuple[int, int]
    ) -> None:
        self.popen = popen
        self.name = name
        self.tree = Tree(popen.pid, mark)
        self.process: Process | None = identity.identify(popen.pid)
        self.out, self.err = said
        self.stdin, self.stdout = pipes
        self.notes: dict[str, Any] = {}
        """What whoever uses it has learned of it."""
        self._lock = threading.Lock()

    def alive(self) -> bool:
        """Tell whether it runs."""
        with self._lock:
            return self.popen.poll() is None

    def tail(self) -> str:
        """Return the end of its stderr, not redacted."""
        with contextlib.suppress(OSError), self.err.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").strip()
        return ""

    def trim(self) -> None:
        """Forget what it said when that becomes too much; it appends, so it goes on at the new end."""
        with contextlib.suppress(OSError):
            if self.err.stat().st_size > _MAX_STDERR_BYTES:
                os.truncate(self.err, 0)

    def end(self) -> int | None:
        """Kill its tree and return its exit code. Idempotent."""
        with self._lock:
            if self.popen.returncode is None:
                self.tree.kill()
                self.popen.wait()
            for fd in (self.stdin, self.stdout):
                if fd >= 0:
                    os.close(fd)
            self.stdin = self.stdout = -1
            return self.popen.returncode


class Helpers:
    """All helpers of one driver. Safe from any thread."""

    def __init__(self, folder: Path, marker: Marker, reaper: Reaper, programs: Programs) -> None:
        self._folder = folder
        self._marker = marker
        self._reaper = reaper
        self._programs = programs
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._running: dict[str, Helper] = {}
        self._idle: dict[Key, list[Helper]] = {}
        self._shared: dict[Key, tuple[threading.Lock, list[Helper]]] = {}
        self._used: set[str] = set()

    def start(self, argv: tuple[str, ...], cwd: str, env: Mapping[bytes, bytes], *, pipes: bool) -> Helper:
        """Start one; with `pipes` it is spoken to by stdin and stdout. Raises SpawnError, OSError."""
        self._reaper.start()
        name = f"helper-{next(self._numbers)}"
        said = self._folder / f"{name}.out", self._folder / f"{name}.err"
        clean = {key: value for key, value in env.items() if key not in OF_ONE_ATTEMPT}
        clean[VARIABLE.encode()] = self._marker.value(name).encode()
        with contextlib.ExitStack() as stack:
            err = _open(said[1], stack)
            stdin, ours_in = _pipe(stack) if pipes else (None, -1)
            ours_out, out = _pipe(stack) if pipes else (-1, _open(said[0], stack))
            self._used.add(name)
            popen = self._programs.spawn(argv, cwd, dict(clean), out, err, stdin)
            kept = tuple(os.dup(fd) if fd >= 0 else -1 for fd in (ours_in, ours_out))
        helper = Helper(popen, name, (self._marker.prefix + name).encode(), said, (kept[0], kept[1]))
        with self._lock:
            self._running[name] = helper
        return helper

    def take(self, key: Key, prefer: str | None) -> Helper | None:
        """Take an idle one for one prompt, one that knows the session `prefer` if there is such; None if there is none."""
        with self._lock:
            idle = [helper for helper in self._idle.pop(key, []) if helper.alive()]
            if not idle:
                return None
            idle.sort(key=lambda helper: prefer in helper.notes.get("sessions", ()))
            taken = idle.pop()
            self._idle[key] = idle
            return taken

    def give_back(self, key: Key, helper: Helper) -> None:
        """Let others have it."""
        helper.trim()
        with self._lock:
            self._idle.setdefault(key, []).append(helper)

    def shared(self, key: Key) -> tuple[threading.Lock, list[Helper]]:
        """Return the lock and the place of the one helper that serves all prompts of the key at once."""
        with self._lock:
            return self._shared.setdefault(key, (threading.Lock(), []))

    def end(self, helper: Helper) -> int | None:
        """End one; return its exit code."""
        code = helper.end()
        with self._lock:
            self._running.pop(helper.name, None)
        return code

    def close(self) -> None:
        """End all. Idempotent."""
        with self._lock:
            running, self._running = list(self._running.values()), {}
            self._idle.clear()
            self._shared.clear()
            used, self._used = self._used, set()
        for helper in running:
            helper.end()
        end_strays(self._marker, used.__contains__)


def _open(path: Path, stack: contextlib.ExitStack) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    stack.callback(os.close, fd)
    return fd


def _pipe(stack: contextlib.ExitStack) -> tuple[int, int]:
    pair = os.pipe()
    for fd in pair:
        stack.callback(os.close, fd)
    return pair
