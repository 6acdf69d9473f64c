from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import interlock
from interlock.dispatch.commands import lines as command_lines
from interlock.dispatch.python import ahead as python_ahead
from interlock.driver.params import ParamsInput
from interlock.model import events as ev

FLOW = """---
params:
  items: {{ type: array }}
steps:
  - id: work
    map: {{ over: params.items, concurrency: {concurrency} }}
    {target}
    {more}
---
"""
BAD = 1_000
FUNCTION = "uses: python:work:note"
COMMAND = "run: 'echo +$INTERLOCK_ITEM >> log; [ $INTERLOCK_ITEM != 1000 ] && echo -$INTERLOCK_ITEM >> log'"
WORK = """
import os

def note(context):
    log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, b"+%d\\n" % context["item"])
    if context["item"] == 1000:
        raise ValueError("as asked")
    os.write(log, b"-%d\\n" % context["item"])
    os.close(log)
"""


class Recorded:
    """What a run did, seen from outside and from its events."""

    def __init__(self, folder: Path, target: str, items: list[int], concurrency: int, more: str) -> None:
        text = FLOW.format(target=target, concurrency=concurrency, more=more)
        (folder / "flow.md").write_text(text, encoding="utf-8")
        (folder / "work.py").write_text(WORK, encoding="utf-8")
        self.open = self.most_open = self.commits = 0
        self.ends: Counter[str] = Counter()
        with interlock.open(folder) as app:
            self.result = app.run_file(folder / "flow.md", ParamsInput(values={"items": items}), on_event=self._see)
        self.lines = (folder / "log").read_text().split()

    def _see(self, events: object, _snap: object) -> None:
        self.commits += 1
        assert isinstance(events, list)
        for event in events:
            if isinstance(event, ev.AttemptReserved):
                self.open += 1
            elif isinstance(event, ev.AttemptFinished):
                self.open -= 1
                self.ends[event.state] += 1
        self.most_open = max(self.most_open, self.open)

    def most_at_once(self) -> int:
        now = most = 0
        for line in self.lines:
            now += 1 if line.startswith("+") else -1
            most = max(most, now)
        return most


@pytest.fixture(autouse=True)
def _any_pace_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_ahead, "LOOK_US", 1e12)
    monkeypatch.setattr(python_ahead, "SLOW_US", 1e12)
    monkeypatch.setattr(command_lines, "LOOK_MS", 1e12)
    monkeypatch.setattr(command_lines, "SLOW_MS", 1e12)


@pytest.fixture(params=[FUNCTION, COMMAND], ids=["function", "command"])
def target(request: pytest.FixtureRequest) -> str:
    """What the map does."""
    return str(request.param)


def test_quick_units_share_commits_and_never_run_more_at_once_than_the_map_allows(tmp_path: Path, target: str) -> None:
    seen = Recorded(tmp_path, target, list(range(300)), 2, "")
    assert seen.result.state == "completed"
    assert sorted(seen.lines) == sorted([f"{sign}{n}" for n in range(300) for sign in "+-"])
    assert seen.most_open > 2
    assert seen.commits < 100
    assert seen.most_at_once() <= 2


def test_effects_that_must_not_be_repeated_are_never_reserved_before_there_is_a_place(
    tmp_path: Path, target: str
) -> None:
    seen = Recorded(tmp_path, target, list(range(60)), 2, "effects: external")
    assert seen.result.state == "completed"
    assert seen.most_open == 2


def test_one_after_the_other_means_that_nothing_begins_after_a_failure(tmp_path: Path, target: str) -> None:
    seen = Recorded(tmp_path, target, [*range(40), BAD, *range(40, 100)], 1, "")
    assert seen.result.state == "failed"
    assert seen.most_open > 1
    assert seen.ends["aborted"] > 0
    assert seen.lines == [*[f"{sign}{n}" for n in range(40) for sign in "+-"], f"+{BAD}"]


def test_the_others_go_on_after_a_failure_that_the_map_goes_on_after(tmp_path: Path, target: str) -> None:
    seen = Recorded(tmp_path, target, [*range(40), BAD, *range(40, 100)], 1, "on_error: continue")
    assert seen.result.outcome == "degraded"
    assert seen.ends == {"completed": 100, "failed": 1}


KILLED = """
import sys
from pathlib import Path
import interlock
from interlock.dispatch.commands import lines as command_lines
from interlock.dispatch.python import ahead as python_ahead
from interlock.driver.params import ParamsInput
python_ahead.LOOK_US = python_ahead.SLOW_US = command_lines.LOOK_MS = command_lines.SLOW_MS = 1e12
Path("driver").write_text(str(__import__("os").getpid()))
with interlock.open(Path.cwd()) as app:
    app.run_file(Path("flow.md"), ParamsInput(values={"items": list(range(200))}))
"""
KILLS = """
import os, signal

def note(context):
    if context["item"] == 100 and context["attempt"] == 1:
        os.kill(int(open("driver").read()), signal.SIGKILL)
        signal.pause()
    with open("log", "a") as file:
        file.write("%d\\n" % context["item"])
"""


KILLING_COMMAND = """run: |
      if [ $INTERLOCK_ITEM = 100 ] && [ $INTERLOCK_ATTEMPT = 1 ]; then kill -KILL $(cat driver); exec sleep 60; fi
      echo $INTERLOCK_ITEM >> log"""


@pytest.mark.parametrize("target", [FUNCTION, KILLING_COMMAND], ids=["function", "command"])
def test_what_waited_when_its_driver_was_killed_is_lost_and_done_by_the_next_without_a_charge(
    tmp_path: Path, target: str
) -> None:
    (tmp_path / "flow.md").write_text(FLOW.format(target=target, concurrency=2, more=""), encoding="utf-8")
    (tmp_path / "work.py").write_text(KILLS, encoding="utf-8")
    (tmp_path / "interlock.toml").touch()
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    with interlock.open(tmp_path) as app:
        run_id = app.find("last")
        open_before = {(row.step, row.unit) for row in app.store.load(run_id).open}
        done_before = {row.ordinal for row in app.store.units(run_id) if row.state == "completed"}
        assert len(open_before) > 2
        assert app.run_id(run_id).state == "completed"
        units = list(app.store.units(run_id))
        lost = {(row.step, row.ordinal) for row in units if row.attempt == 2}
    assert lost == open_before
    assert {row.retries for row in units} == {0}
    ran = Counter(int(line) for line in (tmp_path / "log").read_text().split())
    assert set(ran) == set(range(200))
    assert all(ran[n] == 1 for n in done_before)
