from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.conformance import Conformance

from interlock.store.sqlite import SqliteStore


class TestFileSqlite(Conformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        with SqliteStore.open(tmp_path / "journal.db") as store:
            yield store


class TestMemorySqlite(Conformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        with SqliteStore.in_memory(tmp_path) as store:
            yield store
