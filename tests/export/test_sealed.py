"""The file of an export: whatever is changed in it is found, and said with its place."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.export.files import export, forged, journal, lines_of, packed

from interlock.driver.export.importing import open_export, verify_export
from interlock.driver.export.sealed import ExportDamagedError
from interlock.errors import InterlockError, StoreError, UsageError


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(journal(tmp_path_factory.mktemp("whole")))[0]


def refused(path: Path, content: bytes) -> InterlockError:
    path.write_bytes(content)
    with pytest.raises(InterlockError) as raised:
        verify_export(path)
    return raised.value


def test_a_whole_file_is_told_so_with_its_lines_and_its_last_hash(whole: Path) -> None:
    found = verify_export(whole)
    last = json.loads(lines_of(whole)[-1])
    assert (found.lines, found.hash) == (len(lines_of(whole)), last["hash"])
    assert found.header.run == "20300101-r1"


def test_every_line_can_be_read_with_the_tools_that_everybody_has(whole: Path) -> None:
    lines = [json.loads(line) for line in lines_of(whole)]
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    assert [line["prev"] for line in lines[1:]] == [line["hash"] for line in lines[:-1]]
    assert {line["kind"] for line in lines} == {"header", "row", "log", "end"}


def test_every_flip_of_a_byte_is_found(whole: Path, tmp_path: Path) -> None:
    good = whole.read_bytes()
    for at in range(len(good)):
        for bit in (0x01, 0x80):
            bad = bytearray(good)
            bad[at] ^= bit
            assert refused(tmp_path / "bad.gz", bytes(bad)).exit_code in (1, 2), at


def test_a_file_cut_at_any_byte_is_found(whole: Path, tmp_path: Path) -> None:
    good = whole.read_bytes()
    for end in range(len(good)):
        error = refused(tmp_path / "cut.gz", good[:end])
        assert isinstance(error, ExportDamagedError) or end < 1, end


def test_bytes_behind_the_end_are_found(whole: Path, tmp_path: Path) -> None:
    for more in (b"\0", whole.read_bytes(), b"x" * 200_000):
        assert "is damaged after line" in refused(tmp_path / "more.gz", whole.read_bytes() + more).message


def test_a_file_without_its_last_lines_is_found_wherever_it_was_cut(whole: Path, tmp_path: Path) -> None:
    lines = lines_of(whole)
    assert packed(lines) == whole.read_bytes(), "the packer of this test packs otherwise"
    for left in range(1, len(lines)):
        error = refused(tmp_path / "short.gz", packed(lines[:left]))
        assert isinstance(error, ExportDamagedError), left
        assert f"at line {left}: expected the last line, found a line of kind" in error.message or left == 1


def test_a_missing_a_doubled_and_a_moved_line_are_named(whole: Path, tmp_path: Path) -> None:
    lines = lines_of(whole)
    for at in range(1, len(lines) - 2):
        missing = refused(tmp_path / "bad.gz", packed([*lines[:at], *lines[at + 1 :]]))
        assert f"at line {at + 1}: expected line {at + 1}, found the line that was number {at + 2}" in missing.message
        doubled = refused(tmp_path / "bad.gz", packed([*lines[: at + 1], *lines[at:]]))
        assert f"at line {at + 2}: expected line {at + 2}" in doubled.message
        moved = refused(tmp_path / "bad.gz", packed([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]))
        assert f"at line {at + 1}: expected line {at + 1}" in moved.message


def test_an_edited_line_is_named_with_both_hashes(whole: Path, tmp_path: Path) -> None:
    lines = lines_of(whole)
    at = next(n for n, line in enumerate(lines) if b'"table":"unit"' in line)
    edited = [*lines[:at], lines[at].replace(b'"completed"', b'"failed"'), *lines[at + 1 :]]
    message = refused(tmp_path / "bad.gz", packed(edited)).message
    found = re.search(r"at line (\d+): expected hash (\S+) of its content, found hash (\S+)", message)
    assert found is not None
    assert (int(found[1]), found[3]) == (at + 1, json.loads(lines[at])["hash"])
    assert found[2] != found[3]


def test_a_line_spelled_otherwise_is_found(whole: Path, tmp_path: Path) -> None:
    lines = lines_of(whole)
    lines[1] = lines[1].replace(b',"kind"', b', "kind"')
    assert "at line 2: expected canonical JSON" in refused(tmp_path / "bad.gz", packed(lines)).message


def test_a_line_taken_from_another_export_is_found(whole: Path, tmp_path: Path) -> None:
    lines = lines_of(whole)
    strange = json.loads(lines[2])
    strange["prev"] = strange["hash"]
    lines[2] = json.dumps(strange, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    assert "at line 3: expected prev sha256:" in refused(tmp_path / "bad.gz", packed(lines)).message


def test_a_file_that_another_program_packed_again_is_found(whole: Path, tmp_path: Path) -> None:
    again = gzip.compress(b"".join(lines_of(whole)))
    assert "expected the gzip head" in refused(tmp_path / "again.gz", again).message


@settings(max_examples=200)
@given(cut=st.data())
def test_any_piece_put_in_the_place_of_another_is_found(whole: Path, cut: st.DataObject) -> None:
    good = whole.read_bytes()
    start = cut.draw(st.integers(0, len(good)))
    end = cut.draw(st.integers(start, min(len(good), start + 40)))
    bad = good[:start] + cut.draw(st.binary(max_size=40)) + good[end:]
    if bad != good:
        refused(whole.with_name("any.gz"), bad)


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"{}", b"SQLite format 3\0", gzip.compress(b"hello\n" * 99, mtime=0), packed([b"x\n", b"y\n"])],
)
def test_what_is_no_export_is_called_so(content: bytes, tmp_path: Path) -> None:
    error = refused(tmp_path / "other", content)
    assert (type(error), error.exit_code) == (UsageError, 2)
    assert error.message == f"{tmp_path / 'other'} is not an export of interlock"


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"can't read .*/none: no such file or directory"):
        verify_export(tmp_path / "none")
    with pytest.raises(UsageError, match=r"can't read .*: is a directory"):
        verify_export(tmp_path)


def test_a_newer_format_is_refused_however_its_lines_look(whole: Path, tmp_path: Path) -> None:
    lines = [line.replace(b'"format":1', b'"format":2') for line in lines_of(whole)]
    for content in (packed(lines), packed([b'{"data":{"format":7,"interlock":"9"},"new":1}\n', b"-\n"])):
        error = refused(tmp_path / "new.gz", content)
        assert (type(error), error.code, error.hint) == (StoreError, "export-too-new", "upgrade interlock")


def header(**changes: object) -> tuple[str, object]:
    return "header", {"format": 1, "interlock": "1", "journal": 1, "run": "r", "runs": ["r"], **changes}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([header(run="../../r", runs=["../../r"])], "line 1 of .* its run has no proper id"),
        ([header(journal=99)], "holds a journal of version 99"),
        ([header(), ("row", {"run": 0, "table": "run", "row": {"id": "s"}})], "line 2 .* header does not name"),
        ([header(), ("row", {"run": 7, "table": "run", "row": {}})], "line 2 .* there is no run 7"),
        ([header(), ("row", {"run": 0, "table": "sqlite_schema", "row": {}})], "the table 'sqlite_schema'"),
        ([header(), ("row", {"run": 0, "table": "unit", "row": {'x"': 1}})], "a column 'x\"' of 'unit'"),
        ([header(), ("row", {"run": 0, "table": "unit", "row": {"step": 0}})], "refuses a row"),
        ([header(), ("row", {"run": 0, "table": "unit", "row": {"step": True}})], "line 2 .* got `bool`"),
        (
            [header(), ("row", {"run": 0, "table": "unit", "row": {"item": {"text": "["}}})],
            "the column 'item' of 'unit'",
        ),
        ([header(), ("row", {"run": 0, "table": "event", "row": {"data": "[]"}})], "the column 'data' of 'event'"),
        ([header(), ("row", {"run": 0, "table": "unit", "row": {"item": {}}})], "line 2 .* neither text nor base64"),
        ([header(), ("row", {"run": 0, "table": "unit", "row": {"item": {"base64": "!"}}})], "line 2 of .*base64"),
        ([header(), ("row", {"run": 0, "table": "unit", "row": {"item": {"hex": ""}}})], "line 2 .* unknown field"),
        ([header(), ("log", {"run": 0, "at": 0})], "line 2 .* neither text nor base64"),
        ([header()], "there is no row of one of its runs"),
        ([header(), ("artifact", {"hash": "../x", "at": 0, "text": ""})], "line 2 .* it names no artifact"),
        ([header(), ("artifact", {"hash": f"sha256:{'0' * 64}", "at": 0, "text": "x"})], "does not match"),
        ([header(), ("log", {"run": -1, "at": 0, "text": ""})], "there is no run -1"),
        ([header(), ("poem", {"at": 0})], "its kind is 'poem'"),
    ],
)
def test_a_file_whose_chain_holds_but_whose_content_cannot_be_is_refused(
    lines: list[tuple[str, object]], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "forged.gz"
    path.write_bytes(forged([*lines, ("end", {})]))
    with pytest.raises(StoreError, match=said), open_export(path):
        pass
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["forged.gz"]


@pytest.mark.parametrize(
    ("table", "at", "said"),
    [
        ("run_plan", 0, "there is no row of one of its runs, or of its plan"),
        ("step", 0, "a unit is of a step that is not there"),
        ("unit", 0, "an attempt is of a unit that is not there"),
    ],
)
def test_a_row_that_another_refers_to_and_that_was_left_out_is_told(
    whole: Path, tmp_path: Path, table: str, at: int, said: str
) -> None:
    lines = [json.loads(line) for line in lines_of(whole)]
    rows = [line for line in lines if line["data"].get("table") == table]
    left = [(line["kind"], line["data"]) for line in lines if line is not rows[at]]
    path = tmp_path / "forged.gz"
    path.write_bytes(forged(left))
    with pytest.raises(StoreError, match=said), open_export(path):
        pass
