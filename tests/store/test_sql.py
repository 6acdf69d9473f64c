from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from interlock.store import sql
from interlock.store.sqlite import SqliteStore

SOURCE = Path(sql.__file__).parent
NONSENSE = """\
INSERT INTO run (id, workflow, state, plan_hash, params_hash, params_json, created_at) VALUES ('r', '', 'lost', '', '', x'', 1)
INSERT INTO step (run_seq, step, id, stages, each_item, child, state) VALUES (1, 0, 's', '', 0, 0, 'done')
INSERT INTO step (run_seq, step, id, stages, each_item, child) VALUES (1, 0, 's', 'judge check', 0, 0)
INSERT INTO unit (run_seq, step, ordinal, state, kind, counted, round, loop, id, input_hash) VALUES (1, 0, 0, 'done', 'work', 1, 1, 1, 'u', '')
INSERT INTO attempt (run_seq, step, unit, number, state, dispatch, reserved_at) VALUES (1, 0, 0, 1, 'done', 'd', 1)
INSERT INTO attempt (run_seq, step, unit, number, state, dispatch, reserved_at, estimated) VALUES (1, 0, 0, 1, 'reserved', 'd', 1, 2)
INSERT INTO unit (run_seq, step, ordinal, state, kind, counted, round, loop, id, input_hash) VALUES (1, 0, 0, 'pending', 'vote', 0, 1, 1, 'u', '')
INSERT INTO approval VALUES (1, 0, 0, 1, 'ann', 'pass', 's', 2, '')
INSERT INTO approval VALUES (1, 0, 0, 1, '', 'pass', 's', 0, '')
INSERT INTO approval VALUES (1, 0, 0, 1, 'ann', 'maybe', 's', 0, '')
INSERT INTO granted_loops VALUES (1, 0, 0)
INSERT INTO request (run_seq, kind, payload_json, made_at, made_by) VALUES (1, 'stop', x'', 1, '')
""".splitlines()


@pytest.mark.parametrize("name", sorted(sql.queries("sqlite")))
def test_a_query_fits_the_schema_and_is_used(tmp_path: Path, name: str) -> None:
    text = sql.queries("sqlite")[name]
    with SqliteStore.in_memory(tmp_path) as store:
        places = max(map(int, re.findall(r"\?(\d+)", text)), default=text.count("?")) if "?" in text else 0
        store._db.raw.execute("EXPLAIN " + text, (None,) * places)  # noqa: SLF001
    assert any(f'"{name}"' in file.read_text() for file in SOURCE.glob("*.py"))


def test_every_query_of_the_hot_path_goes_by_a_key(tmp_path: Path) -> None:
    with SqliteStore.in_memory(tmp_path) as store:
        for name in ("reserve_unit", "start_attempt", "finish_attempt", "finish_unit", "unit_state", "open_attempts"):
            text = sql.queries("sqlite")[name]
            plan = store._db.raw.execute("EXPLAIN QUERY PLAN " + text, (None,) * text.count("?")).fetchall()  # noqa: SLF001
            assert all(row[3].startswith("SEARCH") or "ORDER BY" in row[3] for row in plan), plan


def test_the_census_reads_an_index_alone(tmp_path: Path) -> None:
    with SqliteStore.in_memory(tmp_path) as store:
        plan = store._db.raw.execute("EXPLAIN QUERY PLAN " + sql.queries("sqlite")["census"], (1,)).fetchall()  # noqa: SLF001
        assert [row[3] for row in plan] == ["SEARCH unit USING COVERING INDEX unit_census (run_seq=?)"]


def test_a_name_belongs_to_one_query() -> None:
    names = [name for file in sorted(SOURCE.glob("sql/sqlite/*.sql")) for name, _ in sql.parse(file.read_text())]
    assert sorted(names) == sorted(sql.queries("sqlite"))


def test_a_state_that_does_not_exist_is_refused_by_every_table(tmp_path: Path) -> None:
    with SqliteStore.in_memory(tmp_path) as store:
        raw = store._db.raw  # noqa: SLF001 - a stranger's write
        for statement in NONSENSE:
            with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed"):
                raw.execute(statement)
