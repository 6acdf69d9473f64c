"""What this host and project allow: each check says what it found and, where something is wrong, what to do.

Nothing is created or changed, except for a probe file that is removed again where a folder must be writable.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

_SHORT_S: Final = 10.0
_LEAST_FREE_BYTES: Final = 100 * 1024 * 1024
_OLDEST_SQLITE: Final = (3, 37, 0)
"""STRICT tables begin here."""
_NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "afs", "ceph", "lustre", "glusterfs"})


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. `ok` false means that something promised does not hold here."""

    name: str
    ok: bool
    detail: str
    hint: str = ""
    notes: tuple[str, ...] = ()
    """What a user should know of it, though nothing is wrong."""


def check_host(root: Path, state_dir: Path) -> list[Check]:
    """Look at the interpreter, the programs, the project's folder and what the kernel offers."""
    checks: list[Callable[[], Check]] = [
        _python,
        _sqlite,
        _git,
        _shell,
        lambda: _state_dir(root, state_dir),
        lambda: _filesystem(state_dir),
        lambda: _space(state_dir),
        _proc,
        _pidfd,
    ]
    return [check() for check in checks]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check(name="python", ok=sys.version_info >= (3, 11), detail=f"{version} at {sys.executable}")


def _sqlite() -> Check:
    ok = sqlite3.sqlite_version_info >= _OLDEST_SQLITE
    return Check(
        name="sqlite",
        ok=ok,
        detail=sqlite3.sqlite_version,
        hint="" if ok else "use a Python that brings SQLite 3.37 or newer",
    )


def _git() -> Check:
    said = _say("git", "--version")
    if said is None:
        return Check(name="git", ok=False, detail="not found", hint="install git; commits are recorded with a plan")
    return Check(name="git", ok=True, detail=said.removeprefix("git version "))


def _shell() -> Check:
    bash = shutil.which("bash")
    if bash:
        return Check(name="shell", ok=True, detail=f"{bash} -euo pipefail")
    shell = shutil.which("sh")
    hint = "install bash, so that a failing command inside a pipe fails its step"
    return Check(name="shell", ok=shell is not None, detail=f"{shell} -eu" if shell else "none found", hint=hint)


def _state_dir(root: Path, state_dir: Path) -> Check:
    name = "journal place"
    folder = state_dir if state_dir.is_dir() else root
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-"):
            pass
    except OSError as error:
        hint = "make the folder writable, or work in another with --project"
        return Check(name=name, ok=False, detail=f"{folder}: {error.strerror}", hint=hint)
    mode = state_dir.stat().st_mode & 0o777 if state_dir.is_dir() else 0o700
    if mode & 0o077:
        return Check(
            name=name,
            ok=False,
            detail=f"{state_dir} is open to others ({mode:o})",
            hint=f"chmod 700 {shlex.quote(str(state_dir))}",
        )
    return Check(name=name, ok=True, detail=f"{state_dir}" + ("" if state_dir.is_dir() else " (not yet made)"))


def _filesystem(state_dir: Path) -> Check:
    kind = filesystem(state_dir)
    slow = kind in _NETWORK
    hint = "the journal falls back to a rollback journal there; a local disk is faster and safer" if slow else ""
    return Check(name="filesystem", ok=True, detail=f"{kind} (network)" if slow else kind, hint=hint)


def filesystem(path: Path) -> str:
    """The type of the filesystem that holds `path`, or `unknown`."""
    real = Path(os.path.realpath(path))
    best, kind = -1, "unknown"
    for place, name in _mounts():
        if len(place.parts) > best and real.is_relative_to(place):
            best, kind = len(place.parts), name
    return kind


def _mounts() -> Iterator[tuple[Path, str]]:
    try:
        lines = Path("/proc/self/mounts").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        _, place, kind, *_ = line.split(" ")
        # the kernel spells blanks and backslashes in octal
        yield Path(place.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")), kind


def _space(state_dir: Path) -> Check:
    folder = next(folder for folder in (state_dir, *state_dir.parents) if folder.exists())
    free = shutil.disk_usage(folder).free
    ok = free >= _LEAST_FREE_BYTES
    hint = "" if ok else "free some space, or remove old runs with `interlock gc`"
    return Check(name="disk space", ok=ok, detail=f"{free // 1024**2:,} MiB free", hint=hint)


def _proc() -> Check:
    ok = Path("/proc/self/stat").exists() and os.access("/proc/self/environ", os.R_OK)
    hint = "" if ok else "without /proc, children that leave their process group may not be found"
    return Check(name="/proc", ok=ok, detail="readable" if ok else "missing", hint=hint)


def _pidfd() -> Check:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return Check(name="pidfd", ok=True, detail="not offered: ends of processes are polled for")
    return Check(name="pidfd", ok=True, detail="offered")


def _say(*argv: str) -> str | None:
    """The output of a command, or None where it isn't there or fails."""
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_SHORT_S, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip()
