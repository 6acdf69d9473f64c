"""Runs the git command line so that nothing around it decides what it does.

Guarantees: no variable of an outer git, no hook, no file watcher, no pager, no prompt, no background maintenance, no
network; a lock that somebody else holds is waited for, never broken; a git that hangs is ended with all that it started.
A refusal is an IsolationError that names the place and the next step. Safe from any thread.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from interlock.dispatch.env.clean import clean
from interlock.dispatch.git.base import IsolationError

TIMEOUT_S: Final = 900.0
LOCK_WAIT_S: Final = 30.0
_PAUSE_S: Final = 0.05

_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "submodule.recurse=false",
    "commit.gpgSign=false",
    "filter.lfs.process=",
    "filter.lfs.smudge=",
    "filter.lfs.required=false",
)
_VANISHED: Final = (
    "could not create directory of",
    "could not create leading directories",
    "Invalid path '",
    "failed to read ",
)
_BASE: Final = ("git", "--no-pager", "--literal-pathspecs", *(part for one in _SETTINGS for part in ("-c", one)))
_ENV: Final = {
    b"GIT_TERMINAL_PROMPT": b"0",
    b"GIT_OPTIONAL_LOCKS": b"0",
    b"GIT_LFS_SKIP_SMUDGE": b"1",
    b"GIT_EDITOR": b"true",
    b"GIT_NO_LAZY_FETCH": b"1",
    b"LC_ALL": b"C",
    b"LANGUAGE": b"",
}
IDENTITY: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "interlock"), ("EMAIL", "interlock@localhost"))
}
"""Of the commits that interlock makes itself."""


def dated(at: int) -> dict[str, str]:
    """Return what gives a commit that date (epoch seconds), so that the same content is the same commit."""
    return {f"GIT_{who}_DATE": f"@{at} +0000" for who in ("AUTHOR", "COMMITTER")}


class Answer(msgspec.Struct, frozen=True):
    """What git said. `out` is bytes, since names of files are."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Standard output without the last line's end."""
        return os.fsdecode(self.out).rstrip("\n")

    def names(self) -> list[str]:
        """Standard output of a `-z` format, split."""
        return [os.fsdecode(name) for name in self.out.split(b"\0") if name]


class Git:
    """The git command line in one environment."""

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> None:
        self._env = clean(os.environ if environ is None else environ) | _ENV
        for name in (b"GIT_CONFIG_PARAMETERS", b"GIT_EXTERNAL_DIFF", b"GIT_DIFF_OPTS", b"GIT_LITERAL_PATHSPECS"):
            self._env.pop(name, None)
        self._timeout_s = timeout_s
        self.lock_wait_s = lock_wait_s

    def __call__(
        self,
        cwd: str | Path,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        given: bytes | None = None,
        allowed: tuple[int, ...] = (0,),
    ) -> Answer:
        """Run `git ARGUMENTS` in `cwd`, again while somebody else holds a lock. Raises IsolationError."""
        until = time.monotonic() + self.lock_wait_s
        while True:
            answer = self._once(str(cwd), arguments, env or {}, given)
            if answer.code in allowed:
                return answer
            if not _may_pass(answer.err) or time.monotonic() > until:
                raise refusal(str(cwd), arguments, answer.err)
            time.sleep(_PAUSE_S)

    def _once(self, cwd: str, arguments: tuple[str, ...], env: Mapping[str, str], given: bytes | None) -> Answer:
        added = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
        try:
            popen = subprocess.Popen(
                [*_BASE, *arguments],
                cwd=cwd,
                env=self._env | added,
                stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            if Path(cwd).is_dir():
                raise IsolationError("git was not found", "install git 2.38 or newer", "no-git") from error
            raise IsolationError(f"there is no folder {cwd}", "was it moved or removed?") from error
        except OSError as error:
            raise IsolationError(f"git could not be started in {cwd}: {error.strerror}", "run it again") from error
        try:
            out, err = popen.communicate(given, timeout=self._timeout_s)
        except subprocess.TimeoutExpired as error:
            raise IsolationError(
                f"`git {arguments[0]}` in {cwd} did not end within {self._timeout_s:g} s", "is the disk reachable?"
            ) from error
        finally:
            _end(popen)
        return Answer(popen.returncode, out, err.decode("utf-8", "replace"))


def _end(popen: subprocess.Popen[bytes]) -> None:
    """End git and what it started, however it was left; a git that ended by itself needs nothing."""
    if popen.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)
        popen.communicate()


def _may_pass(said: str) -> bool:
    """Tell whether the same call may succeed by waiting: a lock, or a folder of worktrees that vanished just now."""
    locked = ".lock'" in said and "File exists" in said
    # the registration of another worktree that came or went while git looked at all of them
    vanished = any(part in said for part in _VANISHED) and ("No such file or directory" in said or "worktrees/" in said)
    return locked or vanished


def refusal(place: str, arguments: tuple[str, ...], said: str) -> IsolationError:
    """Say in words what git refused."""
    if "dubious ownership" in said:
        return IsolationError(
            f"git refuses the repository at {place}, since another user owns it",
            f"if you trust it: git config --global --add safe.directory {shlex.quote(_named(said) or place)}",
            "unsafe-directory",
        )
    if "not a git repository" in said.lower():
        return IsolationError(f"{place} is in no git repository", "make one: git init", "no-repository")
    if ".lock'" in said and "File exists" in said:
        lock = said.split("'")[1]
        return IsolationError(
            f"another git holds {lock}", "wait until it has ended; if none runs any more, remove the file", "git-locked"
        )
    lines = [line for line in said.splitlines() if line.strip()]
    why = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "no reason")
    return IsolationError(f"`git {arguments[0]}` failed in {place}: {why}", "mend the repository and run it again")


def _named(said: str) -> str:
    """The folder that git itself names in its refusal."""
    parts = said.split("'")
    return parts[1] if len(parts) > 1 else ""
