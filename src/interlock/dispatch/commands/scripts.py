"""Scripts of a plan, on disk: the embedded bytes, written once per run and verified whenever they are first used.

Guarantee: what runs is byte for byte what was frozen; a file that is missing or differs is written anew.
"""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from pathlib import Path, PurePosixPath

from interlock.model.plan import Script


class ScriptStore:
    """One per driver. Safe from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._ready: dict[str, Path] = {}

    def path(self, script: Script) -> Path:
        """Return where the script lies. Raises OSError, and ValueError when the plan's bytes miss their hash."""
        with self._lock:
            found = self._ready.get(script.sha256)
            if found is None:
                found = self._ready[script.sha256] = self._write(script)
            return found

    def _write(self, script: Script) -> Path:
        content = base64.b64decode(script.content_b64, validate=True)
        digest = hashlib.sha256(content).hexdigest()
        if script.sha256.removeprefix("sha256:") != digest:
            raise ValueError(f"the embedded bytes of `{script.path}` do not match their hash")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # the name stays: interpreters look at suffixes, and people at messages
        path = self._folder / f"{digest[:16]}-{PurePosixPath(script.path).name}"
        if _holds(path, content):
            return path
        fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        fresh.replace(path)
        return path


def _holds(path: Path, content: bytes) -> bool:
    try:
        return not path.is_symlink() and path.read_bytes() == content and bool(path.stat().st_mode & 0o100)
    except OSError:
        return False
