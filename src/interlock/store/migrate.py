"""Bring a journal to this program's version, one numbered script and one transaction at a time.

Guarantees: `user_version` says which script ran last; two programs may migrate at once; a newer journal and a
database that is no journal are refused untouched.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from interlock.errors import JournalTooNewError, StoreError
from interlock.store.sql import migrations

DIALECT: Final = "sqlite"
APPLICATION_ID: Final = 0x494C434B
"""`ILCK`, in the header of every journal."""


def version(raw: sqlite3.Connection) -> int:
    """The number of the last script that ran; 0 for a new file."""
    return int(raw.execute("PRAGMA user_version").fetchone()[0])


def check(raw: sqlite3.Connection, path: Path) -> int:
    """Refuse what is newer or foreign; return the version."""
    found, known = version(raw), len(migrations(DIALECT))
    application = raw.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID and (found or raw.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]):
        raise StoreError(
            "not-a-journal",
            f"{path} is a database, but not an interlock journal",
            "move it away or choose another path",
        )
    if found > known:
        raise JournalTooNewError(
            "journal-too-new",
            f"the journal {path} has version {found}, this interlock reads up to {known}",
            "upgrade interlock",
        )
    return found


def migrate(
    raw: sqlite3.Connection,
    path: Path,
    *,
    upto: int | None = None,
    on_commit: Callable[[str], None] | None = None,
) -> None:
    """Run the scripts that are missing; with `upto`, none above it. `on_commit` is told "before" and "after" each."""
    scripts = migrations(DIALECT)[:upto]
    while check(raw, path) < len(scripts):
        raw.execute("BEGIN IMMEDIATE")
        try:
            # another program may have been faster while this one waited for the lock
            at = check(raw, path)
            if at < len(scripts):
                _run(raw, scripts[at], at + 1)
            if on_commit is not None:
                on_commit("before")
            raw.execute("COMMIT")
        except BaseException:
            if raw.in_transaction:
                raw.execute("ROLLBACK")
            raise
        if on_commit is not None:
            on_commit("after")


def _run(raw: sqlite3.Connection, script: str, number: int) -> None:
    for statement in statements(script):
        raw.execute(statement)
    raw.execute(f"PRAGMA user_version = {number}")
    raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def statements(script: str) -> list[str]:
    """Split a script; `executescript` would commit the transaction that makes a migration all or nothing."""
    found: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return found
