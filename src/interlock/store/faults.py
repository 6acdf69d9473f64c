"""From what SQLite and the file system say to the errors a person can act on.

Guarantee: inside `translated` nothing but InterlockError and programming errors gets out. `reading` also turns damage
that SQLite itself cannot see (JSON that does not parse, NULL where a value must be) into a corrupt journal.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from interlock.errors import NO_SPACE, JournalBusyError, JournalCorruptError, StoreError

_PRIMARY: Final = 0xFF
_SHORT_READ: Final = 522
"""SQLITE_IOERR_SHORT_READ: the file ends inside a page."""
_NO_TEXT: Final = "what should be text is not UTF-8"
FULL: Final = NO_SPACE | {errno.EFBIG}
"""A file that may not grow is as full as its disk."""
_DENIED_ERRNO: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class BadRowError(StoreError):
    """A value that the schema refuses: the caller's fault, not the disk's."""


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn errors of SQLite, the file system and encoding into StoreError and its children."""
    try:
        yield
    except sqlite3.Error as error:
        raise from_sqlite(error, path) from error
    except OSError as error:
        raise from_os(error, path) from error
    except UnicodeDecodeError as error:
        # damaged text, in a row or in SQLite's own message about it
        raise corrupt(path, _NO_TEXT) from error
    except UnicodeEncodeError as error:
        raise BadRowError("bad-row", f"a value is not text that {path} can hold: {error.reason}") from error
    except OverflowError as error:
        raise BadRowError("bad-row", f"a number is too large for {path}: {error}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Like `translated`, for code that only turns rows into values: what does not fit is damage."""
    with translated(path):
        try:
            yield
        except UnicodeError:
            # told there: what was asked for is at fault, or what was read is no text
            raise
        except (msgspec.MsgspecError, ValueError, TypeError, AttributeError) as error:
            raise corrupt(path, str(error)) from error


def corrupt(path: Path, what: object) -> JournalCorruptError:
    """The journal is damaged; say what was seen and how to look closer."""
    return JournalCorruptError(
        "journal-corrupt",
        f"the journal {path} is damaged: {what}",
        f"keep a copy, look with `sqlite3 {shlex.quote(str(path))} 'PRAGMA integrity_check'`, then restore a backup or move the file away",
    )


def from_sqlite(error: sqlite3.Error, path: Path) -> StoreError:
    """The StoreError for an error of SQLite, by its code."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None and "UTF-8" in str(error):
        # the module that reads rows, not SQLite, says this
        return corrupt(path, _NO_TEXT)
    if isinstance(error, sqlite3.ProgrammingError):
        return _misused(path, error)
    if code is None:
        return _unknown(path, error)
    if code == _SHORT_READ:
        return corrupt(path, str(error))
    return _BY_CODE.get(code & _PRIMARY, _unknown)(path, error)


def _unknown(path: Path, error: object) -> StoreError:
    return StoreError("journal-error", f"the journal {path} cannot be used: {error}")


def _misused(path: Path, error: sqlite3.ProgrammingError) -> StoreError:
    said = str(error)
    if "closed database" in said:
        message = f"the journal {path} was closed while it was in use"
        return StoreError("journal-closed", message, "open the project again: interlock.open(FOLDER)")
    if "thread" in said:
        message = f"the journal {path} was opened by another thread"
        return StoreError("journal-of-another-thread", message, "take `store` from the App anew in each thread")
    return _unknown(path, error)


def _unopenable(path: Path, error: object) -> StoreError:
    hint = f"check the permissions of {path.parent}"
    return StoreError("journal-unopenable", f"cannot open the journal {path}: {error}", hint)


def _io(path: Path, error: object) -> StoreError:
    with contextlib.suppress(OSError):
        if os.statvfs(path.parent).f_bavail == 0:
            # to make the files beside a journal on a full disk is an I/O error to SQLite
            return full(path)
    return StoreError(
        "journal-io",
        f"reading or writing {path} failed: {error}",
        "check the disk (full, quota, unplugged, failing)",
    )


def _bad_row(path: Path, error: object) -> StoreError:
    return BadRowError("bad-row", f"the journal {path} refuses a row: {error}")


def from_os(error: OSError, path: Path) -> StoreError:
    """The StoreError for an error of the file system."""
    place = Path(error.filename) if isinstance(error.filename, str) else path
    if error.errno in FULL:
        return full(place)
    if error.errno in _DENIED_ERRNO:
        return denied(place, error.strerror or error)
    return _io(place, error.strerror or error)


def busy(path: Path, _error: object = None) -> JournalBusyError:
    """Another process holds the write lock."""
    return JournalBusyError(
        "journal-busy",
        f"the journal {path} is busy: another process holds its write lock",
        "wait for the other command to end, or end it, then try again",
    )


def full(path: Path, _error: object = None) -> StoreError:
    """No room to write."""
    return StoreError(
        "journal-full",
        f"no space left to write {path}",
        "free some space; nothing that was recorded is lost",
    )


def denied(path: Path, what: object) -> StoreError:
    """No permission to write."""
    return StoreError("journal-read-only", f"cannot write {path}: {what}", f"check the permissions of {path.parent}")


_BY_CODE: Final[dict[int, Callable[[Path, object], StoreError]]] = {
    sqlite3.SQLITE_CORRUPT: corrupt,
    sqlite3.SQLITE_NOTADB: corrupt,
    sqlite3.SQLITE_BUSY: busy,
    sqlite3.SQLITE_LOCKED: busy,
    sqlite3.SQLITE_FULL: full,
    sqlite3.SQLITE_READONLY: denied,
    sqlite3.SQLITE_PERM: denied,
    sqlite3.SQLITE_AUTH: denied,
    sqlite3.SQLITE_CANTOPEN: _unopenable,
    sqlite3.SQLITE_CONSTRAINT: _bad_row,
    sqlite3.SQLITE_TOOBIG: _bad_row,
    sqlite3.SQLITE_MISMATCH: _bad_row,
    sqlite3.SQLITE_IOERR: _io,
}
