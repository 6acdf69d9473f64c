"""Estimates in words, and the question before a run that may cost more than was said."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from interlock.cli.estimate_text import estimate_lines, range_text
from interlock.cli.options import Money
from interlock.cli.usage_text import money, usage_text
from interlock.decide.estimate import Estimate, Span, StepEstimate

Interlock = Callable[..., "subprocess.CompletedProcess[str]"]
PROGRAM = [sys.executable, "-c", "from interlock.cli.entry import main; main()"]


@pytest.mark.parametrize(("usd", "said"), [(0, "$0.00"), (0.00421, "$0.0042"), (0.42, "$0.42"), (1234.5, "$1,234.50")])
def test_money_is_spelled_to_the_cent_and_below_it_where_it_is_less(usd: float, said: str) -> None:
    assert money(usd) == said


@pytest.mark.parametrize(
    ("tokens", "cost", "estimated", "unpriced", "said"),
    [
        (0, 0.0, 0, 0, ""),
        (1, 0.5, 0, 0, "1 token, $0.50"),
        (
            12_345,
            0.42,
            2_000,
            3,
            "12,345 tokens (2,000 of them estimated), at least $0.42 (the cost of 3 answers is unknown)",
        ),
        (10, 0.0, 0, 1, "10 tokens, cost unknown"),
        (10, None, 0, 1, "10 tokens, cost unknown"),
        (0, 0.0, 0, 2, "0 tokens, cost unknown"),
    ],
)
def test_what_was_used_never_shows_unknown_as_nothing(
    tokens: int, cost: float | None, estimated: int, unpriced: int, said: str
) -> None:
    assert usage_text(tokens, cost, estimated=estimated, unpriced=unpriced) == said


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (Span(3, 3, 3), "3"),
        (Span(3, 3, 6), "3 to 6"),
        (Span(3, 4, 6), "3 to 6, about 4"),
        (Span(3, None, 6), "3 to 6"),
        (Span(0, 4, None), "about 4 or more"),
        (Span(3, None, None), "3 or more"),
        (Span(0, None, None), "unknown"),
    ],
)
def test_a_range_says_what_is_known_of_it(span: Span, said: str) -> None:
    assert range_text(span, lambda number: f"{number:g}") == said


def test_an_estimate_is_told_by_step_judge_and_in_all() -> None:
    work = StepEstimate(
        id="draft",
        part="work",
        engine="coder",
        model="big-1",
        calls=Span(1, 1, 3),
        tokens=Span(900, 1_000, 4_000),
        cost_usd=Span(0.01, 0.02, 0.09),
    )
    judge = StepEstimate(
        id="draft",
        part="judge",
        engine="fast",
        model=None,
        calls=Span(1, 1, 1),
        tokens=Span(0, 20_000, None),
        cost_usd=Span(0, None, None),
    )
    whole = Estimate(
        steps=(work, judge),
        tokens=Span(900, 21_000, None),
        cost_usd=Span(0.01, None, None),
        unknowns=("what a call of engine 'fast' costs is not known",),
    )
    assert list(estimate_lines(whole)) == [
        "estimate:",
        "  draft          coder (big-1): 1 to 3 calls, 900 to 4,000, about 1,000 tokens, $0.01 to $0.09, about $0.02",
        "  draft (judge)  fast: 1 call, about 20,000 or more tokens, cost unknown",
        "  in all         about 21,000 or more tokens, $0.01 or more",
        "  note: what a call of engine 'fast' costs is not known",
    ]
    assert list(estimate_lines(Estimate(steps=(), tokens=Span(0, 0, 0), cost_usd=Span(0, 0, 0), unknowns=()))) == []


@pytest.mark.parametrize(
    ("text", "usd"), [("5usd", 5.0), ("0.50usd", 0.5), ("$5", 5.0), (" 5 USD ", 5.0), ("$0.25", 0.25)]
)
def test_a_sum_names_its_currency(text: str, usd: float) -> None:
    assert Money().convert(text, None, None) == usd


@pytest.mark.parametrize("text", ["5", "5eur", "-5usd", "usd", "", "infusd", "$", "1e3usd", "$5usd"])
def test_what_is_no_sum_in_dollars_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is no sum of money; write 5usd or 0\.50usd"):
        Money().convert(text, None, None)


@pytest.fixture
def costly(tmp_path: Path) -> Path:
    """A workflow that asks an engine of which nobody knows the price, after a step that leaves a mark."""
    (tmp_path / "interlock.toml").write_text(
        '[run]\nengine = "mine"\n[engines.mine]\nkind = "agent"\nagent = "command"\ncommand = ["cat"]\n',
        encoding="utf-8",
    )
    path = tmp_path / "costly.md"
    path.write_text(
        "---\nsteps:\n  - { id: mark, run: touch begun }\n  - { id: ask, gate: { approval: true } }\n---\n## ask\nWhat?\n",
        encoding="utf-8",
    )
    return path


def test_plan_ends_with_the_estimate(costly: Path, interlock: Interlock) -> None:
    done = interlock("plan", costly.name, cwd=costly.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.partition("estimate:\n")[2].splitlines()[0] == (
        "  ask     mine: 1 call, about 20,000 or more tokens, cost unknown"
    )
    view = json.loads(interlock("plan", costly.name, "--json", cwd=costly.parent).stdout)
    assert view["estimate"]["cost_usd"] == {"lower": 0, "typical": None, "upper": None}


def test_without_a_terminal_a_cost_that_nobody_knows_is_refused(costly: Path, interlock: Interlock) -> None:
    done = interlock("run", costly.name, "--confirm-over", "5usd", cwd=costly.parent)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("estimate:\n")
    assert done.stderr.endswith(
        "error: not started: what it may cost is not known, and there is no terminal to ask at\n"
        "hint: start it from a terminal, where you are asked\n"
    )
    assert not (costly.parent / "begun").exists()
    assert interlock("list", cwd=costly.parent).stdout.startswith("no runs")


def test_a_run_that_asks_no_engine_costs_nothing_and_starts(tmp_path: Path, interlock: Interlock) -> None:
    (tmp_path / "free.md").write_text("---\nsteps:\n  - { id: one, run: echo hi }\n---\n", encoding="utf-8")
    done = interlock("run", "free.md", "--confirm-over", "0usd", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    again = interlock("run", "last", "--confirm-over", "0usd", cwd=tmp_path)
    assert again.returncode == 0


def test_at_a_terminal_a_person_is_asked_and_no_is_no(costly: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*PROGRAM, "run", costly.name, "--confirm-over", "5usd"],
            cwd=costly.parent,
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
        )
        os.close(theirs)
        os.write(ours, b"n\n")
        told = _read_all(ours)
        assert process.wait(timeout=60) == 2
    finally:
        os.close(ours)
    assert "what it may cost is not known. Start it? [y/N]" in told
    assert "not started, as you said" in told
    assert not (costly.parent / "begun").exists()


def _read_all(descriptor: int) -> str:
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(descriptor, 4096)
        except OSError:
            # a terminal whose other end is closed
            part = b""
        if not part:
            return b"".join(parts).decode()
        parts.append(part)


def test_an_engine_that_answered_and_told_no_tokens_is_not_said_to_be_unseen(
    tmp_path: Path, interlock: Interlock
) -> None:
    (tmp_path / "interlock.toml").write_text(
        '[engines.mine]\nkind = "agent"\nagent = "command"\ncommand = ["echo", "yes"]\n', encoding="utf-8"
    )
    (tmp_path / "flow.md").write_text("---\nsteps: [{ id: a, engine: mine }]\n---\n## a\nSay yes.\n", encoding="utf-8")
    assert interlock("run", "flow.md", cwd=tmp_path).returncode == 0
    told = interlock("plan", "flow.md", cwd=tmp_path).stdout
    assert "note: no call of engine 'mine' has told its tokens here: 20,000 tokens a call are assumed" in told


def test_a_cost_that_an_engine_tells_without_tokens_is_known_to_the_next_estimate(
    tmp_path: Path, interlock: Interlock
) -> None:
    answer = json.dumps({"text": "yes", "usage": {"cost_usd": 0.25}})
    (tmp_path / "interlock.toml").write_text(
        '[engines.mine]\nkind = "agent"\nagent = "command"\noutput = "json"\n'
        f"command = {json.dumps(['echo', answer])}\n",
        encoding="utf-8",
    )
    (tmp_path / "flow.md").write_text("---\nsteps: [{ id: a, engine: mine }]\n---\n## a\nSay yes.\n", encoding="utf-8")
    done = interlock("run", "flow.md", cwd=tmp_path)
    assert "  20,000 tokens (20,000 of them estimated), $0.25\n" in done.stdout
    told = interlock("plan", "flow.md", cwd=tmp_path).stdout
    assert "mine: 1 call, about 20,000 or more tokens, $0.25\n" in told
    assert "costs is not known" not in told
