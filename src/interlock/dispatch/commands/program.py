"""From a command's argv to a running process, or to a sentence that says why not.

Guarantees: the child leads a session of its own, reads `/dev/null` unless it is given an input, and holds no other open
file of ours; a program that cannot be started is a `SpawnError` that names the thing and the next step, never an
exception of another kind.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path
from typing import Final

from interlock.dispatch.commands.context import without_largest
from interlock.dispatch.processes.open_files import give_back

_BUSY_TRIES: Final = 50
_BUSY_S: Final = 0.01


class SpawnError(Exception):
    """The program was surely not started."""


class BusyError(Exception):
    """Somebody still holds the program open for writing: worth another try."""


class Programs:
    """Starts programs; remembers where on PATH they lie. Safe from any thread."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, bytes], str] = {}
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Release what is held. Idempotent."""
        if self._null >= 0:
            os.close(self._null)
            self._null = -1

    def spawn(
        self,
        argv: tuple[str, ...],
        cwd: str,
        env: dict[bytes, bytes],
        out: int,
        err: int,
        stdin: int | None = None,
        *,
        patient: bool = True,
    ) -> subprocess.Popen[bytes]:
        """Start the program; the descriptors stay the caller's. Raises SpawnError, BusyError if not `patient`.

        Params and item are left out of the environment, the largest first, while all together are too much for the
        system: they stand in the context file.
        """
        busy = 0
        while True:
            try:
                return self._popen(argv, cwd, env, (self._null if stdin is None else stdin, out, err))
            except ValueError as error:
                raise SpawnError(f"the command cannot be run: {error}") from error
            except OSError as error:
                smaller = without_largest(env) if error.errno == errno.E2BIG else None
                if smaller is not None:
                    env = smaller
                elif error.errno == errno.ETXTBSY and not patient:
                    raise BusyError from error
                elif error.errno == errno.ETXTBSY and busy < _BUSY_TRIES:
                    # a child of another thread still holds the script that was just written, until its exec
                    busy += 1
                    time.sleep(_BUSY_S)
                else:
                    self._found.clear()
                    raise SpawnError(_explain(error, argv, cwd, env)) from error

    def _popen(
        self, argv: tuple[str, ...], cwd: str, env: dict[bytes, bytes], files: tuple[int, int, int]
    ) -> subprocess.Popen[bytes]:
        popen = subprocess.Popen(
            argv,
            executable=self._locate(argv[0], env.get(b"PATH", b"")),
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
        give_back(popen.pid)
        return popen

    def _locate(self, program: str, path: bytes) -> str:
        if "/" in program:
            return program
        found = self._found.get((program, path))
        if found is None:
            import shutil  # noqa: PLC0415 - heavy, and shells are named by their paths

            found = shutil.which(program, path=os.fsdecode(path) or os.defpath)
            if found is None:
                raise SpawnError(f"program `{program}` was not found on PATH; install it or give its full path")
            self._found[program, path] = found
        return found


def _explain(  # noqa: PLR0911 - a table: one line for each cause
    error: OSError, argv: tuple[str, ...], cwd: str, env: dict[bytes, bytes]
) -> str:
    program = argv[0]
    if not Path(cwd).is_dir():
        return f"the working directory `{cwd}` does not exist; create it or change `cwd`"
    match error.errno:
        case errno.ENOENT if (Path(cwd) / program).exists():
            return f"`{program}` names an interpreter in its `#!` line that does not exist; install it or mend the line"
        case errno.ENOENT:
            return f"program `{program}` does not exist; check the path"
        case errno.EACCES if not os.access(cwd, os.X_OK):
            return f"the working directory `{cwd}` may not be entered; change its permissions or `cwd`"
        case errno.EACCES:
            return f"`{program}` is not executable; run `chmod +x` on it or name its interpreter"
        case errno.ENOEXEC:
            return (
                f"`{program}` is not a program that this machine can run; give it a `#!` line or name its interpreter"
            )
        case errno.E2BIG:
            size = sum(len(name) + len(value) + 2 for name, value in env.items()) + sum(len(a) + 1 for a in argv)
            return f"arguments and environment of `{program}` are too large ({size} bytes); pass data in files"
        case errno.EMFILE | errno.ENFILE:
            return f"too many open files to start `{program}`; raise `ulimit -n` or lower the concurrency"
        case errno.EAGAIN | errno.ENOMEM:
            return f"no process or memory left to start `{program}`; lower the concurrency"
        case _:
            return f"`{program}` could not be started: {error.strerror}"
