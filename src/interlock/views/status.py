"""`status RUN --json`, and the last line of `run --json`: one object that tells the whole story of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from interlock.errors import JournalCorruptError
from interlock.model.events import DIVERGENCE
from interlock.model.run import Lease
from interlock.model.states import RunState, StepState, UnitState
from interlock.store.attempt_rows import Spent
from interlock.store.base import ApprovalRow, Census, RunRow, StepRow
from interlock.views.census import step_censuses, total
from interlock.views.facts import PlanFacts
from interlock.views.runs import run_view
from interlock.views.values import SCHEMA, value

_MOST_CHILDREN: Final = 100


class RunRows(msgspec.Struct, frozen=True, kw_only=True):
    """All rows that `status` is made of; no unit among them, so its size does not grow with the run's."""

    run: RunRow
    lease: Lease | None
    facts: PlanFacts
    steps: Sequence[StepRow]
    census: Sequence[Census]
    spent: Spent
    approvals: Sequence[ApprovalRow] = ()
    children: Sequence[RunRow] = ()
    notices: frozenset[str] = frozenset()
    stopping: bool = False
    """Its driver was asked to abandon it and has not yet."""
    hide: Callable[[bytes], bytes] = bytes
    """Takes what looks like a secret out of a JSON text."""


Preview = str | JournalCorruptError | None
"""How an artifact begins, or why that cannot be told."""


def artifact_view(step: StepRow, preview: Preview = None) -> Any:  # noqa: ANN401 - any JSON value
    """The artifact itself where it is small, else its hash, its size and how it begins, or what is wrong with it."""
    if step.artifact is None and step.artifact_size is not None:
        view = {"hash": step.artifact_hash, "size": step.artifact_size}
        if isinstance(preview, JournalCorruptError):
            return {**view, "preview": None, "error": f"{preview.message}; {preview.hint}"}
        return {**view, "preview": preview}
    return value(step.artifact)


def _feedback(step: StepRow, *, unknown: bool) -> str | None:
    """Why the step is where it is; what was answered in a run that failed is not asked for any more."""
    if step.reason == "effect_unknown" and step.state == StepState.BLOCKED and not unknown:
        return "answered; it goes on when the run is reopened"
    return step.detail or None


def _step_view(step: StepRow, census: dict[str, Any], preview: Preview, *, unknown: bool) -> dict[str, Any]:
    return {
        "id": step.id,
        "state": step.state,
        "loop": step.loop,
        "artifact": artifact_view(step, preview),
        "reason": step.reason,
        "feedback": _feedback(step, unknown=unknown),
        "census": census,
    }


def status_view(rows: RunRows, previews: Mapping[int, Preview] | None = None) -> dict[str, Any]:
    """The status object. `previews` are the beginnings of artifacts that lie in files, by step index."""
    censuses = step_censuses(rows.run.state, rows.steps, rows.census, rows.facts)
    previews = previews or {}
    unknown = {counted.step for counted in rows.census if counted.by_state.get(UnitState.UNKNOWN)}
    return {
        "schema": SCHEMA,
        "run": run_view(rows.run, rows.lease, rows.facts, rows.hide, stopping=rows.stopping),
        "stopping": rows.stopping,
        "steps": [
            _step_view(step, census, previews.get(step.step), unknown=step.step in unknown)
            for step, census in zip(rows.steps, censuses, strict=True)
        ],
        "census": total(censuses),
        "children": children_view(rows.children),
        "usage": usage_view(rows.spent, rows.run.driven_ms),
        "divergence": divergence_view(rows.notices),
    }


def children_view(children: Sequence[RunRow]) -> dict[str, Any]:
    """The run's own child runs: how many in each state, and those of which something is missing, as far as they are few."""
    degraded = [row for row in children if row.outcome == "degraded"]
    open_ones = [row for row in children if row.state != RunState.COMPLETED]
    return {
        "census": dict(sorted(Counter(row.state for row in children).items())),
        "not_completed": [
            {"id": row.id, "unit": row.parent_unit, "state": row.state, "reason": row.reason}
            for row in open_ones[:_MOST_CHILDREN]
        ],
        "degraded": [{"id": row.id, "unit": row.parent_unit} for row in degraded[:_MOST_CHILDREN]],
    }


def divergence_view(notices: Iterable[str]) -> list[str]:
    """Ids of units whose recorded input is not what the plan gives now; their completed results stand."""
    return sorted(code.removeprefix(DIVERGENCE) for code in notices if code.startswith(DIVERGENCE))


def usage_view(spent: Spent, driven_ms: int) -> dict[str, Any]:
    """What the run used. `cost_usd` is null when no cost is known, else a lower bound where `unpriced` isn't 0."""
    return {
        "units": spent.units,
        "tokens": spent.tokens,
        "cost_usd": None if spent.unpriced and not spent.cost_usd else spent.cost_usd,
        "duration_ms": driven_ms,
        "tokens_estimated": spent.estimated,
        "unpriced": spent.unpriced,
        "corrected": spent.corrected,
        "placeholders": spent.placeholders,
    }
