"""Draws docs/states.md from the tables in `interlock/model/states.py`; `--check` tells whether it is fresh.

Guarantee: the page says nothing that the tables don't: every state, every move and every ending comes from them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from interlock.model import states

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "states.md"

HEAD = """\
# The four lives

Every run, step, unit and attempt is in exactly one state. The moves below are the only ones there are: they stand in
tables ([`model/states.py`](../src/interlock/model/states.py)) from which the journal refuses every other move of a run,
step and unit, to which tests hold whatever is decided in runs made at random, and from which `tools/draw_states.py` draws
this page. A test fails when it is not fresh. A gate has no life of its own: its step is `gating`, and its checks, judges
and approvals are units.

A thick border marks an end. `resume` reopens some ends; those moves are drawn as well.
"""


def drawing(moves: dict[StrEnum, frozenset[StrEnum]], ended: frozenset[StrEnum]) -> Iterator[str]:
    """Yield the lines of one Mermaid state diagram."""
    order = list(moves)
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {order[0]}"
    for state in order:
        for target in sorted(moves[state], key=order.index):
            yield f"    {state} --> {target}"
    yield "    classDef ended stroke-width:4px"
    for state in order:
        if state in ended:
            yield f"    class {state} ended"
    yield "```"


def table(moves: dict[StrEnum, frozenset[StrEnum]], ended: frozenset[StrEnum]) -> Iterator[str]:
    """Yield the same moves as a table, for readers without a drawing."""
    order = list(moves)
    yield "| state | may become | an end |"
    yield "| --- | --- | --- |"
    for state in order:
        targets = ", ".join(f"`{t}`" for t in sorted(moves[state], key=order.index)) or "-"
        yield f"| `{state}` | {targets} | {'yes' if state in ended else 'no'} |"


def life(name: str, intro: str, moves: object, ended: object) -> str:
    """Return one section. `moves` and `ended` are one of the tables of `model/states.py`."""
    assert isinstance(moves, dict)  # noqa: S101 - narrows the four differently typed tables to one shape
    assert isinstance(ended, frozenset)  # noqa: S101 - as above
    return "\n".join([f"## {name}", "", intro, "", *drawing(moves, ended), "", *table(moves, ended), ""])


def page() -> str:
    """Return the whole page."""
    sections = [
        life(
            "Run",
            "One execution of a plan. Its state is derived from its steps.",
            states.RUN_MOVES,
            states.RUN_ENDED,
        ),
        life(
            "Step",
            "One entry of `steps:`. It completes only through its gate.",
            states.STEP_MOVES,
            states.STEP_ENDED,
        ),
        life(
            "Unit",
            "One piece of work of a step. `unknown`: an external effect that may or may not have happened.",
            states.UNIT_MOVES,
            states.UNIT_ENDED,
        ),
        life(
            "Attempt",
            "One dispatch of a unit. Its row is written before the work starts. `lost`: its driver died.",
            states.ATTEMPT_MOVES,
            states.ATTEMPT_ENDED,
        ),
        failures(),
    ]
    return "\n".join([HEAD, *sections])


def failures() -> str:
    """Return the section on reasons."""
    lines = [
        "## Reasons",
        "",
        "Why an attempt or a unit failed. A step says the same as its units, or `route_failed`, `vote_failed`, `rejected` or",
        "`not_merged` where their results came to nothing.",
        "",
    ]
    lines += ["| reason | `retry.on` may name it | `on_error: continue` covers it |", "| --- | --- | --- |"]
    for reason in states.Reason:
        retry = "no" if reason in states.NOT_RETRYABLE else "yes"
        cover = "no" if reason in states.NEVER_CONTINUED else "yes"
        lines.append(f"| `{reason}` | {retry} | {cover} |")
    return "\n".join([*lines, ""])


def main(arguments: list[str]) -> int:
    """Write the page, or with --check compare it."""
    fresh = page()
    if arguments == ["--check"]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == fresh:
            return 0
        print("docs/states.md is not fresh: run tools/draw_states.py", file=sys.stderr)
        return 1
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
