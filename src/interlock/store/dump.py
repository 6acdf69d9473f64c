"""Taking runs out of a journal row by row, and putting them into an empty one.

Guarantees: a dump is one consistent view, however long it takes and whoever writes meanwhile; columns and tables are
read by name, so that those of a later version travel along; what is put back passes the same CHECKs as any row. Row
numbers of the old journal (`run.seq`, `run_seq`) stay behind.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from interlock.errors import JournalCorruptError, StoreError
from interlock.store.artifacts import Artifacts, artifact_corrupt, artifact_missing, of_step
from interlock.store.connection import BUSY_MS, Connection, open_empty, open_read_only
from interlock.store.faults import BadRowError, from_sqlite, translated
from interlock.store.migrate import DIALECT, migrate, version
from interlock.store.sql import migrations, queries

Value = str | int | float | bytes | None
Row = dict[str, Value]
_CHUNK: Final = 256 * 1024
_JSON: Final[dict[tuple[str, str], Any]] = {
    ("run", "params_json"): dict[str, Any],
    ("run_plan", "json"): dict[str, Any],
    ("step", "artifact"): Any,
    ("step", "route"): tuple[str, ...],
    ("unit", "item"): Any,
    ("unit", "result"): Any,
    ("unit", "feedback"): Any,
    ("unit", "reused"): tuple[str, str, int],
    ("event", "data"): dict[str, Any],
    ("request", "payload_json"): dict[str, Any],
}
"""Columns that hold JSON, and of what type: no CHECK of the journal reads it."""
_SEQ: Final = frozenset({"seq", "run_seq"})


class Member(msgspec.Struct, frozen=True):
    """A run to be taken out; `seq` is its number in this journal only."""

    seq: int
    id: str


class _Table(msgspec.Struct, frozen=True):
    name: str
    by: str
    order: str


class Dump:
    """One view of a journal."""

    def __init__(self, db: Connection, folder: Path) -> None:
        self._db = db
        self._artifacts = Artifacts(folder / "artifacts")
        self._queries: Final = queries(DIALECT)
        self.version: Final = version(db.raw)

    def family(self, run_id: str) -> list[Member]:
        """The run and its child runs, and theirs, oldest first. Raises StoreError."""
        found = [Member(*row) for row in self._db.raw.execute(self._queries["family"], (run_id,))]
        if not found:
            raise StoreError("run-not-found", f"there is no run {run_id}", "`interlock list` shows the runs")
        return found

    def rows(self, member: Member) -> Iterator[tuple[str, Row]]:
        """Every row of the run with its table's name, the run's own first, each table in the order of its key."""
        for table in self._tables():
            # names out of the journal's own schema; the values are bound
            text = f'SELECT * FROM "{table.name}" WHERE {table.by} = ? ORDER BY {table.order}'  # noqa: S608 - see above
            cursor = self._db.raw.execute(text, (member.seq,))
            names = [column[0] for column in cursor.description]
            for values in cursor:
                yield table.name, {n: v for n, v in zip(names, values, strict=True) if n not in _SEQ}

    def plan(self, member: Member) -> tuple[str, bytes, bytes]:
        """Plan hash, plan and params as stored."""
        found: tuple[str, bytes, bytes] = self._db.raw.execute(self._queries["dump_plan"], (member.seq,)).fetchone()
        return found

    def place(self, member: Member) -> tuple[str | None, str | None]:
        """The run that this one is a unit of, and which; None for a run of its own."""
        found: tuple[str | None, str | None] = self._db.raw.execute(
            self._queries["dump_place"], (member.seq,)
        ).fetchone()
        return found

    def top(self, member: Member) -> str:
        """The run without a parent that this one belongs to."""
        found: tuple[str] = self._db.raw.execute(self._queries["dump_top"], (member.id,)).fetchone()
        return found[0]

    def items(self, member: Member) -> Iterator[bytes]:
        """The units' items."""
        yield from (row[0] for row in self._db.raw.execute(self._queries["dump_items"], (member.seq,)))

    def contents(self, member: Member) -> Iterator[bytes]:
        """What units and steps made, but for artifacts in files."""
        yield from (row[0] for row in self._db.raw.execute(self._queries["dump_contents"], (member.seq,)))

    def files(self, member: Member) -> list[str]:
        """The tagged hashes of the run's artifacts that lie in files."""
        return [row[0] for row in self._db.raw.execute(self._queries["dump_artifacts"], (member.seq,))]

    def artifact(self, tagged: str) -> Iterator[bytes]:
        """Read an artifact's file in pieces; raises JournalCorruptError, at its end at the latest."""
        path = self._artifacts.path(tagged)
        seen = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while piece := file.read(_CHUNK):
                    seen.update(piece)
                    yield piece
        except FileNotFoundError:
            raise self._named(artifact_missing(path), tagged) from None
        if tagged != f"sha256:{seen.hexdigest()}":
            raise self._named(artifact_corrupt(path), tagged)

    def _named(self, error: JournalCorruptError, tagged: str) -> JournalCorruptError:
        return of_step(error, *self._db.raw.execute(self._queries["artifact_owner"], (tagged, None, None)).fetchone())

    def _tables(self) -> Iterator[_Table]:
        names = [row[0] for row in self._db.raw.execute(self._queries["dump_tables"])]
        # the run first, since all others refer to it; then its plan, so that a reader knows it before the rest
        for name in sorted(names, key=lambda name: (name != "run", name != "run_plan", name)):
            columns = self._db.raw.execute(self._queries["dump_columns"], (name,)).fetchall()
            by = next((column for column, _ in columns if column in _SEQ), None)
            if by is not None:
                keys = [column for column, place in sorted(columns, key=lambda column: column[1]) if place]
                yield _Table(name, by, ", ".join(f'"{key}"' for key in keys) or "rowid")


@contextmanager
def dumping(journal: Path) -> Iterator[Dump]:
    """Open the journal for reading, with one view for all that is taken out.

    Errors of the journal are StoreError; an OSError is the caller's own, of the place that it writes to.
    """
    db = open_read_only(journal, BUSY_MS)
    try:
        db.raw.execute("BEGIN")
        yield Dump(db, journal.parent)
    except sqlite3.Error as error:
        raise from_sqlite(error, journal) from error
    finally:
        db.close()


class Restoring:
    """Puts rows into an empty journal of a given version, in one transaction."""

    def __init__(self, journal: Path, at_version: int) -> None:
        self._path = journal
        self._version = at_version
        self._statements: dict[tuple[str, ...], str] = {}
        self._columns: dict[str, frozenset[str]] = {}
        self._artifacts = Artifacts(journal.parent / "artifacts")
        self._db = open_empty(journal)
        with translated(journal):
            migrate(self._db.raw, journal, upto=at_version)
            self._db.raw.execute("BEGIN")

    def add(self, table: str, seq: int, row: Mapping[str, Any]) -> None:
        """Insert a row of the run with that number. Raises StoreError for what this version does not know."""
        names = (table, *row)
        if names not in self._statements:
            self._statements[names] = self._statement(table, row)
        for name, value in row.items():
            if (table, name) in _JSON:
                _check_json(table, name, value)
        with translated(self._path):
            self._db.raw.execute(self._statements[names], (seq, *row.values()))

    def _statement(self, table: str, row: Mapping[str, Any]) -> str:
        if table not in self._columns:
            found = self._db.raw.execute(queries(DIALECT)["dump_columns"], (table,)).fetchall()
            self._columns[table] = frozenset(name for name, _ in found)
        known = self._columns[table]
        by = next((name for name in known if name in _SEQ), None)
        unknown = sorted(set(row) - known)
        if by is None or unknown or _SEQ & set(row):
            what = f"the table '{table}'" if by is None else f"a column '{(unknown or ['seq'])[0]}' of '{table}'"
            raise StoreError("unknown-column", f"the export has {what}, which this interlock does not know")
        columns = ", ".join(f'"{name}"' for name in (by, *row))
        # names that the schema of this version has; the values are bound
        return f'INSERT INTO "{table}" ({columns}) VALUES ({", ".join("?" * (len(row) + 1))})'  # noqa: S608 - see above

    def file(self, tagged: str) -> ArtifactFile:
        """Take an artifact that lies in a file."""
        return ArtifactFile(self._artifacts.path(tagged), tagged)

    def finish(self, runs: int) -> None:
        """Commit, and bring the journal to this program's version. Raises BadRowError where rows are missing."""
        with translated(self._path):
            found = self._db.raw.execute(queries(DIALECT)["dump_missing"], (runs,)).fetchone()
            if found is not None:
                raise BadRowError("rows-missing", found[0])
            self._db.raw.execute("COMMIT")
            if self._version < len(migrations(DIALECT)):
                migrate(self._db.raw, self._path)

    def close(self) -> None:
        """Release the journal; what was not finished is dropped."""
        self._db.close()


def _check_json(table: str, name: str, value: object) -> None:
    if isinstance(value, str | bytes):
        try:
            msgspec.json.decode(value, type=_JSON[table, name])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadRowError("bad-row", f"the column '{name}' of '{table}' is not its JSON: {error}") from error


class ArtifactFile:
    """An artifact's file that grows piece by piece."""

    def __init__(self, path: Path, tagged: str) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self.tagged = tagged
        self._hash = hashlib.sha256()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def add(self, piece: bytes) -> None:
        """Append."""
        self._hash.update(piece)
        view = memoryview(piece)
        while view:
            view = view[os.write(self._fd, view) :]

    def close(self) -> bool:
        """Close; tell whether the content is what its name says."""
        os.close(self._fd)
        return self.tagged == f"sha256:{self._hash.hexdigest()}"
