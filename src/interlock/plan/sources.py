"""What `resolve` may ask about the world, as a protocol; the real body is `driver/sources.py`.

Every question has a typed answer: what was found, or `Missing` with the reason and a next step. Nothing here
raises and nothing imports the user's code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from interlock.model.plan import Project, Shell


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """The thing could not be had. `reason` completes "'x' ..."."""

    reason: str
    hint: str = ""


class ScriptFile(msgspec.Struct, frozen=True, kw_only=True):
    """A script as it lies on disk. `path` is relative to the project's root where it lies below it."""

    path: str
    content: bytes
    executable: bool


class ModuleFile(msgspec.Struct, frozen=True, kw_only=True):
    """A module's file and hash. `text` is its source, None when it is not Python text."""

    file: str
    sha256: str
    text: bytes | None = None


class WorkflowFile(msgspec.Struct, frozen=True, kw_only=True):
    """A child workflow as it lies on disk.

    `file` is its name in diagnostics, `real` its path with all links followed, `sources` the world around it.
    """

    file: str
    real: str
    content: bytes
    sources: Sources


class Sources(Protocol):
    """The world around one workflow file."""

    def source(self) -> str:
        """The workflow file's own path, relative to the project's root where it lies below it."""
        ...

    def project(self) -> Project:
        """Identity of the project's root and its git commit."""
        ...

    def real(self) -> str:
        """The workflow file's own path with all links followed: what tells one file from another."""
        ...

    def workflow(self, path: str) -> WorkflowFile | Missing:
        """Read a child workflow; `path` is relative to the workflow file."""
        ...

    def repository(self) -> str | Missing:
        """Return the top folder of the git repository that the project's root lies in and has a commit of."""
        ...

    def script(self, path: str) -> ScriptFile | Missing:
        """Read a script; `path` is relative to the workflow file."""
        ...

    def folder(self, path: str) -> str | Missing:
        """Return the real path of a folder given relative to the project's root, in the same terms."""
        ...

    def shell(self) -> Shell | None:
        """The shell for `run:` strings, None on a host without one."""
        ...

    def program(self, name: str) -> str | Missing:
        """Return the full path of a program, looked for on PATH unless its name has a slash."""
        ...

    def python(self, configured: tuple[str, ...]) -> tuple[str, ...] | Missing:
        """Return the argv prefix of the interpreter of Python functions: as configured, else the default."""
        ...

    def python_path(self) -> tuple[str, ...]:
        """Folders in which modules are sought first: the workflow's and the project's root."""
        ...

    def modules(self, names: Iterable[str], python: tuple[str, ...]) -> dict[str, ModuleFile | Missing]:
        """Find modules without importing them; `python` is asked once for those that are in no folder."""
        ...
