"""One SQLite connection to a journal: opening it safely, and transactions.

Guarantees: WAL with `synchronous=FULL` (on a network file system a rollback journal, said in `notice`); file mode
0600; every write transaction is BEGIN IMMEDIATE, commits once or leaves nothing, and waits for other writers
a bounded time; errors are StoreError and its children. A read-only connection writes nothing to the database. A process
that was forked while the journal was open is refused: SQLite would take its parent's locks for its own, and lose commits.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from interlock.errors import JournalCorruptError, StoreError
from interlock.store.durable import sync_folder
from interlock.store.faults import busy, corrupt, reading, translated
from interlock.store.migrate import check, migrate
from interlock.store.mounts import mount_table, network_filesystem

BUSY_MS: Final = 10_000
_CHECKPOINT_PAGES: Final = 4_000
_WAL_KEPT_BYTES: Final = 64 * 1024 * 1024
_CACHE_KIB: Final = 16 * 1024
_RETRY_S: Final = 0.01
_HEADER_BYTES: Final = 100
_NO_FILES_BESIDE: Final = frozenset(
    {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}
)
"""In a folder that can't be written, or on a disk that is full."""
_OPEN: Final[weakref.WeakSet[Connection]] = weakref.WeakSet()
_INHERITED: Final[list[Connection]] = []
"""What the process that this one was forked from had open then. Closed here, it might end for the parent too."""


class Connection:
    """An open journal. `notice` is empty or something a person should know about how it was opened."""

    def __init__(self, raw: sqlite3.Connection, path: Path, on_commit: Callable[[str], None] | None) -> None:
        self.raw = raw
        self.path = path
        self.notice = ""
        self._on_commit = on_commit
        self._copy: Path | None = None
        self._file: tuple[int, int] | None = None
        self._opened = _identity(path)
        self._forked = False
        _OPEN.add(self)
        raw.create_function("tagged_sha256", 1, _tagged_sha256, deterministic=True)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Translate errors of single reads."""
        self._refuse_forked()
        with reading(self.path):
            yield

    @contextmanager
    def read(self) -> Iterator[None]:
        """One consistent view for several reads, those of a view inside included."""
        self._refuse_forked()
        with reading(self.path):
            if self.raw.in_transaction:
                yield
                return
            self.raw.execute("BEGIN")
            try:
                yield
            finally:
                self._rollback()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One write transaction: committed when the block ends well, else rolled back."""
        self._refuse_forked()
        with translated(self.path):
            self._refuse_replaced()
            self.raw.execute("BEGIN IMMEDIATE")
            try:
                yield self.raw
                if self._on_commit is None:
                    self.raw.execute("COMMIT")
                else:
                    self._on_commit("before")
                    self.raw.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise
        if self._on_commit is not None:
            self._on_commit("after")

    def write_back(self) -> None:
        """Bring what lies in the WAL to its place, as far as nobody has to wait for it: its room is free again then."""
        with translated(self.path):
            self.raw.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def migrate(self) -> None:
        """Bring the journal to this program's version; these commits are announced like all others."""
        migrate(self.raw, self.path, on_commit=self._on_commit)

    def hold(self) -> None:
        """From now on write only while the path still leads to the file that is open."""
        self._file = _identity(self.path)

    def inherit(self) -> None:
        """Take note of being another process's; a file's alone, since nobody else sees what is in memory."""
        if self._opened is not None:
            self._forked = True
            _INHERITED.append(self)

    def is_of(self, file: tuple[int, int] | None) -> bool:
        """Tell whether it is open to that file."""
        return file is not None and file == self._opened

    def _refuse_forked(self) -> None:
        if self._forked:
            raise _forked(self.path)

    def _refuse_replaced(self) -> None:
        if self._file is not None and _identity(self.path) != self._file:
            raise StoreError(
                "journal-gone",
                f"the journal {self.path} was removed or replaced while it was in use",
                "put it back, then try again",
            )

    def _rollback(self) -> None:
        # a full disk or an I/O error has rolled back already
        if self.raw.in_transaction:
            self.raw.execute("ROLLBACK")

    def close(self) -> None:
        """Close; never raises for a journal that went bad."""
        if self._forked:
            return
        _OPEN.discard(self)
        try:
            self.raw.close()
        finally:
            if self._copy is not None:
                import shutil  # noqa: PLC0415 - only a journal that cannot be opened in place needs it

                shutil.rmtree(self._copy, ignore_errors=True)
                self._copy = None

    def use_copy(self, folder: Path) -> None:
        """Own a temporary copy, removed on close."""
        self._copy = folder


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of what the path leads to; None where it leads nowhere."""
    try:
        found = os.stat(path)  # noqa: PTH116 - once a transaction: pathlib takes three times as long
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _inherit() -> None:
    for one in tuple(_OPEN):
        one.inherit()


os.register_at_fork(after_in_child=_inherit)


def _forked(path: Path) -> StoreError:
    return StoreError(
        "journal-forked",
        f"this process was forked from one that had the journal {path} open, and SQLite's locks don't come along",
        "close the project before the fork, or start processes with `spawn`",
    )


def _tagged_sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def open_file(path: Path, on_commit: Callable[[str], None] | None, busy_ms: int) -> Connection:
    """Open for writing; create and migrate as needed."""
    with translated(path):
        _refuse_orphan(path)
        _create(path)
        _refuse_cut(path)
        found = _connect(path, "mode=rw", on_commit, busy_ms)
    try:
        with translated(path):
            if check(found.raw, path) == 0:
                _refuse_bare(path)
            _set_journal_mode(found, busy_ms)
            found.raw.execute("PRAGMA synchronous = FULL")
            found.raw.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            found.raw.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
            found.migrate()
            found.hold()
    except BaseException:
        found.close()
        raise
    return found


def open_memory(on_commit: Callable[[str], None] | None) -> Connection:
    """A journal that ends with its connection."""
    found = Connection(_raw(":memory:", 0), Path(":memory:"), on_commit)
    found.migrate()
    return found


def open_empty(path: Path) -> Connection:
    """Make a file for rows that are all there elsewhere: written at once, with nothing that would outlive a crash."""
    with translated(path):
        _create(path)
        found = _connect(path, "mode=rw", None, BUSY_MS)
        found.raw.execute("PRAGMA journal_mode = OFF")
        found.raw.execute("PRAGMA synchronous = OFF")
    return found


def _create(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    os.close(handle)
    sync_folder(path.parent)


def _refuse_orphan(path: Path) -> None:
    """Refuse what was written last without what it was written to: SQLite would take it for nothing, and write over it."""
    wal = _wal(path)
    # in this order: a journal that is begun meanwhile has its first page before there is a WAL
    if _size(wal) > 0 and _size(path) == 0:
        state = "empty" if path.exists() else "missing"
        raise JournalCorruptError(
            "journal-corrupt",
            f"the journal {path} is {state}, though {wal.name} beside it holds what was written to it last",
            f"put the file back beside it; or, to begin anew without these runs, move {wal} away",
        )


def _refuse_bare(path: Path) -> None:
    """Refuse a journal without a schema where runs have left logs: the file was copied without its WAL."""
    if _size(path) == 0 or _size(_wal(path)) > 0:
        return
    if any((path.parent / "logs").glob("*.log")):
        raise corrupt(path, "it holds nothing, though runs have left logs beside it; perhaps its WAL was lost")


def _wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _refuse_cut(path: Path) -> None:
    """Refuse a file that ends inside a page: SQLite would read the missing bytes as zeros.

    While a WAL or a rollback journal is there the file may be in motion; then SQLite repairs it by itself.
    """
    if any(path.with_name(path.name + suffix).exists() for suffix in ("-wal", "-journal")):
        return
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    size = path.stat().st_size
    page = int.from_bytes(header[16:18], "big")
    if header.startswith(b"SQLite format 3") and (
        size < _HEADER_BYTES or size % (65_536 if page == 1 else page or 512)
    ):
        raise corrupt(path, "the file ends inside a page")


def _connect(path: Path, options: str, on_commit: Callable[[str], None] | None, busy_ms: int) -> Connection:
    if any(other.is_of(_identity(path)) for other in _INHERITED):
        raise _forked(path)
    return Connection(_raw(f"file:{quote(str(path.absolute()))}?{options}", busy_ms), path, on_commit)


def _raw(uri: str, busy_ms: int) -> sqlite3.Connection:
    raw = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=256, timeout=busy_ms / 1000)
    try:
        raw.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        raw.execute("PRAGMA temp_store = MEMORY")
        raw.execute("PRAGMA trusted_schema = OFF")
        # SQLite opens a file only when it must: find out now whether that works
        raw.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        raw.close()
        raise
    return raw


def _set_journal_mode(found: Connection, busy_ms: int) -> None:
    kind = network_filesystem(found.path, mount_table())
    wanted = "delete" if kind else "wal"
    if kind:
        found.notice = (
            f"{found.path} lies on a network file system ({kind}): the journal uses a rollback journal instead of WAL"
        )
    deadline = time.monotonic() + busy_ms / 1000
    # SQLite's own busy handler does not cover a change of the journal mode
    while not _mode_is(found.raw, wanted):
        if time.monotonic() >= deadline:
            raise busy(found.path)
        time.sleep(_RETRY_S)


def _mode_is(raw: sqlite3.Connection, wanted: str) -> bool:
    try:
        return bool(raw.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0] == wanted)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            return False
        raise


def open_read_only(path: Path, busy_ms: int) -> Connection:
    """Open for reading, beside a writer or in a folder where nothing can be written."""
    with translated(path):
        _refuse_orphan(path)
        if not path.exists():
            raise StoreError("no-journal", f"there is no journal at {path}", "start a run first")
        _refuse_cut(path)
    found = _readable(path, busy_ms)
    try:
        with reading(path):
            # a copy could be written to, in vain
            found.raw.execute("PRAGMA query_only = ON")
            version = check(found.raw, path)
    except BaseException:
        found.close()
        raise
    if version == 0:
        found.close()
        with translated(path):
            _refuse_bare(path)
        raise StoreError("no-journal", f"the journal {path} is empty", "start a run first")
    return found


def _readable(path: Path, busy_ms: int) -> Connection:
    """The plain way first. Where the files beside a WAL journal cannot be made: as a still image, else a copy."""
    with translated(path):
        try:
            return _connect(path, "mode=ro", None, busy_ms)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _NO_FILES_BESIDE:
                raise
        wal = _wal(path)
        if _size(wal) == 0:
            return _connect(path, "mode=ro&immutable=1", None, busy_ms)
        return _copied(path, wal, busy_ms)


def _copied(path: Path, wal: Path, busy_ms: int) -> Connection:
    import shutil  # noqa: PLC0415 - only a journal that cannot be opened in place needs it
    import tempfile  # noqa: PLC0415 - as above

    folder = Path(tempfile.mkdtemp(prefix="interlock-journal-"))
    try:
        shutil.copyfile(path, folder / path.name)
        shutil.copyfile(wal, folder / wal.name)
        found = _connect(folder / path.name, "mode=rw", None, busy_ms)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    found.use_copy(folder)
    return found
