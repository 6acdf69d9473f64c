"""Progress on a terminal: a line for each step under way, a bar for each map, time gone and time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from interlock.cli.marks import mark
from interlock.cli.progress.feed import Change
from interlock.cli.progress.plain import PlainRenderer, Tone, label, under_way
from interlock.cli.text import count, duration
from interlock.model.run import Snapshot, Step
from interlock.model.states import StepState, UnitState

_MOST_STEPS: Final = 12
_BAR_WIDTH: Final = 24
_ETA_FROM: Final = 3
_STYLES: Final[dict[Tone, str]] = {"plain": "", "good": "green", "bad": "red", "note": "yellow"}
_UNDER_WAY = frozenset({StepState.RUNNING, StepState.GATING, StepState.WAITING, StepState.BLOCKED})


class LiveRenderer:
    """Plain lines scroll above; what is under way stands below them and is redrawn."""

    def __init__(self, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(file=sys.stdout, highlight=False)
        self._clock = clock
        self._began = clock()
        self._since: dict[tuple[str, int], tuple[float, int]] = {}
        self._lines = PlainRenderer(self._print, clock=clock, heartbeat_s=float("inf"))
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def begin(self, snapshot: Snapshot, ended: int) -> None:
        """Name the run and take the bottom of the screen."""
        self._lines.begin(snapshot, ended)
        self._live.start()

    def show(self, changes: Sequence[Change], snapshot: Snapshot, dropped: int) -> None:
        """Add lines and redraw."""
        self._lines.show(changes, snapshot, dropped)
        self._live.update(self._picture(snapshot), refresh=True)

    def end(self) -> None:
        """Leave only the lines."""
        self._live.stop()

    def _print(self, text: str, tone: Tone) -> None:
        self._console.print(Text(text.rstrip("\n"), style=_STYLES[tone]), soft_wrap=True)

    def _picture(self, snapshot: Snapshot) -> RenderableType:
        now = self._clock()
        going = [(of, step) for of in under_way(snapshot) for step in of.steps if step.state in _UNDER_WAY]
        ended = sum(1 for step in snapshot.steps if step.ended)
        spent = self._lines.spending.text(snapshot)
        gone = duration((now - self._began) * 1000)
        foot = f"{ended}/{len(snapshot.steps)} steps ended, {count(snapshot.busy, 'unit')} running{spent}, {gone}"
        table = Table.grid(padding=(0, 1))
        for of, step in going[:_MOST_STEPS]:
            table.add_row(*self._row(of, step, now))
        if len(going) > _MOST_STEPS:
            table.add_row("", Text(f"and {len(going) - _MOST_STEPS} more", style="dim"))
        return Group(table, Text(foot, style="dim"))

    def _row(self, of: Snapshot, step: Step, now: float) -> Sequence[RenderableType]:
        sign = mark(step.state.value)
        counts = dict(step.counts)
        total = len(step.work)
        done = total - sum(counts[state] for state in (UnitState.PENDING, UnitState.RUNNING, UnitState.WAITING))
        began, before = self._since.setdefault((of.run.id, step.index), (now, done))
        gone = duration((now - began) * 1000)
        head = (Text(sign.sign, style=sign.colour), Text(f"{label(of)}{step.id}", style="bold"))
        if total <= 1:
            return (*head, Text(step.state.value), Text(gone, style="dim"))
        failed = f", {counts[UnitState.FAILED]:,} failed" if counts[UnitState.FAILED] else ""
        numbers = Text(f"{done:,}/{total:,}{failed}  {gone}{_left(done - before, total - done, now - began)}")
        return (*head, ProgressBar(total=total, completed=done, width=_BAR_WIDTH), numbers)


def _left(done: int, left: int, seconds: float) -> str:
    """The time left by the speed so far, once there is one."""
    if done < _ETA_FROM or not left or seconds < 1:
        return ""
    return f", about {duration(seconds / done * left * 1000)} left"
