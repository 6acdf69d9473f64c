"""Every error that interlock raises on purpose.

    InterlockError            code, message, hint, exit_code
    |- UsageError             wrong arguments, unknown run, invalid params        exit 2
    |- WorkflowError          a workflow or configuration file with diagnostics   exit 2 (78 for configuration)
    |- PlanError              a stored plan that cannot be trusted or used        exit 1
    |- StoreError             the journal cannot be read or written               exit 1
    |  |- JournalBusyError         another process holds the write lock too long
    |  |- JournalTooNewError       written by a newer interlock
    |  |- JournalCorrupt      damage that must not be ignored
    |- LeaseHeld              another driver holds the run                        exit 5
    |- ConfigError            configuration missing or wrong                      exit 78
    |- DispatchRefused        work that may not start                             exit 1
       |- StartAnew           the run can't go on as it is (moved directory, ...)

Guarantee: `str(error)` is one readable line; `hint` names a next step that works. A traceback shows the hint and the
diagnostics as notes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import ClassVar, Final, Literal

import msgspec

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""How the system says that a disk, or one's share of it, is full."""
Severity = Literal["error", "notice", "warning"]
"""A notice is no fault: something was accepted that does nothing here. A run tells it as well."""


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One finding in a file. `line` and `column` count from 1; `length` is the caret's width in characters."""

    file: str
    line: int
    column: int
    severity: Severity = "error"
    code: str
    message: str
    hint: str = ""
    length: int = 1
    source_line: str = ""


class InterlockError(Exception):
    """Base of the tree. `code` is stable and kebab-case; `hint` is empty or a next step."""

    exit_code: ClassVar[int] = 1

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self._notes: list[str] = []

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...], dict[str, object]]:
        """Cross to another process as it is: `args` alone, which exceptions are made of there, are not all."""
        return type(self).__new__, (type(self), *self.args), self.__dict__

    @property
    def __notes__(self) -> list[str]:
        """What a traceback shows below the message: of an error that nobody caught, too, the next step is seen."""
        return [*self._details(), *([f"hint: {self.hint}"] if self.hint else []), *self._notes]

    @__notes__.setter
    def __notes__(self, notes: list[str]) -> None:
        self._notes = notes

    def add_note(self, note: str) -> None:
        """As in every exception; behind what the error says by itself."""
        self._notes.append(note)

    def _details(self) -> list[str]:
        return []


class UsageError(InterlockError):
    """The caller's arguments are wrong."""

    exit_code: ClassVar[int] = 2


class WorkflowError(InterlockError):
    """A workflow has errors; `diagnostics` holds all of them, warnings included, sorted by place."""

    exit_code: ClassVar[int] = 2

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        errors = sum(1 for d in diagnostics if d.severity == "error")
        files = ", ".join(sorted({d.file for d in diagnostics}))
        super().__init__("invalid-workflow", f"{errors} error{'s' if errors != 1 else ''} in {files}")
        self.diagnostics = diagnostics

    def _details(self) -> list[str]:
        return [
            f"{d.file}:{d.line}:{d.column}: {d.severity}: {d.message}" + (f" ({d.hint})" if d.hint else "")
            for d in self.diagnostics
        ]


class ConfigError(WorkflowError):
    """Configuration is missing or wrong."""

    exit_code: ClassVar[int] = 78

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__(diagnostics)
        self.code = "invalid-config"


class PlanError(InterlockError):
    """A stored plan does not match its hash, or is of a format this version does not read."""


class StoreError(InterlockError):
    """The journal could not be read or written. The run stays claimable."""


class JournalBusyError(StoreError):
    """Another process held the write lock for longer than the busy timeout."""


class JournalTooNewError(StoreError):
    """The journal's schema is newer than this program."""


class JournalCorruptError(StoreError):
    """The journal is damaged; nothing is dispatched from it."""


class LeaseHeldError(InterlockError):
    """Another live driver holds the run."""

    exit_code: ClassVar[int] = 5


class DispatchRefusedError(InterlockError):
    """The world changed in a way that makes starting work unsafe."""


class StartAnewError(DispatchRefusedError):
    """The run can't go on as it is. `hint` says what else helps; whoever drives adds how to start anew."""
