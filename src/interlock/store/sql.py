"""Named queries: SQL stands in `sql/<dialect>/*.sql`, each query under a line `-- name: <name>`.

Guarantee: a name is defined once per dialect; asking for one that does not exist fails at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

_FOLDER: Final = Path(__file__).parent / "sql"
_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_FILES: Final = ("run.sql", "step.sql", "unit.sql", "gate.sql", "misc.sql", "dump.sql")


@cache
def queries(dialect: str) -> Mapping[str, str]:
    """All queries of a dialect by name."""
    folder = _FOLDER / dialect
    found: dict[str, str] = {}
    for name in _FILES:
        for query, text in parse((folder / name).read_text(encoding="utf-8")):
            if query in found:
                raise ValueError(f"query {query} is defined twice in sql/{dialect}")
            found[query] = text
    return MappingProxyType(found)


def parse(text: str) -> list[tuple[str, str]]:
    """Split a file into (name, query); what stands before the first name is the file's own comment."""
    parts = _NAME.split(text)[1:]
    return [(name, query.strip()) for name, query in zip(parts[::2], parts[1::2], strict=True)]


@cache
def migrations(dialect: str) -> tuple[str, ...]:
    """The scripts `0001.sql`, `0002.sql`, ... in order; script n leads to version n."""
    folder = _FOLDER / dialect / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    if names != [f"{n:04}.sql" for n in range(1, len(names) + 1)]:
        raise ValueError(f"migrations of {dialect} are not numbered without gaps: {', '.join(names)}")
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)
