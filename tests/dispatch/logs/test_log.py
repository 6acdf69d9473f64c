from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.dispatch.logs.log import OPEN_MARK, RunLog
from interlock.dispatch.logs.reading import Frame, LogDamagedError, read_log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.log"


@pytest.fixture
def log(path: Path) -> Iterator[RunLog]:
    made = RunLog(path)
    yield made
    made.close()


def _texts(path: Path) -> list[tuple[str, str, bytes]]:
    return [(frame.dispatch, frame.stream, frame.data) for frame in read_log(path)]


def _write(log: RunLog, dispatch: str, *datas: bytes) -> None:
    attempt = log.attempt(dispatch, 10_000_000)
    for data in datas:
        attempt.add("out", data)
    attempt.close()


def test_what_is_written_is_read_back_in_order(log: RunLog, path: Path) -> None:
    attempt = log.attempt('d"1', 1_000_000)
    attempt.add("out", b"one\n")
    attempt.add("err", b"\0\xff\n{")
    span = attempt.close()
    _write(log, "d2", b"two")
    assert _texts(path) == [('d"1', "out", b"one\n"), ('d"1', "err", b"\0\xff\n{"), ("d2", "out", b"two")]
    assert span is not None
    assert [frame.data for frame in read_log(path, [span])] == [b"one\n", b"\0\xff\n{"]


def test_a_silent_attempt_leaves_nothing(log: RunLog, path: Path) -> None:
    assert log.attempt("d", 10).close() is None
    assert path.read_bytes() == b""


def test_a_small_attempt_costs_one_write(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(log, "first", b"opens the log")
    writes: list[int] = []
    write = os.write

    def counting(fd: int, data: bytes) -> int:
        writes.append(len(data))
        return write(fd, data)

    monkeypatch.setattr(os, "write", counting)
    _write(log, "d", b"one", b"two", b"three")
    assert len(writes) == 1


def test_more_than_the_limit_is_dropped_and_said(log: RunLog, path: Path) -> None:
    attempt = log.attempt("d", 10)
    for _ in range(4):
        attempt.add("out", b"12345678")
    attempt.close()
    assert [frame.data for frame in read_log(path)] == [
        b"12345678",
        b"12",
        b"22 bytes dropped: the limit is 10 (max_log_bytes of [limits])",
    ]
    assert [frame.stream for frame in read_log(path)] == ["out", "out", "note"]


def test_spans_that_overlap_give_each_frame_once_and_others_are_left_out(log: RunLog, path: Path) -> None:
    one, two = log.attempt("one", 1000), log.attempt("two", 1000)
    for attempt in (one, two, one, two):
        attempt.add("out", b"x")
        attempt.flush()
    spans = [span for attempt in (one, two) if (span := attempt.close())]
    assert [frame.dispatch for frame in read_log(path, spans)] == ["one", "two", "one", "two"]
    assert [frame.dispatch for frame in read_log(path, spans[:1], ["one"])] == ["one", "one"]
    assert list(read_log(path, [])) == []


def test_threads_do_not_tear_each_others_frames(log: RunLog, path: Path) -> None:
    def work(name: str) -> None:
        for number in range(50):
            _write(log, name, b"%d" % number * 100)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(frame.dispatch for frame in read_log(path)) == sorted(f"t{n}" for n in range(4) for _ in range(50))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    datas=st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4),
    later=st.lists(st.binary(min_size=1, max_size=40), max_size=3),
    cut=st.floats(min_value=0, max_value=1, exclude_max=True),
)
def test_cut_at_any_byte_the_log_reads_up_to_there_and_goes_on_with_the_next_driver(
    tmp_path: Path, datas: list[bytes], later: list[bytes], cut: float
) -> None:
    path = tmp_path / "cut.log"
    path.unlink(missing_ok=True)
    first = RunLog(path)
    ends = []
    for data in datas:
        _write(first, "d", data)
        ends.append(path.stat().st_size)
    first.close()
    size = int(ends[-1] * cut)
    os.truncate(path, size)
    whole = [data for data, end in zip(datas, ends, strict=True) if end <= size]
    assert [frame.data for frame in read_log(path)] == whole
    second = RunLog(path)
    for data in later:
        _write(second, "e", data)
    second.close()
    if later:
        # one that lacks but its last newline is whole again by the one that the next driver begins with
        whole = [data for data, end in zip(datas, ends, strict=True) if end - 1 <= size]
    assert [frame.data for frame in read_log(path)] == whole + later


def test_a_frame_cut_short_that_claims_more_than_what_follows_does_not_hide_it(path: Path) -> None:
    first = RunLog(path)
    _write(first, "big", b"x" * 50_000)
    first.close()
    os.truncate(path, 1000)
    second = RunLog(path)
    _write(second, "after", b"y")
    second.close()
    assert [frame.dispatch for frame in read_log(path)] == ["after"]


@pytest.mark.parametrize("place", [60, 130, -30])
def test_damage_in_the_middle_is_an_error_that_names_the_place(log: RunLog, path: Path, place: int) -> None:
    for name in ("one", "two", "three"):
        _write(log, name, name.encode() * 10)
    raw = bytearray(path.read_bytes())
    raw[place] ^= 0x55
    path.write_bytes(raw)
    with pytest.raises(LogDamagedError, match=r"^the log .*run\.log is damaged at byte \d+\nhint: ") as caught:
        list(read_log(path))
    assert caught.value.code == "log-damaged"


def test_output_that_looks_like_a_drivers_mark_is_only_output(log: RunLog, path: Path) -> None:
    forged = b"x" + OPEN_MARK + b'"d":"","n":0,"c":0,"t":1}\n\n'
    _write(log, "d", forged)
    _write(log, "e", b"after")
    assert [frame.data for frame in read_log(path)] == [forged, b"after"]


def test_a_log_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert list(read_log(tmp_path / "none")) == []


def test_a_reader_follows_what_is_written_until_told_to_stop(log: RunLog, path: Path) -> None:
    _write(log, "d", b"before")
    found: list[Frame] = []
    over = threading.Event()
    reader = threading.Thread(target=lambda: found.extend(read_log(path, go_on=lambda: not over.is_set())))
    reader.start()
    _write(log, "d", b"meanwhile")
    _write(log, "d", b"last")
    over.set()
    reader.join(20)
    assert [frame.data for frame in found] == [b"before", b"meanwhile", b"last"]


def test_what_an_attempt_holds_is_due_soon_and_nothing_is_due_without(log: RunLog) -> None:
    attempt = log.attempt("d", 1000)
    assert attempt.flush_at is None
    attempt.add("out", b"x")
    assert attempt.flush_at is not None
    attempt.flush()
    assert attempt.flush_at is None


def test_a_full_disk_leaves_no_half_frame(log: RunLog, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(log, "before", b"x")
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(28, "No space left on device")
        return write(fd, data[: len(data) - 50])

    attempt = log.attempt("d", 100_000)
    attempt.add("out", b"y" * 1000)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        attempt.flush()
    _write(log, "after", b"z")
    assert [frame.dispatch for frame in read_log(path)] == ["before", "after"]


def test_what_could_not_be_written_is_counted_where_it_is_missing(
    log: RunLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    middle, end, never = (log.attempt(name, 10) for name in ("middle", "end", "never"))
    for attempt in (middle, end, never):
        attempt.add("out", b"first")
        attempt.flush()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for attempt in (middle, end, never):
            attempt.add("err", b"xy")
            attempt.flush()
            attempt.add("out", b"z")
            attempt.flush()
        spans = [never.close()]
    middle.add("out", b"4567")
    spans += [middle.close(), end.close()]
    gap = b"3 bytes could not be written: No space left on device"
    dropped = b"2 bytes dropped: the limit is 10 (max_log_bytes of [limits])"
    assert [
        [frame.data for frame in read_log(path, [span], [name])]
        for name, span in zip(("never", "middle", "end"), spans, strict=True)
        if span
    ] == [[b"first"], [b"first", gap, b"45", dropped], [b"first", gap]]
    told = f"the log {path} lacks some of what was said: it could not be written: No space left on device"
    assert {attempt.notices for attempt in (middle, end, never)} == {(told,)}
    assert log.attempt("whole", 10).notices == ()
