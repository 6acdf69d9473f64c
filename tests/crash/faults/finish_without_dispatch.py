"""Planted fault: the end of an attempt is written without looking at dispatch id and an end that stands."""

from __future__ import annotations

import sys

from interlock.store import reads, sql
from interlock.testing import suspension

queries = dict(sql.queries("sqlite"))
assert "AND dispatch = ? AND ended_at IS NULL" in queries["finish_attempt"]
queries["finish_attempt"] = queries["finish_attempt"].replace(
    "AND dispatch = ? AND ended_at IS NULL", "AND ? IS NOT NULL"
)
vars(reads)["queries"] = lambda _dialect: queries
sys.exit(suspension.main(sys.argv[1:]))
