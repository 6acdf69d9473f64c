"""Scripts of a plan, on disk: the embedded bytes, in a folder of the driver's own, looked at before every start.

Guarantee: what is started is byte for byte what was frozen, whatever an earlier attempt, another run or a person did to
the file: one that is missing or is not as it was written is written anew. An attempt that is under way when another one
changes the file reads on in what its interpreter holds open.
"""

from __future__ import annotations

import base64
import hashlib
import os
import threading
import time
from pathlib import Path, PurePosixPath
from typing import Final

from interlock.dispatch.commands.own_folder import OwnFolder
from interlock.model.plan import Script

_TICK_NS: Final = 20_000_000
"""More than a tick of the clock that stamps files: two changes within one carry the same stamp."""
_Stamp = tuple[int, int, int, int, int]


class ScriptCopy:
    """A script's file. Safe from any thread."""

    def __init__(self, folder: OwnFolder, name: str, content: bytes) -> None:
        self.path = folder.path / name
        self._folder = folder
        self._content = content
        self._lock = threading.Lock()
        self._stamp: _Stamp | None = None
        self._settled = False
        """Whether any change from now on would show in the stamp."""

    def renew(self) -> None:
        """Write the file unless it is as it was written. Raises OSError."""
        if self._settled and _stamp(self.path) == self._stamp:
            return
        with self._lock:
            asked_ns = time.time_ns()
            stamp = _stamp(self.path)
            if stamp is None or stamp != self._stamp or not self._is_whole():
                self._write()
                self._stamp = stamp = _stamp(self.path)
            self._settled = stamp is not None and stamp[-1] < asked_ns - _TICK_NS

    def _is_whole(self) -> bool:
        try:
            return self.path.read_bytes() == self._content
        except OSError:
            # an attempt that is under way took it away meanwhile
            return False

    def _write(self) -> None:
        self._folder.make()
        # again, should somebody have removed it
        self._folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self.path.with_name(f"{self.path.name}.new")
        fresh.unlink(missing_ok=True)
        # not to be written to: a script that writes into itself by mistake is told so
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o500)
        with os.fdopen(fd, "wb") as file:
            file.write(self._content)
        fresh.replace(self.path)


class ScriptStore:
    """One per driver. Safe from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = OwnFolder(folder, "of-", f"{os.getpid()}-{os.urandom(4).hex()}")
        self._lock = threading.Lock()
        self._copies: dict[str, ScriptCopy] = {}

    def copy(self, script: Script) -> ScriptCopy:
        """Return where the script lies once it is renewed. Raises ValueError when the plan's bytes miss their hash."""
        content = base64.b64decode(script.content_b64, validate=True)
        digest = hashlib.sha256(content).hexdigest()
        if script.sha256.removeprefix("sha256:") != digest:
            raise ValueError(f"the embedded bytes of `{script.path}` do not match their hash")
        # the name stays: interpreters look at suffixes, and people at messages
        name = f"{digest[:16]}-{PurePosixPath(script.path).name}"
        with self._lock:
            return self._copies.setdefault(name, ScriptCopy(self._folder, name, content))

    def remove(self) -> None:
        """Remove all of them. Idempotent."""
        self._folder.remove()


def _stamp(path: Path) -> _Stamp | None:
    """Return what changes with the file; None when there is none to be read."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns
