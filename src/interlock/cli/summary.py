"""How a run ended: the honest count, what failed first, the last artifact, and what to type next."""

from __future__ import annotations

from typing import Final

from interlock.app import App
from interlock.cli.called import spelled
from interlock.cli.census_text import census_text, ending
from interlock.cli.marks import mark
from interlock.cli.merge_text import not_merged
from interlock.cli.next_text import next_lines
from interlock.cli.output import say, style
from interlock.cli.reading import read_failures, read_next, read_run
from interlock.cli.text import clip, count, duration, local_time, safe, safe_lines, size
from interlock.cli.usage_text import view_usage_text
from interlock.driver.result import Result
from interlock.model.states import RunState, StepState
from interlock.store.base import Store
from interlock.views.status import RunRows, status_view
from interlock.views.values import value

_MOST_FAILURES: Final = 5
_ARTIFACT_CHARACTERS: Final = 4_000
_ARTIFACT_BYTES: Final = 65_536


def show_summary(app: App, result: Result) -> None:
    """Write the summary of a drive that ended."""
    store = app.store
    rows = read_run(store, result.run_id)
    run = rows.run
    if run.state == RunState.ACTIVE and result.exit_code == 0:
        say(safe(result.detail))
        return
    view = status_view(rows)
    how = style(ending(run.state, run.outcome, run.reason), fg=mark(run.state).colour, bold=True)
    interrupted = ", interrupted" if run.state == RunState.ACTIVE and run.reason != "interrupted" else ""
    say(f"run {style(run.id, bold=True)} {how}{interrupted} after {duration(run.driven_ms)}")
    say(f"  {count(view['census']['units'], 'unit')}: {census_text(view['census'])}")
    used = view_usage_text(view["usage"])
    if used:
        say(f"  {used}")
    if run.state != RunState.COMPLETED:
        _detail(run.detail or result.detail)
    if run.state == RunState.WAITING and run.wait_until is not None:
        say(f"  due {local_time(run.wait_until)}")
    _failures(store, rows)
    _degraded(rows)
    _not_merged(rows)
    if run.state == RunState.COMPLETED:
        _artifact(store, rows)
    for line in next_lines(read_next(app, rows), "  next: "):
        say(line)


def _detail(detail: str) -> None:
    for line in detail.splitlines():
        say(f"  {safe(line)}")


def _failures(store: Store, rows: RunRows) -> None:
    failed = sum(census.by_state.get("failed", 0) for census in rows.census)
    if not failed:
        return
    for unit in read_failures(store, rows.run.id, _MOST_FAILURES):
        # the run's own line tells of its first failure
        error = f": {clip(safe(unit.error), 200)}" if unit.error and unit.error not in rows.run.detail else ""
        say(f"  failed: {safe(unit.id)} ({unit.reason}){error}")
    if failed > _MOST_FAILURES:
        say(f"  and {failed - _MOST_FAILURES:,} more")


def _degraded(rows: RunRows) -> None:
    found = [row for row in rows.children if row.outcome == "degraded"]
    for row in found[:_MOST_FAILURES]:
        say(f"  degraded: {safe(row.parent_unit or '')}: run {row.id}")
    if len(found) > _MOST_FAILURES:
        say(f"  and {len(found) - _MOST_FAILURES:,} more")


def _not_merged(rows: RunRows) -> None:
    for step in rows.steps:
        if left := not_merged(step, rows.facts):
            see = spelled(f"interlock status {rows.run.id} --artifact {step.id}")
            say(f"  {step.id}: {left}; see `{see}`")


def _artifact(store: Store, rows: RunRows) -> None:
    """Show the artifact of the last step that has one: text as it is, anything else as JSON."""
    done = [step for step in rows.steps if step.state == StepState.COMPLETED and step.artifact_hash and not step.route]
    if not done:
        return
    last = done[-1]
    if last.artifact is None and (last.artifact_size or 0) > _ARTIFACT_BYTES:
        see = spelled(f"interlock status {rows.run.id} --artifact {last.id}")
        say(f"  {last.id}: {size(last.artifact_size or 0)}; see `{see}`")
        return
    given = store.artifact(rows.run.id, last.step)
    if given is None or given == b"null":
        return
    decoded = value(given)
    text = safe_lines(decoded if isinstance(decoded, str) else given.decode("utf-8", "replace"))
    shown = clip(text, _ARTIFACT_CHARACTERS)
    say(f"  {last.id}: {shown}" if "\n" not in shown else f"  {last.id}:\n{shown}")
