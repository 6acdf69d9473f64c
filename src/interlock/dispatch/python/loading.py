"""Imports the module of a job, and that very module: what its file held when the run was frozen.

A part of the worker (worker.py says what that means). Guarantee: of a module in source the bytes that are hashed are those
that are compiled, unless bytecode is there that was surely made from them, so that no change of the file can come in between.
Of any other module the file is hashed right before it is loaded.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from importlib.machinery import SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Any

_SURE_S = 2
"""Bytecode names its source by a time in whole seconds and a size: one made that soon after a change may be of another."""
_digests: dict[str, str] = {}
"""Of modules that were loaded here, by name."""


def _sha256() -> Callable[[bytes], Any]:
    """Return the hash without OpenSSL, which is slow to load."""
    found: Callable[[bytes], Any]
    for name in ("_sha2", "_sha256"):
        try:
            found = importlib.import_module(name).sha256
        except (ImportError, AttributeError):
            continue
        return found
    found = importlib.import_module("hashlib").sha256
    return found


_hash = _sha256()


class ChangedError(Exception):
    """The module is not what was frozen; the text says in which way."""


class Frozen:
    """What a module is to be. `file` is its name for people, `place` where it is, `sha256` may be empty: anything."""

    def __init__(self, name: str, data: dict[str, str]) -> None:
        self.name = name
        self.file = data["file"]
        self.place = data["place"]
        self.sha256 = data["sha256"]

    def load(self) -> ModuleType:
        """Import it. Raises ChangedError, and whatever importing it raises."""
        if not self.sha256:
            return importlib.import_module(self.name)
        try:
            return self._load()
        except (ImportError, OSError):
            # it was there: what is gone, be it with its package, has changed
            if not os.path.exists(self.place):  # noqa: PTH110 - pathlib is slow to load
                text = f"module {self.name} ({self.file}) cannot be read: {os.strerror(errno.ENOENT)}"
                raise ChangedError(text) from None
            raise

    def _load(self) -> ModuleType:
        loaded = sys.modules.get(self.name)
        if loaded is not None:
            self._look_at(loaded)
            return loaded
        # first for this import only: others are none of our business and should not be slower
        finder: Any = _Finder(self)
        sys.meta_path.insert(0, finder)
        try:
            return importlib.import_module(self.name)
        finally:
            sys.meta_path.remove(finder)

    def _look_at(self, loaded: ModuleType) -> None:
        """Check a module that is there already, perhaps by the import of another, whose bytes nobody saw."""
        spec: Any = getattr(loaded, "__spec__", None)
        if self.name not in _digests and getattr(spec, "has_location", False):
            _digests[self.name] = _digest(_read(spec.origin))
        self.check(_digests.get(self.name, self.sha256), getattr(spec, "origin", None))

    def check(self, digest: str, origin: str | None) -> None:
        """Raises ChangedError unless the digest is the frozen one."""
        if digest != self.sha256:
            text = f"module {self.name} ({self.file}) changed since the run began"
            if origin and os.path.realpath(origin) != os.path.realpath(self.place):
                text += f": {origin} is imported in its place"
            raise ChangedError(text)


class _Finder:
    """Asks the other finders, and sees to it that what they find is checked as it is loaded."""

    def __init__(self, frozen: Frozen) -> None:
        self.frozen = frozen

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:  # noqa: ANN401 - as importlib wants it
        if name != self.frozen.name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is None:
            return None
        if type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(self.frozen, spec.loader.path)
        elif spec.has_location and spec.origin and os.path.isfile(spec.origin):  # noqa: PTH113 - as above
            _digests[name] = _digest(_read(spec.origin))
            self.frozen.check(_digests[name], spec.origin)
        return spec


class _Loader(SourceFileLoader):
    """Reads the source once, checks it, and makes the module of what it read."""

    def __init__(self, frozen: Frozen, path: str) -> None:
        super().__init__(frozen.name, path)
        self._frozen = frozen
        self._source: bytes | None = None
        self._stat: os.stat_result | None = None

    def get_code(self, fullname: str) -> CodeType | None:
        self._stat = os.stat(self.path)  # noqa: PTH116 - as above
        self._source = _read(self.path)
        _digests[fullname] = _digest(self._source)
        self._frozen.check(_digests[fullname], self.path)
        try:
            return super().get_code(fullname)
        finally:
            self._source = self._stat = None

    def get_data(self, path: str) -> bytes:
        if self._source is not None and path == self.path:
            return self._source
        if self._source is not None and not self._is_sure(path):
            raise OSError(errno.ENOENT, "perhaps of another source", path)
        return super().get_data(path)

    def path_stats(self, path: str) -> Any:  # noqa: ANN401 - as importlib wants it
        if self._stat is None:
            return super().path_stats(path)
        return {"mtime": self._stat.st_mtime, "size": self._stat.st_size}

    def _is_sure(self, bytecode: str) -> bool:
        return self._stat is not None and os.stat(bytecode).st_mtime >= self._stat.st_mtime + _SURE_S  # noqa: PTH116 - as above


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        return file.read()


def _digest(data: bytes) -> str:
    digest: str = _hash(data).hexdigest()
    return "sha256:" + digest
