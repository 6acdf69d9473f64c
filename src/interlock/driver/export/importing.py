"""Reading an export: verifying it, and opening it as a journal that can only be read.

Guarantees: nothing of a file is shown before all of it was verified; rows pass the CHECKs of the journal's own tables,
and an older journal's are brought forward; all that is written lies in a folder of this user's own, removed at the
end. Works outside of any project.
"""

from __future__ import annotations

import base64
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from interlock.driver.export.sealed import HEADER, ExportDamagedError, Line, Unsealer
from interlock.driver.project import ProjectPaths
from interlock.errors import StoreError, UsageError
from interlock.store.dump import ArtifactFile, Restoring
from interlock.store.faults import BadRowError
from interlock.store.sql import migrations
from interlock.store.sqlite import SqliteStore

_DIALECT: Final = "sqlite"
_RUN_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")


class Redacted(msgspec.Struct, frozen=True):
    """What was left out of an export."""

    params: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    too_short: tuple[str, ...] = ()


class Header(msgspec.Struct, frozen=True):
    """What an export says of itself: format, the program's version, the journal's, the run and all runs in it."""

    format: int
    interlock: str
    journal: int
    run: str
    runs: tuple[str, ...]
    redacted: Redacted = Redacted()


class Verified(msgspec.Struct, frozen=True):
    """An export that is whole. `hash` is that of its last line."""

    header: Header
    lines: int
    hash: str


class OpenExport(msgspec.Struct, frozen=True):
    """An export as a journal: `store` reads it, `project` names the places where it lies for now."""

    header: Header
    store: SqliteStore
    project: ProjectPaths


def verify_export(path: Path) -> Verified:
    """Check every line of the file. Raises ExportDamagedError, StoreError for a newer format, UsageError."""
    with _opened(path) as file:
        seal = Unsealer(file, str(path))
        lines = seal.lines()
        header = _header(next(lines, None), path)
        for _ in lines:
            continue
        return Verified(header, seal.n, seal.hash)


@contextmanager
def open_export(path: Path) -> Iterator[OpenExport]:
    """Verify the export and open it for reading; what it needs meanwhile is removed at the end. Raises StoreError."""
    folder = Path(tempfile.mkdtemp(prefix="interlock-export-"))
    try:
        header = _restore(path, folder)
        with SqliteStore.open(folder / "journal.db", read_only=True) as store:
            yield OpenExport(header, store, _places(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _places(folder: Path) -> ProjectPaths:
    return ProjectPaths(
        root=folder,
        state_dir=folder,
        journal=folder / "journal.db",
        logs=folder / "logs",
        config_files=(folder / "none", folder / "none"),
    )


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(
            "unreadable-export", f"can't read {path}: {why}", "`interlock export RUN` makes one"
        ) from error
    with file:
        try:
            yield file
        except IsADirectoryError:
            raise UsageError("unreadable-export", f"{path} is a folder", "name the file of an export") from None


def _header(line: Line | None, path: Path) -> Header:
    if line is None or line.kind != HEADER:
        raise UsageError("not-an-export", f"{path} is not an export of interlock", "`interlock export RUN` makes one")
    header: Header = _read(line, Header, path)
    # the names of files are made of these
    if header.run not in header.runs or not all(_RUN_ID.fullmatch(run) for run in header.runs):
        raise _strange(path, line.n, "its run has no proper id")
    return header


def _read(line: Line, kind: type[Any], path: Path) -> Any:  # noqa: ANN401 - what `kind` says
    try:
        return msgspec.json.decode(line.data, type=kind)
    except msgspec.MsgspecError as error:
        raise _strange(path, line.n, str(error)) from error


def _strange(path: Path, n: int, what: str) -> ExportDamagedError:
    """The chain holds, so it was written so: by a version that this one does not know."""
    message = f"line {n} of {path} is not one that this interlock knows: {what}"
    return ExportDamagedError("export-unreadable", message, "use the version of interlock that made it, or a newer one")


class _Blob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes in a row: one of both."""

    text: str | None = None
    base64: str | None = None


class _Row(msgspec.Struct, frozen=True):
    run: int
    table: str
    row: dict[str, str | int | float | _Blob]


class _Piece(msgspec.Struct, frozen=True):
    at: int
    run: int = 0
    hash: str = ""
    text: str | None = None
    base64: str | None = None


def _restore(path: Path, folder: Path) -> Header:
    (folder / "logs").mkdir()
    with _opened(path) as file:
        lines = Unsealer(file, str(path)).lines()
        header = _header(next(lines, None), path)
        if header.journal > len(migrations(_DIALECT)):
            message = f"{path} holds a journal of version {header.journal}; this interlock reads older ones only"
            raise StoreError("export-too-new", message, "upgrade interlock")
        taking = _Taking(path, folder, header)
        try:
            for line in lines:
                taking.take(line)
            taking.finish()
        finally:
            taking.close()
    return header


class _Taking:
    """Takes the lines of one export in."""

    def __init__(self, path: Path, folder: Path, header: Header) -> None:
        self._path = path
        self._logs = folder / "logs"
        self._runs = header.runs
        self._rows = Restoring(folder / "journal.db", header.journal)
        self._artifact: ArtifactFile | None = None
        self._n = 0
        self._log: tuple[int, BinaryIO] | None = None

    def take(self, line: Line) -> None:
        self._n = line.n
        if line.kind == "row":
            self._to_rows(_read(line, _Row, self._path), line.n)
            return
        piece: _Piece = _read(line, _Piece, self._path)
        if line.kind == "artifact":
            self._to_artifact(piece, line.n)
        elif line.kind == "log":
            self._to_log(piece, line.n)
        else:
            raise _strange(self._path, line.n, f"its kind is '{line.kind}'")

    def _to_rows(self, found: _Row, n: int) -> None:
        self._run(found.run, n)
        row = {name: self._content(cell, n) if isinstance(cell, _Blob) else cell for name, cell in found.row.items()}
        if found.table == "run" and row.get("id") != self._runs[found.run]:
            raise _strange(self._path, n, "it is of a run that the header does not name")
        try:
            self._rows.add(found.table, found.run + 1, row)
        except StoreError as error:
            raise _strange(self._path, n, error.message) from error

    def _run(self, number: int, n: int) -> str:
        if not 0 <= number < len(self._runs):
            raise _strange(self._path, n, f"there is no run {number}")
        return self._runs[number]

    def _to_artifact(self, piece: _Piece, n: int) -> None:
        if self._artifact is None or piece.at == 0:
            self._close_artifact(n)
            if not _HASH.fullmatch(piece.hash):
                raise _strange(self._path, n, "it names no artifact")
            self._artifact = self._rows.file(piece.hash)
        self._artifact.add(self._content(piece, n))

    def _close_artifact(self, n: int) -> None:
        done, self._artifact = self._artifact, None
        if done is not None and not done.close():
            raise _strange(self._path, n, f"the artifact up to there does not match {done.tagged}")

    def _to_log(self, piece: _Piece, n: int) -> None:
        run = self._run(piece.run, n)
        if self._log is None or self._log[0] != piece.run:
            self._close_log()
            self._log = piece.run, (self._logs / f"{run}.log").open("ab")
        self._log[1].write(self._content(piece, n))

    def _content(self, piece: _Piece | _Blob, n: int) -> bytes:
        if (piece.text is None) is (piece.base64 is None):
            raise _strange(self._path, n, "its bytes are neither text nor base64")
        if piece.text is not None:
            return piece.text.encode()
        try:
            return base64.b64decode(piece.base64 or "", validate=True)
        except ValueError as error:
            raise _strange(self._path, n, str(error)) from error

    def _close_log(self) -> None:
        if self._log is not None:
            self._log[1].close()
            self._log = None

    def finish(self) -> None:
        self._close_artifact(self._n)
        try:
            self._rows.finish(len(self._runs))
        except BadRowError as error:
            raise _strange(self._path, self._n, error.message) from error

    def close(self) -> None:
        self._close_log()
        if self._artifact is not None:
            self._artifact.close()
        self._rows.close()
