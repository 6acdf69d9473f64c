"""The status of a run as a person reads it: where it stands, why, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interlock.cli.census_text import census_text, ending
from interlock.cli.marks import mark
from interlock.cli.merge_text import not_merged
from interlock.cli.next_text import next_lines
from interlock.cli.output import say, style
from interlock.cli.text import clip, compact, count, duration, local_time, safe, size
from interlock.cli.usage_text import view_usage_text
from interlock.model.run import Lease
from interlock.model.states import RUN_ENDED, RunState, StepState
from interlock.store.base import ApprovalRow, RunRow, StepRow
from interlock.views.advice import Next
from interlock.views.facts import PlanFacts
from interlock.views.status import RunRows

_LABEL_WIDTH = 9
_NOTE_CHARACTERS = 300
_MOST_UNITS = 5
_MOST_CHILDREN = 5


def show_status(rows: RunRows, view: Mapping[str, Any], commands: Sequence[Next], *, live: bool) -> None:
    """Write the whole picture."""
    run = rows.run
    colour = mark(run.state).colour
    say(f"{style(run.id, bold=True)}  {safe(run.workflow)}")
    state = ending(run.state, run.outcome, run.reason, stopping=rows.stopping)
    _field("state", style(state, fg=colour, bold=True))
    for line in run.detail.splitlines():
        _field("", safe(line))
    # what a live driver has spent so far is journaled when it leaves
    driven = f", driven for {duration(run.driven_ms)}" if run.driven_ms else ""
    _field("started", local_time(run.created_at) + driven)
    if run.ended_at is not None:
        _field("ended", local_time(run.ended_at))
    if run.wait_until is not None and run.state == RunState.WAITING:
        _field("until", local_time(run.wait_until))
    _field("driver", _driver(rows.lease, run, live=live))
    if view["run"]["params"]:
        _field("params", ", ".join(f"{name}={compact(given)}" for name, given in view["run"]["params"].items()))
    if run.parent is not None:
        _field("parent", f"{run.parent}, unit {safe(run.parent_unit or '')}")
    if run.forked_from is not None:
        _field("from", f"a fork of {run.forked_from}, {view['census']['reused']:,} of its units reused")
    _field("units", census_text(view["census"]))
    used = view_usage_text(view["usage"])
    if used:
        _field("used", used)
    if view["divergence"]:
        units = ", ".join(view["divergence"][:_MOST_UNITS])
        _field(
            "differs",
            f"{count(len(view['divergence']), 'unit')} got another input than the plan gives now: {safe(units)}",
        )
    say()
    for line in step_lines(rows, view["steps"]):
        say(line)
    for number, line in enumerate(next_lines(commands, "next: ")):
        say(line if number else f"\n{line}")


def _field(label: str, text: str) -> None:
    say(f"{label:<{_LABEL_WIDTH}}{text}")


def _driver(lease: Lease | None, run: RunRow, *, live: bool) -> str:
    if lease is None:
        return "none"
    who = f"pid {lease.pid} on {safe(lease.host)}, since {local_time(lease.since_ms)}"
    if lease.released:
        return "none"
    if live:
        return who
    return f"gone ({who})" if run.state == RunState.ACTIVE else "none"


def step_lines(rows: RunRows, views: list[Mapping[str, Any]]) -> Iterator[str]:
    """One line a step; below it its feedback where it didn't pass, and the last that a person said of it."""
    width = max((len(view["id"]) for view in views), default=0)
    for row, view in zip(rows.steps, views, strict=True):
        sign = mark(view["state"])
        reason = f" ({view['reason']})" if view["reason"] else ""
        # a step that went on without some of its units is no plain success
        short = row.state == StepState.COMPLETED and view["census"]["failed"]
        head = (
            f"{style(sign.sign, fg='yellow' if short else sign.colour)} {view['id']:<{width}}  {view['state']}{reason}"
        )
        yield f"{head}{_about(row, view, rows.facts)}".rstrip()
        yield from _children(rows, row)
        if view["feedback"] and view["state"] in {"failed", "blocked", "waiting"}:
            yield from (f"    {safe(line)}" for line in view["feedback"].splitlines())
        said = [entry for entry in rows.approvals if entry.step == row.step]
        if said:
            yield f"    {_said(said[-1])}"


def _children(rows: RunRows, step: StepRow) -> Iterator[str]:
    """The child runs of a step of which something is missing, and the one of a step that has but one."""
    own = [child for child in rows.children if (child.parent_unit or "").rpartition(":")[0] == step.id]
    told = own if len(own) == 1 else [child for child in own if child.outcome != "ok"]
    for child in told[:_MOST_CHILDREN]:
        stopping = rows.stopping and child.state not in RUN_ENDED
        state = ending(child.state, child.outcome, child.reason, stopping=stopping)
        unit = "" if (child.parent_unit or "").endswith(":solo") else f"  {safe(child.parent_unit or '')}"
        yield f"    run {child.id}  {style(state, fg=mark(child.state).colour)}{unit}"
    if len(told) > _MOST_CHILDREN:
        yield f"    and {len(told) - _MOST_CHILDREN:,} more"


def _said(entry: ApprovalRow) -> str:
    verdict = "rejected" if entry.verdict == "reject" else "overruled" if entry.override else "approved"
    note = f": {clip(safe(entry.note), _NOTE_CHARACTERS)}" if entry.note else ""
    return f"{verdict} by {safe(entry.made_by)} at {local_time(entry.at)}{note}"


def _about(row: StepRow, view: Mapping[str, Any], facts: PlanFacts) -> str:
    census = view["census"]
    parts: list[str] = []
    if row.route:
        parts.append("-> " + ", ".join(row.route))
    if census["units"] > 1 or (census["failed"] and row.state == StepState.COMPLETED):
        parts.append(f"{count(census['units'], 'unit')}: {census_text(census)}")
    if row.round > 1:
        parts.append(f"round {row.round}")
    if row.loop > 1:
        parts.append(f"loop {row.loop}")
    if row.artifact_size is not None and row.artifact is None:
        parts.append(f"artifact of {size(row.artifact_size)}")
    elif row.artifact is not None and not row.route:
        if left := not_merged(row, facts):
            parts.append(left)
        parts.append(clip(compact(view["artifact"]), 50))
    return "  " + "; ".join(parts) if parts else ""
