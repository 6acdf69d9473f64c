"""A driver inside somebody else's program: what it raises, what signals do to it, and that it leaves no trace."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import UsageError
from interlock.testing.replayed import replay_recording

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "interlock.toml").touch()
    (tmp_path / "flow.md").write_text(
        "---\nparams: { day: { default: 1 } }\nsteps: [{ id: a, run: test -e open || sleep 60 }]\n---\n",
        encoding="utf-8",
    )
    return tmp_path


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in STOPPING]


def test_what_a_watcher_raises_comes_out_and_the_run_goes_on(place: Path) -> None:
    seen: list[str] = []

    def watch(_events: object, snap: Any) -> None:
        seen.append(snap.run.id)
        raise LookupError("not mine")

    before = handlers()
    with interlock.open(place) as app:
        with pytest.raises(LookupError, match="not mine"):
            app.run_file(place / "flow.md", on_event=watch)
        assert not app.driven(seen[0])
        (place / "open").touch()
        assert app.run_id(seen[0]).state == "completed"
    assert handlers() == before


@pytest.mark.parametrize("number", STOPPING[:2])
def test_a_signal_ends_the_run_and_is_the_programs_again(place: Path, number: signal.Signals) -> None:
    def stop(events: Any, _snap: object) -> None:
        if any(type(event).__name__ == "AttemptReserved" for event in events):
            os.kill(os.getpid(), number)

    before = handlers()
    with interlock.open(place) as app:
        result = app.run_file(place / "flow.md", on_event=stop)
    assert (result.state, result.reason, result.exit_code) == ("active", "interrupted", 130)
    assert handlers() == before


def test_a_handler_that_python_did_not_set_is_left_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, taken = signal.signal, []

    def take(number: int, handler: Any) -> Any:
        taken.append(number)
        return real(number, handler)

    monkeypatch.setattr(signal, "getsignal", lambda number: None if number == signal.SIGQUIT else signal.SIG_DFL)
    monkeypatch.setattr(signal, "signal", take)
    (place / "open").touch()
    assert interlock.run(place / "flow.md", project=place).exit_code == 0
    assert set(taken) == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@dataclass
class Day:
    name: str


@pytest.mark.parametrize(
    ("value", "kind"), [(date(2026, 1, 1), "date"), (Path("a"), "PosixPath"), ([Day("monday")], "Day")]
)
def test_a_param_that_is_no_json_is_told_with_what_it_has_to_be(place: Path, value: object, kind: str) -> None:
    with pytest.raises(UsageError) as caught:
        interlock.run(place / "flow.md", {"day": value}, project=place)
    assert caught.value.message == f"param 'day' is not JSON: a {kind} is not JSON"
    assert caught.value.hint == "make it of dict, list, str, int, float, bool and None"
    assert not (place / ".interlock").exists()


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"workflow": 3}, "workflow must be a path as text or pathlib.Path, or None, not 3 (int)"),
        ({"faults": 3}, "faults must be a list of texts, not 3 (int)"),
        ({"faults": [3]}, "faults must be a list of texts, not a list"),
        ({"params": [1]}, "params must be a mapping of names to JSON values, or None, not a list"),
    ],
)
def test_what_a_test_replays_with_is_checked(place: Path, named: dict[str, Any], message: str) -> None:
    (place / "open").touch()
    interlock.run(place / "flow.md", project=place)
    with pytest.raises(UsageError) as caught:
        replay_recording((place, "last"), place, **named)
    assert (caught.value.code, caught.value.message) == ("wrong-argument", message)
