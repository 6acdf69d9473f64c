"""What is durable before what: each fsync, with the size that its file had then, beside renames and commits.

SQLite's own are its own affair: that it is asked for `synchronous=FULL` is tested in `test_opening.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.child import in_a_child
from tests.store import builders as b

from interlock.driver.project import open_state, project_at
from interlock.model import canon
from interlock.store.sqlite import SqliteStore

BIG = b'"' + b"a" * 70_000 + b'"'
NAME = canon.sha256(BIG).replace(":", "-")
Do = Callable[[list[str]], None]


def traced(folder: Path, do: Do) -> list[str]:
    """What is made durable, made, renamed and removed in the folder while `do` works, in a process of its own."""

    def named(path: Any) -> str:
        # of a draft, the name is chance
        name = re.sub(r"(\.part-|\.)[0-9a-z_]{8}$", r"\1*", os.path.relpath(path, folder))
        return re.sub(r"\.[0-9]+\.\*$", ".*", name)

    def trace() -> str:
        seen: list[str] = []
        fsync, replace, mkdir, unlink, create = os.fsync, os.replace, os.mkdir, os.unlink, os.open

        def traced_fsync(handle: int) -> None:
            place = Path(f"/proc/self/fd/{handle}").readlink()
            size = "" if place.is_dir() else f" at {os.fstat(handle).st_size}"
            seen.append(f"fsync {named(place)}{size}")
            fsync(handle)

        def traced_replace(source: Any, target: Any, **rest: Any) -> None:
            replace(source, target, **rest)
            seen.append(f"{named(source)} -> {named(target)}")

        def traced_mkdir(path: Any, *rest: Any, **named_rest: Any) -> None:
            mkdir(path, *rest, **named_rest)
            seen.append(f"mkdir {named(path)}")

        def traced_unlink(path: Any, **rest: Any) -> None:
            unlink(path, **rest)
            seen.append(f"unlink {named(path)}")

        def traced_open(path: Any, flags: int, *rest: Any, **named_rest: Any) -> int:
            handle = create(path, flags, *rest, **named_rest)
            if flags & os.O_EXCL:
                seen.append(f"make {named(path)}")
            return handle

        for one in (traced_fsync, traced_replace, traced_mkdir, traced_unlink, traced_open):
            setattr(os, one.__name__.removeprefix("traced_"), one)
        do(seen)
        return "\n".join(seen)

    return in_a_child(trace).splitlines()


def opened(folder: Path, seen: list[str]) -> SqliteStore:
    return SqliteStore.open(folder / "journal.db", on_commit=seen.append)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A folder with a journal whose run can complete its step."""
    with SqliteStore.open(tmp_path / "journal.db") as store:
        b.begin(store, 0)
    return tmp_path


def test_the_journal_is_in_its_folder_for_good_before_anything_is_written_to_it(tmp_path: Path) -> None:
    def do(seen: list[str]) -> None:
        opened(tmp_path, seen).close()

    assert traced(tmp_path, do)[:3] == ["make journal.db", "fsync .", "before"]


def test_the_folder_of_the_journal_is_in_the_project_for_good_before_it_is_used(tmp_path: Path) -> None:
    def do(_seen: list[str]) -> None:
        open_state(project_at(tmp_path))

    seen = traced(tmp_path, do)
    assert seen[:2] == ["mkdir .interlock", "fsync ."]
    assert [line for line in seen if " at " in line] == [
        "fsync .interlock/.gitignore.* at 2",
        "fsync .interlock/id.* at 33",
    ]
    assert "fsync ." not in traced(tmp_path, do)


def test_an_artifact_and_its_folder_are_durable_before_the_row_that_names_it(begun: Path) -> None:
    def do(seen: list[str]) -> None:
        with opened(begun, seen) as store:
            store.commit(b.lease(), [b.completed(BIG)])

    assert traced(begun, do) == [
        "mkdir artifacts",
        "fsync .",
        "make artifacts/.part-*",
        f"fsync artifacts/.part-* at {len(BIG)}",
        f"artifacts/.part-* -> artifacts/{NAME}",
        "fsync artifacts",
        "before",
        "after",
    ]


def test_an_artifact_that_another_process_left_there_is_made_durable_too(begun: Path) -> None:
    (begun / "artifacts").mkdir()
    (begun / "artifacts" / NAME).write_bytes(BIG)

    def do(seen: list[str]) -> None:
        with opened(begun, seen) as store:
            store.commit(b.lease(), [b.completed(BIG)])

    seen = traced(begun, do)
    assert seen == ["fsync .", f"fsync artifacts/{NAME} at {len(BIG)}", "fsync artifacts", "before", "after"]


def test_ends_in_the_spool_are_durable_when_they_are_told_to_be_kept(begun: Path) -> None:
    def do(seen: list[str]) -> None:
        with opened(begun, seen) as store:
            for number in range(2):
                store.spool(b.RUN, [b.finished(number)])
                seen.append("kept")

    place = f"spool/{b.RUN}.jsonl"
    seen = traced(begun, do)
    lines = (begun / place).read_bytes().splitlines(keepends=True)
    sizes = len(lines[0]), len(b"".join(lines))
    first, second = ([f"fsync {place} at {size}", "fsync spool", "kept"] for size in sizes)
    assert seen == ["mkdir spool", "fsync .", *first, *second]


def test_the_spool_is_forgotten_only_when_its_ends_are_in_the_journal(begun: Path) -> None:
    with SqliteStore.open(begun / "journal.db") as store:
        store.spool(b.RUN, [b.finished(0)])
        # nothing but the spool is looked at
        store.take_spool("other")

    def do(seen: list[str]) -> None:
        with opened(begun, seen) as store:
            store.take_spool(b.RUN)

    assert traced(begun, do) == ["before", "after", f"unlink spool/{b.RUN}.jsonl", "fsync spool"]
