"""Progress on a real terminal: what is drawn while a map runs, and what stands there when it has ended."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.terminal import HIDDEN, SEQUENCE, SHOWN, Terminal, screen

# each unit ends when the test lets it, so what is drawn in between is known
FLOW = """---
params: { items: { type: array, default: [1, 2, 3, 4] } }
steps:
  - id: work
    map: { over: params.items, concurrency: 4 }
    run: until test -e "open-$INTERLOCK_ITEM"; do sleep 0.05; done; echo "$INTERLOCK_ITEM"
  - id: last
    run: echo the end
---
"""
BAR = "[━╸╺]+"
Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the flow on a terminal."""
    started: list[Terminal] = []
    (tmp_path / "flow.md").write_text(FLOW, encoding="utf-8")

    def call(*, columns: int = 100, term: str = "xterm-256color") -> Terminal:
        terminal = Terminal(["run", "flow.md"], tmp_path, columns=columns, term=term)
        started.append(terminal)
        return terminal

    yield call
    for terminal in started:
        terminal.close()


def let(folder: Path, *items: int) -> None:
    for item in items:
        (folder / f"open-{item}").touch()


def test_a_map_is_drawn_as_a_bar_with_counts_and_ends_in_the_summary(start: Start, tmp_path: Path) -> None:
    terminal = start()
    terminal.wait_for("0/4")
    assert HIDDEN in terminal.said
    for ended in range(1, 4):
        let(tmp_path, ended)
        terminal.wait_for(f"{ended}/4")
    terminal.wait_for(" left")
    let(tmp_path, 4)
    assert terminal.end() == 0
    assert re.search(rf"▸ work +{BAR} +3/4 +\S.* s, about \S.* left", terminal.text)
    assert re.search(r"0/2 steps ended, 1 unit running, \S.* s", terminal.text)
    assert terminal.said.rindex(SHOWN) > terminal.said.rindex(HIDDEN)
    # what was drawn below the lines is gone again
    run, *shown = screen(terminal.said, 100)
    assert re.fullmatch(r"run \S+ of flow.md", run)
    assert [re.sub(r"\d+\.\d+ s|\d+ ms", "TIME", line) for line in shown] == [
        "step work started with 4 units",
        "step work completed after TIME (4/4 completed)",
        "step last started",
        "step last completed after TIME",
        f"run {run.split()[1]} completed after TIME",
        "  5 units: 5 completed",
        "  last: the end",
        "",
    ]


def test_a_window_of_twenty_columns_is_drawn_within_its_width(start: Start, tmp_path: Path) -> None:
    terminal = start(columns=20)
    terminal.wait_for("0/4")
    let(tmp_path, 1, 2, 3)
    terminal.wait_for("3/4")
    let(tmp_path, 4)
    assert terminal.end() == 0
    assert re.search(f"▸ work {BAR} 3/4", terminal.text)
    assert terminal.said.rindex(SHOWN) > terminal.said.rindex(HIDDEN)
    run, rest = screen(terminal.said, 20)[:2]
    assert run + rest == terminal.text.partition("\n")[0]
    assert not any(sign in line for line in screen(terminal.said, 20) for sign in "▸━╸")
    assert [line for line in screen(terminal.said, 20) if line][-3:] == [
        "  5 units: 5 complet",
        "ed",
        "  last: the end",
    ]


def test_another_width_is_followed_and_an_interrupt_leaves_the_cursor(start: Start, tmp_path: Path) -> None:
    terminal = start()
    terminal.wait_for("0/4")
    terminal.resize(20)
    let(tmp_path, 1)
    terminal.wait_for("1/4")
    since = len(terminal.said)
    terminal.wait_for("running")
    drawn = SEQUENCE.sub(b"", terminal.said[since:]).decode()
    assert all(len(line) <= 20 for line in re.split(r"[\r\n]+", drawn)), drawn
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert terminal.said.rindex(SHOWN) > terminal.said.rindex(HIDDEN)
    assert re.search(r"next: interlock run \S+\n$", terminal.text)


def test_a_terminal_that_can_do_nothing_gets_plain_lines(start: Start, tmp_path: Path) -> None:
    let(tmp_path, 1, 2, 3, 4)
    terminal = start(term="dumb")
    assert terminal.end() == 0
    assert b"\x1b" not in terminal.said
    assert re.sub(r"\d+\.\d+ s|\d+ ms", "TIME", terminal.text).splitlines()[1:5] == [
        "step work started with 4 units",
        "step work completed after TIME (4/4 completed)",
        "step last started",
        "step last completed after TIME",
    ]
