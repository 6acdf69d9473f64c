"""Ctrl-C at the worst moment, and again: the cursor comes back, the summary is printed, the exit code is the run's."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.terminal import HIDDEN, PATIENCE_S, SHOWN, Terminal

from interlock.app import open_project
from interlock.cli import driving
from interlock.cli.progress.feed import Feed
from interlock.driver.loop import Observer
from interlock.driver.result import Result


@pytest.fixture(autouse=True)
def default_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_who_interrupts_a_run_that_has_just_ended_is_told_how_it_ended(
    tmp_path: Path, flow: Callable[..., Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = flow()

    def start(on_event: Observer) -> Result:
        app.run_file(path, on_event=on_event)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it was not interrupted")

    def close(feed: Feed, how: Callable[[Feed], None] = Feed.close) -> None:
        signal.raise_signal(signal.SIGINT)
        how(feed)

    monkeypatch.setattr(Feed, "close", close)
    with open_project(tmp_path) as app:
        assert driving.drive(app, start, as_json=False) == 0
    assert re.search(
        r"run \S+ completed after .*\n  1 unit: 1 completed\n  greet: hello world\n$", capfd.readouterr().out
    )


def test_who_interrupts_before_there_is_a_run_has_nothing_to_be_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def start(_on_event: Observer) -> Result:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it was not interrupted")

    with open_project(tmp_path) as app, pytest.raises(KeyboardInterrupt):
        driving.drive(app, start, as_json=False)
    assert capfd.readouterr().out == ""


def test_whatever_is_pressed_the_cursor_comes_back_and_the_summary_is_printed(tmp_path: Path) -> None:
    (tmp_path / "flow.md").write_text("---\nsteps:\n  - { id: long, run: sleep 60 }\n---\n", encoding="utf-8")
    terminal: Any = Terminal(["run", "flow.md"], tmp_path)
    try:
        terminal.wait_for("1 unit running")
        deadline = time.monotonic() + PATIENCE_S
        # until it has ended, so that every moment of its end is one of these
        while terminal.process.poll() is None:
            assert time.monotonic() < deadline
            terminal.process.send_signal(signal.SIGINT)
            terminal.take(0.005)
        assert terminal.end() == 130
        assert terminal.said.rindex(SHOWN) > terminal.said.rindex(HIDDEN)
        assert re.search(
            r"\nrun \S+ active \(interrupted\) after .*\n(.*\n)*  next: interlock run \S+\n$", terminal.text
        )
    finally:
        terminal.close()
